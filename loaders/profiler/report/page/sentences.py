"""A profile in plain sentences, for readers who do not know its terms."""

from __future__ import annotations

from dataclasses import dataclass

from .....pipeline.console import plural
from .....pipeline.page.formats import milliseconds, percent
from .....pipeline.page.html import Table
from ...estimate.bounds import MIN_BLOCKS, BoundedEstimate
from ...verdict.result import Profile
from ...verdict.verdict import Verdict, VerdictKind, format_headroom
from ..epoch_advice import is_slow_only_at_epoch_start
from ..headline import headline, meaning
from ..json_report import environment
from ..no_advice import LIGHTER_BATCHES, no_advice_reason
from ..shares import NO_BOUNDS, as_given, at_most, bounds_text
from ..waits import num_unjudged_steps, worker_setup

_SAME = 0.005
_NEARLY_EQUAL = 1.1  # times: from here on it is not shown in per cent


@dataclass(frozen=True, kw_only=True)
class Banner:
    """The head of the page. meaning: of the headline; emulated: what was emulated, empty for a real step."""

    word: str
    headline: str
    meaning: str
    emulated: str


def banner(profile: Profile) -> Banner:
    """The verdict as a headline, and its meaning."""
    return Banner(
        word=profile.verdict.kind.value,
        headline=headline(profile),
        meaning=meaning(profile),
        emulated=_emulated(profile),
    )


def _emulated(profile: Profile) -> str:
    if not profile.verdict.emulated:
        return ""
    step_seconds = profile.preloaded.step_seconds
    host_share = min(profile.preloaded.loop_cpu_seconds / max(float(step_seconds.sum()), 1e-9), 1.0)
    return (
        f"No GPU took part. A device that takes {milliseconds(step_seconds.mean())} for every training step was "
        f"emulated; one core of the host was busy {percent(host_share)} of the time, as beside a GPU that computes. "
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
    sentence = f"{who} {'sustain' if profile.ranks else 'sustains'} {steps} with at most 1\u00a0% of waiting"
    if verdict.kind is VerdictKind.INCONCLUSIVE:
        sentence = f"By the model alone, {sentence[0].lower()}{sentence[1:]}"
    if abs(verdict.headroom - 1) < _SAME:
        return f"{sentence}; this step is about as fast as that."
    if verdict.headroom < 1:
        return f"{sentence}; this step is {_faster(1 / verdict.headroom)} that."
    at_starts = "; each epoch's beginning waits all the same" if is_slow_only_at_epoch_start(verdict) else ""
    filled = " once the queue is filled" if at_starts else ""
    return f"{sentence}{filled}: the step could be {_faster(verdict.headroom)} it is before it waits more{at_starts}."


def _faster(times: float) -> str:
    """How many times as fast, as a comparison that ends with "as" or "than"."""
    if times < _NEARLY_EQUAL:
        return f"{percent(times - 1)} faster than"
    return f"{format_headroom(times).replace('x', ' times')} as fast as"


def transport_note(profile: Profile) -> str:
    """The share of time that transport takes, where it is worth a note."""
    verdict = profile.verdict
    if not verdict.is_transport_heavy or (not profile.advice and LIGHTER_BATCHES in no_advice_reason(profile)):
        return ""
    return (
        f"The host takes {percent(verdict.host_transport_share)} of the time to pass on batches that are ready "
        "(transport). A device that works meanwhile does not wait for it; a loop that reads the loss of every step "
        f"does. No worker can take it away. What can: {LIGHTER_BATCHES}."
    )


def estimators(profile: Profile) -> Table:
    """Table of the three estimators."""
    verdict = profile.verdict
    confidence, bounds = as_given(verdict.wait_share.confidence), bounds_text(verdict.wait_share)
    if verdict.wait_share.has_upper:
        bounds = f"{confidence} bounds on either side: {bounds}"
    elif bounds == NO_BOUNDS:
        bounds = "No bound could be shown"
    else:
        bounds = f"{bounds[0].upper()}{bounds[1:]} with {confidence} confidence; no upper bound could be shown"
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
                f"Measured: how long the device had nothing to work on. {bounds}.",
            ),
            (
                "B  against replayed batches",
                percent(profile.replay_slowdown),
                "Measured in another way: how much less time the same step takes on preloaded batches (below 0: "
                "more). It also holds a step slowed down by loading beside it, so it should not be below A.",
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
    at_most_of_all = _upper_bound(verdict.starved_share, "of all steps", verdict)
    return {
        "Steps that waited": f"{verdict.num_starved_steps:,} of {verdict.num_steps:,} for over "
        f"{milliseconds(verdict.starved_threshold_seconds)}; {at_most_of_all}",
        "Throughput": _throughput(profile),
        "Transport": f"{percent(verdict.host_transport_share)} of the time the host passes on batches that are ready",
        "Closure": f"{percent(verdict.unexplained_share)} of the time by a second clock is not explained by "
        "steps and waits",
        "Steady state": f"after {plural(num_unjudged_steps(profile), 'step')}; judged on {verdict.num_steps:,}",
        **(
            {} if verdict.epoch_wait_share is None else {"Whole epoch": _whole_epoch(verdict, verdict.epoch_wait_share)}
        ),
        "Page cache": verdict.cache_state.removeprefix("cache "),
        "Opening": f"{milliseconds(profile.opening_seconds)} for iter(), then "
        f"{milliseconds(profile.first_batch_seconds)} to the first batch, once",
        **({"Profiler's own cost": f"{percent(verdict.overhead_share)} of the time"} if live.batch_timings else {}),
    }


def _throughput(profile: Profile) -> str:
    live = profile.live
    throughput = f"{live.images_per_second:,.0f} images/s in batches of {live.images_per_batch:,.0f}"
    if not profile.ranks:
        return throughput
    total = sum(rank.images_per_second for rank in profile.ranks)
    return f"{throughput} on this rank, {total:,.0f} images/s on all of them"


def _upper_bound(share: BoundedEstimate, of_what: str, verdict: Verdict) -> str:
    if not share.has_upper:
        needed = MIN_BLOCKS * verdict.block_steps
        too_few = f", {verdict.num_steps:,} steps are too few ({needed:,})" if verdict.num_steps < needed else ""
        return f"no upper bound could be shown{too_few}"
    return f"{at_most(share.upper)} {of_what} with {as_given(share.confidence)} confidence"


def _whole_epoch(verdict: Verdict, waits: BoundedEstimate) -> str:
    return (
        f"waits {percent(waits.value)} of {verdict.num_epoch_batches:,} batches' time, "
        f"{_upper_bound(waits, 'of it', verdict)}; "
        f"{milliseconds(verdict.epoch_start_wait_seconds)} of it at the beginning"
    )


def surroundings(profile: Profile) -> dict[str, str]:
    """The environment that the figures hold for."""
    about, live = environment(), profile.live
    shared = f", {profile.num_cores} for each rank" if profile.ranks else ""
    return {
        "Loader": worker_setup(live) or "not one of torch's",
        "Step": profile.step_name,
        "Cores": f"{about['cores']} usable{shared}, {about['machine']}",
        "Device": about["device"] or "no GPU",
        "Software": f"Python {about['python']}, torch {about['torch']}",
    }
