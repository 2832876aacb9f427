"""The verdict in plain sentences: a headline, its meaning, and what following the advice has given."""

from __future__ import annotations

from dataclasses import replace

from ....pipeline.console import plural
from ....pipeline.page.formats import milliseconds, percent
from ..verdict.result import Profile
from ..verdict.verdict import FED_BELOW, Verdict, VerdictKind
from .epoch_advice import epoch_start_reason, is_mainly_slow_at_epoch_start, is_slow_only_at_epoch_start
from .shares import as_given, at_least, at_most, at_most_or_none
from .waits import waits_briefly


def headline(profile: Profile) -> str:
    """The verdict in one sentence, without a full stop."""
    verdict = profile.verdict
    if verdict.kind is VerdictKind.INCONCLUSIVE:
        return "No verdict: the measurement is not good enough"
    epoch = verdict.epoch_wait_share
    if epoch is not None and epoch.value >= FED_BELOW and is_slow_only_at_epoch_start(verdict):
        return f"An epoch of {verdict.num_epoch_batches:,} batches waits for data {percent(epoch.value)} of its time"
    return _share_of_waiting(profile)


def meaning(profile: Profile) -> str:
    """The sentences below the headline: how many steps waited, and what decides the verdict."""
    verdict = profile.verdict
    if verdict.kind is VerdictKind.INCONCLUSIVE:
        return (
            f"{_share_of_waiting(profile)}, as far as the clock shows, but that cannot be relied on: "
            f"{'; '.join(verdict.reasons)}."
        )
    if verdict.kind is VerdictKind.STARVED:
        return _starved(profile)
    if verdict.kind is VerdictKind.MARGINAL:
        return _marginal(profile)
    return (
        f"{_counted(profile)}; with {as_given(verdict.wait_share.confidence)} confidence, "
        f"{at_most(verdict.wait_share.upper)} of the time and {at_most(verdict.starved_share.upper)} of all steps. "
        "Under 1 % counts as fed."
    )


def followed(profile: Profile) -> str:
    """What the best settings that were tried gave, without a full stop; empty where none was tried or none helped."""
    best = profile.verified
    if best is None:
        return ""
    if best.verdict.kind is VerdictKind.FED:
        return f"give the loader {best.name}: FED"
    num_tried = sum(item.measured_wait_share is not None for item in profile.advice)
    shares = [profile.verdict.wait_share.value, best.verdict.wait_share.value]
    if best.verdict.epoch_wait_share is not None:  # measured in full, with the beginnings of its epochs
        shares = [profile.verdict.longest_wait_share, best.verdict.longest_wait_share]
    text = (
        f"best of {num_tried} tried: {best.name} waits {percent(shares[1])} instead of {percent(shares[0])} "
        f"({_word_of_trial(best.verdict)})"
    )
    if not is_mainly_slow_at_epoch_start(best.verdict):
        return text
    with_best = replace(profile, verdict=best.verdict, live=best.recording)
    return f"{text}. {epoch_start_reason(with_best).removesuffix('.')}"


def _word_of_trial(verdict: Verdict) -> str:
    """Its verdict; of a short trial, which has none, how far it is from being fed."""
    if verdict.kind is not VerdictKind.INCONCLUSIVE:
        return verdict.kind.value
    return "not surely fed" if verdict.longest_wait_share < FED_BELOW else "not yet fed"


def _share_of_waiting(profile: Profile) -> str:
    verdict = profile.verdict
    step = f"A step of {milliseconds(profile.preloaded.step_seconds.mean())}" if verdict.emulated else "Your step"
    step += f" on {len(verdict.rank_wait_shares)} ranks" if verdict.rank_wait_shares else ""
    if not verdict.wait_share.value:
        return f"{step} never waited for data"
    return f"{step} waits for data {percent(verdict.wait_share.value)} of the time"


def _counted(profile: Profile) -> str:
    """How many steps waited for long, and what short waits add up to."""
    verdict, threshold = profile.verdict, milliseconds(profile.verdict.starved_threshold_seconds)
    if not waits_briefly(profile):
        return f"{verdict.num_starved_steps:,} of {verdict.num_steps:,} steps waited longer than {threshold}"
    share = percent(verdict.wait_share.value)
    if verdict.num_starved_steps:
        return (
            f"{verdict.num_starved_steps:,} of {verdict.num_steps:,} steps waited longer than {threshold}, but all "
            f"waits add up to {share} of the time, most of it in short ones"
        )
    return f"No step waited longer than {threshold}, but short waits add up to {share} of the time"


def _starved(profile: Profile) -> str:
    verdict, waits, says = profile.verdict, profile.verdict.wait_share, ". The device waits"
    if profile.ranks:
        says = ". Some rank waits"
    if verdict.epoch_wait_share is not None and is_slow_only_at_epoch_start(verdict):
        waits, says = verdict.epoch_wait_share, " once the queue was filled. With its beginning, an epoch waits"
    return (
        f"{_counted(profile)}{says} {at_least(waits.lower)} of its time, with {as_given(waits.confidence)} confidence. "
        f"Without the waits, the same training would be done in {percent(1 - waits.value)} of its time."
    )


def _marginal(profile: Profile) -> str:
    verdict = profile.verdict
    waits = verdict.wait_share
    sure = f"with {as_given(waits.confidence)} confidence"
    steady = f" Steady waiting is under 1 % ({at_most(waits.upper)} {sure})." if waits.upper < FED_BELOW else ""
    return (
        f"{_counted(profile)}.{steady} What keeps it from FED: {'; '.join(_obstacles(verdict))}. Under 1 % counts as "
        "fed."
    )


def _obstacles(verdict: Verdict) -> list[str]:
    """The bounds that are not under 1 %."""
    waits, starved, epoch = verdict.wait_share, verdict.starved_share, verdict.epoch_wait_share
    obstacles = []
    if waits.lower >= FED_BELOW:
        obstacles.append(f"it surely waits {at_least(waits.lower)} of the time (surely over 2 % would be STARVED)")
    elif waits.upper >= FED_BELOW:
        obstacles.append(f"{_may_be(waits.upper, has_upper=waits.has_upper)} of the time may be waiting")
    if starved.upper >= FED_BELOW:
        threshold = milliseconds(verdict.starved_threshold_seconds)
        obstacles.append(
            f"{_may_be(starved.upper, has_upper=starved.has_upper)} of all steps may wait longer than {threshold}"
        )
    if epoch is not None and is_mainly_slow_at_epoch_start(verdict):
        start = milliseconds(verdict.epoch_start_wait_seconds)
        obstacles.append(
            f"the beginning of each epoch, for which the device waits {start} on average: with it "
            f"{percent(epoch.value)} of an epoch of {plural(verdict.num_epoch_batches or 0, 'batch', 'batches')}, "
            f"{at_most_or_none(epoch)}"
        )
    return obstacles


def _may_be(upper: float, *, has_upper: bool) -> str:
    return at_most(upper).replace("at most", "up to") if has_upper else "an unknown part"
