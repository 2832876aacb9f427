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
    return [one for one in (_epochs(ladder), _speed_ups(ladder), _memory(ladder)) if one is not None]


def _epochs(ladder: Ladder) -> Figure | None:
    """Epoch durations: on the fly, precomputed, and with the fastest levers."""
    rows = [row for row in (ladder.naive, ladder.base, ladder.fastest) if row is not None]
    spreads = [(row, row.spread(lambda one: one.epoch_seconds)) for row in rows]
    known = [(row, found) for row, found in spreads if found is not None]
    if len(known) < 2:
        return None
    widest = max(found.most for _, found in known) * _HEADROOM
    bars = [
        _bar(
            row,
            found,
            widest,
            _tone(row, ladder),
            text=formatting.epoch_text(row),
            note=formatting.note_text(row, ladder),
        )
        for row, found in known
    ]
    return Figure(
        key="epochs", title="An epoch", bars=bars,
        caption="How long one epoch of training takes, without its validation; shorter is better. "
             "~ marks times that are worked out from some steps.",
    )  # fmt: skip


def _speed_ups(ladder: Ladder) -> Figure | None:
    """Speed-ups of each lever alone, and of the best set, over no levers; the greatest first."""
    rows = [(row, row.speed_up(ladder.base)) for row in ladder.rows if row.rung.levers and row.repeats]
    known = sorted(((row, found) for row, found in rows if found is not None), key=lambda one: -one[1].median)
    if not known:
        return None
    widest = max(1.0, *(found.most for _, found in known)) * _HEADROOM
    bars = [
        _bar(
            row, found, widest, _tone(row, ladder), text=formatting.speed_up_text(found),
            note=formatting.spread_text(row, ladder) if len(row.repeats) > 1 else "measured once",
        )
        for row, found in known
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
    sizes = [(row, row.spread(lambda one: _size_bytes(one.memory, on_device=on_device))) for row in rows]
    known = [(row, found) for row, found in sizes if found is not None]
    if len(known) < 2:
        return None
    widest = max(found.most for _, found in known) * _HEADROOM
    where = "what torch takes from the GPU" if on_device else "what training and its workers take of the host"
    bars = [
        _bar(row, Spread(found.most, found.most, found.most), widest, _tone(row, ladder), text=to_text(row))
        for row, found in known
    ]
    return Figure(
        key="memory", title="Peak memory", bars=bars,
        caption=f"The most that each rung used: {where}; shorter is better.",
    )  # fmt: skip


def _size_bytes(memory: PeakMemory, *, on_device: bool) -> float | None:
    return memory.reserved_bytes if on_device else memory.host_bytes


def _bar(row: Row, found: Spread, widest: float, tone: str, *, text: str, note: str = "") -> Bar:
    is_spread = found.least < found.most
    return Bar(
        name=formatting.rung_label(row), text=text, note=note, tone=tone, length=100 * found.median / widest,
        least=100 * found.least / widest if is_spread else None, most=100 * found.most / widest if is_spread else None,
    )  # fmt: skip


def _tone(row: Row, ladder: Ladder) -> str:
    if row.rung.data == "naive":
        return "naive"
    if not row.rung.levers:
        return "base"
    if row.rung.name == BEST:
        return "best"
    return "gain" if row.pays(ladder.base) else "none"
