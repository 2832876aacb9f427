"""Formatting of a ladder's measurements for the terminal and the page."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from rich import filesize

from ...pipeline.console import duration_text
from ...pipeline.dataset.stores.address import without_credentials
from .messages import Subject
from .results import PeakMemory, RungResult, Spread
from .rungs import BEST
from .scheduler import ONE_REPEAT, Ladder

UNKNOWN = "-"
ACCURACY, AUC, LOSS = ("accuracy", "acc"), ("auc", "auroc"), "loss"
"""Names under which modules log these metrics."""


def place_of(subject: Subject) -> str | None:
    """Returns OUT as it is shown, without the credentials of an address; None where there is none."""
    return None if subject.out is None else without_credentials(subject.out)


def rung_label(row: RungResult) -> str:
    """Returns a rung's name, with the levers of the best set, and marked if it failed."""
    name = f"{BEST}: {row.rung.levers}" if row.rung.name == BEST and row.rung.levers else row.rung.name
    return f"{name} (failed)" if row.outcome == "failed" else name


def factor_text(factor: float) -> str:
    """Formats a factor with its significant digits.

    >>> factor_text(1.2345), factor_text(23.45), factor_text(176.3), factor_text(0.00568)
    ('1.23x', '23.4x', '176x', '0.006x')
    """
    digits = 3 if factor < 0.1 else 2 if factor < 10 else 1 if factor < 100 else 0
    return f"{factor:,.{digits}f}x"


def spread_text(row: RungResult, ladder: Ladder) -> str:
    """Formats the range of speed-ups; a single repeat has none."""
    speed_up = row.speed_up(ladder.base)
    if speed_up is None or len(row.repeats) == 1:
        return UNKNOWN
    return f"{factor_text(speed_up.least)[:-1]}-{factor_text(speed_up.most)[:-1]}"


def speed_up_text(spread: Spread | None) -> str:
    """Formats the median factor."""
    return UNKNOWN if spread is None else factor_text(spread.median)


def epoch_text(row: RungResult) -> str:
    """Formats an epoch's duration, with a tilde if it is extrapolated from some steps."""
    seconds = row.spread(lambda repeat: repeat.epoch_seconds)
    if seconds is None:
        return UNKNOWN
    is_whole = all(repeat.is_whole_epoch for repeat in row.repeats.values())
    return f"{'' if is_whole else '~'}{duration_text(seconds.median)}"


def throughput_text(row: RungResult) -> str:
    """Formats samples per second."""
    rate = row.spread(lambda repeat: repeat.samples_per_second)
    return UNKNOWN if rate is None else f"{rate.median:,.{0 if rate.median >= 100 else 1}f}"


def num_devices_text(row: RungResult) -> str:
    """Formats the number of devices; one without a strategy."""
    return UNKNOWN if not row.repeats else str(max(repeat.devices for repeat in row.repeats.values()))


def metric_text(row: RungResult, ladder: Ladder, *names: str, digits: int = 2) -> str:
    """Formats a validation metric; unknown where it is of other samples than the base's."""
    metric = row.metric(*names) if row.has_samples_of(ladder.base) else None
    return UNKNOWN if metric is None else f"{metric.median:.{digits}f}"


def stall_text(row: RungResult) -> str:
    """Formats the fraction of time that steps waited for data."""
    stall = row.spread(lambda repeat: repeat.stall_share)
    return UNKNOWN if stall is None else f"{stall.median:.0%}"


def loss_text(row: RungResult, ladder: Ladder) -> str:
    """Formats the mean training loss of the measured samples; unknown where it is of others than the base's."""
    if any(repeat.loss is not None and not math.isfinite(repeat.loss) for repeat in row.repeats.values()):
        return "not finite"
    loss = row.spread(lambda repeat: repeat.loss) if row.has_samples_of(ladder.base) else None
    return UNKNOWN if loss is None else f"{loss.median:.3f}"


def updates_text(row: RungResult) -> str:
    """Formats the steps of the optimizer in a repeat."""
    updates = row.spread(lambda repeat: float(repeat.updates))
    return UNKNOWN if updates is None else f"{updates.median:,.0f}"


def energy_text(row: RungResult) -> str:
    """Formats the energy of 1,000 samples."""
    energy = row.spread(lambda repeat: repeat.energy_joules_per_1000_samples)
    return UNKNOWN if energy is None else f"{energy.median:,.{0 if energy.median >= 100 else 1}f} J"


def energy_notes(ladder: Ladder) -> list[str]:
    """Returns why the energy of rungs is not known; each reason once."""
    reasons = dict.fromkeys(repeat.energy_reason for row in ladder.rows for repeat in row.repeats.values())
    return [f"Energy is not known: {reason}" for reason in reasons if reason is not None]


def unequal_samples_notes(ladder: Ladder) -> list[str]:
    """Returns a sentence for each rung that was trained on other numbers of samples than the base."""
    base = ladder.base
    return [
        f"{row.rung.name}: trained on {row.trained_samples:,} samples, not on {base.trained_samples:,} as without "
        "levers, so its loss and metrics do not compare"
        for row in ladder.rows
        if base is not None and row.repeats and not row.has_samples_of(base)
    ]


def peak_memory(row: RungResult) -> PeakMemory | None:
    """Returns the peak memory of the repeat with the most."""
    memory = [repeat.memory for repeat in row.repeats.values()]
    return max(memory, key=lambda memory: (memory.reserved_bytes or 0, memory.host_bytes), default=None)


