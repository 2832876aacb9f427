"""Sections over time: what each process did in typical steps, and the depth of the queue."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker
from bokeh.plotting import figure

from .....pipeline.page import figures
from .....pipeline.page.formats import percent
from .....pipeline.page.html import Section
from ...measure.batch_timing import BatchTiming
from ...measure.recording import Recording
from ...verdict.result import Profile
from .colours import LOADING, NO_CORE, SAMPLER, STAGES, STEP, TRANSPORT, UNSPLIT_BATCH, WAIT

NAIVE = "naive"

_STEPS_SHOWN = 40
_NAIVE_STEPS, _MOST_STEPS = 4, 300  # shown beside each other: at least so many of the one, at most of the other
_MOST_LANES = 16
_SEEN = 0.005  # of a batch's load time: what is less is no colour of its own
_LOOP_COLOURS = {
    "wait: batch not ready": WAIT, "wait: no core free": NO_CORE, "wait: sampler": SAMPLER, "transport": TRANSPORT
}  # fmt: skip


@dataclass(frozen=True)
class _Block:
    """A block in a lane. left, right: seconds on the recording's clock."""

    lane: int
    left: float
    right: float
    colour: str
    what: str
    step: int


def timeline(profile: Profile) -> Section | None:
    """Section: typical steps, process by process."""
    live = profile.live
    window = typical(live)
    if window is None:
        return None
    began, ended = float(live.requested_at[window.start]), float(live.step_end_at[window.stop - 1])
    load_seconds = sum(live.stage_seconds.values())
    parts = {
        name: STAGES.get(name, LOADING)
        for name, seconds in live.stage_seconds.items()
        if seconds > _SEEN * load_seconds
    }
    making = {**parts, "a batch without stage times": UNSPLIT_BATCH} if len(parts) > 1 else {"loading a batch": LOADING}
    count = window.stop - window.start
    loading_note = (
        "above it the workers show what they were doing meanwhile. Of a batch's load time only the lengths of its "
        "parts are known, not their order."
        if live.batch_timings
        else "how its batches were made is not seen, since they are not those of a torch DataLoader."
    )
    return Section(
        key="timeline",
        title=f"{count} typical steps",
        read=f"A lane for each process, time from left to right. Red is when the loop had nothing to work on; "
        f"{loading_note}",
        plots={f"timeline of {count} steps": _lanes_plot(live, began, ended - began)},
        legend={**(making if live.batch_timings else {}), "step": STEP, **_loop_legend(live)},
        notes=(f"Of {live.num_workers} workers, {_MOST_LANES} are shown.",) if live.num_workers > _MOST_LANES else (),
    )


