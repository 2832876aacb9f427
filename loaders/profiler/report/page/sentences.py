"""A profile in plain sentences, for readers who do not know its terms."""

from __future__ import annotations

from dataclasses import dataclass

from .....pipeline.console import plural
from .....pipeline.page.formats import milliseconds, percent
from .....pipeline.page.html import Table
from ...estimate.bounds import BoundedEstimate
from ...verdict.advice import Advice
from ...verdict.no_advice import is_slow_only_at_epoch_start
from ...verdict.result import Profile
from ...verdict.verdict import FED_BELOW, Verdict, VerdictKind, format_headroom
from ..json_report import environment


@dataclass(frozen=True, kw_only=True)
class Banner:
    """The head of the page. meaning: of the headline; emulated: what was emulated, empty for a real step."""

    word: str
    headline: str
    meaning: str
    emulated: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """Advice as the page shows it. code: settings to write; outcome: of trying it, empty where it was not tried."""

    what: str
    code: str
    now: str
    predicted: str
    outcome: str
    failed: bool


def banner(profile: Profile) -> Banner:
    """The verdict as a headline, and its meaning."""
    verdict = profile.verdict
    live, sure = verdict.wait_share, f"{percent(verdict.wait_share.confidence)} confidence"
    step = f"A step of {milliseconds(profile.preloaded.step_seconds.mean())}" if verdict.emulated else "Your step"
    step += f" on {len(verdict.rank_wait_shares)} ranks" if verdict.rank_wait_shares else ""
    headline = f"{step} waits for data {percent(live.value)} of the time"
    counted = f"{verdict.num_starved_steps:,} of {verdict.num_steps:,} steps waited"
    if verdict.kind is VerdictKind.INCONCLUSIVE:
        meaning = f"{headline}, as far as the clock shows, but that cannot be relied on: {'; '.join(verdict.reasons)}."
        headline = "No verdict: the measurement is not good enough"
    elif verdict.kind is VerdictKind.STARVED:
        waits = live
        if verdict.epoch_wait_share is not None and is_slow_only_at_epoch_start(verdict):
            waits = verdict.epoch_wait_share
            counted = f"{counted} once the queue was filled, but an epoch's beginning waits"
            headline = (
                f"An epoch of {verdict.num_epoch_batches:,} batches waits for data {percent(waits.value)} of its time"
            )
        meaning = (f"{counted}; at least {percent(waits.lower)} of the time with {sure}. Without the waits, the same "
                   f"training would be done in {percent(1 - waits.value)} of its time.")  # fmt: skip
    elif not verdict.num_starved_steps:
        headline = f"{step} never waited for data"
        meaning = f"{counted}; with {sure}, at most {percent(verdict.starved_share.upper)} of all steps would."
        if verdict.kind is VerdictKind.MARGINAL:
            meaning += " Under 1 % would count as fed: more steps would show it."
    elif verdict.kind is VerdictKind.MARGINAL:
        meaning = (f"{counted}; up to {percent(live.upper)} of the time with {sure}. That is not surely under the 1 % "
                   "that counts as fed, nor surely over the 2 % that counts as starved.")  # fmt: skip
    else:
        meaning = (f"{counted}; with {sure}, at most {percent(live.upper)} of the time and at most "
                   f"{percent(verdict.starved_share.upper)} of all steps. Under 1 % counts as fed.")  # fmt: skip
    if (
        verdict.kind is VerdictKind.MARGINAL
        and verdict.epoch_wait_share is not None
        and verdict.epoch_wait_share.upper >= FED_BELOW > live.upper
    ):
        meaning += (
            f" But an epoch has only {verdict.num_epoch_batches:,} batches, and the device waits "
            f"{milliseconds(verdict.epoch_start_wait_seconds)} at its beginning: "
            f"{percent(verdict.epoch_wait_share.value)} of a whole epoch, at most "
            f"{percent(verdict.epoch_wait_share.upper)}."
        )
    return Banner(word=verdict.kind.value, headline=headline, meaning=meaning, emulated=_emulated(profile))


