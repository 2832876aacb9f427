"""A profile in plain sentences, for somebody who knows nothing of it yet."""

from __future__ import annotations

from dataclasses import dataclass

from ...verdict.advice import Advice
from ...verdict.instead import begins_slowly
from ...verdict.judgement import FED_BELOW, Verdict, Word, times
from ...verdict.result import Profile
from ..console import environment
from .plots import Table, milliseconds, percent


@dataclass(frozen=True, kw_only=True)
class Banner:
    """What is read first. meaning: what the headline means; emulated: what was, empty for a real step."""

    word: str
    headline: str
    meaning: str
    emulated: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """Advice as it is shown. code: the settings to write; outcome: of trying it, empty where nobody did."""

    what: str
    code: str
    now: str
    predicted: str
    outcome: str
    failed: bool


def banner(profile: Profile) -> Banner:
    """The verdict in a sentence, and what it means in two."""
    verdict = profile.verdict
    live, sure = verdict.live, f"{percent(verdict.live.confidence)} confidence"
    step = f"A step of {milliseconds(profile.alone.step.mean())}" if verdict.emulated else "Your step"
    step += f" on {len(verdict.ranks)} ranks" if verdict.ranks else ""
    headline = f"{step} waits for data {percent(live.value)} of the time"
    counted = f"{verdict.starved_steps:,} of {verdict.steps:,} steps waited"
    if verdict.word is Word.INCONCLUSIVE:
        meaning = f"{headline}, as far as the clock shows, but that cannot be relied on: {'; '.join(verdict.reasons)}."
        headline = "No verdict: the measurement is not good enough"
    elif verdict.word is Word.STARVED:
        waits = live
        if verdict.epoch is not None and begins_slowly(verdict):
            waits = verdict.epoch
            counted = f"{counted} once the queue was filled, but an epoch begins with an empty one"
            headline = (
                f"An epoch of {verdict.epoch_batches:,} batches waits for data {percent(waits.value)} of its time"
            )
        meaning = (f"{counted}; at least {percent(waits.lower)} of the time with {sure}. Without the waits, the same "
                   f"training would be done in {percent(1 - waits.value)} of its time.")  # fmt: skip
    elif not verdict.starved_steps:
        headline = f"{step} never waited for data"
        meaning = f"{counted}; with {sure}, at most {percent(verdict.starved.upper)} of all steps would."
        if verdict.word is Word.MARGINAL:
            meaning += " Under 1 % would count as fed: more steps would show it."
    elif verdict.word is Word.MARGINAL:
        meaning = (f"{counted}; up to {percent(live.upper)} of the time with {sure}. That is not surely under the 1 % "
                   "that counts as fed, nor surely over the 2 % that counts as starved.")  # fmt: skip
    else:
        meaning = (f"{counted}; with {sure}, at most {percent(live.upper)} of the time and at most "
                   f"{percent(verdict.starved.upper)} of all steps. Under 1 % counts as fed.")  # fmt: skip
    if verdict.word is Word.MARGINAL and verdict.epoch is not None and verdict.epoch.upper >= FED_BELOW > live.upper:
        meaning += (f" But an epoch has only {verdict.epoch_batches:,} batches, and the device waits "
                    f"{milliseconds(verdict.epoch_start)} at its beginning: {percent(verdict.epoch.value)} of a whole "
                    "epoch.")  # fmt: skip
    return Banner(word=verdict.word.value, headline=headline, meaning=meaning, emulated=_emulated(profile))


def _emulated(profile: Profile) -> str:
    if not profile.verdict.emulated:
        return ""
    alone = profile.alone
    taken, busy = float(alone.step.mean()), min(alone.computed / max(float(alone.step.sum()), 1e-9), 1.0)
    return (
        f"No GPU took part. A device that takes {milliseconds(taken)} for every training step was emulated; one core "
        f"of the host was busy {percent(busy)} of the time, as beside a GPU that computes. So this shows what the "
        "loader delivers on this machine, not that a GPU is fed: compare it with how long your own step takes."
    )


def sustained(profile: Profile) -> str:
    """How fast a step the loader keeps up with; empty where that is not known."""
    verdict = profile.verdict
    if verdict.fastest_step is None or not verdict.headroom:
        return ""
    images = profile.live.images_per_batch * max(len(profile.ranks), 1)
    steps = f"steps of {milliseconds(verdict.fastest_step)} or more ({images / verdict.fastest_step:,.0f} images/s)"
    who = f"The loaders of {len(profile.ranks)} ranks" if profile.ranks else "This loader"
    if verdict.headroom >= 1 and verdict.live.value > FED_BELOW:
        return (f"By the model, {who.lower()} would sustain {steps}; but by the clock this step waits more than the "
                "model explains. Look at what else runs on the machine.")  # fmt: skip
    told = f"{who} {'sustain' if profile.ranks else 'sustains'} {steps} with at most 1\u00a0% of waiting"
    if verdict.headroom >= 1:
        faster = times(verdict.headroom).replace("x", " times")
        return f"{told}: the step could be {faster} as fast before it waits."
    return f"{told}; this step is {1 / verdict.headroom:.1f} times too fast for that."


