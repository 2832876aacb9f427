"""Progress of a run on standard error: a live bar on a terminal, JSON lines in a pipe."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ..console import StatusBar, plural, printable, stderr_console
from ..dataset.manifest import Receipt
from ..planning.plan import Unit

_LINE_SECONDS = 5.0
_CHECK_SECONDS = 1.0


@dataclass
class Totals:
    """What this run has done so far; `inputs` are videos and images. What other runs did, or was reused, is not.

    `units_done_elsewhere`: units that another process had finished when they were to be started. `units_in_vain`: units
    that were processed, while another process finished them first; in no other figure. `size_bytes` is of the files
    that were written, reused rows among them.
    """

    units: int = 0
    units_done_elsewhere: int = 0
    units_in_vain: int = 0
    inputs: int = 0
    frames: int = 0
    faces: int = 0
    size_bytes: int = 0
    partial: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    lost_units: int = 0
    seconds: float = 0.0

    @property
    def frames_per_second(self) -> float:
        """Wanted frames that were decoded and searched for faces, a second of wall time."""
        return self.frames / self.seconds if self.seconds else 0.0


class Progress:
    """Counts finished units, by their receipts, and inputs of running units; a context manager."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._running_units: dict[str, Counter[str]] = {}
        self._finished_units: deque[str] = deque(maxlen=1000)  # events arrive seconds late, not hours
        self._expected = self._done_before = 0
        self._started = self._line_at = time.monotonic()
        self._bar: StatusBar | None = None
        self._ended = threading.Event()
        self._lines: threading.Thread | None = None
        self.totals = Totals()
        self.dashboard: str | None = None

    @classmethod
    def silent(cls) -> Self:
        """Counts without output."""
        return cls(None)

    @classmethod
    def on_stderr(cls) -> Self:
        """Prints to standard error: for people on a terminal, JSON lines in a pipe."""
        return cls(stderr_console())

    def expect(self, *, inputs: int, done_before: int) -> None:
        """Sets the number of inputs to process, and of those that earlier runs have done."""
        self._expected, self._done_before = inputs, done_before

    def __enter__(self) -> Self:
        self._started = self._line_at = time.monotonic()
        if self._is_terminal:
            self._bar = StatusBar(self._console, "inputs")
            self._bar.add_task("precompute", total=self._done_before + self._expected, completed=self._done_before)
            self._bar.start()
        elif self._console is not None:
            self._ended.clear()
            self._lines = threading.Thread(target=self._print_lines, daemon=True)
            self._lines.start()
        return self

    def _print_lines(self) -> None:
        """Prints lines also while no input ends, so that a run on long videos does not look like one that hangs."""
        while not self._ended.wait(_CHECK_SECONDS):
            self._show()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._lines is not None:
            self._lines.join()
        self._show(last=True)
        if self._bar is not None:
            self._bar.stop()

    def announce(self, text: str) -> None:
        """Prints one sentence on a terminal; nothing in a pipe, where lines are for programs."""
        if self._is_terminal:
            self._print(text)

    def on_wait(self, reason: str) -> None:
        """Reports at once that the run waits, and why; also in a pipe."""
        self._report(reason, {"event": "waiting", "why": reason})

    def warn(self, text: str) -> None:
        """Prints a warning, on a terminal or as a JSON line."""
        self._report(f"warning: {text}", {"event": "warning", "text": text}, style="yellow")

    @contextmanager
    def comparing(self, inputs: int, size_bytes: int) -> Iterator[Callable[[int], None]]:
        """Shows how much of `size_bytes` in `inputs` files is hashed; yields what to call with the size of each."""
        done, line_at = [0, 0], time.monotonic()
        bar = None
        if inputs and self._is_terminal:
            columns = TextColumn("comparing contents"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
            bar = Bar(*columns, console=self._console, transient=True)

        def on_compared(more_bytes: int) -> None:
            nonlocal line_at
            done[0], done[1] = done[0] + 1, done[1] + more_bytes
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done[1])
            elif self._console is not None and time.monotonic() - line_at >= _LINE_SECONDS:
                line_at = time.monotonic()
                figures = {"inputs": done[0], "inputs_total": inputs, "bytes": done[1], "bytes_total": size_bytes}
                self._print(json.dumps({"event": "comparing", **figures}))

        with bar or nullcontext():
            if bar is not None:
                bar.add_task("comparing", total=size_bytes)
            yield on_compared

    def on_event(self, event: tuple[float, dict[str, Any]]) -> None:
        """Counts one finished input of a running unit; on Dask's thread. Ignored after the unit's receipt."""
        message = event[1]
        with self._lock:
            if message["unit"] in self._finished_units:
                return
            counts = self._running_units.setdefault(message["unit"], Counter())
            counts.update(inputs=1, frames=message["frames"], faces=message["faces"])
        self._show()

    def on_receipt(self, receipt: Receipt) -> None:
        """Counts a finished unit; its receipt replaces the events of its inputs."""
        with self._lock:
            self._running_units.pop(receipt.unit, None)
            self._finished_units.append(receipt.unit)
            done = [outcome for outcome in receipt.inputs if not outcome.reused]
            self.totals.units += 1
            self.totals.inputs += len(done)
            self.totals.frames += sum(outcome.frames_decoded for outcome in done)
            self.totals.faces += sum(outcome.faces for outcome in done)
            self.totals.size_bytes += receipt.bytes
            self.totals.partial += sum(outcome.outcome == "partial" for outcome in done)
            self.totals.failed.update(str(outcome.reason) for outcome in done if outcome.outcome == "failed")
        self._show()

    def on_done_elsewhere(self, unit: Unit, *, is_duplicate: bool) -> None:
        """Counts a unit that another process has finished; its inputs are no longer to be processed here."""
        with self._lock:
            self._running_units.pop(unit.unit_id, None)
            self._finished_units.append(unit.unit_id)
            self.totals.units_in_vain += is_duplicate
            self.totals.units_done_elsewhere += not is_duplicate
            self._expected -= len(unit.inputs_to_decode)
            self._done_before += len(unit.inputs_to_decode)
        self._show()

    def on_lost(self, unit: Unit, reason: str, action: str) -> None:
        """Reports at once that a unit failed, since it costs time."""
        with self._lock:
            self._running_units.pop(unit.unit_id, None)
            self.totals.lost_units += 1
        first = reason.splitlines()[0] if reason else "failed"
        event = {"event": "lost", "unit": unit.unit_id, "inputs": len(unit.inputs), "why": first, "then": action}
        self._report(f"unit {unit.unit_id[:8]} with {plural(len(unit.inputs), 'input')}: {first}; {action}", event)

    def on_retired(self, worker: str, reason: str) -> None:
        """Reports that a worker gets no more units; the run continues with the others."""
        text = f"{worker} failed several units in a row and gets no more: {reason}"
        self._report(text, {"event": "retired", "worker": worker, "why": reason})

    def on_stopping(self) -> None:
        """Reports at once that the run is stopping, since ending the workers takes seconds; from any thread."""
        self._report("stopping, finished units are kept; once more ends at once", {"event": "stopping"})

    def _figures(self) -> dict[str, Any]:
        with self._lock:
            running = sum(self._running_units.values(), Counter())
            self.totals.seconds = time.monotonic() - self._started
            seconds = max(self.totals.seconds, 1e-9)
            inputs = self.totals.inputs + running["inputs"]
            left = self._expected - inputs
            return {
                "event": "progress",
                "inputs": inputs,
                "inputs_total": self._expected,
                "inputs_done_before": self._done_before,
                "faces": self.totals.faces + running["faces"],
                "frames": self.totals.frames + running["frames"],
                "frames_per_second": round((self.totals.frames + running["frames"]) / seconds, 2),
                "partial": self.totals.partial,
                "failed": dict(self.totals.failed),
                "eta_seconds": round(left * seconds / inputs) if inputs else None,
                "seconds": round(seconds, 1),
                "dashboard": self.dashboard,
            }

    def _show(self, *, last: bool = False) -> None:
        figures = self._figures()
        if self._bar is not None:
            self._bar.status_line = _status_line(figures)
            self._bar.update(self._bar.task_ids[0], completed=self._done_before + figures["inputs"])
        elif self._console is not None and self._is_line_due(last=last):
            self._print(json.dumps(figures))

    def _is_line_due(self, *, last: bool) -> bool:
        now = time.monotonic()
        with self._lock:
            is_due = last or now - self._line_at >= _LINE_SECONDS
            self._line_at = now if is_due else self._line_at
        return is_due

    @property
    def _is_terminal(self) -> bool:
        return self._console is not None and self._console.is_terminal

    def _report(self, text: str, event: dict[str, Any], *, style: str | None = None) -> None:
        """Prints `text` on a terminal, `event` as a JSON line in a pipe."""
        if self._is_terminal:
            self._print(text, style)
        elif self._console is not None:
            self._print(json.dumps(event))

    def _print(self, text: str, style: str | None = None) -> None:
        """Prints without markup or emoji: names may look like either."""
        assert self._console is not None
        self._console.print(printable(text), style=style, markup=False, emoji=False)


def _status_line(figures: dict[str, Any]) -> str:
    failed = ", ".join(f"{number} {reason}" for reason, number in sorted(figures["failed"].items()))
    eta = figures["eta_seconds"]
    left = "" if not eta else f"  {eta // 3600}:{eta // 60 % 60:02}:{eta % 60:02} left"
    parts = f"{figures['faces']:,} faces  {figures['frames_per_second']:.1f} frames/s{left}"
    parts += f"  [yellow]{figures['partial']:,} partial[/]" if figures["partial"] else ""
    return parts + (f"  [red]failed: {escape(failed)}[/]" if failed else "")
