"""Sections on cost: loading by stage, and this loader beside others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from bokeh.plotting import figure

from .....pipeline.page.figures import MUTED, Bar, bar_chart
from .....pipeline.page.formats import milliseconds, percent
from .....pipeline.page.html import Section, Table
from ...measure.recording import Recording
from ...verdict.result import Profile
from ...verdict.verdict import FED_BELOW, Verdict
from ..shares import as_given, bounds_text
from .colours import LOADING, STAGES, STEP, WAIT

_STAGE_MEANINGS = {
    "read": "getting the rows from their files", "decode": "from JPEG to pixels",
    "resize": "to the size that is asked for", "augment": "the transforms",
    "collate": "images to one batch, normalised", "other": "the rest, which no stage timed",
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
    bars = [
        Bar(
            name=name, value=value, colour=STAGES.get(name, LOADING), note=_STAGE_MEANINGS.get(name, ""),
            text=f"{milliseconds(value / 1e3)}, {percent(value / total_ms)}",
        )
        for name, value in zip(names, stage_ms.tolist(), strict=True)
    ]  # fmt: skip
    return Section(
        key="stages",
        title="What a batch costs to make",
        read=f"One process takes {milliseconds(total_ms / 1e3)} a batch; "
        "the longest bar is where less work helps most.",
        plots={"bars of the stages of loading a batch": bar_chart(bars, "ms a batch")},
        notes=(binding(profile.live, num_ranks=max(len(profile.ranks), 1)),),
    )


def binding(recording: Recording, *, num_ranks: int = 1) -> str:
    """The sentences on what limits loading, where it is too slow: cores, computing, storage or waiting."""
    timings = recording.steady_batch_timings
    load_seconds = sum(timing.end_at - timing.start_at for timing in timings)
    cpu_share = min(sum(timing.cpu_seconds for timing in timings) / load_seconds, 1.0)
    core_wait_share = min(sum(timing.core_wait_seconds for timing in timings) / load_seconds, 1.0 - cpu_share)
    other_share = 1.0 - cpu_share - core_wait_share
    is_steady = recording.is_steady
    is_waited_for = float(recording.wait_seconds[is_steady].sum()) > FED_BELOW / num_ranks * recording.steady_seconds
    if not cpu_share and not is_waited_for:
        return "The system does not report how long the workers computed."
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
    limits = f"What limits it: {limit}. " if is_waited_for else ""
    return (
        f"{limits}Of a batch's load time, {percent(cpu_share)} is computing, "
        f"{percent(core_wait_share)} is waiting for a free core, and {percent(other_share)} is neither."
    )


# ---- beside others

_LESS_WORK = {"without decoding", "evaluation transform"}
_LESS_WORK_NOTES = (
    "“evaluation transform” only resizes and normalises; “without decoding” only reads and transfers: "
    "what it still waits is not the transforms' doing.",
)


def trials(profile: Profile) -> Section | None:
    """Section: the same step with this loader and with others."""
    others = profile.all_trials
    if not others and not profile.trial_notes:
        return None
    rows = [(trial.name, trial.recording, trial.verdict) for trial in (profile.as_trial, *others)]
    limit = profile.live.images_per_batch / float(profile.preloaded.step_seconds.mean())
    confidence = as_given(profile.own_verdict.wait_share.confidence)
    return Section(
        key="trials",
        title="The same step with other loaders",
        read="Left: images a second; the dashed line is what the step alone allows. Right: how "
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
                    bounds_text(verdict.wait_share),
                    f"{verdict.num_steps:,}",
                    milliseconds(verdict.median_load_seconds) if recording.batch_timings else "not seen",
                )
                for name, recording, verdict in rows
            ],
        ),
        notes=(*(_LESS_WORK_NOTES if any(trial.name in _LESS_WORK for trial in others) else ()), *profile.trial_notes),
    )


def _throughput(rows: Sequence[tuple[str, Recording, Verdict]], limit: float) -> figure:
    bars = [
        Bar(
            name=name,
            value=recording.images_per_second,
            text=f"{recording.images_per_second:,.0f}",
            colour=MUTED if number else STEP,
        )
        for number, (name, recording, _) in enumerate(rows)
    ]
    return bar_chart(bars, "images/s", reference=limit)


def waits_plot(rows: Sequence[tuple[str, Verdict]]) -> figure:
    """A bar of each verdict's waiting, with a whisker from bound to bound."""
    bars = [
        Bar(
            name=name, value=share.value * 100, colour=WAIT, text=percent(share.value), lower=share.lower * 100,
            upper=share.upper * 100, note=f"bounds: {bounds_text(share)}",
        )
        for name, share in ((name, verdict.wait_share) for name, verdict in rows)
    ]  # fmt: skip
    return bar_chart(bars, "waiting (% of the time)", least_end=5.0)
