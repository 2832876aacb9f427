"""The soak: a producer over a changing source, two ranks of a loader, kills and full disks, all at once.

    python tests/soak/soak.py --minutes 120 --seed 1 --folder DIR

Every run, epoch and process is checked as it comes; the first that is wrong ends the soak, with the seed, the step and
the output. The last line is one JSON object. DIR gets samples.jsonl and soak.png, the memory of each process over time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(1, str(_TESTS / "support"))

import assets_paths  # noqa: E402 (on the path that is set above)

sys.path[2:2] = assets_paths.support_folders()

import assets_in_process  # noqa: E402
import psutil  # noqa: E402
import pyarrow.dataset as pads  # noqa: E402
from assets_fresh_runs import run_precompute  # noqa: E402
from assets_in_process import end_idle_decoders, in_process, new_folder  # noqa: E402
from assets_tiny_source import TinySource  # noqa: E402
from facefeed.pipeline.verify.check import verify  # noqa: E402
from soak_chart import draw_chart  # noqa: E402
from soak_command import Command, SoakError  # noqa: E402
from soak_producer import KINDS, Producer  # noqa: E402
from soak_readers import RANKS, Readers  # noqa: E402
from soak_samples import by_process, growth, read_samples  # noqa: E402

HAS_MOUNTS = "FACEFEED_SOAK_HAS_MOUNTS"
"""Variable of the environment: this process may mount file systems that end with it."""
DISK_SIZE = "24m"
BOUNDED = ("KILL", "python")
"""The steps of the bounded form, in their order."""
RESTARTS = 0.08
"""Share of the steps after which a reader is killed."""
PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    arguments = _parse_arguments()
    _mount_or_not()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="facefeed-soak-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with Ctrl-C ignored
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a killed process leaves becomes a child of this one
    soak = Soak(folder, arguments.seed, arguments.minutes, arguments.steps)
    try:
        soak.run()
    except Exception:
        print(f"--seed {arguments.seed}, step {soak.steps} ({soak.kind}):\n{traceback.format_exc()}", file=sys.stderr)
        print("The last commands:", *Command.ended, sep="\n\n", file=sys.stderr)
        print(json.dumps({"passed": False, **soak.result()}))
        soak.keep_out()
        return 1
    finally:
        for child in psutil.Process().children(recursive=True):  # none, but after an error or Ctrl-C
            child.kill()
    print(json.dumps({"passed": True, **soak.result()}))
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float, help="how long to draw further steps")
    length.add_argument("--steps", type=int, choices=range(1, len(BOUNDED) + 1), help="the first of the bounded form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where everything lies, the samples and the chart; a new one by default")
    return parser.parse_args()


def _mount_or_not() -> None:
    """Goes on in a mount namespace of its own, with a /dev/shm of its own, where that is allowed."""
    if HAS_MOUNTS in os.environ:
        return
    command = ["unshare", "--mount", "--propagation", "private"]
    mount = ["mount", "-t", "tmpfs", "none", "/dev/shm"]
    may = (
        shutil.which("unshare") and subprocess.run([*command, *mount], capture_output=True, check=False).returncode == 0
    )
    os.environ[HAS_MOUNTS] = "yes" if may else ""
    if may:
        os.execvp(command[0], [*command, sys.executable, *sys.argv])


class Soak:
    """One soak in `folder`; `steps` so far, the last of which is of `kind`."""

    def __init__(self, folder: Path, seed: int, minutes: float | None, num_steps: int | None) -> None:
        self.folder, self._seed, self._minutes, self._num_steps = folder, seed, minutes, num_steps
        self.steps, self.kind, self.tally = 0, "start", Counter[str]()
        self._began = time.monotonic()
        disk = self._mount_disk() if os.environ[HAS_MOUNTS] else None
        seconds = float("inf") if minutes is None else min(60.0, minutes * 60 / 40)
        (folder / "tmp").mkdir()
        os.environ["TMPDIR"] = str(folder / "tmp")
        self.producer = Producer(folder, disk, seconds=seconds, tally=self.tally)
        self.readers = Readers(
            self.producer.out, folder, workers=2 if num_steps is None else 0, seconds=seconds, tally=self.tally
        )
        self.readers.states = self.producer.states

    def _mount_disk(self) -> Path:
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "none", str(disk)], check=True)
        return disk

    def run(self) -> None:
        """All steps, then the end."""
        for rank in range(RANKS):
            self.readers.start(rank)
        while self._goes_on():
            self._step(random.Random(f"{self._seed} {self.steps}"))
        self.kind = "end"
        self._end()

    def _goes_on(self) -> bool:
        if self._minutes is None:
            return self.steps < (self._num_steps or 0)
        return time.monotonic() - self._began < self._minutes * 60

    def keep_out(self) -> None:
        """Copies OUT to where it is seen once the file systems of this process are gone."""
        if self.producer.out.exists():
            shutil.copytree(self.producer.out, self.folder / "failed")

    def _step(self, draws: random.Random) -> None:
        kinds = [kind for kind in KINDS if kind != "full disk" or self.producer.disk]
        (self.kind,) = draws.choices(kinds, [KINDS[kind] for kind in kinds])
        if self._num_steps is not None:
            self.kind = BOUNDED[self.steps]
        if self.steps:
            for _ in range(draws.randrange(1, 4)):
                self.tally[f"changes: {self.producer.source.change(draws)}"] += 1
        print(f"{time.monotonic() - self._began:7.0f} s  step {self.steps}: {self.kind}", file=sys.stderr)
        self.producer.step(self.kind, draws)
        self.readers.check()
        if draws.random() < RESTARTS and self._num_steps is None:
            self.readers.restart()
        self.steps += 1

    def _end(self) -> None:
        """A last undisturbed run: OUT is that of a fresh run, and nothing is left of all that was."""
        self.producer.source.put_all("one")
        self.producer.run_undisturbed()
        self.readers.wait_for_epochs(1)
        self.readers.restart()
        if self._num_steps is None:
            self.producer.complete_columns()
        self.readers.wait_for_epochs(2)
        self.readers.stop()
        self.producer.caller.close()
        self._check_fresh()
        self._check_leftovers()
        if uneven := {name: each for name, each in self.growths().items() if each and not each["is_flat"]}:
            raise SoakError(f"not flat: {uneven}")

    def _check_fresh(self) -> None:
        out, fresh = self.producer.out, new_folder()
        result = verify(out)
        if result.findings or not result.is_finished:
            raise SoakError(f"verify: {result.findings}")
        source = TinySource(fresh / "source")
        for name, content in self.producer.source.videos.contents.items():
            source.put(name, content)
        with in_process():
            run_precompute(source, fresh / "out", "usual")
        tables = [pads.dataset(each / "faces").to_table().sort_by("face_id") for each in (out, fresh / "out")]
        if not tables[0].equals(tables[1]):
            raise SoakError(f"{tables[0].num_rows} rows differ from the {tables[1].num_rows} of a fresh run")
        self.tally["rows at the end"] = tables[0].num_rows
        self.tally["columns at the end"] = tables[0].num_columns

    def _check_leftovers(self) -> None:
        """No process, no temporary file and no shared memory."""
        end_idle_decoders()  # of the fresh runs in this process
        out, deadline = self.producer.out, time.monotonic() + 60
        while (left := self._children()) and time.monotonic() < deadline:
            time.sleep(0.1)
        files = self._temporary_files()
        files += [str(path) for path in (out / "_tmp").iterdir() if path.suffix != ".quarantined"]
        files += [str(path) for path in out.rglob("*.inprogress")]
        if os.environ[HAS_MOUNTS]:
            files += self._shared_memory()
        if left or files:
            raise SoakError(f"left: processes {left}, files {files}")

    def _shared_memory(self) -> list[str]:
        """But the semaphores of runs whose whole tree was killed, with the process that would have removed them."""
        left = sorted(path.name for path in Path("/dev/shm").iterdir())
        semaphores = [name for name in left if name.startswith("sem.mp-")]
        self.tally["semaphores of killed trees"] = len(semaphores)
        return [name for name in left if name not in semaphores or not self.tally["struck by KILL"]]

    def _temporary_files(self) -> list[str]:
        """But Dask's lock files, which stay, and the folder of the socket of each fork server that was killed."""
        known = {assets_in_process._workplace().name, "dask-scratch-space"}
        left = [path.name for path in (self.folder / "tmp").iterdir() if path.name not in known]
        sockets = [name for name in left if name.startswith("pymp-")]
        if len(sockets) <= self.tally["readers killed"]:
            left = [name for name in left if name not in sockets]
        scratch = (self.folder / "tmp" / "dask-scratch-space").glob("*")
        return left + [path.name for path in scratch if path.suffix != ".lock"]

    def _children(self) -> list[str]:
        left = []
        for child in psutil.Process().children(recursive=True):
            if child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)
            else:
                left.append(" ".join(child.cmdline()))
        return left

    def growths(self) -> dict[str, Any]:
        return {name: growth(series) for name, series in by_process(read_samples(self._samples)).items()}

    @property
    def _samples(self) -> Path:
        return self.folder / "samples.jsonl"

    def result(self) -> dict[str, Any]:
        samples = read_samples(self._samples)
        draw_chart(samples, self.folder / "soak.png")
        return {
            "seed": self._seed, "steps": self.steps, "seconds": round(time.monotonic() - self._began),
            "full_disk": "a tmpfs of its own" if self.producer.disk else "left out: no right to mount",
            "counts": dict(sorted(self.tally.items())), "states": len(self.producer.states), "flat": self.growths(),
            "folder": str(self.folder), "samples": samples,
        }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
