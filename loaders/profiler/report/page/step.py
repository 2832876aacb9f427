"""Sections on a step's time: its parts, the wait curve, and distributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from bokeh.models import ColumnDataSource
from bokeh.models.annotations.labels import Label
from bokeh.plotting import figure

from .....pipeline.console import plural
from .....pipeline.page import figures
from .....pipeline.page.figures import INK, MUTED, SOFT
from .....pipeline.page.formats import milliseconds, percent
from .....pipeline.page.html import Section
from ...estimate.queue_model import Seconds
from ...verdict.result import STEP_PART_LABELS, CurvePoint, Profile
from ...verdict.what_if import WhatIfModel
from .colours import LOADING, NO_CORE, OTHER_RANKS, SAMPLER, STEP, TRANSPORT, WAIT

_FASTER = (2, 4)
_FASTER_COLOUR = "#e69f00"
_CURVE_POINTS = 48
_FAR_OFF = 0.1
_OTHER_PACE = 1.2
_BINS = 60

_BARS = {
    "step alone": (STEP, "the same step on batches that are there already"),
    "copy": ("#6f9fd0", "bringing the batch to the device"),
    "slower step": (LOADING, "the step is slower while batches are being made beside it"),
    "other ranks": (OTHER_RANKS, "the step cannot end before another rank's batch is there"),
    "transport": (TRANSPORT, "passing a batch that is made from its worker to the loop, where the device waits for it"),
    "sampling": (SAMPLER, "the sampler chooses the next samples, in the loop itself"),
    "contention": (NO_CORE, "the batch is made, but no core is free to hand it over"),
    "preparation": (WAIT, "the batch is still being made"),
}
"""Colour and meaning of the parts of `Profile.step_part_seconds`."""

_WAITS = ("other ranks", "transport", "sampling", "contention", "preparation")


def waterfall(profile: Profile) -> Section:
    """Section: the parts of a step's time."""
    bars = profile.step_part_seconds
    fetch = profile.cold_fetch_seconds
    period, waits = sum(bars.values()), sum(bars.get(name, 0.0) for name in _WAITS)
    rows, reached = [], 0.0
    for name, seconds in bars.items():
        rows.append((STEP_PART_LABELS[name], *_BARS[name], reached, reached + seconds))
        reached += seconds
    rows.append(("= a step now", INK, "from one batch to the next, as measured", 0.0, period))
    if fetch:
        meaning = "what comes on top while no file is in the page cache"
        rows.append(("cold cache", "#a63d8f", meaning, period, period + fetch))
    colours = "Grey, orange, purple" if "other ranks" in bars else "Grey, orange"
    return Section(
        key="waterfall", title="Where a step's time goes",
        read=f"From the top down, each bar adds its part to those above it. {colours} and red is time in which the "
        f"device waits: {milliseconds(waits)} of {milliseconds(period)} a step.",
        plots={"bars that add up to a step's time": _waterfall_plot(rows)},
    )  # fmt: skip


def _waterfall_plot(rows: Sequence[tuple[str, str, str, float, float]]) -> figure:
    """Rows of name, colour, meaning and both ends in seconds; thin lines connect consecutive bars."""
    names, colours, meanings, *ends = zip(*rows, strict=True)
    left, right = np.array(ends) * 1e3
    far = np.maximum(left, right)
    fig = figures.rows_plot(names, "ms", (min(0.0, float(right.min())), float(far.max()) * 1.4))
    for row, edge in enumerate(right[:-1]):
        fig.line([edge, edge], [row - 0.32, row + 1.32], line_color=MUTED)
    spans = np.round(right - left, 2) + 0.0  # no "-0.00"
    labels = [f"{span:{'+' if start else ''},.2f} ms" for start, span in zip(left, spans, strict=True)]
    source = ColumnDataSource({"y": list(range(len(rows))), "left": left, "right": right, "far": far, "what": names,
                               "color": colours, "means": meanings, "taken": labels})  # fmt: skip
    bars = fig.hbar(y="y", left="left", right="right", height=0.64, color="color", source=source)
    fig.text(x="far", y="y", text="taken", x_offset=6, text_baseline="middle", text_color=INK, source=source)
    figures.hover(fig, [bars], ("", "@what"), ("takes", "@taken"), ("", "@means"))
    return fig