def handing(profile: Profile) -> str:
    """What handing batches over takes, where that is worth a word."""
    verdict = profile.verdict
    if not verdict.much_handing:
        return ""
    return (
        f"The host takes {percent(verdict.handing)} of the time to pass on batches that are ready (transport). A "
        "device that works meanwhile does not wait for it; a loop that reads the loss of every step does. No worker "
        "can take it away; larger batches or smaller ones in bytes can: `batch_size`, and "
        '`dtype="uint8"`, normalised on the device.'
    )


def changes(profile: Profile) -> list[Change]:
    """What would help; what was tried and did not comes last."""
    return sorted((_change(one) for one in profile.advice), key=lambda one: one.failed)


def _change(advice: Advice) -> Change:
    outcome = "" if advice.settings else "yours to try"
    if advice.measured is not None:
        outcome = f"tried: {percent(advice.measured)}" + (", it did not help here" if advice.failed else "")
    code = ", ".join(f"{name}={value}" for name, value in advice.settings.items())
    what = advice.what.replace("->", "\u2192")
    return Change(
        what=what[:1].upper() + what[1:], code=code, now=percent(advice.now), predicted=percent(advice.predicted),
        outcome=outcome, failed=advice.failed,
    )  # fmt: skip


def estimators(profile: Profile) -> Table:
    """The three ways in which the waiting was found."""
    verdict = profile.verdict
    bounds = f"{percent(verdict.live.lower)} to {percent(verdict.live.upper)}"
    if profile.ranks:
        model = "Not known of a job: each rank's model knows its own batches alone, and is held against its own waits."
    elif verdict.model is None:
        model = ("Not known: it needs to see when each batch was made, as of torch's loaders, and holds where they "
                 "keep their order.")  # fmt: skip
    else:
        model = ("Computed: how long the device should wait in the second half, by a DataLoader's queue, given how "
                 "long batches, hand-overs and steps took in the first. It should be close to A.")  # fmt: skip
    return Table(("", "waiting", "how it was found"), [
        ("A  live, by the clock", percent(verdict.live.value), f"Measured: how long the device had nothing to work on. "
         f"{percent(verdict.live.confidence)} bounds on either side: {bounds}."),
        ("B  against replayed batches", percent(profile.differential), "Measured in another way: how much less time "
         "the same step takes on preloaded batches. It also holds a step slowed down by loading beside it, so it "
         "should not be below A."),
        ("C  the queue's model", "none" if verdict.model is None else percent(verdict.model), model),
    ])  # fmt: skip


def facts(profile: Profile) -> dict[str, str]:
    """What belongs to the figures above."""
    verdict, live = profile.verdict, profile.live
    return {
        "Steps that waited": f"{verdict.starved_steps:,} of {verdict.steps:,} for over "
        f"{milliseconds(verdict.threshold)}; at most {percent(verdict.starved.upper)} of all steps with "
        f"{percent(verdict.starved.confidence)} confidence",
        "Throughput": _throughput(profile),
        "Transport": f"{percent(verdict.handing)} of the time the host passes on batches that are ready",
        "Closure": f"{percent(verdict.closure)} of the time by a second clock is not explained by steps and waits",
        "Steady state": f"after {verdict.settled:,} steps, of which the first filled the queue; judged on "
        f"{verdict.steps:,}",
        **_whole_epoch(verdict),
        "Page cache": verdict.cache.removeprefix("cache "),
        "Opening": f"{milliseconds(profile.opening_seconds)} for iter(), then "
        f"{milliseconds(profile.first_batch_seconds)} to the first batch, once",
        **({"Profiler's own cost": f"{percent(verdict.overhead)} of the time"} if live.stamps else {}),
    }  # fmt: skip


def _throughput(profile: Profile) -> str:
    live = profile.live
    told = f"{live.images_per_second:,.0f} images/s in batches of {live.images_per_batch:,.0f}"
    whole = sum(rank.images_per_second for rank in profile.ranks)
    return f"{told} on this rank, {whole:,.0f} images/s on all of them" if profile.ranks else told


def _whole_epoch(verdict: Verdict) -> dict[str, str]:
    if verdict.epoch is None:
        return {}
    found = (
        f"waits {percent(verdict.epoch.value)} of {verdict.epoch_batches:,} batches' time, at most "
        f"{percent(verdict.epoch.upper)}; {milliseconds(verdict.epoch_start)} of it at the beginning"
    )
    return {"Whole epoch": found}


def _shared(profile: Profile) -> str:
    return f", {profile.cores} for each rank" if profile.ranks else ""


def surroundings(profile: Profile) -> dict[str, str]:
    """The environment: what the figures hold for."""
    about, live = environment(), profile.live
    loader = f"{live.workers} workers x {live.prefetch} batches ahead" if live.workers else "no workers"
    return {
        "Loader": loader if live.stamps else "not one of torch's",
        "Step": profile.step,
        "Cores": f"{about['cores']} usable{_shared(profile)}, {about['machine']}",
        "Device": about["device"] or "no GPU",
        "Software": f"Python {about['python']}, torch {about['torch']}",
    }
