"""Report of a ladder: a table on the terminal, and a JSON object."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...pipeline.console import printable
from ...pipeline.json_records import finite_or_null
from . import formatting
from .messages import Subject
from .results import RungResult, Spread
from .scheduler import Ladder

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Report:
    """A ladder and its conditions. steps: None for an epoch. seconds: total duration.

    machine: `Machine` as plain values. parameters: number of the module's. complete: False if it was interrupted.
    """

    ladder: Ladder
    subject: Subject
    steps: int | None
    repeats: int
    seconds: float
    machine: dict[str, Any] = field(default_factory=dict)
    parameters: int = 0
    complete: bool = True

    @property
    def exit_code(self) -> int:
        """1 if a rung failed, else 0; a refused rung is not a failure."""
        return 1 if any(row.outcome == "failed" for row in self.ladder.rows) else 0


def as_plain_values(report: Report) -> dict[str, Any]:
    """Returns the report as plain values: seconds, bytes, fractions 0 to 1. `schema` rises when a key changes."""
    ladder = report.ladder
    fastest = ladder.fastest
    contents = {
        "schema": SCHEMA_VERSION,
        "rungs": [_rung_values(row, ladder) for row in ladder.rows],
        "best_set": asdict(ladder.combination),
        "fastest": None if fastest is None else {"levers": fastest.rung.levers, "speed_up": ladder.speed(fastest)},
        "steps": report.steps,
        "repeats": report.repeats,
        "seconds": report.seconds,
        "complete": report.complete,
        "subject": {**asdict(report.subject), "out": formatting.place_of(report.subject)},
        "parameters": report.parameters,
        "machine": {**report.machine, "python": platform.python_version(), "architecture": platform.machine()},
        "exit": report.exit_code,
    }
    return {name: finite_or_null(item) for name, item in contents.items()}


def _rung_values(row: RungResult, ladder: Ladder) -> dict[str, Any]:
    memory = formatting.peak_memory(row)
    return {
        "name": row.rung.name,
        "data": row.rung.data,
        "levers": row.rung.levers,
        "outcome": row.outcome,
        "reason": row.reason,
        "epoch_seconds": _plain(row.spread(lambda repeat: repeat.epoch_seconds)),
        "epoch_measured": bool(row.repeats) and all(repeat.is_whole_epoch for repeat in row.repeats.values()),
        "trained_samples": row.trained_samples,
        "updates": max((repeat.updates for repeat in row.repeats.values()), default=None),
        "equal_samples": row.has_samples_of(ladder.base) if row.repeats and ladder.base is not None else None,
        "devices": max((repeat.devices for repeat in row.repeats.values()), default=None),
        "samples_per_second": _plain(row.spread(lambda repeat: repeat.samples_per_second)),
        "speed_up": _plain(row.speed_up(ladder.base)),
        "speed_up_over_naive": _plain(ladder.over_naive(row)),
        "pays": bool(row.rung.levers) and row.pays(ladder.base),
        "energy_joules": _plain(row.spread(lambda repeat: repeat.energy_joules)),
        "energy_joules_per_1000_samples": _plain(row.spread(lambda repeat: repeat.energy_joules_per_1000_samples)),
        "energy_reason": next((repeat.energy_reason for repeat in row.repeats.values() if repeat.energy_reason), None),
        "memory": None if memory is None else asdict(memory),
        "accuracy": _plain(row.metric(*formatting.ACCURACY)),
        "auc": _plain(row.metric(*formatting.AUC)),
        "loss": _plain(row.spread(lambda repeat: repeat.loss)),
        "validation_loss": _plain(row.metric(formatting.LOSS)),
        "stall_share": _plain(row.spread(lambda repeat: repeat.stall_share)),
        "warm_up_seconds": _plain(row.spread(lambda repeat: repeat.warm_up_seconds)),
        "measured": [{"round": number, **asdict(repeat)} for number, repeat in sorted(row.repeats.items())],
    }


def _plain(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else asdict(spread)


def show(report: Report, console: Console) -> None:
    """Prints the table, what did not run, what is not in the best set, and what to run next."""
    for part in _parts(report):
        console.print(part, soft_wrap=False)  # wraps at words


def _parts(report: Report) -> list[RenderableType]:
    ladder = report.ladder
    ran = [row for row in ladder.rows if row.repeats]
    parts: list[RenderableType] = [_table(ladder)] if ran else []
    if any(formatting.epoch_text(row).startswith("~") for row in ran):
        parts.append(Text("~: worked out from some steps, not from a whole epoch"))
    if ladder.base is not None:
        measured = "and what any two repeats say" if ladder.is_repeated else "by one repeat"
        parts.append(Text(f"speed: times as fast as no lever, {measured}; naive: as on the fly"))
    if _has_several_devices(ladder):
        parts.append(Text("dev: devices that shared the work; one where no lever says otherwise"))
    parts += [Text(note) for note in formatting.unequal_samples_notes(ladder)]
    not_run = [(row.rung.name, f"{row.outcome}: {row.reason}") for row in ladder.rows if row.reason]
    if not_run:
        parts += [Text("\ndid not run, or not to its end", style="bold"), _two_column_table(not_run)]
    left_out = list(ladder.combination.left_out.items())
    if left_out:
        parts += [Text("\npays, but is not in the best set", style="bold"), _two_column_table(left_out)]
    parts.append(Text(f"\n{formatting.headline(ladder)}."))
    if ladder.fastest is not None:
        parts.append(Text(f"next: {formatting.next_step(ladder, report.subject)}"))
    return parts


def _has_several_devices(ladder: Ladder) -> bool:
    """Whether any rung ran on several devices."""
    return any(repeat.devices > 1 for row in ladder.rows for repeat in row.repeats.values())


def _table(ladder: Ladder) -> Table:
    """Returns the table with the columns that fit 80 characters; the page has more."""
    rows = formatting.table(ladder)
    memory = "GPU memory" if any("GPU memory" in row for row in rows) else "host memory"
    shared = {"devices": "dev"} if _has_several_devices(ladder) else {}
    heads = {"rung": "rung", **shared, "epoch": "epoch", "samples/s": "per s", "speed-up": "speed", "spread": "spread",
             "over naive": "naive", memory: "memory", "accuracy": "acc.", "AUC": "AUC", "stall": "stall"}  # fmt: skip
    shown = [head for head in heads if head in rows[0]]
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for head in shown:
        table.add_column(heads[head], justify="left" if head == "rung" else "right", overflow="fold",
                         no_wrap=head != "rung")  # fmt: skip
    chosen = None if ladder.fastest is None else formatting.rung_label(ladder.fastest)
    for row in rows:
        table.add_row(*(Text(printable(row[head])) for head in shown), style="bold" if row["rung"] == chosen else "")
    return table


def _two_column_table(not_run: list[tuple[str, str]]) -> Padding:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in not_run:
        table.add_row(Text(printable(name)), Text(printable(text)))
    return Padding(table, (0, 0, 0, 2))
