"""The producer of a soak: runs over a changing source, undisturbed, struck, in parts, on a full disk, each checked."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
from assets_columns import FILE, Colour
from assets_fresh_runs import read_stored, run_state_of
from assets_out_model import Held, outcomes_of, times_of
from assets_sound_out import COLUMNS, check_columns_are_complete, check_readers, check_sound, is_half_removed
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.open_dataset import open_dataset
from facefeed.pipeline.verify.check import verify
from soak_caller import Caller
from soak_command import Command, SoakError, draw_moment, precompute_arguments
from soak_source import ChangingSource

ENDED, INTERRUPTED, STOPPED, KILLED = 0, 130, 75, -9
STRIKES = ("KILL", "TERM", "INT")
KINDS = {
    "python": 30, "command": 8, "retry": 5, "KILL": 16, "TERM": 6, "INT": 6, "parts": 6, "part killed": 6,
    "full disk": 8, "add": 8, "remove": 4, "verify": 4, "changed meanwhile": 10,
}  # fmt: skip
"""What a step may be, each with its weight."""


class Producer:
    """`disk`: a file system of OUT alone, or None. `states`: the faces of each state of OUT, by its fingerprint."""

    def __init__(self, folder: Path, disk: Path | None, *, seconds: float, tally: Counter[str]) -> None:
        self.folder, self.disk, self._tally = folder, disk, tally
        self.out = (disk or folder) / "out"
        self.source = ChangingSource(folder / "source")
        self.states: dict[str, frozenset[str]] = {}
        self.is_sound = False
        self.caller = Caller(self.source.videos.table, self.out, folder / "samples.jsonl", seconds)

    def step(self, kind: str, draws: random.Random) -> None:
        """One command of a kind, or two at once, and all that must be true after it."""
        if kind in STRIKES:
            self._checked_run(lambda: self._struck(kind, draws))
            return
        steps: dict[str, Callable[[], object]] = {
            "python": lambda: self._checked_run(self._call),
            "command": lambda: self._checked_run(lambda: self._command().end(ENDED)),
            "retry": lambda: self._checked_run(self._retry, retry=True),
            "parts": lambda: self._checked_run(lambda: self._parts(None)),
            "part killed": lambda: self._checked_run(lambda: self._parts(draws)),
            "full disk": lambda: self._checked_run(lambda: self._on_full_disk(draws)),
            "changed meanwhile": lambda: self._run_while_changed(draws),
            "add": lambda: self._columns("add", draws),
            "remove": lambda: self._columns("remove", draws),
            "verify": self._verify,
        }
        steps[kind]()

    def run_undisturbed(self) -> None:
        """A last run, which retries what failed: what it leaves depends on the source alone."""
        self._checked_run(self._retry, retry=True)

    def complete_columns(self) -> None:
        """The added columns of all rows."""
        if is_half_removed(self.out):
            self._command_on_columns("remove").end(ENDED)
        self._command_on_columns("add").end(ENDED)
        check_sound(self.out, self.source.model)
        check_columns_are_complete(self.out)
        assert Index(self.out).added

    # --- runs

    def _checked_run(
        self, execute: Callable[[], int], *, retry: bool = False, unsure: Mapping[str, set[Held]] | None = None
    ) -> None:
        """`unsure`: filled while the run is at work, where the source changes then; else finished units stay."""
        model, changes = self.source.model, unsure is not None
        settled, outcomes = model.settled_files(self.out, retry=retry), outcomes_of(run_state_of(self.out))
        model.begin_run()
        code = execute()
        self._tally[f"exit {code}"] += 1
        if not changes and times_of(settled) != settled:
            raise SoakError("finished work was lost, or done again")
        self.is_sound = code == ENDED
        model.unsure = unsure or {}
        if self.is_sound:
            model.end_run(read_stored(self.out), outcomes, retry=retry)
            check_sound(self.out, model)
            check_columns_are_complete(self.out)
        else:
            for name, held in model.unsure.items():
                model.may_hold[name] |= held
        model.unsure = {}
        self.record_state()

    def _call(self) -> int:
        """`precompute()` in the long-lived process."""
        self._tally["runs: python"] += 1
        return self.caller.call(ENDED)

    def _command(self, *options: str) -> Command:
        self._tally["runs: command"] += 1
        return Command(self.folder, *precompute_arguments(self.source.videos.table, self.out, options))

    def _retry(self) -> int:
        self._tally["retries"] += 1
        return self._command("--retry-failed").end(ENDED)

    def _struck(self, kind: str, draws: random.Random, *options: str) -> int:
        moment, happened = draw_moment(self.out, draws)
        command = self._command(*options)
        if command.wait_until(happened):
            command.strike(kind)
            self._tally[f"SIG{kind} at {moment}"] += 1
            self._tally[f"struck by {kind}"] += 1
        return command.end(ENDED, KILLED if kind == "KILL" else INTERRUPTED)

    def _parts(self, draws: random.Random | None) -> int:
        """Two parts at once; one of them is perhaps killed."""
        first, second = ("1/2", "2/2") if draws is None else draws.sample(("1/2", "2/2"), 2)
        self._tally["parts"] += 2
        other = self._command("--part", second)
        code = (
            self._command("--part", first).end(ENDED) if draws is None else self._struck("KILL", draws, "--part", first)
        )
        return min(code, other.end(ENDED))

    def _on_full_disk(self, draws: random.Random) -> int:
        """The disk is full from some moment on: the run ends, or stops and is resumed later."""
        assert self.disk is not None
        self._tally["full disks"] += 1
        uses_python = draws.random() < 0.5
        moment, happened = draw_moment(self.out, draws, "lease", "attempt", "receipt", "index")
        filler = self.disk / "filler"
        try:
            if uses_python:
                _fill(filler)
                self._tally["runs: python"] += 1
                return self.caller.call(ENDED, STOPPED)
            command = self._command()
            if command.wait_until(happened):
                self._tally[f"full at {moment}"] += 1
                _fill(filler)
            return command.end(ENDED, STOPPED)
        finally:
            filler.unlink(missing_ok=True)

    def _run_while_changed(self, draws: random.Random) -> None:
        unsure: dict[str, set[Held]] = {}

        def execute() -> int:
            _, happened = draw_moment(self.out, draws, "lease", "attempt", "receipt")
            command = self._command()
            if command.wait_until(happened):
                unsure.update(self.source.change_meanwhile(draws))
                self._tally["changes meanwhile"] += 1
            return command.end(ENDED)

        self._checked_run(execute, unsure=unsure)

    # --- other commands

    def _columns(self, kind: str, draws: random.Random) -> None:
        """`add` or `remove` of a column, perhaps killed, then run again, of a finished OUT."""
        if not self.is_sound:
            self._checked_run(self._call)
        if is_half_removed(self.out):
            kind = "remove"
        if kind == "remove" and not (self.out / COLUMNS).exists():
            kind = "add"
        self._tally[f"runs: {kind}"] += 1
        _, happened = draw_moment(self.out, draws, "lease", "index")
        command = self._command_on_columns(kind)
        if draws.random() < 0.3:
            if command.wait_until(happened):
                command.strike("KILL")
                self._tally["struck by KILL"] += 1
            if command.end(ENDED, KILLED) == KILLED:
                check_readers(self.out)
                if kind == "add" or (self.out / COLUMNS).exists():  # else it was removed before the kill
                    self._command_on_columns(kind).end(ENDED)
        else:
            command.end(ENDED)
        check_sound(self.out, self.source.model)
        self.record_state()

    def _command_on_columns(self, kind: str) -> Command:
        if kind == "add":
            return Command(self.folder, "add", str(self.out), f"{FILE}:{Colour.__name__}", "--workers", "1")
        return Command(self.folder, "remove", str(self.out), Colour.name)

    def _verify(self) -> None:
        """The command has the verdict of `verify`, which `check_sound` has approved of."""
        self._tally["runs: verify"] += 1
        result = verify(self.out) if self.is_sound else None
        expected = (0, 1, 2) if result is None else (int(bool(result.findings)),)
        Command(self.folder, "verify", str(self.out)).end(*expected)

    # --- the dataset

    def record_state(self) -> None:
        """Reads the faces of the state that OUT has now from the files that its index names."""
        if not (self.out / "manifest.json").exists():
            return
        check_readers(self.out)
        manifest, index = open_dataset(self.out)
        rows = range(index.num_rows)
        files = {str(index.text("file", row)) for row in rows}
        stored = [face for file in files for face in pq.read_table(self.out / file, columns=["face_id"])[0].to_pylist()]
        faces = frozenset(stored)
        if len(faces) != len(stored) or faces != self.states.setdefault(manifest.fingerprint, faces):
            raise SoakError(f"{manifest.fingerprint}: files hold {sorted(stored)}")


def _fill(path: Path) -> None:
    """Takes all room of the file system."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
