"""Figures over time: what each process did in some typical steps, and how full the queue was."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker
from bokeh.plotting import figure

from ...measure.recording import Recording
from ...measure.stamps import Stamp
from ...verdict.result import Profile
from . import plots
from .plots import HANDING, MAKING, NO_CORE, SAMPLER, STAGES, STALL, STEP, WHOLE, Section, percent

NAIVE = "naive"

_STEPS_SHOWN = 40
_NAIVE_STEPS, _MOST_STEPS = 4, 300  # shown beside each other: at least so many of the one, at most of the other
_MOST_LANES = 16
_SEEN = 0.005  # of a batch's making: what is less is no colour of its own
_LOOP_COLOURS = {
    "stall: batch not ready": STALL, "stall: no core free": NO_CORE, "stall: sampler": SAMPLER, "transport": HANDING
}  # fmt: skip


@dataclass(frozen=True)
class _Block:
    """Something that took a while in a lane. left, right: seconds of the recording's clock."""

    lane: int
    left: float
    right: float
    colour: str
    what: str
    step: int


def timeline(profile: Profile) -> Section | None:
    """Some typical steps, process by process."""
    live = profile.live
    window = typical(live)
    if window is None:
        return None
    began, ended = float(live.asked[window.start]), float(live.done[window.stop - 1])
    whole = sum(live.spans.values())
    parts = {name: STAGES.get(name, MAKING) for name, seconds in live.spans.items() if seconds > _SEEN * whole}
    making = {**parts, "a batch that was not told apart": WHOLE} if len(parts) > 1 else {"making a batch": MAKING}
    count = window.stop - window.start
    told = (
        "above it the workers show what they were doing meanwhile. Of a batch's making only the lengths of its parts "
        "are known, not their order."
        if live.stamps
        else "how its batches were made is not seen, since this loader is not one of torch's."
    )
    return Section(
        key="timeline", title=f"{count} typical steps",
        read=f"A lane for each process, time from left to right. Red is when the loop had nothing to work on; {told}",
        plots={f"timeline of {count} steps": _lanes_plot(live, began, ended - began)},
        legend={**(making if live.stamps else {}), "step": STEP, **_loop_legend(live)},
        notes=(f"Of {live.workers} workers, {_MOST_LANES} are shown.",) if live.workers > _MOST_LANES else (),
    )  # fmt: skip


