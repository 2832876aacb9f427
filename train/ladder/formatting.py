"""A ladder's figures as people read them, on the terminal and on the page."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from rich import filesize

from ...pipeline.console import duration_text
from .messages import Subject
from .results import Memory, Row, Spread
from .rungs import BEST
from .scheduler import Ladder

UNKNOWN = "-"
ACCURACY, AUC = ("accuracy", "acc"), ("auc", "auroc")
"""What modules call these metrics."""


def name_of(row: Row) -> str:
    """A rung's name; of the best set, what it is made of; of one that failed on the way, that it did."""
    name = f"{BEST}: {row.rung.levers}" if row.rung.name == BEST and row.rung.levers else row.rung.name
    return f"{name} (failed)" if row.outcome == "failed" else name


def times(factor: float) -> str:
    """A factor, with as many digits as mean something.

    >>> times(1.2345), times(23.45), times(176.3), times(0.00568)
    ('1.23x', '23.4x', '176x', '0.006x')
    """
    digits = 3 if factor < 0.1 else 2 if factor < 10 else 1 if factor < 100 else 0
    return f"{factor:,.{digits}f}x"


def spread_of(row: Row, ladder: Ladder) -> str:
    """Speed-ups from the least to the most; one repeat has no spread."""
    found = row.speed_up(ladder.base)
    if found is None or len(row.repeats) == 1:
        return UNKNOWN
    return f"{times(found.least)[:-1]}-{times(found.most)[:-1]}"


def faster(found: Spread | None) -> str:
    """The median factor."""
    return UNKNOWN if found is None else times(found.median)


def epoch_of(row: Row) -> str:
    """An epoch's time, with a tilde where it was not measured but worked out from some steps."""
    found = row.spread(lambda one: one.epoch_seconds)
    if found is None:
        return UNKNOWN
    whole = all(one.is_whole_epoch for one in row.repeats.values())
    return f"{'' if whole else '~'}{duration_text(found.median)}"


def speed_of(row: Row) -> str:
    """Samples a second."""
    found = row.spread(lambda one: one.samples_per_second)
    return UNKNOWN if found is None else f"{found.median:,.{0 if found.median >= 100 else 1}f}"


def devices_of(row: Row) -> str:
    """How many shared the work; without a lever for that, one."""
    return UNKNOWN if not row.repeats else str(max(one.devices for one in row.repeats.values()))


def score_of(row: Row, *names: str) -> str:
    """A metric of the validation, 0 to 1."""
    found = row.metric(*names)
    return UNKNOWN if found is None else f"{found.median:.2f}"


def stall_of(row: Row) -> str:
    """The share of the time in which steps waited for data."""
    found = row.spread(lambda one: one.stall_share)
    return UNKNOWN if found is None else f"{found.median:.0%}"


def loss_of(row: Row) -> str:
    """Mean over the measured steps; a lever that breaks training shows here."""
    if any(one.loss is not None and not math.isfinite(one.loss) for one in row.repeats.values()):
        return "not finite"
    found = row.spread(lambda one: one.loss)
    return UNKNOWN if found is None else f"{found.median:.3f}"


def memory_of(row: Row) -> Memory | None:
    """Of the repeat that took most."""
    found = [one.memory for one in row.repeats.values()]
    return max(found, key=lambda one: (one.reserved_bytes or 0, one.host_bytes), default=None)


def device_memory(row: Row) -> str:
    """What torch took from the GPU."""
    found = memory_of(row)
    return UNKNOWN if found is None or found.reserved_bytes is None else filesize.decimal(found.reserved_bytes)


def tensor_memory(row: Row) -> str:
    """What of that was in tensors."""
    found = memory_of(row)
    return UNKNOWN if found is None or found.allocated_bytes is None else filesize.decimal(found.allocated_bytes)


def host_memory(row: Row) -> str:
    """Of the process and its workers."""
    found = memory_of(row)
    return UNKNOWN if found is None else filesize.decimal(found.host_bytes)


