"""The model of one OUT: what it may hold of each video after whatever has happened, and which work must not be redone.

A run that ends leaves of each video the version of the source as it is now; of a video that is gone, the one that OUT
had. Until a run ends, OUT may hold either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from assets_fresh_runs import Stored, Version, fresh, run_state_of
from assets_tiny_source import NAMES, ORIGINALS, TinySource
from facefeed.pipeline.dataset.manifest import InputOutcome
from facefeed.pipeline.planning.run_state import RunState

Held = Version | Literal["unreadable"] | None
"""What OUT holds of a video: what a version gives, a failure because the file was not there, or nothing yet."""

Times = dict[Path, tuple[int, int]]
"""Identity and time of files: what was written again has other ones."""


class OutModel:
    """`may_hold`: of each video, what OUT may hold.

    `absent`: videos that were not there in some run, and that nothing has changed since: if that made them fail, they
    fail until they are retried. `unsure`: what OUT may hold besides after a run in which the source has changed.
    """

    def __init__(self, source: TinySource) -> None:
        self.source, self.setting = source, "usual"
        self.absent: set[str] = set()
        self.unsure: Mapping[str, set[Held]] = {}
        self.start_anew("usual")

    def start_anew(self, setting: str) -> None:
        """A new OUT."""
        self.setting = setting
        self.may_hold: dict[str, set[Held]] = {name: {None} for name in NAMES}
        self.absent.clear()

    def target(self, name: str) -> Version:
        """What OUT is to hold of a present video."""
        original = ORIGINALS.get(name)
        return Version(self.source.contents[name], self.source.contents.get(original) if original else None)

    def begin_run(self) -> None:
        """A run begins: however it ends, OUT may hold what it was to compute."""
        self.absent |= {name for name in NAMES if name not in self.source.contents}
        for name in self.source.contents:
            self.may_hold[name].add(self.target(name))

    def allowed(self, name: str, outcomes: Mapping[str, InputOutcome], *, retry: bool) -> set[Held]:
        """What OUT may hold once a run has ended; `outcomes`: those that it found."""
        may_hold = self.may_hold[name]
        if name not in self.source.contents:
            is_retried = retry and name in outcomes and outcomes[name].outcome == "failed"
            allowed = {*may_hold}
            if is_retried or None in may_hold:
                allowed.add("unreadable")
        else:
            target = self.target(name)
            allowed = {target}
            if name in ORIGINALS and target.original is None:  # it keeps the masks that it was given
                allowed |= {held for held in may_hold if isinstance(held, Version) and held.content == target.content}
            has_failed = "unreadable" in may_hold or (name in outcomes and outcomes[name].reason == "unreadable")
            if has_failed and name in self.absent and not retry:
                allowed.add("unreadable")
        return allowed | self.unsure.get(name, set())

    def is_held(self, name: str, held: Held, stored: Stored | None) -> bool:
        """Whether what is stored of a video is what it says."""
        if held is None or stored is None:
            return held is None and stored is None
        if held == "unreadable":
            return stored == Stored("failed", "unreadable", None)
        return stored == fresh(self.setting, name, held)

    def is_one_of(self, stored: Mapping[str, Stored], states: Iterable[Mapping[str, set[Held]]]) -> bool:
        """Whether OUT holds one of these states: of every video one of its versions."""
        return any(
            all(any(self.is_held(name, held, stored.get(name)) for held in state[name]) for name in NAMES)
            for state in states
        )

    def end_run(self, stored: Mapping[str, Stored], outcomes: Mapping[str, InputOutcome], *, retry: bool) -> None:
        """Fails where OUT does not hold what it must of a video; from here on, what it holds is known."""
        for name in NAMES:
            allowed = self.allowed(name, outcomes, retry=retry)
            matching = {held for held in allowed if self.is_held(name, held, stored.get(name))}
            assert matching, f"{name}: OUT holds {stored.get(name)}, may hold {allowed}"
            self.may_hold[name] = matching
        self.absent -= {name for name in self.source.contents if "unreadable" not in self.may_hold[name]}

    # --- what must not be done again

    def settled_files(self, out: Path, *, retry: bool) -> Times:
        """Files and receipts of finished units of which no video has changed, nor an original of one."""
        if (run_state := run_state_of(out)) is None:
            return {}
        outcomes, settled = outcomes_of(run_state), list[Path]()
        for planned, unit, receipt in run_state.finished_units():
            owned = run_state.owned_videos(planned)
            if owned and all(self._is_settled(name, outcomes, retry=retry) for name in owned):
                paths = [run_state.paths.receipt(unit.unit_id)]
                settled += [*paths, out / receipt.file] if receipt.file else paths
        return times_of(settled)

    def _is_settled(self, name: str, outcomes: Mapping[str, InputOutcome], *, retry: bool) -> bool:
        if name not in outcomes or outcomes[name].absent or (retry and outcomes[name].outcome == "failed"):
            return False
        content, original = self.source.contents.get(name), ORIGINALS.get(name)
        if content is None:  # its rows are copied where its original is done again
            return original not in self.source.contents or self._is_settled(original, outcomes, retry=retry)
        if original in self.source.contents:
            originals = {held.original for held in self.may_hold[name] if isinstance(held, Version)}
            same_original = originals == {self.source.contents[original]}
            if not (same_original and self._is_settled(original, outcomes, retry=retry)):
                return False
        as_computed = outcomes[name].size_bytes, outcomes[name].sha256
        data = self.source.bytes_of(name, content)
        return as_computed == (len(data), hashlib.sha256(data).hexdigest())


def outcomes_of(run_state: RunState | None) -> dict[str, InputOutcome]:
    """The outcome of each video that is finished, by its name."""
    return {outcome.video_id: outcome for _, outcome in run_state.outcomes()} if run_state is not None else {}


def times_of(paths: Iterable[Path]) -> Times:
    """Of each of the files that is there."""
    stats = {path: path.stat() for path in paths if path.exists()}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in stats.items()}


def snapshot(out: Path) -> Times:
    """Of all files of OUT but the lease, in which a heartbeat is seen."""
    return times_of(path for path in out.rglob("*") if path.is_file() and path.name != "driver.lease")