def _emulated(profile: Profile) -> str:
    if not profile.verdict.emulated:
        return ""
    preloaded = profile.preloaded
    step_seconds, host_share = (
        float(preloaded.step_seconds.mean()),
        min(preloaded.loop_cpu_seconds / max(float(preloaded.step_seconds.sum()), 1e-9), 1.0),
    )
    return (
        f"No GPU took part. A device that takes {milliseconds(step_seconds)} for every training step was emulated; "
        f"one core of the host was busy {percent(host_share)} of the time, as beside a GPU that computes. "
        "So this shows what the loader delivers on this machine, not that a GPU is fed: "
        "compare it with how long your own step takes."
    )


def sustained(profile: Profile) -> str:
    """The fastest step that the loader sustains; empty where that is not known."""
    verdict = profile.verdict
    if verdict.fastest_step_seconds is None or not verdict.headroom:
        return ""
    images = profile.live.images_per_batch * max(len(profile.ranks), 1)
    steps = (
        f"steps of {milliseconds(verdict.fastest_step_seconds)} or more "
        f"({images / verdict.fastest_step_seconds:,.0f} images/s)"
    )
    who = f"The loaders of {len(profile.ranks)} ranks" if profile.ranks else "This loader"
    if verdict.headroom >= 1 and verdict.wait_share.value > FED_BELOW:
        return (f"By the model, {who.lower()} would sustain {steps}; but by the clock this step waits more than the "
                "model explains. Look at what else runs on the machine.")  # fmt: skip
    sentence = f"{who} {'sustain' if profile.ranks else 'sustains'} {steps} with at most 1\u00a0% of waiting"
    if verdict.headroom >= 1:
        faster = format_headroom(verdict.headroom).replace("x", " times")
        return f"{sentence}: the step could be {faster} as fast before it waits."
    return f"{sentence}; this step is {1 / verdict.headroom:.1f} times too fast for that."


def transport_note(profile: Profile) -> str:
    """The share of time that transport takes, where it is worth a note."""
    verdict = profile.verdict
    if not verdict.is_transport_heavy:
        return ""
    return (
        f"The host takes {percent(verdict.host_transport_share)} of the time to pass on batches that are ready "
        "(transport). A device that works meanwhile does not wait for it; a loop that reads the loss of every step "
        "does. No worker can take it away; larger batches or smaller ones in bytes can: `batch_size`, and "
        '`dtype="uint8"`, normalised on the device.'
    )


def changes(profile: Profile) -> list[Change]:
    """The advice; what was tried without success comes last."""
    return sorted((_change(advice) for advice in profile.advice), key=lambda advice: advice.failed)


def _change(advice: Advice) -> Change:
    outcome = "" if advice.settings else "yours to try"
    if advice.measured_wait_share is not None:
        outcome = f"tried: {percent(advice.measured_wait_share)}" + (", it did not help here" if advice.failed else "")
    code = ", ".join(f"{name}={value}" for name, value in advice.settings.items())
    what = advice.change.replace("->", "\u2192")
    return Change(
        what=what[:1].upper() + what[1:],
        code=code,
        now=percent(advice.current_wait_share),
        predicted=percent(advice.predicted_wait_share),
        outcome=outcome,
        failed=advice.failed,
    )


