"""`facefeed ... --cluster slurm` whose workers wait at a gate in mid-unit.

Each worker preloads this file: before it computes or checks a unit it notes its begin and, while the gate is closed,
waits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # workers do not find it
    from assets_slurm import Slurm

OPTIONS = ("--every", "1")


class GatedRun:
    """Runs a command of facefeed in `folder`, where OUT, if it is written there, is named `jobs`."""

    process: subprocess.Popen[bytes]

    def __init__(self, slurm: Slurm, folder: Path, *command: str) -> None:
        self._slurm, self._folder, self._command = slurm, folder, command
        self._gate, self._stderr = folder / "gate", folder / "stderr.txt"
        self._stdout = self._gate / "stdout.txt"
        self._gate.mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.open()
        self.process.kill()
        self.process.wait()

    def start(self, *options: str, passes: int, **variables: str) -> None:
        """Starts the command; `passes`: units that pass the gate, if it is closed."""
        if not (self._gate / "open").exists():
            (self._gate / "passes").write_text(str(passes))
        variables = {
            **self._slurm.environment,
            "FACEFEED_TEST_GATE": str(self._gate),
            "DASK_JOBQUEUE__SLURM__INTERFACE": "lo",
            "DASK_JOBQUEUE__SLURM__QUEUE": "spare",
            "DASK_JOBQUEUE__SLURM__JOB_DIRECTIVES_SKIP": "['--mem']",  # these nodes have none to ask for
            "DASK_JOBQUEUE__SLURM__WORKER_EXTRA_ARGS": f"['--preload', {__file__!r}]",
            **variables,
        }
        command = [str(Path(sys.executable).with_name("facefeed")), *self._command, "--cluster", "slurm", *options]
        with self._stdout.open("ab") as stdout, self._stderr.open("ab") as stderr:
            self.process = subprocess.Popen(command, cwd=self._folder, env=variables, stdout=stdout, stderr=stderr)

    def wait(self) -> int:
        """Waits until the command has ended; returns its exit code."""
        return self.process.wait(120)

    def open(self) -> None:
        """Lets all units pass."""
        (self._gate / "open").touch()

    def begun(self) -> list[tuple[str, str]]:
        """(unit, job's number) of all units that were begun, in order."""
        marks = sorted(self._gate.glob("*@*"), key=lambda mark: mark.stat().st_mtime_ns)
        return [(mark.name.partition("@")[0], mark.name.partition("@")[2]) for mark in marks]

    def stderr(self) -> str:
        """What the command has written to standard error so far."""
        return self._stderr.read_text()

    def figures(self) -> dict[str, Any]:
        """What it has printed with `--json`."""
        return json.loads(self._stdout.read_text().splitlines()[-1])  # type: ignore[no-any-return]

    def certificates(self) -> list[Path]:
        """Certificates that are in OUT or, with OUT in a store, in a folder of the working directory."""
        return list(self._folder.rglob("*.pem"))

    def receipts(self) -> dict[str, int]:
        """When each receipt was written, by name."""
        return {path.name: path.stat().st_mtime_ns for path in (self._folder / "jobs/receipts").iterdir()}

    @staticmethod
    def rows(out: Path) -> list[dict[str, Any]]:
        """The rows of a dataset."""
        import pyarrow.dataset as pads  # noqa: PLC0415 (not in workers)

        return pads.dataset(out / "faces").to_table().sort_by("face_id").to_pylist()  # type: ignore[no-any-return]


def dask_setup(_worker: object) -> None:
    """Called by Dask in each worker."""
    from facefeed.pipeline.execution.unit_worker import UnitWorker  # noqa: PLC0415 (in workers alone)
    from facefeed.pipeline.verify import unit_check  # noqa: PLC0415

    run, check = UnitWorker.run, unit_check._check_unit

    def gated_run(self: UnitWorker, unit: Any, *arguments: Any) -> Any:
        _pass_gate(unit.unit_id)
        return run(self, unit, *arguments)

    def gated_check(paths: Any, schema: Any, unit: Any) -> Any:
        _pass_gate(unit.receipt.unit)
        return check(paths, schema, unit)

    UnitWorker.run, unit_check._check_unit = gated_run, gated_check  # type: ignore[method-assign]


def _pass_gate(unit: str) -> None:
    gate = Path(os.environ["FACEFEED_TEST_GATE"])
    number = len(list(gate.glob("*@*")))
    (gate / f"{unit}@{os.environ['SLURM_JOB_ID']}").touch()
    while number >= int((gate / "passes").read_text()) and not (gate / "open").exists():
        time.sleep(0.05)
