"""`OneOut`: the commands that a user gives on one source and one OUT, each with what must be true after it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from copy import deepcopy

from assets_columns import FILE, Colour
from assets_fresh_runs import Stored, Version, read_stored, run_precompute, run_state_of
from assets_in_process import in_process, new_folder
from assets_killed import Killed, joined_at, killed_at
from assets_out_model import Held, OutModel, outcomes_of, snapshot, times_of
from assets_sound_out import COLUMNS, check_columns_are_complete, check_readers, check_sound, is_half_removed
from assets_tiny_source import ORIGINALS, TinySource
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.commit.publish import write_receipt
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.errors import FacefeedError, RefusedError, TooManyFailedError, UsageError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.planning.incremental import Changes
from facefeed.pipeline.planning.options import JobSpec
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.precompute import Summary
from facefeed.pipeline.verify.check import verify

AFTER_A_KILL = {"unknown-file", "columns"}
"""Findings that the next command resolves: superseded files that were not removed yet, unfinished added columns."""

TALLY: Counter[str] = Counter()
"""What has happened how often, in this process: a rule that never does anything is not in it."""

_Guard = AbstractContextManager[object]
_UNDISTURBED: _Guard = nullcontext()


def _error_of(command: Callable[[], object], guard: _Guard = _UNDISTURBED) -> FacefeedError | Killed | None:
    """What a command ends with; None where it does its work."""
    try:
        with guard:
            command()
    except (FacefeedError, Killed) as error:
        return error
    return None


class OneOut:
    """`is_sound`: whether the last run has ended, with a dataset. `is_without_faces`: it has, without a face."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        root = new_folder()
        self._stack.callback(shutil.rmtree, root)
        self.source, self.out, self._elsewhere = TinySource(root / "src"), root / "out", root / "elsewhere.mp4"
        self.model, self.is_sound, self.is_without_faces = OutModel(self.source), False, False
        self._meanwhile: Callable[[], object] = lambda: None  # between the plan and its units, or two of these
        self._meanwhile_at = 0
        self._loses_workers = False
        self._parts: tuple[str | None, ...] = (None,)
        self._seen: dict[str, int] = {}  # times of videos, when a run last ended
        self._compacted: dict[str, Stored] | None = None  # what OUT held when a compaction began that was killed
        self._stack.enter_context(in_process(self._process))

    def close(self) -> None:
        self._stack.close()

    @property
    def has_plan(self) -> bool:
        return (self.out / "plan/0.json").exists()

    @property
    def has_new_times(self) -> bool:
        """Whether a video has another time than when a run last ended."""
        return not self.source.times.items() <= self._seen.items()

    @property
    def has_columns(self) -> bool:
        return (self.out / COLUMNS).exists()

    @property
    def has_faces(self) -> bool:
        """Whether the next run finds a face."""
        return not {"one", "two", "long"}.isdisjoint(self.source.contents.values())

    def held(self, name: str) -> Stored:
        """What OUT holds of a video."""
        return read_stored(self.out)[name]

    # --- the source

    def put(self, name: str, content: str) -> None:
        self.source.put(name, content)
        self.model.absent.discard(name)

    def put_back(self, name: str) -> None:
        """A video that has gone, or was replaced, is there again; it fails still if it once was not there."""
        self.source.put_back(name)
        self.model.absent.add(name)

    def touch(self, name: str) -> None:
        self.source.touch(name)
        self.model.absent.discard(name)

    def rename(self, name: str, to: str) -> None:
        was_there = self.source.before.get(to)
        self.source.rename(name, to)
        if was_there != (self.source.contents[to], self.source.times[to]):  # else the same file is back
            self.model.absent.discard(to)

    # --- precompute

    def run(self, *, retry: bool = False, guard: _Guard = _UNDISTURBED) -> None:
        """One call; `guard`: may kill it, or give another command meanwhile."""
        settled, before = self.model.settled_files(self.out, retry=retry), snapshot(self.out)
        old, outcomes = deepcopy(self.model.may_hold), outcomes_of(run_state_of(self.out))
        times, had_dataset = {**self.source.times}, (self.out / "manifest.json").exists()
        self._seen = {name: time for name, time in self._seen.items() if times.get(name, time) == time}
        summaries: list[Summary] = []
        self.model.begin_run()
        self._compacted, self.is_without_faces = None, False
        error = _error_of(lambda: summaries.extend(self._runs("" if retry else None)), guard)
        assert times_of(settled) == settled, "finished work was lost, or done again"
        if error is None:
            TALLY["ended"] += 1
            TALLY["files that stayed"] += len(settled)
            self.model.end_run(read_stored(self.out), outcomes, retry=retry)
            self._check_what_was_compared(summaries[0].changes, times)
            self.is_sound = True
            check_sound(self.out, self.model)
            check_columns_are_complete(self.out)
        elif isinstance(error, Killed):
            TALLY["killed"] += 1
            self.is_sound = False
            self._check_killed(old, had_dataset=had_dataset)
        elif isinstance(error, TooManyFailedError):
            TALLY["ended without a face"] += 1
            self.is_sound, self.is_without_faces = False, True
            assert "no face" in str(error)
            result = verify(self.out)
            assert not result.is_finished or result.findings, "verify approves of a dataset without its faces"
        elif isinstance(error, RefusedError) and "renamed or moved" in str(error):
            TALLY["refused: moved to another class or split"] += 1
            self.start_anew(self.model.setting)  # which the message advises
        elif isinstance(error, UsageError) and not self.source.contents:
            TALLY["refused: an empty source"] += 1
            assert snapshot(self.out) == before, "a refused run has changed something"
        else:
            raise error

    def run_and_be_killed(self, at: int, *, on_other_host: bool) -> None:
        """A run that is killed at its change `at` of OUT; on another host, an hour ago."""
        self.run(guard=killed_at(self.out, at))
        lease = self.out / "driver.lease"
        if on_other_host and not self.is_sound and lease.exists() and (record := lease.read_text()):
            TALLY["killed on another host"] += 1
            lease.write_text(json.dumps({**json.loads(record), "host": "elsewhere"}))
            os.utime(lease, (time.time() - 3600,) * 2)

    def run_in_parts(self, parts: Sequence[str], kill_at: int | None) -> None:
        """A run as parts, one after the other; perhaps one of them is killed."""
        self._parts = tuple(parts)
        try:
            self.run(guard=_UNDISTURBED if kill_at is None else killed_at(self.out, kill_at))
        finally:
            self._parts = (None,)

    def run_losing_workers(self, kill_at: int | None) -> None:
        """A run whose units are split, as their workers seem to be lost; perhaps it is killed itself."""
        self._loses_workers = True
        try:
            self.run(guard=_UNDISTURBED if kill_at is None else killed_at(self.out, kill_at))
        finally:
            self._loses_workers = False

    def run_while_replaced(self, name: str, content: str, at: int = 0) -> None:
        """A run in which a video is replaced once `at` units are finished: rows are of either, until the next run."""
        outcomes = outcomes_of(run_state_of(self.out))
        unsure = {each: self.model.allowed(each, outcomes, retry=False) for each in _affected_by(name)}

        def replace() -> None:
            TALLY["replaced meanwhile"] += 1
            self.put(name, content)

        self._run_while(replace, unsure, at)

    def run_while_away(self, name: str) -> None:
        """A run after whose planning a video is not there, as where a network mount is lost; then it is back."""
        unsure: dict[str, set[Held]] = {each: {*self.model.may_hold[each]} for each in _affected_by(name)}
        unsure[name].add("unreadable")
        for fake in unsure.keys() & self.source.contents.keys() - {name}:
            unsure[fake].add(Version(self.source.contents[fake], None))

        def hide() -> None:
            TALLY["away meanwhile"] += 1
            shutil.move(self.source.folder / name, self._elsewhere)
            self.model.absent.add(name)

        try:
            self._run_while(hide, unsure)
        finally:
            if self._elsewhere.exists():
                shutil.move(self._elsewhere, self.source.folder / name)

    def _run_while(self, change: Callable[[], object], unsure: dict[str, set[Held]], at: int = 0) -> None:
        self._meanwhile, self._meanwhile_at, self.model.unsure = change, at, unsure
        try:
            self.run()
        finally:
            self._meanwhile, self.model.unsure = (lambda: None), {}

    def run_beside(self, command: str, at: int) -> None:
        """A run, and another command right before its change `at` of a file: refused, and without effect."""
        commands: dict[str, Callable[[], object]] = {
            "precompute": lambda: self._precompute(None),
            "add": self._add_columns,
            "remove": lambda: remove_columns(self.out, Colour.name),
            "compact": self._compact,
        }

        def be_refused() -> None:
            TALLY["refused beside a run"] += 1
            before = snapshot(self.out)
            error = _error_of(commands[command])
            assert isinstance(error, UsageError), f"a second command while a run was at work: {error}"
            texts = ("is working on it", "unfinished") if isinstance(error, RefusedError) else ("no finished dataset",)
            assert any(text in str(error) for text in texts), str(error)
            assert snapshot(self.out) == before, "a refused command has changed something"

        self.run(guard=joined_at(self.out, at, be_refused))

    def run_and_verify_meanwhile(self, at: int) -> None:
        """A run, and readers right before its change `at` of a file: they have a dataset, if there was one."""

        def read() -> None:
            if (self.out / "manifest.json").exists():
                TALLY["read beside a run"] += 1
                check_readers(self.out)
                kinds = {finding.kind for finding in verify(self.out).findings}
                assert kinds <= AFTER_A_KILL, kinds

        self.run(guard=joined_at(self.out, at, read))

    def refuse_other_setting(self, setting: str) -> None:
        TALLY["refused: other settings"] += 1
        before = snapshot(self.out)
        error = _error_of(lambda: run_precompute(self.source, self.out, setting))
        expected = "was made with other settings" if self.source.contents else "none of the 6 files it lists"
        assert isinstance(error, UsageError)
        assert expected in str(error), str(error)
        assert snapshot(self.out) == before, "a refused run has changed something"

    def start_anew(self, setting: str) -> None:
        """What the message about other settings advises: another OUT."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.model.start_anew(setting)
        self.is_sound, self._seen, self._compacted = False, {}, None

    def _precompute(self, retry_failed: str | None) -> Summary:
        return run_precompute(self.source, self.out, self.model.setting, retry_failed=retry_failed)

    def _runs(self, retry_failed: str | None) -> Iterator[Summary]:
        """The whole job at once, or one part of it after the other."""
        for part in self._parts:
            TALLY["parts"] += part is not None
            yield run_precompute(self.source, self.out, self.model.setting, part=part, retry_failed=retry_failed)

    def _process(self, job: JobSpec, units: list[Unit]) -> None:
        with closing(UnitWorker(job)) as worker:
            for number, unit in enumerate(units):
                if number == min(self._meanwhile_at, len(units) - 1):
                    self._meanwhile()
                self._work(worker, unit)

    def _work(self, worker: UnitWorker, unit: Unit) -> None:
        """Processes a unit; where workers are lost, in halves, while the one that was believed lost finishes it too."""
        job, published = worker.job, worker.job.paths.unit_file(unit.split, unit.unit_id)
        if not self._loses_workers or len(unit.inputs) < 2 or published.exists():
            worker.run(unit)
            return
        TALLY["split units"] += 1
        halves = unit.halves(job.config_hash)
        write_receipt(job.paths, unit, Receipt(
            unit=unit.unit_id, config_hash=job.config_hash, outcome="split", supersedes=list(unit.supersedes),
            children=[half.unit_id for half in halves],
        ))  # fmt: skip
        for part in (unit, *halves):
            worker.run(part)

    # --- added columns

    def add(self, guard: _Guard = _UNDISTURBED) -> None:
        """One call of `facefeed add`; after a removal that was killed, it asks for that first."""
        has_half_removed = self.is_sound and is_half_removed(self.out)
        error = _error_of(self._add_columns, guard)
        if error is None:
            TALLY["added"] += 1
            assert not has_half_removed
            if self.is_sound:
                check_sound(self.out, self.model)
                check_columns_are_complete(self.out)
        elif isinstance(error, Killed):
            TALLY["add killed"] += 1
            check_readers(self.out)
        elif has_half_removed:
            TALLY["add refused: half removed"] += 1
            assert "is half removed; run `facefeed remove" in str(error), str(error)
        elif self.is_sound or not isinstance(error, UsageError):
            raise error

    def remove(self, guard: _Guard = _UNDISTURBED) -> None:
        """One call of `facefeed remove`."""
        had_columns = self.has_columns
        error = _error_of(lambda: remove_columns(self.out, Colour.name), guard)
        if error is None:
            TALLY["removed"] += 1
            assert not (self.out / "columns").exists()
            if self.is_sound:
                check_sound(self.out, self.model)
        elif isinstance(error, Killed):
            TALLY["remove killed"] += 1
            check_readers(self.out)
        elif (self.is_sound and had_columns) or not isinstance(error, UsageError):
            raise error

    def _add_columns(self) -> None:
        add_columns(self.out, f"{FILE}:{Colour.__name__}", workers=1)

    # --- compaction

    def compact(self, guard: _Guard = _UNDISTURBED) -> None:
        """One call of `facefeed compact`; after one that was killed, it finishes that."""
        before = read_stored(self.out) if self.is_sound else self._compacted
        error = _error_of(self._compact, guard)
        if error is None:
            TALLY["compacted"] += 1
            if before is not None:
                self.is_sound, self._compacted = True, None
                assert read_stored(self.out) == before, "other rows than before"
                assert not self.num_files_to_merge, "small files were not merged"
                check_sound(self.out, self.model)
        elif isinstance(error, Killed):
            TALLY["compact killed"] += 1
            if before is not None:
                self.is_sound, self._compacted = False, before
                self._check_killed_compaction(before)
        elif isinstance(error, RefusedError) and "lack the added columns" in str(error):
            TALLY["compaction refused: columns lack rows"] += 1
            assert read_stored(self.out) == before, "a refused compaction has changed rows"
        elif before is not None or not isinstance(error, UsageError):
            raise error

    def _compact(self) -> None:
        compact(self.out, target_mb=1, workers=1)

    @property
    def num_files_to_merge(self) -> int:
        """Files of splits that have more than one."""
        splits = [len(list(folder.iterdir())) for folder in self.out.glob("faces/*")]
        return sum(num_files for num_files in splits if num_files > 1)

    def _check_killed_compaction(self, before: dict[str, Stored]) -> None:
        check_readers(self.out)
        result = verify(self.out)
        assert {finding.kind for finding in result.findings} <= AFTER_A_KILL, result.findings
        if result.is_finished and not result.findings:
            assert read_stored(self.out) == before, "verify approves of other rows"

    # --- what must be true

    def _check_what_was_compared(self, changes: Changes, times: dict[str, int]) -> None:
        """A video that is as it was when a run last ended is neither hashed again nor taken for new."""
        compared = {entry.video_id for entry in (*changes.added, *changes.touched)}
        again = {name for name in compared if self._seen.get(name) == times[name]}
        assert not again, again
        self._seen |= times
        left = [path.name for path in (self.out / "_tmp").iterdir() if path.is_file() and path.suffix != ".quarantined"]
        assert left == [], "attempts of a killed run are left"

    def _check_killed(self, old: dict[str, set[Held]], *, had_dataset: bool) -> None:
        """After a kill readers are served, and `verify` approves of a whole state alone: the old one or the new one."""
        if not (self.out / "manifest.json").exists():
            assert not had_dataset, "the manifest is lost"
            return
        check_readers(self.out)
        result = verify(self.out)
        assert {finding.kind for finding in result.findings} <= AFTER_A_KILL, result.findings
        if result.is_finished and not result.findings:
            outcomes = outcomes_of(run_state_of(self.out))
            new = {name: self.model.allowed(name, outcomes, retry=False) for name in old}
            assert self.model.is_one_of(read_stored(self.out), [old, new]), "verify approves of other rows"


def _affected_by(name: str) -> list[str]:
    """A video and its fakes."""
    return [name, *(fake for fake, original in ORIGINALS.items() if original == name)]
