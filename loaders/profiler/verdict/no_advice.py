"""The sentence that replaces advice where there is none: why, and what to do."""

from __future__ import annotations

from .result import Profile
from .verdict import FED_BELOW, STARVED_ABOVE, Verdict, VerdictKind


def no_advice_reason(profile: Profile) -> str:
    """Why `profile.advice` is empty and what to do, for every kind of verdict."""
    verdict = profile.verdict
    if verdict.kind is VerdictKind.FED:
        return "Nothing needs to change."
    if verdict.kind is not VerdictKind.INCONCLUSIVE and is_slow_only_at_epoch_start(verdict):
        return ("The loader keeps up once its queue is filled; epochs are too short for that to matter. More data, "
                "smaller batches, or epochs that go through the data several times wait less.")  # fmt: skip
    if verdict.kind is VerdictKind.INCONCLUSIVE or not verdict.num_starved_steps:
        return "Measure again, with more steps and while nothing else runs on the machine."
    return _reason_despite_waits(profile)


def _reason_despite_waits(profile: Profile) -> str:
    """Where some steps of the steady state waited."""
    verdict = profile.verdict
    if not profile.live.batch_timings:
        return ("The loader is not one of torch's, so what its workers do is not seen: nothing can be advised. A torch "
                "DataLoader, or one of this project's, can be looked into.")  # fmt: skip
    if max(verdict.wait_share.value, verdict.starved_share.value) <= FED_BELOW:
        return "So little waiting counts as fed once more steps show it surely: measure again, with more of them."
    if not profile.is_explained:
        return "No advice was worked out for the verdict alone: measure without `--quick`, or `quick=True`."
    return "No single change that is known here would take away a good part of the waits."


def is_slow_only_at_epoch_start(verdict: Verdict) -> bool:
    """Whether only the beginning of its epochs makes a loader too slow."""
    if verdict.epoch_wait_share is None:
        return False
    if verdict.kind is VerdictKind.STARVED:
        return verdict.wait_share.lower <= STARVED_ABOVE < verdict.epoch_wait_share.lower
    return max(verdict.wait_share.upper, verdict.starved_share.upper) < FED_BELOW <= verdict.epoch_wait_share.upper
