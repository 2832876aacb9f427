"""The sentences on what the beginnings of epochs cost a loader, and what to do about it."""

from __future__ import annotations

from ....pipeline.console import percent
from ....pipeline.page.formats import milliseconds
from ..verdict.result import Profile
from ..verdict.verdict import FED_BELOW, STARVED_ABOVE, Verdict, VerdictKind
from .no_verdict import num_steps_for_fed, steps_text
from .shares import at_most

_MAX_TIMES_LONGER = 4  # than the run: more steps are not advised
_GOES_ON = 0.1  # of what the first batch of all took, for which workers had to start


def is_slow_only_at_epoch_start(verdict: Verdict) -> bool:
    """Whether its verdict is due to the beginning of its epochs, and not to its steady state."""
    if verdict.epoch_wait_share is None:
        return False
    if verdict.kind is VerdictKind.STARVED:
        return verdict.wait_share.lower <= STARVED_ABOVE < verdict.epoch_wait_share.lower
    return (
        verdict.kind is VerdictKind.MARGINAL and is_fed_once_filled(verdict)
        and verdict.epoch_wait_share.upper >= FED_BELOW
    )  # fmt: skip


def is_mainly_slow_at_epoch_start(verdict: Verdict) -> bool:
    """Whether the beginning of its epochs alone keeps it from a better verdict, as far as the estimates go."""
    epoch = verdict.epoch_wait_share
    return is_slow_only_at_epoch_start(verdict) or (
        epoch is not None and epoch.value >= FED_BELOW > max(verdict.wait_share.value, verdict.starved_share.value)
    )


def is_fed_once_filled(verdict: Verdict) -> bool:
    """Whether the steady state alone would count as fed."""
    return max(verdict.wait_share.upper, verdict.starved_share.upper) < FED_BELOW


def epoch_start_reason(profile: Profile) -> str:
    """What the beginning of epochs costs a loader that is slow only there, and what to do."""
    verdict = profile.verdict
    epoch, steady = verdict.epoch_wait_share, verdict.wait_share
    assert epoch is not None
    kept_up = (
        "The loader keeps up once its queue is filled"
        if is_fed_once_filled(verdict)
        else f"Once its queue is filled, the loader waits {percent(steady.value)} of the time"
    )
    if epoch.lower < FED_BELOW:
        upper = at_most(epoch.upper).replace("at most", "up to").replace("\u00a0", " ")
        possible = f"{upper} is possible" if epoch.has_upper else "no upper bound could be shown"
        return (
            f"{kept_up}; with its beginning, an epoch of {verdict.num_epoch_batches:,} batches waits "
            f"{percent(epoch.value)} of its time, but {possible}. {_how_to_show_less(profile)} {_remedy(profile)}"
        )
    return (
        f"{kept_up}; but each epoch of {verdict.num_epoch_batches:,} batches loses "
        f"{_seconds_text(verdict.epoch_start_wait_seconds)} on average before that, so that it waits "
        f"{percent(epoch.value)} of its time in all. {_remedy(profile)}"
    )


def _how_to_show_less(profile: Profile) -> str:
    """How an epoch's bound may come under 1 %: its part of the steady state by more steps, else by quieter starts."""
    verdict = profile.verdict
    epoch, steady = verdict.epoch_wait_share, verdict.wait_share
    assert epoch is not None
    left_share = FED_BELOW - (epoch.upper - steady.upper)  # for the steady state
    needed = num_steps_for_fed(verdict, left_share) if epoch.has_upper and left_share > steady.value else 0
    if not verdict.num_steps < needed <= _MAX_TIMES_LONGER * verdict.num_steps:
        return "Measure again while nothing else runs on the machine."
    return f"More steps may show that it is less: measure at least {steps_text(profile, needed)}."


def epoch_start_note(profile: Profile) -> str:
    """What to do, besides advice on the steady state, where most of an epoch's waiting is at its beginning."""
    verdict = profile.verdict
    epoch, steady_share = verdict.epoch_wait_share, verdict.wait_share.value
    if epoch is None or epoch.value - steady_share <= max(steady_share, STARVED_ABOVE):
        return ""
    return (
        f"This advice applies once the queue is filled. But an epoch of {verdict.num_epoch_batches:,} batches waits "
        f"{percent(epoch.value)} of its time, most of it at its beginning. {_remedy(profile)}"
    )


def _remedy(profile: Profile) -> str:
    live, verdict = profile.live, profile.verdict
    first_batch_seconds = profile.opening_seconds + profile.first_batch_seconds
    if not live.batch_timings:
        first = "Keep open from one epoch to the next what the loader starts in each: workers, files, caches. "
    elif not live.num_workers or verdict.epoch_start_wait_seconds <= _GOES_ON * first_batch_seconds:
        first = ""  # no worker starts anew
    elif live.persistent_workers:
        first = (
            "Its workers persist already: what is left is to draw the order of an epoch and to load its first batches. "
        )
    else:
        first = "Its workers start anew for each epoch: set `persistent_workers=True`. "
    return f"{first}The longer an epoch is, the less its beginning weighs."


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else milliseconds(seconds).replace("\u00a0", " ")