# ---- the wait curve


def curve(profile: Profile) -> Section | None:
    """Section: waiting over step time, as predicted and as measured; None for a job, which has no model."""
    verdict = profile.verdict
    if profile.ranks:
        return None
    title, key = "Would a faster step starve?", "curve"
    if verdict.model_wait_share is None or not verdict.mean_step_seconds:
        why = ("Not known: how long each batch takes to make is seen of torch's loaders alone, and the queue's model "
               "holds where they keep their order.")  # fmt: skip
        return Section(key=key, title=title, read=why)
    now = verdict.mean_step_seconds
    faster = dict(zip(_FASTER, _predicted(profile, [now / times for times in _FASTER]), strict=True))
    words = [f"{percent(share)} of the time on a device {times} times as fast" for times, share in faster.items()]
    notes = [f"By the model, the step would wait {', and '.join(words)}."]
    if profile.curve:
        notes.append(_agreement(profile.curve))
    else:
        notes.append("Other step times were not tried, since a real step takes as long as it takes: the line is the "
                     "model's alone." if not verdict.emulated else "Other step times were not tried.")  # fmt: skip
    measured = {"measured": INK} if profile.curve else {}
    return Section(
        key=key, title=title,
        read="Left is a faster step. The line is what the queue's model predicts from how long batches took to load "
        "and to transfer at your step; dots were measured.",
        plots={"waiting against the step's time": _curve_plot(profile, faster)},
        legend={"predicted": STEP, **measured, "your step": WAIT, "a faster device, predicted": _FASTER_COLOUR},
        notes=tuple(notes),
    )  # fmt: skip


def _agreement(points: Sequence[CurvePoint]) -> str:
    """The sentence on how well measured points fit the predicted curve."""
    apart = [abs(point.measured_wait_share - point.predicted_wait_share) for point in points]
    worst = points[int(np.argmax(apart))]
    sentence = f"The dots lie {sum(apart) / len(apart) * 100:.1f} points off the line on average"
    if max(apart) <= _FAR_OFF:
        return f"{sentence}, {max(apart) * 100:.1f} at most."
    why = "The model knows only what was seen at your step: rely on the dots."
    if not 1 / _OTHER_PACE < worst.load_ratio < _OTHER_PACE:
        why = (
            f"Batches took {worst.load_ratio:.1f} times as long to make there as at your step, "
            "so something else on the machine came or went: measure again while nothing else runs."
        )
    return (
        f"{sentence}, and the one at {milliseconds(worst.step_seconds)} by {max(apart) * 100:.0f}: "
        f"{percent(worst.measured_wait_share)} where the model says {percent(worst.predicted_wait_share)}. {why}"
    )


def _predicted(profile: Profile, steps: Sequence[float]) -> list[float]:
    model = WhatIfModel.fit(profile.live, profile.num_cores)
    return [model.wait_share(step_seconds=step) for step in steps]


