"""Bar charts of a ladder: lengths of bars in percent of the widest one of a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import formatting
from ..results import PeakMemory, Row, Spread
from ..rungs import BEST
from ..scheduler import Ladder


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar. length, least, most: in percent of the track; least and most are the whisker's ends, None without one.

    tone: the kind of rung, for its colour: "naive", "base", "gain", "none", "best". text: the value. note: a remark.
    """

    name: str
    text: str
    tone: str
    length: float
    least: float | None = None
    most: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A bar chart. caption: how to read it. mark: a reference line, in percent of the track, or None."""

    key: str
    title: str
    caption: str
    bars: Sequence[Bar]
    mark: float | None = None


_HEADROOM = 1.04  # beyond the longest bar, so that its end is visible


def figures(ladder: Ladder) -> list[Figure]:
    """Returns the charts that have data."""
    return [figure for figure in (_epochs(ladder), _speed_ups(ladder), _memory(ladder)) if figure is not None]


def _epochs(ladder: Ladder) -> Figure | None:
    """Epoch durations: on the fly, precomputed, and with the fastest levers."""
    rows = [row for row in (ladder.naive, ladder.base, ladder.fastest) if row is not None]
    spreads = [(row, row.spread(lambda repeat: repeat.epoch_seconds)) for row in rows]
    known = [(row, spread) for row, spread in spreads if spread is not None]
    if len(known) < 2:
        return None
    widest = max(spread.most for _, spread in known) * _HEADROOM
    bars = [
        _bar(
            row,
            spread,
            widest,
            _tone(row, ladder),
            text=formatting.epoch_text(row),
            note=formatting.note_text(row, ladder),
        )
        for row, spread in known
    ]
    return Figure(
        key="epochs", title="An epoch", bars=bars,
        caption="How long one epoch of training takes, without its validation; shorter is better. "
             "~ marks times that are worked out from some steps.",
    )  # fmt: skip


def _speed_ups(ladder: Ladder) -> Figure | None:
    """Speed-ups of each lever alone, and of the best set, over no levers; the greatest first."""
    rows = [(row, row.speed_up(ladder.base)) for row in ladder.rows if row.rung.levers and row.repeats]
    known = sorted(((row, spread) for row, spread in rows if spread is not None), key=lambda pair: -pair[1].median)
    if not known:
        return None
    widest = max(1.0, *(spread.most for _, spread in known)) * _HEADROOM
    bars = [
        _bar(
            row, spread, widest, _tone(row, ladder), text=formatting.speed_up_text(spread),
            note=formatting.spread_text(row, ladder) if len(row.repeats) > 1 else "measured once",
        )
        for row, spread in known
    ]  # fmt: skip
    return Figure(
        key="levers", title="What each lever is worth", bars=bars, mark=100 / widest,
        caption="How many times as fast as without it, alone; the line is at once as fast. A whisker spans what any "
             "two repeats say: a lever pays where all of it lies beyond the line.",
    )  # fmt: skip


def _memory(ladder: Ladder) -> Figure | None:
    rows = [row for row in ladder.rows if row.repeats]
    on_device = any(formatting.device_memory_text(row) != formatting.UNKNOWN for row in rows)
    to_text: Callable[[Row], str] = formatting.device_memory_text if on_device else formatting.host_memory_text
    sizes = [(row, row.spread(lambda repeat: _size_bytes(repeat.memory, on_device=on_device))) for row in rows]
    known = [(row, size) for row, size in sizes if size is not None]
    if len(known) < 2:
        return None
    widest = max(size.most for _, size in known) * _HEADROOM
    where = "what torch takes from the GPU" if on_device else "what training and its workers take of the host"
    bars = [
        _bar(row, Spread(size.most, size.most, size.most), widest, _tone(row, ladder), text=to_text(row))
        for row, size in known
    ]
    return Figure(
        key="memory", title="Peak memory", bars=bars,
        caption=f"The most that each rung used: {where}; shorter is better.",
    )  # fmt: skip


def _size_bytes(memory: PeakMemory, *, on_device: bool) -> float | None:
    return memory.reserved_bytes if on_device else memory.host_bytes


def _bar(row: Row, spread: Spread, widest: float, tone: str, *, text: str, note: str = "") -> Bar:
    is_spread = spread.least < spread.most
    return Bar(
        name=formatting.rung_label(row), text=text, note=note, tone=tone, length=100 * spread.median / widest,
        least=100 * spread.least / widest if is_spread else None,
        most=100 * spread.most / widest if is_spread else None,
    )  # fmt: skip


def _tone(row: Row, ladder: Ladder) -> str:
    if row.rung.data == "naive":
        return "naive"
    if not row.rung.levers:
        return "base"
    if row.rung.name == BEST:
        return "best"
    return "gain" if row.pays(ladder.base) else "none"
