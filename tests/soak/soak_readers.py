"""Two ranks of a loader beside the producer: starts them, kills one, and holds their epochs against the dataset."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import soak_reader
from assets_paths import python_path
from soak_command import DEADLINE_SECONDS, SoakError
from soak_reader import BATCH_SIZE, RANKS


class Readers:
    """`states`: the faces of each state that OUT had, by its fingerprint, as the producer read them from the files."""

    def __init__(self, out: Path, folder: Path, *, workers: int, seconds: float, tally: Counter[str]) -> None:
        self._out, self._folder, self._workers, self._seconds = out, folder, workers, seconds
        self._tally = tally
        self.states: dict[str, frozenset[str]] = {}
        self._processes: dict[int, psutil.Popen] = {}
        self._errors: dict[int, Any] = {}
        self._read: Counter[int] = Counter()  # bytes of the events of each rank
        self._unchecked: list[dict[str, Any]] = []
        self._halves: dict[tuple[str, int], dict[int, list[str]]] = {}

    def start(self, rank: int) -> None:
        arguments = {
            "out": str(self._out), "folder": str(self._folder), "rank": rank, "workers": self._workers,
            "samples": str(self._folder / "samples.jsonl"), "seconds": self._seconds,
        }  # fmt: skip
        self._errors[rank] = tempfile.TemporaryFile("w+", dir=self._folder)  # noqa: SIM115 (read once it has ended)
        self._processes[rank] = psutil.Popen(
            [sys.executable, soak_reader.__file__, json.dumps(arguments)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self._errors[rank], start_new_session=True,
            env={**os.environ, "PYTHONPATH": python_path(Path(__file__).parent)},
        )  # fmt: skip

    def kill(self, rank: int) -> None:
        """Kills the rank's own process: its workers must end by themselves."""
        process = self._processes[rank]
        tree = process.children(recursive=True)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(tree, timeout=60)
        if alive:
            raise SoakError(f"rank {rank} was killed, and left {alive}")
        self._tally["readers killed"] += 1

    def restart(self) -> None:
        """Kills the last rank, which goes on from its state; rank 0 lives as long as the soak."""
        self.kill(RANKS - 1)
        self.start(RANKS - 1)

    def check(self) -> None:
        """All are at work, and what they have reported is what the dataset holds."""
        for rank, process in self._processes.items():
            if (code := process.poll()) is not None:
                raise SoakError(f"rank {rank} has ended with {code}:\n{self._text(rank)}")
        self._check_events()

    def wait_for_epochs(self, count: int) -> None:
        """Until so many more epochs have come from both ranks together."""
        wanted, deadline = self._tally["epochs of both ranks"] + count, time.monotonic() + DEADLINE_SECONDS
        while self._tally["epochs of both ranks"] < wanted:
            self.check()
            if time.monotonic() > deadline:
                raise SoakError(f"no epoch of both ranks within {DEADLINE_SECONDS} s")
            time.sleep(0.05)

    def stop(self) -> None:
        (self._folder / "stop").touch()
        for rank, process in self._processes.items():
            try:
                process.wait(DEADLINE_SECONDS)
            except psutil.TimeoutExpired as error:
                process.send_signal(signal.SIGABRT)
                raise SoakError(f"rank {rank} does not stop") from error
            if process.returncode or self._text(rank):
                raise SoakError(f"rank {rank} has ended with {process.returncode}:\n{self._text(rank)}")
        self._check_events()
        if self._unchecked:
            raise SoakError(f"epochs of states that OUT never had: {self._unchecked[:2]}")

    def _text(self, rank: int) -> str:
        self._errors[rank].seek(0)
        return str(self._errors[rank].read())

    def _check_events(self) -> None:
        self._unchecked += [event for rank in self._processes for event in self._new_events(rank)]
        known = [event for event in self._unchecked if event.get("fingerprint") in {None, *self.states}]
        self._unchecked = [event for event in self._unchecked if event not in known]
        for event in known:
            self._tally[f"readers: {event['event']}"] += 1
            if event["event"] == "opened" and {*event["faces"]} != self.states[event["fingerprint"]]:
                raise SoakError(f"other faces than in the files: {event}")
            if event["event"] == "epoch":
                self._check_epoch(event)

    def _new_events(self, rank: int) -> list[dict[str, Any]]:
        path = self._folder / f"events-{rank}.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read[rank])
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._read[rank] += len(data)
        return [json.loads(line) for line in data.splitlines()]

    def _check_epoch(self, event: Mapping[str, Any]) -> None:
        """The faces of both ranks together are those of the state, each once."""
        key, expected = (event["fingerprint"], event["epoch"]), self.states[event["fingerprint"]]
        self._tally["faces read"] += len(event["faces"])
        if len({*event["faces"]}) != len(event["faces"]) or not expected.issuperset(event["faces"]):
            raise SoakError(f"an epoch has wrong faces, or one twice: {event}")
        halves = self._halves.setdefault(key, {})
        halves[event["rank"]] = event["faces"]
        if len(halves) == RANKS:
            del self._halves[key]
            # Where the last step has one face for two ranks, the epoch's first one fills it.
            repeated = halves[0][:1] if len(expected) % (RANKS * BATCH_SIZE) == 1 else []
            if sorted(face for half in halves.values() for face in half) != sorted([*expected, *repeated]):
                raise SoakError(f"epoch {key}: the ranks read {halves}, the state has {sorted(expected)}")
            self._tally["epochs of both ranks"] += 1
