"""The sentences that replace advice where there is none, or stand below it: why, and what to do."""

from __future__ import annotations

import math

from ..estimate.bounds import MIN_BLOCKS
from .judge import too_few_steps_reasons, unreliable_reasons
from .result import STEP_PART_LABELS, Profile
from .steady_state import NOT_STEADY
from .verdict import FED_BELOW, STARVED_ABOVE, Verdict, VerdictKind

_FIRST_TRIES = {
    "transport": "larger batches, or smaller ones in bytes (dtype='uint8')",
    "sampling": "a sampler that draws its order before the epoch begins",
    "contention": "fewer workers, or more cores",
    "preparation": "more workers while cores are free, else cheaper transforms or smaller crops",
}
"""What to try against each cause of waiting, named as in `Profile.step_part_seconds`."""


_LONGER_EPOCHS = "More data, smaller batches, or epochs that go through the data several times"


def no_advice_reason(profile: Profile) -> str:
    """Why `profile.advice` is empty and what to do, for every kind of verdict."""
    verdict = profile.verdict
    if verdict.kind is VerdictKind.FED:
        return "Nothing needs to change."
    if to_decide := how_to_decide(profile):
        return f"{_what_to_try(profile)} {to_decide}"
    if verdict.kind is not VerdictKind.INCONCLUSIVE and is_slow_only_at_epoch_start(verdict):
        return f"The loader keeps up once its queue is filled; {_what_epoch_starts_cost(verdict)}"
    if verdict.kind is VerdictKind.INCONCLUSIVE or not verdict.num_starved_steps:
        return "Measure again, with more steps and while nothing else runs on the machine."
    return _reason_despite_waits(profile)


def beside_advice(profile: Profile) -> str:
    """What the advice, which is on the steady state, leaves open; empty where that is nothing."""
    return " ".join(filter(None, (how_to_decide(profile), _epoch_start_note(profile.verdict))))


def _epoch_start_note(verdict: Verdict) -> str:
    """What to do where most of an epoch's waiting is at its beginning."""
    epoch, steady_share = verdict.epoch_wait_share, verdict.wait_share.value
    if epoch is None or epoch.value - steady_share <= max(steady_share, STARVED_ABOVE):
        return ""
    return (
        f"This advice applies once the queue is filled. But an epoch of {verdict.num_epoch_batches:,} batches waits "
        f"{epoch.value:.0%} of its time, most of it at its beginning. {_LONGER_EPOCHS} wait less."
    )


def _what_epoch_starts_cost(verdict: Verdict) -> str:
    """What the beginning of epochs costs a loader that is otherwise fed, and what to do."""
    epoch = verdict.epoch_wait_share
    if epoch is None or epoch.value >= FED_BELOW:
        return f"epochs are too short for that to matter. {_LONGER_EPOCHS} wait less."
    return (
        f"with its beginning, an epoch of {verdict.num_epoch_batches:,} batches waits {epoch.value:.1%} of its time, "
        f"but up to {epoch.upper:.1%} is possible. Measure again while nothing else runs on the machine. "
        f"{_LONGER_EPOCHS} wait less."
    )


def how_to_decide(profile: Profile) -> str:
    """How to get a verdict where there is none, but the clock shows a starved device; empty elsewhere."""
    verdict = profile.verdict
    if verdict.kind is not VerdictKind.INCONCLUSIVE or verdict.wait_share.value <= STARVED_ABOVE:
        return ""
    who = "some rank" if profile.ranks else "the device"
    waits = f"By the clock {who} waits {verdict.wait_share.value:.0%} of the time"
    if unreliable_reasons(profile.live):
        return f"{waits}. More steps alone would not decide it: measure while nothing else runs on the machine."
    is_steady = not any(NOT_STEADY in reason for reason in verdict.reasons)  # else a drift makes blocks too long
    needed = MIN_BLOCKS * verdict.block_steps if is_steady and too_few_steps_reasons(verdict) else 2 * len(profile.live)
    num_steps = 100 * math.ceil(needed / 100)
    return (
        f"{waits}. To decide whether it is starved, measure at least {num_steps:,} steps (`--steps {num_steps}`, or "
        f"`steps={num_steps}`) while nothing else runs on the machine."
    )


def _what_to_try(profile: Profile) -> str:
    """What to try without a verdict."""
    if reason := _reason_for_none(profile):
        return reason
    part_seconds = profile.step_part_seconds
    cause = max(_FIRST_TRIES, key=lambda name: part_seconds.get(name, 0.0))
    return (
        f"No single change is predicted to take away a good part of the waits, which are mostly "
        f"'{STEP_PART_LABELS[cause]}': try {_FIRST_TRIES[cause]} first."
    )


def _reason_for_none(profile: Profile) -> str:
    """Why no advice could be worked out; empty where it could."""
    if not profile.live.batch_timings:
        return ("The loader is not one of torch's, so what its workers do is not seen: nothing can be advised. A torch "
                "DataLoader, or one of this project's, can be looked into.")  # fmt: skip
    if not profile.is_explained:
        return "No advice was worked out for the verdict alone: measure without `--quick`, or `quick=True`."
    return ""


def _reason_despite_waits(profile: Profile) -> str:
    """Where some steps of the steady state waited."""
    verdict = profile.verdict
    is_little = max(verdict.wait_share.value, verdict.starved_share.value) <= FED_BELOW
    if is_little and profile.live.batch_timings:
        return "So little waiting counts as fed once more steps show it surely: measure again, with more of them."
    return _reason_for_none(profile) or "No single change that is known here would take away a good part of the waits."


def is_slow_only_at_epoch_start(verdict: Verdict) -> bool:
    """Whether only the beginning of its epochs makes a loader too slow."""
    if verdict.epoch_wait_share is None:
        return False
    if verdict.kind is VerdictKind.STARVED:
        return verdict.wait_share.lower <= STARVED_ABOVE < verdict.epoch_wait_share.lower
    return max(verdict.wait_share.upper, verdict.starved_share.upper) < FED_BELOW <= verdict.epoch_wait_share.upper
