"""Damages one file of a sound OUT, expects `verify` to find it, and does what its findings advise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pyarrow as pa
from assets_fresh_runs import run_state_of
from assets_one_out import TALLY, OneOut
from assets_out_model import times_of
from assets_sound_out import is_of_unfinished_set
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.errors import StoppedError
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.findings import Finding
from facefeed.pipeline.verify.rebuild import rebuild_index_file

Damage = Literal["cut", "flip", "delete"]

_PATTERNS: Mapping[str, str] = {
    "rows": "faces/*/*.parquet", "receipt": "receipts/*.json", "index": "index.arrow", "manifest": "manifest.json",
    "plan": "plan/*.json", "columns": "columns/*/*.parquet", "columns' receipt": "columns/*/_receipts/*.json",
    "columns' record": "columns/*/_set.json",
}  # fmt: skip
FILES = tuple(_PATTERNS)
_ROUNDS = 4
"""How often findings are acted on: what one round brings back may show what it hid."""


def damage(one_out: OneOut, what: str, which: int, how: Damage, at: float) -> None:
    """Damages file `which` of a kind: cuts it off at the share `at`, changes the byte there, or deletes it.

    A changed byte of a JSON file may be one that says nothing, such as that of a time: those are cut instead.
    """
    files = sorted(one_out.out.glob(_PATTERNS[what]))
    if not files:
        return
    path = files[which % len(files)]
    how = "cut" if how == "flip" and path.suffix == ".json" else how
    data, index = path.read_bytes(), _read_index(one_out.out)
    backup = {part: part.read_bytes() for part in (one_out.out / "plan").iterdir()}
    is_of_split_unit = what == "receipt" and json.loads(data)["outcome"] == "split"
    is_unused = what == "receipt" and not is_of_split_unit and path.stem not in _finished_units(one_out.out)
    is_unknown = is_of_split_unit or one_out.has_new_times
    others = {
        each: time for each, time in one_out.model.settled_files(one_out.out, retry=False).items()
        if not is_unknown and (each.stem != path.stem or (what != "rows" and each.suffix == ".parquet"))
    }  # fmt: skip
    _expect_lost_rows(one_out, path.stem, what, all_units=is_of_split_unit)
    is_of_unindexed_set = what == "columns" and not Index(one_out.out).added
    _damage(path, data, how, at)
    result = verify(one_out.out)
    if not result.exit_code:
        assert (how, what) == ("flip", "index") or is_unused, f"{path.name}: {how} and not found"
        assert _read_index(one_out.out).equals(index), "a damaged index that verify approves of says something else"
        path.write_bytes(data)
        return
    for finding in result.findings:
        is_named = path.relative_to(one_out.out).as_posix() in finding.location
        assert is_named or finding.kind in _CONSEQUENCES[what] or is_of_unfinished_set(finding), finding
    TALLY[f"{what}: {how}"] += 1
    _follow_remedies(one_out, backup, may_stop=is_of_unindexed_set)
    assert not one_out.has_plan or times_of(others) == others, "what was not damaged was made anew"


_CONSEQUENCES: Mapping[str, set[str]] = {
    "rows": set(), "receipt": {"unknown-file"}, "index": set(), "manifest": {"manifest"},
    "plan": {"plan", "manifest", "receipt", "unknown-file", "index", "account", "columns"}, "columns": set(),
    "columns' receipt": {"columns"}, "columns' record": {"columns"},
}  # fmt: skip
"""Kinds of findings that need not name the damaged file."""


def _damage(path: Path, data: bytes, how: Damage, at: float) -> None:
    position = min(int(at * len(data)), len(data) - 1)
    if how == "delete":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[:position])
    else:
        path.write_bytes(data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])


def _finished_units(out: Path) -> set[str]:
    """Not among them: halves of a unit that was processed whole after the receipt of its split was lost."""
    run_state = run_state_of(out)
    assert run_state is not None
    return {unit.unit_id for _, unit, _ in run_state.finished_units()}


def _expect_lost_rows(one_out: OneOut, unit_id: str, what: str, *, all_units: bool) -> None:
    """Rows of a video that is gone cannot be computed again.

    Without its receipt a unit's file is adopted.
    """
    run_state = run_state_of(one_out.out)
    assert run_state is not None
    for _, unit, receipt in run_state.finished_units():
        adopts = what == "receipt" and receipt.file is not None
        is_lost = unit.unit_id == unit_id and what in ("rows", "receipt") and not adopts
        for entry in unit.inputs if is_lost or all_units else ():
            if entry.video_id not in one_out.source.contents:
                one_out.model.may_hold[entry.video_id].add("unreadable")


def _follow_remedies(one_out: OneOut, backup: Mapping[Path, bytes], *, may_stop: bool) -> None:
    """`may_stop`: whether a run may stop once, as it finds damage that `verify` does not look for."""
    for _ in range(_ROUNDS):
        result = verify(one_out.out)
        findings = [finding for finding in result.findings if not is_of_unfinished_set(finding)]
        if result.is_finished and not findings:
            break
        steps = dict.fromkeys(step for finding in findings for step in _steps(one_out.out, finding))
        for step in sorted(steps, key=lambda step: step[0] != "delete"):
            _do(one_out, *step, backup)
        if not result.is_finished:
            one_out.run()
    if may_stop:
        with suppress(StoppedError):
            one_out.run()
    one_out.run()  # also where the source has changed since: the next run ends as ever
    # Without faces: the last ones were lost, and their video is another by now. Without a plan: a video was moved to
    # another class, which is refused, and OUT started anew.
    assert one_out.is_sound or one_out.is_without_faces or not one_out.has_plan


def _steps(out: Path, finding: Finding) -> list[tuple[str, str]]:
    """What a finding advises, as (command, argument): the first of two alternatives."""
    advice = finding.remedy.split(", or `")[0]
    steps = []
    if advice.startswith("delete"):
        steps.append(("delete", finding.location.split(": ")[0]))
    if advice == "restore OUT/plan from a backup":
        steps.append(("restore", ""))
    for command in re.findall(r"`facefeed (.*?)`", advice.replace(str(out), "OUT")):
        verb, _, argument = command.partition(" OUT")
        steps.append((verb, argument.strip()))
    assert steps, f"no remedy: {finding}"
    return [*steps, ("add", "")] if advice.endswith("and add them again") else steps


def _do(one_out: OneOut, verb: str, argument: str, backup: Mapping[Path, bytes]) -> None:
    def delete() -> None:
        (one_out.out / argument).unlink(missing_ok=True)

    def restore() -> None:
        for path, data in backup.items():
            path.write_bytes(data)

    def rebuild() -> None:
        assert argument == "--rebuild-index"
        rebuild_index_file(one_out.out)

    one_out.is_sound = False  # what `add` and `remove` say of a damaged set is theirs
    actions: Mapping[str, Callable[[], object]] = {
        "delete": delete, "restore": restore, "precompute": one_out.run, "verify": rebuild, "add": one_out.add,
        "remove": one_out.remove,
    }  # fmt: skip
    actions[verb]()
    TALLY[f"remedy: {verb}"] += 1


def _read_index(out: Path) -> pa.Table:
    index = Index(out)
    return pa.Table.from_batches(index.batches(index.schema.names))
