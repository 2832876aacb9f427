"""One sentence in place of advice, where there is none: why, and what to do."""

from __future__ import annotations

from .judgement import FED_BELOW, STARVED_ABOVE, Verdict, Word
from .result import Profile


def instead(profile: Profile) -> str:
    """What to do where `profile.advice` is empty; of every verdict."""
    verdict = profile.verdict
    if verdict.word is Word.FED:
        return "Nothing needs to change."
    if verdict.word is not Word.INCONCLUSIVE and begins_slowly(verdict):
        return ("The loader keeps up once its queue is filled; epochs are too short for that to matter. More data, "
                "smaller batches, or epochs that go through the data several times wait less.")  # fmt: skip
    if verdict.word is Word.INCONCLUSIVE or not verdict.starved_steps:
        return "Measure again, with more steps and while nothing else runs on the machine."
    return _why_none(profile)


def _why_none(profile: Profile) -> str:
    """Where some steps of the steady state waited."""
    verdict = profile.verdict
    if not profile.live.stamps:
        return ("The loader is not one of torch's, so what its workers do is not seen: nothing can be advised. A torch "
                "DataLoader, or one of this project's, can be looked into.")  # fmt: skip
    if max(verdict.live.value, verdict.starved.value) <= FED_BELOW:
        return "So little waiting counts as fed once more steps show it surely: measure again, with more of them."
    if not profile.explained:
        return "No advice was worked out for the verdict alone: measure without `--quick`, or `quick=True`."
    return "No single change that is known here would take away a good part of the waits."


def begins_slowly(verdict: Verdict) -> bool:
    """Whether it is the beginning of its epochs alone that makes a loader too slow."""
    if verdict.epoch is None:
        return False
    if verdict.word is Word.STARVED:
        return verdict.live.lower <= STARVED_ABOVE < verdict.epoch.lower
    return max(verdict.live.upper, verdict.starved.upper) < FED_BELOW <= verdict.epoch.upper
