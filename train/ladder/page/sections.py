"""Sections of a ladder's page: bar charts of epochs, levers and memory, the table, and what did not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ....pipeline.page.figures import BLUE, MUTED, Bar, bar_chart
from ....pipeline.page.html import Section, Table
from .. import formatting
from ..results import PeakMemory, RungResult, Spread
from ..rungs import BEST
from ..scheduler import ONE_REPEAT, Ladder

_NAIVE, _BASE, _PAYS, _BEST = "#b3261e", "#7b8494", "#0a7a5f", BLUE
_LEVER_LEGEND: Final = {"pays": _PAYS, "within the spread, or slower": MUTED, "those that pay, together": _BEST}


def sections(ladder: Ladder) -> Iterator[Section]:
    """The sections that have data, in the order of the page."""
    for section in (_epochs(ladder), _speed_ups(ladder), _memory(ladder), _table(ladder)):
        if section is not None:
            yield section
    if ladder.combination.left_out:
        yield Section(
            key="left", title="What pays, but is not in the best set", read="", facts=ladder.combination.left_out
        )


def _epochs(ladder: Ladder) -> Section | None:
    """Epoch durations: on the fly, precomputed, and with the fastest levers."""
    rows = [row for row in (ladder.naive, ladder.base, ladder.fastest) if row is not None]
    spreads = [(row, row.spread(lambda repeat: repeat.epoch_seconds)) for row in rows]
    bars = [
        _bar(row, spread, ladder, text=formatting.epoch_text(row), note=formatting.note_text(row, ladder))
        for row, spread in spreads
        if spread is not None
    ]
    if len(bars) < 2:
        return None
    return Section(
        key="epochs", title="An epoch", plots={"seconds of an epoch": bar_chart(bars, "seconds")},
        read="How long one epoch of training takes, without its validation; shorter is better. "
             "~ marks times that are worked out from some steps.",
        notes=[f"{bar.name}: {bar.note}." for bar in bars if bar.note],
    )  # fmt: skip


def _speed_ups(ladder: Ladder) -> Section | None:
    """Speed-ups of each lever alone, and of the best set, over no levers; the greatest first."""
    rows = [(row, row.speed_up(ladder.base)) for row in ladder.rows if row.rung.levers and row.repeats]
    known = sorted(((row, spread) for row, spread in rows if spread is not None), key=lambda pair: -pair[1].median)
    if not known:
        return None
    bars = [
        _bar(row, spread, ladder, text=formatting.speed_up_text(spread), note=_spread_note(row, ladder))
        for row, spread in known
    ]
    how_to_judge = (
        "A whisker spans what any two repeats say: a lever pays where all of it lies beyond the line."
        if ladder.is_repeated
        else f"Measured once: {ONE_REPEAT}."
    )
    return Section(
        key="levers", title="What each lever is worth", legend=_LEVER_LEGEND if ladder.is_repeated else {},
        plots={"times as fast as without the lever": bar_chart(bars, "times as fast", reference=1.0)},
        read=f"How many times as fast as without it, alone; the line is at once as fast. {how_to_judge}",
    )  # fmt: skip


def _spread_note(row: RungResult, ladder: Ladder) -> str:
    return formatting.spread_text(row, ladder) if len(row.repeats) > 1 else "measured once"


def _memory(ladder: Ladder) -> Section | None:
    rows = [row for row in ladder.rows if row.repeats]
    on_device = any(formatting.device_memory_text(row) != formatting.UNKNOWN for row in rows)
    to_text: Callable[[RungResult], str] = formatting.device_memory_text if on_device else formatting.host_memory_text
    sizes = [(row, row.spread(lambda repeat: _size_bytes(repeat.memory, on_device=on_device))) for row in rows]
    bars = [
        _bar(row, Spread(*[size.most / 1e9] * 3), ladder, text=to_text(row)) for row, size in sizes if size is not None
    ]
    if len(bars) < 2:
        return None
    where = "what torch takes from the GPU" if on_device else "what training and its workers take of the host"
    return Section(
        key="memory", title="Peak memory", plots={"peak memory of each rung": bar_chart(bars, "GB")},
        read=f"The most that each rung used: {where}; shorter is better.",
    )  # fmt: skip


def _size_bytes(memory: PeakMemory, *, on_device: bool) -> float | None:
    return memory.reserved_bytes if on_device else memory.host_bytes


def _bar(row: RungResult, spread: Spread, ladder: Ladder, *, text: str, note: str = "") -> Bar:
    has_spread = spread.least < spread.most
    return Bar(
        name=formatting.rung_label(row), value=spread.median, text=text, note=note, colour=_colour(row, ladder),
        lower=spread.least if has_spread else None, upper=spread.most if has_spread else None,
    )  # fmt: skip


def _colour(row: RungResult, ladder: Ladder) -> str:
    if row.rung.data == "naive":
        return _NAIVE
    if not row.rung.levers:
        return _BASE
    if row.rung.name == BEST:
        return _BEST
    return _PAYS if row.pays(ladder.base) else MUTED


def _table(ladder: Ladder) -> Section | None:
    rows: Sequence[dict[str, str]] = formatting.table(ladder)
    if not rows:
        return None
    chosen = None if ladder.fastest is None else formatting.rung_label(ladder.fastest)
    return Section(
        key="table", title="All that ran",
        read=f"{'Medians of the repeats' if ladder.is_repeated else 'One repeat of each'}. Losses and metrics are of a "
             "few steps of training: they show that a lever breaks nothing, not how good a model gets. They are after "
             "as many samples in all rungs, warm-up included, and as many updates by the optimizer as the table says.",
        table=Table(list(rows[0]), [list(row.values()) for row in rows], chosen),
        notes=[f"{note}." for note in (*formatting.unequal_samples_notes(ladder), *formatting.energy_notes(ladder))],
    )  # fmt: skip