def typical(recording: Recording, steps: int = _STEPS_SHOWN) -> slice | None:
    """Steady steps in a row, of one stretch, whose stall is closest to that of all; of several, the middle ones."""
    steady, stall, period = recording.steady, recording.wait, recording.period
    if not steady.any():
        return None
    usual = float(stall[steady].sum() / period[steady].sum())
    stalls, periods = (np.concatenate([[0.0], np.cumsum(series)]) for series in (stall, period))
    found = []
    for stretch in recording.stretches:
        first = stretch.start + max(recording.workers * recording.prefetch, 1)
        length = min(steps, stretch.stop - first)
        starts = np.arange(first, stretch.stop - length + 1) if length > 0 else np.zeros(0, np.int64)
        shares = (stalls[starts + length] - stalls[starts]) / (periods[starts + length] - periods[starts])
        found += [(-length, round(abs(float(share) - usual), 3), abs(int(start) - len(recording) // 2), int(start))
                  for start, share in zip(starts, shares, strict=True)]  # fmt: skip
    length, _, _, start = min(found)
    return slice(start, start - length)


def _lanes_plot(recording: Recording, began: float, seconds: float, *, in_parts: bool = True) -> figure:
    """Workers above, then the loop's waits, then its steps; `seconds` from `began` on. in_parts: batches by stage."""
    shown = {stamp.pid for stamp in recording.stamps if stamp.finish > began and stamp.start < began + seconds}
    lanes = {pid: lane for lane, pid in enumerate(sorted(shown)[:_MOST_LANES])}
    names = [f"worker {lane + 1}" if recording.workers else "loading" for lane in lanes.values()]
    names += ["loop waits", "step"]
    every = (*_making(recording, lanes, in_parts=in_parts), *_loop(recording, len(lanes)))
    made = plots.rows_plot(names, "ms", (0.0, seconds * 1e3))
    _draw(made, [block for block in every if block.right > began and block.left < began + seconds], began)
    return made


def _draw(made: figure, blocks: list[_Block], began: float) -> None:
    left, right = (np.array([getattr(block, side) for block in blocks]) - began for side in ("left", "right"))
    lane = np.array([block.lane for block in blocks], np.float64)
    stalled = np.array([block.colour in {STALL, NO_CORE, SAMPLER} for block in blocks], np.bool_)
    made.quad(
        left=left[stalled] * 1e3, right=right[stalled] * 1e3, top=-0.5, bottom=lane.max(initial=0.0) + 0.5,
        color=STALL, alpha=0.1, line_color=None,
    )  # fmt: skip
    source = ColumnDataSource({
        "left": left * 1e3, "right": right * 1e3, "top": lane - 0.36, "bottom": lane + 0.36,
        "color": [block.colour for block in blocks], "what": [block.what for block in blocks],
        "step": [block.step for block in blocks], "takes": (right - left) * 1e3,
    })  # fmt: skip
    drawn = made.quad(left="left", right="right", top="top", bottom="bottom", color="color", line_color="color",
                      line_width=0.3, source=source)  # fmt: skip
    plots.hover(made, [drawn], ("", "@what"), ("took", "@takes{0,0.00} ms"), ("batch", "@step"))


def _making(recording: Recording, lanes: dict[int, int], *, in_parts: bool) -> Iterator[_Block]:
    colour = WHOLE if in_parts and recording.spans else MAKING
    for number, stamp in enumerate(recording.stamps):
        if stamp.pid in lanes and in_parts and stamp.spans:
            yield from _parts(stamp, lanes[stamp.pid], number)
        elif stamp.pid in lanes:
            yield _Block(lanes[stamp.pid], stamp.start, stamp.finish, colour, "making a batch", number)


def _parts(stamp: Stamp, lane: int, number: int) -> Iterator[_Block]:
    """A batch's making in the parts that could be told apart, and the rest."""
    whole = stamp.finish - stamp.start
    timed = sum(stamp.spans.values())
    shrunk = min(1.0, whole / timed) if timed else 1.0
    left = stamp.start
    for name, seconds in stamp.spans.items():
        right = min(left + seconds * shrunk, stamp.finish)
        yield _Block(lane, left, right, STAGES.get(name, MAKING), name, number)
        left = right
    if stamp.finish > left:
        yield _Block(lane, left, stamp.finish, STAGES["other"], "other", number)


def _loop_legend(recording: Recording) -> dict[str, str]:
    return {what: colour for what, colour in _LOOP_COLOURS.items() if colour != SAMPLER or recording.sampling.any()}


def _loop(recording: Recording, lane: int) -> Iterator[_Block]:
    """The loop's waits in one lane, its steps in the next."""
    moments = np.array([*recording.waits, recording.handed]).T.tolist()
    for number, edges in enumerate(moments):
        for (what, colour), (left, right) in zip(_LOOP_COLOURS.items(), itertools.pairwise(edges), strict=True):
            if right > left:
                yield _Block(lane, left, right, colour, what, number)
        yield _Block(lane + 1, edges[-1], float(recording.done[number]), STEP, "step", number)


# ---- how full the queue was


def depth(profile: Profile) -> Section | None:
    """How many batches were ready whenever the loop asked for one."""
    live = profile.live
    known, ahead = live.steady & (live.depth >= 0), live.queue.ahead
    if not ahead or not known.any():
        return None
    ready, seconds = live.depth[known].astype(np.float64), np.cumsum(np.where(live.steady, live.period, 0.0))[known]
    empty = ready == 0
    made = plots.plot(210, "seconds of the run", "batches ready", (0.0, float(seconds[-1])), (-0.25, ahead + 0.6))
    made.yaxis.ticker = FixedTicker(ticks=sorted({0, ahead // 2, ahead}))
    line = made.step(seconds, ready, mode="before", line_color=STEP, line_width=1.2)
    gone = made.scatter(seconds[empty], ready[empty], size=5, color=STALL)
    plots.mark(made, ahead, across=True)
    plots.hover(made, [line, gone], ("at", "@x{0.00} s"), ("ready", "@y"))
    return Section(
        key="depth", title="How full the queue was",
        read="Batches that were made and waited whenever the loop asked for one; the dashed line is the most that can. "
        f"A red dot is an empty queue: the loop had to wait. It was empty in {percent(float(empty.mean()))} of the "
        "steps.",
        plots={"batches ready over time": made}, legend={"batches ready": STEP, "empty": STALL},
    )  # fmt: skip


# ---- beside the loader that makes faces from videos


def without_precomputing(profile: Profile) -> Section | None:
    """The same steps on faces made from the videos each time, on one scale of time."""
    naive = next((trial for trial in profile.trials if trial.name == NAIVE), None)
    if naive is None:
        return None
    ours, theirs = profile.live.images_per_second, naive.recording.images_per_second
    ratio = f"{ours / theirs:,.1f} times as many images a second" if theirs else "more images a second"
    bare = " (without any transform, which would come on top)" if profile.live.spans.get("augment") else ""
    return Section(
        key="naive", title="Without precomputing",
        read=f"Precomputed, training gets {ratio}: {ours:,.0f} instead of {theirs:,.0f}. Without, each face is decoded "
        f"and detected anew in the loader{bare}, and the step waits {percent(naive.verdict.live.value)} of the time, "
        f"seen in {naive.verdict.steps:,} steps. Both timelines have the same scale; "
        "in a gap another part was measured.",
        plots=_side_by_side(profile.live, naive.recording),
        legend={"making a batch": MAKING, "step": STEP, **_loop_legend(profile.live)},
    )  # fmt: skip


def _side_by_side(live: Recording, naive: Recording) -> dict[str, figure]:
    period, slow = (float(np.mean(one.period[one.steady] if one.steady.any() else one.period)) for one in (live, naive))
    seconds = min(max(_NAIVE_STEPS * slow, _STEPS_SHOWN * period), _MOST_STEPS * period)
    plots_of = {}
    for name, recording in (("precomputed", live), ("made from the videos in every step", naive)):
        window = typical(recording) or slice(0, len(recording))
        plots_of[name] = _lanes_plot(recording, float(recording.asked[window.start]), seconds, in_parts=False)
    return plots_of