def _curve_plot(profile: Profile, faster: dict[int, float]) -> figure:
    verdict, now = profile.verdict, profile.verdict.mean_step_seconds
    measured = np.array(
        [(point.step_seconds * 1e3, point.measured_wait_share * 100) for point in profile.curve]
    ).reshape(-1, 2)
    marks = [now, now / max(_FASTER), verdict.fastest_step_seconds or now, *(measured[:, 0] / 1e3)]
    steps = np.geomspace(0.8 * min(marks), 1.3 * max(marks), _CURVE_POINTS)
    predicted = np.array(_predicted(profile, steps.tolist())) * 100
    far = float(steps[-_CURVE_POINTS // 4])  # what stands to the right of it would not fit
    top = 1.2 * max(predicted.max(), verdict.wait_share.value * 100, measured[:, 1].max(initial=0.0), 4.0)
    fig = figures.plot(330, "step time (ms)", "waiting (% of the time)", (steps[0] * 1e3, steps[-1] * 1e3),
                      (-0.03 * top, top), x_axis_type="log")  # fmt: skip
    if verdict.fastest_step_seconds is not None:
        figures.mark(fig, verdict.fastest_step_seconds * 1e3)
        label = f"1 % at {milliseconds(verdict.fastest_step_seconds)}"
        _label(
            fig,
            verdict.fastest_step_seconds * 1e3,
            0.9 * top,
            label,
            colour=SOFT,
            to_left=verdict.fastest_step_seconds > far,
        )
    shown = [
        fig.line(steps * 1e3, predicted, line_width=2.5, color=STEP),
        fig.scatter(measured[:, 0], measured[:, 1], size=9, color=INK),
        fig.scatter(now / np.array(list(faster)) * 1e3, np.array(list(faster.values())) * 100, size=12,
                     marker="square", fill_color="white", line_color=_FASTER_COLOUR, line_width=2.5),
        fig.scatter([now * 1e3], [verdict.wait_share.value * 100], size=16, marker="diamond", color=WAIT),
    ]  # fmt: skip
    for times, wait_share in faster.items():
        _label(fig, now / times * 1e3, wait_share * 100, f"{times}x faster")
    _label(
        fig, now * 1e3, verdict.wait_share.value * 100, "your step", to_left=now > far, above_px=22 if now > far else 9
    )
    figures.hover(fig, shown, ("step", "@x{0,0.0} ms"), ("waits", "@y{0.0} %"))
    return fig


def _label(
    fig: figure, x: float, y: float, text: str, *, colour: str = INK, to_left: bool = False, above_px: int = 9
) -> None:
    fig.add_layout(
        Label(x=x, y=y, x_offset=-8 if to_left else 10, y_offset=above_px, text=text, text_color=colour,
              text_align="right" if to_left else "left", background_fill_color="white")
    )  # fmt: skip


# ---- distributions


def distributions(profile: Profile) -> Section | None:
    """Section: distributions of load and step times."""
    live, steady = profile.live, profile.live.is_steady
    if not live.batch_timings or not steady.any():
        return None
    load, step = live.load_seconds[steady], live.step_seconds[steady]
    hidden = live.queue_model.max_in_flight * profile.own_verdict.median_step_seconds
    ends = [float(value) for value in (load.min(), step.min(), load.max(), step.max(), hidden) if value > 0]
    edges = np.geomspace(0.9 * min(ends), 1.15 * max(ends), _BINS + 1)
    queue_note = "Without workers there is no queue that could hide a slow batch: each is waited for in full."
    batches = _histogram(load, edges, "time to make a batch (ms)", LOADING)
    if hidden:
        figures.mark(batches, hidden * 1e3, colour=WAIT)
        queue_note = (
            f"The dashed line is {plural(live.num_workers, 'worker')} x {live.prefetch_factor} batches ahead x a step "
            f"of {milliseconds(profile.own_verdict.median_step_seconds)} = {milliseconds(hidden)}: "
            "a batch that takes longer cannot be hidden by the queue, however fast the others are. "
            f"{int((load > hidden).sum()):,} of {len(load):,} did."
        )
    return Section(
        key="distributions", title="How long batches and steps take",
        read=f"Both on one scale of time; a wide shape means uneven times. {queue_note}",
        plots={
            "histogram of the time to make a batch": batches,
            "histogram of the time of a step": _histogram(step, edges, "time of a step (ms)", STEP),
        },
    )  # fmt: skip


def _histogram(values: Seconds, edges: Seconds, what: str, colour: str) -> figure:
    shares = np.histogram(values, edges)[0] / len(values) * 100
    fig = figures.plot(170, what, "% of all", (edges[0] * 1e3, edges[-1] * 1e3), (0.0, 1.1 * float(shares.max())),
                      x_axis_type="log")  # fmt: skip
    source = ColumnDataSource({"left": edges[:-1] * 1e3, "right": edges[1:] * 1e3, "top": shares})
    bars = fig.quad(left="left", right="right", bottom=0, top="top", color=colour, line_color="white", source=source)
    figures.hover(fig, [bars], ("from", "@left{0,0.00} ms"), ("to", "@right{0,0.00} ms"), ("share", "@top{0.0} %"))
    return fig