def device_memory_text(row: RungResult) -> str:
    """Formats the memory that torch reserved on the GPU."""
    memory = peak_memory(row)
    return UNKNOWN if memory is None or memory.reserved_bytes is None else filesize.decimal(memory.reserved_bytes)


def tensor_memory_text(row: RungResult) -> str:
    """Formats the GPU memory of tensors."""
    memory = peak_memory(row)
    return UNKNOWN if memory is None or memory.allocated_bytes is None else filesize.decimal(memory.allocated_bytes)


def host_memory_text(row: RungResult) -> str:
    """Formats the host memory of the process and its workers."""
    memory = peak_memory(row)
    return UNKNOWN if memory is None else filesize.decimal(memory.host_bytes)


def headline(ladder: Ladder) -> str:
    """Returns the outcome in a sentence."""
    base, naive, fastest = ladder.base, ladder.naive, ladder.fastest
    if base is None:
        return "Nothing can be compared: training without levers did not run"
    sentences = []
    over_naive = base.speed_up(naive)
    if over_naive is not None:
        sentences.append(f"Precomputed trains {_factor_phrase(over_naive)} on the fly")
    if fastest is not None:
        sentences.append(
            f"With {fastest.rung.levers} training is {_factor_phrase(fastest.speed_up(base))} without levers"
        )
    elif any(row.rung.levers and row.repeats for row in ladder.rows):
        none_pays = "No lever is faster here than none, beyond the spread"
        sentences.append(none_pays if ladder.is_repeated else f"What levers are worth is open: {ONE_REPEAT}")
    return ". ".join(sentences) or "Training without levers ran; nothing else was measured"


def _factor_phrase(spread: Spread | None) -> str:
    assert spread is not None
    return f"{factor_text(spread.median)[:-1]} times as fast as"


def next_step(ladder: Ladder, subject: Subject) -> str:
    """Returns what to run next: a command, or a line of Python for a user's module."""
    levers = ladder.fastest.rung.levers if ladder.fastest is not None else ""
    if subject.module is not None:
        return f"module, trainer = levers.trainer(module, levers.parse({levers!r}))"
    changes = [*(change for change in subject.changes if not change.startswith("levers=")), f"levers={levers}"]
    parts = ["facefeed", "train", str(place_of(subject)), "--recipe", str(subject.recipe)]
    return shlex.join([*parts, *(part for change in changes for part in ("--set", change))])


def table(ladder: Ladder) -> list[dict[str, str]]:
    """Returns a row for each rung that ran, by column heads; columns without any value are left out."""
    rows = [_cells(row, ladder) for row in ladder.rows if row.repeats]
    known = {head for row in rows for head, cell in row.items() if cell != UNKNOWN}
    return [{head: cell for head, cell in row.items() if head in known} for row in rows]


def _cells(row: RungResult, ladder: Ladder) -> dict[str, str]:
    against = row.speed_up(ladder.base)
    warm_up = row.spread(lambda repeat: repeat.warm_up_seconds)
    return {
        "rung": rung_label(row),
        "devices": num_devices_text(row),
        "epoch": epoch_text(row),
        "samples/s": throughput_text(row),
        "speed-up": speed_up_text(against),
        "spread": spread_text(row, ladder),
        "over naive": speed_up_text(ladder.over_naive(row)),
        "stall": stall_text(row),
        "accuracy": metric_text(row, ladder, *ACCURACY),
        "AUC": metric_text(row, ladder, *AUC),
        "loss": loss_text(row, ladder),
        "validation loss": metric_text(row, ladder, LOSS, digits=3),
        "samples": f"{row.trained_samples:,}",
        "updates": updates_text(row),
        "energy of 1,000 samples": energy_text(row),
        "GPU memory": device_memory_text(row),
        "in tensors": tensor_memory_text(row),
        "host memory": host_memory_text(row),
        "first steps": UNKNOWN if warm_up is None else duration_text(warm_up.median),
    }


def note_text(row: RungResult, ladder: Ladder) -> str:
    """Describes a rung relative to the naive one."""
    over = ladder.over_naive(row)
    return "" if over is None or row is ladder.naive else f"{_factor_phrase(over)} on the fly"


def measurement_text(
    steps: int | None, repeats: int, seconds: float, parameters: int, base: RungResult | None
) -> str:  # fmt: skip
    """Describes the measurement in a sentence."""
    what = "an epoch" if steps is None else f"{steps} steps"
    first = None if base is None else base.repeats[min(base.repeats)]
    if first is not None and steps is not None and first.steps > steps:
        what += f" at least, and {first.samples:,} samples in every rung,"
    rounds = "once" if repeats == 1 else f"{repeats} times, in turn"
    return (
        f"Measured: {what} after a warm-up, {rounds}, each in a process of its own; a module of "
        f"{parameters / 1e6:,.1f} million parameters; {duration_text(seconds)} in all."
    )


def context_rows(subject: Subject, machine: Mapping[str, Any]) -> dict[str, str]:
    """Returns what was trained, on which data and on which machine."""
    gpus = ", ".join(machine.get("gpus", ()))
    rows = {
        "faces": place_of(subject) or "none: the module's own batches",
        "videos": subject.videos or "not given",
        "module": subject.module or "FaceClassifier",
        "recipe": str(subject.recipe),
        "settings": ", ".join(subject.changes) or "the recipe's",
        "GPUs": gpus or "none",
        "cores": str(machine.get("cores", UNKNOWN)),
    }
    return rows if subject.module is None else {key: item for key, item in rows.items() if key != "recipe"}
