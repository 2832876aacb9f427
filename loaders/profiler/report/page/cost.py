"""Sections on cost: loading by stage, and this loader beside others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from bokeh.models import ColumnDataSource, NumeralTickFormatter
from bokeh.models.annotations.geometry import Whisker
from bokeh.plotting import figure

from ...measure.recording import Recording
from ...verdict.result import Profile
from ...verdict.verdict import Verdict
from . import plots
from .plots import INK, LOADING, MUTED, STAGES, STALL, STEP, Section, Table, milliseconds, percent

_STAGE_MEANINGS = {
    "read": "getting the rows from their files", "decode": "from JPEG to pixels",
    "resize": "to the size that is asked for", "augment": "the transforms",
    "collate": "images to one batch, normalised", "other": "what nobody timed",
}  # fmt: skip
_SCARCE = 0.15  # of a batch's load time: who waits for a core so long has too few
_STORAGE_BYTES = 1e6  # a batch


def stages(profile: Profile) -> Section | None:
    """Section: load time by stage, and what limits loading."""
    spans = profile.live.stage_seconds
    if not spans:
        return None
    names, stage_ms = list(spans), np.array(list(spans.values())) * 1e3
    total_ms = max(float(stage_ms.sum()), 1e-9)
    fig = plots.rows_plot(names, "ms a batch", (0.0, max(float(stage_ms.max()), 1e-6) * 1.5))
    source = ColumnDataSource(
        {
            "y": list(range(len(names))),
            "ms": stage_ms,
            "what": names,
            "color": [STAGES.get(stage, LOADING) for stage in names],
            "text": [f"{milliseconds(value / 1e3)}, {percent(value / total_ms)}" for value in stage_ms],
            "means": [_STAGE_MEANINGS.get(stage, "") for stage in names],
        }
    )
    bars = fig.hbar(y="y", left=0, right="ms", height=0.64, color="color", source=source)
    fig.text(x="ms", y="y", text="text", x_offset=6, text_baseline="middle", text_color=INK, source=source)
    plots.hover(fig, [bars], ("", "@what"), ("takes", "@text"), ("", "@means"))
    return Section(
        key="stages",
        title="What a batch costs to make",
        read=f"One process takes {milliseconds(total_ms / 1e3)} a batch; the longest bar is where less work helps "
        "most.",
        plots={"bars of the stages of loading a batch": fig},
        notes=(binding(profile.live),),
    )


def binding(recording: Recording) -> str:
    """The sentence on what limits loading: cores, computing, storage or waiting."""
    timings = recording.steady_batch_timings
    load_seconds = sum(timing.end_at - timing.start_at for timing in timings)
    cpu_share = min(sum(timing.cpu_seconds for timing in timings) / load_seconds, 1.0)
    core_wait_share = min(sum(timing.core_wait_seconds for timing in timings) / load_seconds, 1.0 - cpu_share)
    other_share = 1.0 - cpu_share - core_wait_share
    if not cpu_share:
        return "What limits it is not known: the system does not report how long the workers computed."
    if core_wait_share > _SCARCE or recording.late_seconds.sum() > recording.not_ready_seconds.sum():
        limit = (
            "the cores. The loop and its workers want more than there are: more workers will not help, less work will"
        )
    elif cpu_share >= other_share:
        limit = "computing. The workers are busy: more workers help while cores are free, and so does less work"
    elif sum(timing.storage_bytes for timing in timings) / len(timings) > _STORAGE_BYTES:
        limit = "storage. The workers mostly wait for what they read: faster storage helps, and so do more workers"
    else:
        limit = "waiting. The workers mostly wait, for files, locks or other processes: more workers help"
    return (
        f"What limits it: {limit}. Of a batch's load time, {percent(cpu_share)} is computing, "
        f"{percent(core_wait_share)} is waiting "
        f"for a free core, and {percent(other_share)} is neither."
    )


# ---- beside others


def trials(profile: Profile) -> Section | None:
    """Section: the same step with this loader and with others."""
    others = profile.all_trials
    if not others:
        return None
    rows = [(trial.name, trial.recording, trial.verdict) for trial in (profile.as_trial, *others)]
    limit = profile.live.images_per_batch / float(profile.preloaded.step_seconds.mean())
    confidence = percent(profile.own_verdict.wait_share.confidence)
    return Section(
        key="trials",
        title="The same step with other loaders",
        read="Left: how many images a second get through; the dashed line is what the step alone allows. Right: how "
        f"much of the time it waits; a whisker spans the {confidence} bounds, wide where few steps were tried.",
        plots={
            "images a second of each loader": _throughput(rows, limit),
            "waiting of each loader": waits_plot([(name, verdict) for name, _, verdict in rows]),
        },
        table=Table(
            ("loader", "images/s", "waiting", f"bounds ({confidence})", "steps", "loading a batch"),
            [
                (
                    name,
                    f"{recording.images_per_second:,.0f}",
                    percent(verdict.wait_share.value),
                    f"{percent(verdict.wait_share.lower)} to {percent(verdict.wait_share.upper)}",
                    f"{verdict.num_steps:,}",
                    milliseconds(verdict.median_load_seconds) if recording.batch_timings else "not seen",
                )
                for name, recording, verdict in rows
            ],
        ),
        notes=(
            "“evaluation transform” only resizes and normalises; “none” reads and hands over without even decoding: "
            "what it still waits is not the transforms' doing.",
        )
        if any(trial.name in {"none", "evaluation transform"} for trial in others)
        else (),
    )


_Row = tuple[str, Recording, Verdict]


def _throughput(rows: list[_Row], limit: float) -> figure:
    values = [recording.images_per_second for _, recording, _ in rows]
    fig = plots.rows_plot([name for name, _, _ in rows], "images a second", (0.0, max(*values, limit) * 1.25))
    fig.xaxis.formatter = NumeralTickFormatter(format="0,0")
    source = ColumnDataSource({
        "y": list(range(len(rows))), "value": values, "what": [name for name, _, _ in rows],
        "text": [f"{value:,.0f}" for value in values], "color": [STEP, *[MUTED] * (len(rows) - 1)],
    })  # fmt: skip
    plots.mark(fig, limit)
    bars = fig.hbar(y="y", left=0, right="value", height=0.6, color="color", source=source)
    fig.text(x="value", y="y", text="text", x_offset=6, text_baseline="middle", text_color=INK, source=source)
    plots.hover(fig, [bars], ("", "@what"), ("images/s", "@text"))
    return fig


def waits_plot(rows: Sequence[tuple[str, Verdict]]) -> figure:
    """A bar of each verdict's waiting, with a whisker from bound to bound."""
    wait_shares = [verdict.wait_share for _, verdict in rows]
    longest = max(5.0, *(share.upper * 105 for share in wait_shares))
    fig = plots.rows_plot([name for name, _ in rows], "waiting (% of the time)", (0.0, longest))
    source = ColumnDataSource({
        "y": list(range(len(rows))), "what": [name for name, _ in rows],
        **{side: [getattr(share, side) * 100 for share in wait_shares] for side in ("value", "lower", "upper")},
    })  # fmt: skip
    bars = fig.hbar(y="y", left=0, right="value", height=0.6, color=STALL, alpha=0.75, source=source)
    fig.add_layout(Whisker(base="y", lower="lower", upper="upper", dimension="width", source=source, line_color=INK))
    plots.hover(fig, [bars], ("", "@what"), ("waits", "@value{0.0} %"), ("bounds", "@lower{0.0} to @upper{0.0} %"))
    return fig