def estimators(profile: Profile) -> Table:
    """Table of the three estimators."""
    verdict = profile.verdict
    bounds = f"{percent(verdict.wait_share.lower)} to {percent(verdict.wait_share.upper)}"
    if profile.ranks:
        model = "Not known of a job: each rank's model knows its own batches alone, and is held against its own waits."
    elif verdict.model_wait_share is None:
        model = ("Not known: it needs to see when each batch was made, as of torch's loaders, and holds where they "
                 "keep their order.")  # fmt: skip
    else:
        model = ("Computed: how long the device should wait in the second half, by a DataLoader's queue, given how "
                 "long batches, hand-overs and steps took in the first. It should be close to A.")  # fmt: skip
    return Table(
        ("", "waiting", "how it was found"),
        [
            (
                "A  live, by the clock",
                percent(verdict.wait_share.value),
                f"Measured: how long the device had nothing to work on. "
                f"{percent(verdict.wait_share.confidence)} bounds on either side: {bounds}.",
            ),
            (
                "B  against replayed batches",
                percent(profile.replay_slowdown),
                "Measured in another way: how much less time the same step takes on preloaded batches. "
                "It also holds a step slowed down by loading beside it, so it should not be below A.",
            ),
            (
                "C  the queue's model",
                "none" if verdict.model_wait_share is None else percent(verdict.model_wait_share),
                model,
            ),
        ],
    )


def facts(profile: Profile) -> dict[str, str]:
    """Figures that belong to the estimators."""
    verdict, live = profile.verdict, profile.live
    return {
        "Steps that waited": f"{verdict.num_starved_steps:,} of {verdict.num_steps:,} for over "
        f"{milliseconds(verdict.starved_threshold_seconds)}; {_upper_bound(verdict.starved_share, 'of all steps')}",
        "Throughput": _throughput(profile),
        "Transport": f"{percent(verdict.host_transport_share)} of the time the host passes on batches that are ready",
        "Closure": f"{percent(verdict.unexplained_share)} of the time by a second clock is not explained by "
        "steps and waits",
        "Steady state": f"after {verdict.num_transient_steps:,} steps, of which the first filled the queue; "
        f"judged on {verdict.num_steps:,}",
        **_whole_epoch(verdict),
        "Page cache": verdict.cache_state.removeprefix("cache "),
        "Opening": f"{milliseconds(profile.opening_seconds)} for iter(), then "
        f"{milliseconds(profile.first_batch_seconds)} to the first batch, once",
        **({"Profiler's own cost": f"{percent(verdict.overhead_share)} of the time"} if live.batch_timings else {}),
    }


def _throughput(profile: Profile) -> str:
    live = profile.live
    throughput = f"{live.images_per_second:,.0f} images/s in batches of {live.images_per_batch:,.0f}"
    total_images_per_second = sum(rank.images_per_second for rank in profile.ranks)
    return (
        f"{throughput} on this rank, {total_images_per_second:,.0f} images/s on all of them"
        if profile.ranks
        else throughput
    )


def _upper_bound(share: BoundedEstimate, of_what: str) -> str:
    if not share.has_upper:
        return "its waits come in runs too long for an upper bound"
    return f"at most {percent(share.upper)} {of_what} with {percent(share.confidence)} confidence"


def _whole_epoch(verdict: Verdict) -> dict[str, str]:
    if verdict.epoch_wait_share is None:
        return {}
    text = (
        f"waits {percent(verdict.epoch_wait_share.value)} of {verdict.num_epoch_batches:,} batches' time, "
        f"{_upper_bound(verdict.epoch_wait_share, 'of it')}; "
        f"{milliseconds(verdict.epoch_start_wait_seconds)} of it at the beginning"
    )
    return {"Whole epoch": text}


def _shared(profile: Profile) -> str:
    return f", {profile.num_cores} for each rank" if profile.ranks else ""


def surroundings(profile: Profile) -> dict[str, str]:
    """The environment that the figures hold for."""
    about, live = environment(), profile.live
    workers = f"{plural(live.num_workers, 'worker')} x {live.prefetch_factor} batches ahead"
    loader = workers if live.num_workers else "no workers"
    return {
        "Loader": loader if live.batch_timings else "not one of torch's",
        "Step": profile.step_name,
        "Cores": f"{about['cores']} usable{_shared(profile)}, {about['machine']}",
        "Device": about["device"] or "no GPU",
        "Software": f"Python {about['python']}, torch {about['torch']}",
    }
