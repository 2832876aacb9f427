"""The console report of a profile: one screen of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import zip_longest

from ....pipeline.console import plural
from ....pipeline.page.formats import milliseconds, percent
from ..estimate.bounds import BoundedEstimate
from ..estimate.estimator import Estimator
from ..estimate.rounding import rounded_up
from ..verdict.gate import Gate
from ..verdict.result import STEP_PART_LABELS, Profile
from ..verdict.verdict import Verdict, VerdictKind
from .headline import followed, headline
from .no_advice import beside_advice, no_advice_reason
from .waits import num_unjudged_steps, worker_setup

_BAR, _COLUMN, _WIDTH = 10, 40, 80


def console_report(profile: Profile, gate: Gate = Gate()) -> str:  # noqa: B008 (frozen)
    """One screen of 80 columns, the verdict at its end; with what would help, or why nothing is advised."""
    verdict, live = profile.verdict, profile.live
    loader = worker_setup(live) or "not one of torch's loaders"
    lines = [
        *_sweep(profile),
        *_ranks(profile),
        *_estimators(profile),
        *([_rank_below(profile)] if profile.ranks else []),
        *_side_by_side(
            _bars("a step", {STEP_PART_LABELS[name]: value for name, value in profile.step_part_seconds.items()}),
            _bars("loading a batch", live.stage_seconds),
        ),
        *_trials(profile),
        *_advice(profile, gate),
        f"  {loader}, {live.images_per_second:,.0f} images/s; "
        f"iter() {milliseconds(profile.opening_seconds)}, first batch {milliseconds(profile.first_batch_seconds)} "
        "after it",
        f"  steady after {plural(num_unjudged_steps(profile), 'step')}, judged on {verdict.num_steps:,}"
        f"{_epoch(verdict)}",
        *_gate(verdict, gate),
        *(f"  note: {remark}" for remark in verdict.remarks),
    ]
    figures = verdict.figures.replace(" ", "\u00a0").replace("\u00a0·\u00a0", " ·\u00a0")  # wrapped between them
    last = " ·\u00a0".join([figures, *verdict.reasons])
    lines = [*map(_wrapped, lines), "", _wrapped(f"{headline(profile)}."), _wrapped(last)]
    return "\n".join(lines).replace("\u00a0", " ")


def _gate(verdict: Verdict, gate: Gate) -> list[str]:
    if verdict.kind is VerdictKind.INCONCLUSIVE:
        return [] if gate == Gate() else ["  gate not judged: no verdict"]
    return [f"  gate not met: {failure}" for failure in gate.failures(verdict)]


def _rank_below(profile: Profile) -> str:
    if profile.verdict.wait_share.value < 0.0005:
        return f"  of rank {profile.rank}; no rank kept the others waiting for 0.1 % of the time:"
    return f"  of rank {profile.rank}, which the others waited for most:"


def _wrapped(line: str) -> str:
    """The line wrapped at 80 columns with indented continuation lines; unchanged where it fits."""
    if len(line) <= _WIDTH:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False)


def _estimators(profile: Profile) -> list[str]:
    """A row of each estimator of the waiting."""
    verdict = profile.verdict
    model = "-" if verdict.model_wait_share is None else f"{verdict.model_wait_share:.2%}"
    waited = "some rank waited" if profile.ranks else "the device waited"
    return [
        f"  {Estimator.LIVE}  live, by the clock        {verdict.wait_share.value:7.2%}  of the time, {waited}",
        f"  {Estimator.DIFFERENTIAL}  against replayed batches  {abs(profile.replay_slowdown):7.2%}  "
        f"{'more' if round(profile.replay_slowdown, 4) < 0 else 'less'} time on preloaded batches",
        f"  {Estimator.MODEL}  the queue's model         {model:>7}  {Estimator.LIVE} of the second half, as predicted",
    ]


def _trials(profile: Profile) -> list[str]:
    """Rows of the transforms, the cold cache and other loaders."""
    notes = [f"    {note}" for note in profile.trial_notes]
    if not profile.all_trials:
        return notes
    rows = [
        f"    {trial.name:<22} {trial.recording.images_per_second:8,.0f} images/s  waits "
        f"{trial.verdict.wait_share.value:6.1%}"
        for trial in (profile.as_trial, *profile.all_trials)
    ]
    return ["  the same step with", *rows, *notes]


def _advice(profile: Profile, gate: Gate) -> list[str]:
    advised = sorted(profile.advice, key=lambda advice: advice.failed)
    lines = [f"{advice}{'' if advice.settings else ', yours to try'}" for advice in advised]
    notes = list(profile.verify_notes)
    if lines:
        lines += filter(None, [followed(profile), *notes, beside_advice(profile)])
    elif profile.verdict.kind is not VerdictKind.FED or gate.failures(profile.verdict):
        lines = [no_advice_reason(profile, gate), *notes]
    else:
        lines = notes
    return ["  what would help", *(f"    {line}" for line in lines)] if lines else []


def _sweep(profile: Profile) -> list[str]:
    """A row of each setting; the rest of the report is about the first."""
    if not profile.sweep:
        return []
    rows = [
        f"    {result.num_workers:7} {result.prefetch_factor or '-':>6}  {_value(result.verdict.wait_share):>7} "
        f"{_upper(result.verdict.wait_share):>8} {_value(result.verdict.epoch_wait_share):>8} "
        f"{_upper(result.verdict.epoch_wait_share):>8} {result.images_per_second:9,.0f}  {result.verdict.kind}"
        for result in profile.sweep
    ]
    rows += [
        f"    {failure.num_workers:7} {failure.prefetch_factor or '-':>6}  failed: {failure.reason}"
        for failure in profile.sweep_failures
    ]
    note = profile.sweep_note
    again = f"as above: it failed when measured again ({note})" if note else "measured again"
    return [
        "  fed ones first, the cheapest on top; then by waiting (steady or per epoch)",
        "    workers  ahead    waits  at most    epoch  at most  images/s",
        *rows,
        f"  of {profile.sweep[0].loader_arguments}, {again}:",
    ]


def _value(bounded: BoundedEstimate | None) -> str:
    return "-" if bounded is None else f"{bounded.value:.2%}"


def _upper(bounded: BoundedEstimate | None) -> str:
    if bounded is None:
        return "-"
    return f"{rounded_up(bounded.upper, 4):.2%}" if bounded.has_upper else "no bound"


def _ranks(profile: Profile) -> list[str]:
    """A row of each rank, and below it the reasons for doubt about it alone."""
    if not profile.ranks:
        return []
    rows = []
    for rank in profile.ranks:
        name, part = rank.main_cause
        live = rank.verdict.wait_share
        cause = f"{STEP_PART_LABELS[name]} {part:.2%}" if part else "-"
        rows.append(f"    {rank.number:>4}  {live.value:7.2%} {_upper(live):>8} {rank.held_up_share:8.0%} "
                    f"{rank.images_per_second:9,.0f}  {cause}")  # fmt: skip
        own = [
            reason for reason in rank.verdict.reasons if f"rank {rank.number}: {reason}" not in profile.verdict.reasons
        ]
        rows += [f"{' ' * 10}on its own: {'; '.join(own)}"] if own else []
    return ["    rank    waits  at most  last in  images/s  mostly", *rows]


def _epoch(verdict: Verdict) -> str:
    if verdict.epoch_wait_share is None:
        return ""
    return (
        f"; an epoch's beginning waits {milliseconds(verdict.epoch_start_wait_seconds)}, an epoch in all "
        f"{percent(verdict.epoch_wait_share.value)} of its time"
    )


def _bars(what: str, seconds: Mapping[str, float]) -> list[str]:
    """A row of each part, with a bar."""
    longest = max([*seconds.values(), 1e-9])
    rows = [f"{what}: {sum(seconds.values()) * 1e3:.2f} ms"] if seconds else []
    for name, value in seconds.items():
        milliseconds = round(value * 1e3, 2) + 0.0  # no "-0.00"
        rows.append(f"  {name:<12} {milliseconds:8.2f} ms  {'█' * round(_BAR * max(value, 0.0) / longest)}")
    return rows


def _side_by_side(left: list[str], right: list[str]) -> list[str]:
    return [f"  {cell:<{_COLUMN}}{other}".rstrip() for cell, other in zip_longest(left, right, fillvalue="")]
