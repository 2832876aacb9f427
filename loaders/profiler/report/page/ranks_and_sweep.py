"""Sections on several measurements: the ranks of a job, and the settings of a sweep."""

from __future__ import annotations

from bokeh.models import ColumnDataSource
from bokeh.plotting import figure

from .....pipeline.page import figures
from .....pipeline.page.formats import percent
from .....pipeline.page.html import Section, Table
from ...trials.sweep import describe_settings
from ...verdict.job import RankResult
from ...verdict.result import STEP_PART_LABELS, Profile, SweepResult
from ...verdict.verdict import format_headroom
from ..shares import as_given, at_most_or_none, bounds_text
from .colours import NO_CORE, SAMPLER, TRANSPORT, WAIT
from .cost import waits_plot

_COLOURS = {"transport": TRANSPORT, "sampling": SAMPLER, "contention": NO_CORE, "preparation": WAIT}


def sweep(profile: Profile) -> Section | None:
    """Section: the measured settings, the cheapest that feeds the device first."""
    results = profile.sweep
    if not results:
        return None
    rows = [(describe_settings((result.num_workers, result.prefetch_factor)), result.verdict) for result in results]
    confidence = as_given(results[0].verdict.wait_share.confidence)
    again = "as it was measured here" if profile.sweep_note else "measured once more"
    return Section(
        key="sweep",
        title="Settings that were measured",
        read="First those that feed the device, the cheapest of them at the top, then by how long the device waits "
        f"once steady or over an epoch, whichever is longer; a whisker spans the {confidence} bounds. "
        f"All the rest of this page is about the first, {again}.",
        plots={"waiting with each setting": waits_plot(rows)},
        table=Table(
            ("settings", "", "waiting", f"bounds ({confidence})", "of an epoch", "headroom", "images/s", "steps"),
            [_setting(result) for result in results],
        ),
        notes=(
            *(
                f"{result.loader_arguments}: {'; '.join(result.verdict.reasons)}."
                for result in results
                if result.verdict.reasons
            ),
            *(
                f"{failure.loader_arguments} could not be measured: {failure.reason}"
                for failure in profile.sweep_failures
            ),
            *(
                [f"{results[0].loader_arguments} could not be measured once more: {profile.sweep_note}"]
                if profile.sweep_note
                else []
            ),
        ),
    )


def _setting(result: SweepResult) -> tuple[str, ...]:
    verdict, live = result.verdict, result.verdict.wait_share
    return (
        result.loader_arguments,
        verdict.kind.value,
        percent(live.value),
        bounds_text(live),
        "not known" if verdict.epoch_wait_share is None else at_most_or_none(verdict.epoch_wait_share),
        format_headroom(verdict.headroom),
        f"{result.images_per_second:,.0f}",
        f"{verdict.num_steps:,}",
    )


def ranks(profile: Profile) -> Section | None:
    """Section: how long each rank of a job waited, and for what."""
    if not profile.ranks:
        return None
    live = profile.verdict.wait_share
    own = [rank.verdict.wait_share.value for rank in profile.ranks]
    return Section(
        key="ranks", title="Which rank the others wait for",
        read="A step ends on all ranks when it ends on the last, so one late batch keeps all of them waiting. "
        + (f"Each waits {percent(min(own))} to {percent(max(own))} of the time for its own batches; at least one waits "
           f"in {percent(live.value)} of it." if live.value else "None ever waited."),
        plots={"what each rank waits for": _ranks_plot(profile.ranks)},
        legend={STEP_PART_LABELS[name]: colour for name, colour in _COLOURS.items()
                if any(rank.wait_share_by_cause[name] for rank in profile.ranks)},
        table=Table(
            ("rank", "waiting", f"bounds ({as_given(live.confidence)})", "last to come", "images/s", "mostly",
             "longest stage"),
            [_row(rank) for rank in profile.ranks],
        ),
        notes=("“Last to come”: of all the time that the job waits, the part in steps to which this rank's batch came "
               f"last. The figures of loader and step on this page are those of rank {profile.rank}.",
               *(f"Rank {rank.number} on its own: {'; '.join(rank.verdict.reasons)}."
                 for rank in profile.ranks if rank.verdict.reasons)),
    )  # fmt: skip


def _row(rank: RankResult) -> tuple[str, ...]:
    live, (name, part) = rank.verdict.wait_share, rank.main_cause
    stage = (
        "not seen"
        if rank.longest_stage is None
        else f"{rank.longest_stage[0]}, {percent(rank.longest_stage[1])} of a batch's load time"
    )
    return (
        f"{rank.number} on {rank.host}",
        percent(live.value),
        bounds_text(live),
        percent(rank.held_up_share),
        f"{rank.images_per_second:,.0f}",
        STEP_PART_LABELS[name] if part else "nothing",
        stage,
    )


def _ranks_plot(ranks_: tuple[RankResult, ...]) -> figure:
    most = max(sum(rank.wait_share_by_cause.values()) for rank in ranks_)
    fig = figures.rows_plot(
        [f"rank {rank.number}" for rank in ranks_], "waiting (% of the time)", (0.0, max(5.0, most * 115))
    )
    rows, reached = list(range(len(ranks_))), [0.0] * len(ranks_)
    for name, colour in _COLOURS.items():
        taken = [rank.wait_share_by_cause[name] * 100 for rank in ranks_]
        ends = [start + more for start, more in zip(reached, taken, strict=True)]
        source = ColumnDataSource({"y": rows, "left": reached, "right": ends, "taken": taken,
                                   "what": [STEP_PART_LABELS[name]] * len(ranks_)})  # fmt: skip
        bars = fig.hbar(y="y", left="left", right="right", height=0.6, color=colour, source=source)
        figures.hover(fig, [bars], ("", "@what"), ("takes", "@taken{0.00} %"))
        reached = ends
    return fig