def typical(recording: Recording, steps: int = _STEPS_SHOWN) -> slice | None:
    """Consecutive steady steps of one segment whose waiting is closest to the mean; of several, the middle ones."""
    steady, wait, period = recording.is_steady, recording.wait_seconds, recording.period_seconds
    if not steady.any():
        return None
    usual = float(wait[steady].sum() / period[steady].sum())
    waits, periods = (np.concatenate([[0.0], np.cumsum(series)]) for series in (wait, period))
    found = []
    for segment in recording.segments:
        steady_steps = segment.start + np.flatnonzero(steady[segment])
        length = min(steps, len(steady_steps))
        starts = steady_steps[: len(steady_steps) - length + 1]
        shares = (waits[starts + length] - waits[starts]) / (periods[starts + length] - periods[starts])
        found += [(-length, round(abs(float(share) - usual), 3), abs(int(start) - len(recording) // 2), int(start))
                  for start, share in zip(starts, shares, strict=True)]  # fmt: skip
    length, _, _, start = min(found)
    return slice(start, start - length)


def _lanes_plot(recording: Recording, began: float, seconds: float, *, in_parts: bool = True) -> figure:
    """Workers above, then the loop's waits, then its steps; `seconds` from `began` on. in_parts: batches by stage."""
    shown = {
        timing.pid for timing in recording.batch_timings if timing.end_at > began and timing.start_at < began + seconds
    }
    lanes = {pid: lane for lane, pid in enumerate(sorted(shown)[:_MOST_LANES])}
    names = [f"worker {lane + 1}" if recording.num_workers else "loading" for lane in lanes.values()]
    names += ["loop waits", "step"]
    every = (*_loading_blocks(recording, lanes, in_parts=in_parts), *_loop(recording, len(lanes)))
    fig = figures.rows_plot(names, "ms", (0.0, seconds * 1e3))
    _draw(fig, [block for block in every if block.right > began and block.left < began + seconds], began)
    return fig


def _draw(fig: figure, blocks: list[_Block], began: float) -> None:
    left, right = (np.array([getattr(block, side) for block in blocks]) - began for side in ("left", "right"))
    lane = np.array([block.lane for block in blocks], np.float64)
    waited = np.array([block.colour in {WAIT, NO_CORE, SAMPLER} for block in blocks], np.bool_)
    fig.quad(
        left=left[waited] * 1e3, right=right[waited] * 1e3, top=-0.5, bottom=lane.max(initial=0.0) + 0.5,
        color=WAIT, alpha=0.1, line_color=None,
    )  # fmt: skip
    source = ColumnDataSource({
        "left": left * 1e3, "right": right * 1e3, "top": lane - 0.36, "bottom": lane + 0.36,
        "color": [block.colour for block in blocks], "what": [block.what for block in blocks],
        "step": [block.step for block in blocks], "takes": (right - left) * 1e3,
    })  # fmt: skip
    drawn = fig.quad(left="left", right="right", top="top", bottom="bottom", color="color", line_color="color",
                      line_width=0.3, source=source)  # fmt: skip
    figures.hover(fig, [drawn], ("", "@what"), ("took", "@takes{0,0.00} ms"), ("batch", "@step"))


def _loading_blocks(recording: Recording, lanes: dict[int, int], *, in_parts: bool) -> Iterator[_Block]:
    colour = UNSPLIT_BATCH if in_parts and recording.stage_seconds else LOADING
    for number, timing in enumerate(recording.batch_timings):
        if timing.pid in lanes and in_parts and timing.stage_seconds:
            yield from _parts(timing, lanes[timing.pid], number)
        elif timing.pid in lanes:
            yield _Block(lanes[timing.pid], timing.start_at, timing.end_at, colour, "loading a batch", number)


def _parts(timing: BatchTiming, lane: int, number: int) -> Iterator[_Block]:
    """The loading of a batch by stage, and the rest."""
    load_seconds = timing.end_at - timing.start_at
    stage_seconds = sum(timing.stage_seconds.values())
    scale = min(1.0, load_seconds / stage_seconds) if stage_seconds else 1.0
    left = timing.start_at
    for name, seconds in timing.stage_seconds.items():
        right = min(left + seconds * scale, timing.end_at)
        yield _Block(lane, left, right, STAGES.get(name, LOADING), name, number)
        left = right
    if timing.end_at > left:
        yield _Block(lane, left, timing.end_at, STAGES["other"], "other", number)


def _loop_legend(recording: Recording) -> dict[str, str]:
    return {
        what: colour
        for what, colour in _LOOP_COLOURS.items()
        if colour != SAMPLER or recording.sampler_wait_seconds.any()
    }


def _loop(recording: Recording, lane: int) -> Iterator[_Block]:
    """The loop's waits in one lane, its steps in the next."""
    moments = np.array([*recording.wait_boundaries, recording.received_at]).T.tolist()
    for number, edges in enumerate(moments):
        for (what, colour), (left, right) in zip(_LOOP_COLOURS.items(), itertools.pairwise(edges), strict=True):
            if right > left:
                yield _Block(lane, left, right, colour, what, number)
        yield _Block(lane + 1, edges[-1], float(recording.step_end_at[number]), STEP, "step", number)


# ---- how full the queue was


def depth(profile: Profile) -> Section | None:
    """Section: the number of ready batches at each request."""
    live = profile.live
    known, ahead = live.is_steady & (live.queue_depth >= 0), live.queue_model.max_in_flight
    if not ahead or not known.any():
        return None
    ready = live.queue_depth[known].astype(np.float64)
    seconds = np.cumsum(np.where(live.is_steady, live.period_seconds, 0.0))[known]
    empty = ready == 0
    fig = figures.plot(210, "seconds of the run", "batches ready", (0.0, float(seconds[-1])), (-0.25, ahead + 0.6))
    fig.yaxis.ticker = FixedTicker(ticks=sorted({0, ahead // 2, ahead}))
    line = fig.step(seconds, ready, mode="before", line_color=STEP, line_width=1.2)
    gone = fig.scatter(seconds[empty], ready[empty], size=5, color=WAIT)
    figures.mark(fig, ahead, across=True)
    figures.hover(fig, [line, gone], ("at", "@x{0.00} s"), ("ready", "@y"))
    return Section(
        key="depth", title="How full the queue was",
        read="Batches that were made and waited whenever the loop asked for one; the dashed line is the most that can. "
        f"A red dot is an empty queue: the loop had to wait. It was empty in {percent(float(empty.mean()))} of the "
        "steps.",
        plots={"batches ready over time": fig}, legend={"batches ready": STEP, "empty": WAIT},
    )  # fmt: skip


# ---- beside the loader that makes faces from videos


def without_precomputing(profile: Profile) -> Section | None:
    """Section: the same steps on faces decoded from videos in every step, on one time scale."""
    naive = next((trial for trial in profile.trials if trial.name == NAIVE), None)
    if naive is None:
        return None
    ours, theirs = profile.live.images_per_second, naive.recording.images_per_second
    ratio = f"{ours / theirs:,.1f} times as many images a second" if theirs else "more images a second"
    bare = " (without any transform, which would come on top)" if profile.live.stage_seconds.get("augment") else ""
    return Section(
        key="naive",
        title="Without precomputing",
        read=f"Precomputed, training gets {ratio}: {ours:,.0f} instead of {theirs:,.0f}. Without, each face is decoded "
        f"and detected anew in the loader{bare}, and the step waits {percent(naive.verdict.wait_share.value)} "
        f"of the time, seen in {naive.verdict.num_steps:,} steps. Both timelines have the same scale; "
        "in a gap another part was measured.",
        plots=_side_by_side(profile.live, naive.recording),
        has_captions=True,
        legend={"loading a batch": LOADING, "step": STEP, **_loop_legend(profile.live)},
    )


def _mean_period_seconds(recording: Recording) -> float:
    """Of its steady state, if it has one."""
    periods = recording.period_seconds
    return float(np.mean(periods[recording.is_steady] if recording.is_steady.any() else periods))


def _side_by_side(live: Recording, naive: Recording) -> dict[str, figure]:
    period, slow = _mean_period_seconds(live), _mean_period_seconds(naive)
    seconds = min(max(_NAIVE_STEPS * slow, _STEPS_SHOWN * period), _MOST_STEPS * period)
    plots_of = {}
    for name, recording in (("precomputed", live), ("made from the videos in every step", naive)):
        window = typical(recording) or slice(0, len(recording))
        plots_of[name] = _lanes_plot(recording, float(recording.requested_at[window.start]), seconds, in_parts=False)
    return plots_of