def headline(ladder: Ladder) -> str:
    """What came of it, in a sentence."""
    base, naive, fastest = ladder.base, ladder.naive, ladder.fastest
    if base is None:
        return "Nothing could be held against anything: training without levers did not run"
    told = []
    over_naive = base.speed_up(naive)
    if over_naive is not None:
        told.append(f"Precomputed trains {_in_words(over_naive)} on the fly")
    if fastest is not None:
        told.append(f"With {fastest.rung.levers} training is {_in_words(fastest.speed_up(base))} without levers")
    elif any(row.rung.levers and row.repeats for row in ladder.rows):
        told.append("No lever is faster here than none, beyond the spread")
    return ". ".join(told) or "Training without levers ran; nothing else was measured"


def _in_words(found: Spread | None) -> str:
    assert found is not None
    return f"{times(found.median)[:-1]} times as fast as"


def next_step(ladder: Ladder, subject: Subject) -> str:
    """What to do with it: a command, or of a user's module a line of Python."""
    levers = ladder.fastest.rung.levers if ladder.fastest is not None else ""
    if subject.module is not None:
        return f"module, trainer = levers.trainer(module, levers.parse({levers!r}))"
    changes = [*(one for one in subject.changes if not one.startswith("levers=")), f"levers={levers}"]
    parts = ["facefeed", "train", str(subject.out), "--recipe", str(subject.recipe)]
    return shlex.join([*parts, *(part for one in changes for part in ("--set", one))])


def table(ladder: Ladder) -> list[dict[str, str]]:
    """Of each rung that ran what is known, by the heads of the columns; columns that nobody knows are left out."""
    rows = [_cells(row, ladder) for row in ladder.rows if row.repeats]
    known = {head for row in rows for head, cell in row.items() if cell != UNKNOWN}
    return [{head: cell for head, cell in row.items() if head in known} for row in rows]


def _cells(row: Row, ladder: Ladder) -> dict[str, str]:
    against = row.speed_up(ladder.base)
    warm_up = row.spread(lambda one: one.warm_up_seconds)
    return {
        "rung": name_of(row),
        "devices": devices_of(row),
        "epoch": epoch_of(row),
        "samples/s": speed_of(row),
        "speed-up": faster(against),
        "spread": spread_of(row, ladder),
        "over naive": faster(ladder.over_naive(row)),
        "stall": stall_of(row),
        "accuracy": score_of(row, *ACCURACY),
        "AUC": score_of(row, *AUC),
        "loss": loss_of(row),
        "GPU memory": device_memory(row),
        "in tensors": tensor_memory(row),
        "host memory": host_memory(row),
        "first steps": UNKNOWN if warm_up is None else duration_text(warm_up.median),
    }


def note_of(row: Row, ladder: Ladder) -> str:
    """What a rung is against the naive one, in words."""
    over = ladder.over_naive(row)
    return "" if over is None or row is ladder.naive else f"{_in_words(over)} on the fly"


def setting(steps: int | None, repeats: int, seconds: float, parameters: int) -> str:
    """How it was measured, in a sentence."""
    what = "an epoch" if steps is None else f"{steps} steps"
    rounds = "once" if repeats == 1 else f"{repeats} times, in turn"
    return (
        f"Measured: {what} after a warm-up, {rounds}, each in a process of its own; a module of "
        f"{parameters / 1e6:,.1f} million parameters; {duration_text(seconds)} in all."
    )


def facts(subject: Subject, machine: Mapping[str, Any]) -> dict[str, str]:
    """What was trained on what, and where."""
    gpus = ", ".join(machine.get("gpus", ()))
    found = {
        "faces": subject.out or "none: the module's own batches",
        "videos": subject.videos or "not given",
        "module": subject.module or "FaceClassifier",
        "recipe": str(subject.recipe),
        "settings": ", ".join(subject.changes) or "the recipe's",
        "GPUs": gpus or "none",
        "cores": str(machine.get("cores", UNKNOWN)),
    }
    return found if subject.module is None else {key: one for key, one in found.items() if key != "recipe"}
