"""The sentences that replace advice where there is none, or stand below it: why, and what to do."""

from __future__ import annotations

import math

from ....pipeline.console import percent
from ..estimate.rounding import rounded_down, rounded_up
from ..verdict.gate import Gate
from ..verdict.result import STEP_PART_LABELS, Profile
from ..verdict.verdict import FED_BELOW, Verdict, VerdictKind, format_headroom
from .epoch_advice import epoch_start_note, epoch_start_reason, is_fed_once_filled, is_mainly_slow_at_epoch_start
from .no_verdict import how_to_decide, is_plainly_waiting, num_steps_for_fed, num_steps_to_show, steps_text
from .shares import as_given
from .waits import is_almost_all_transport, main_cause

LIGHTER_BATCHES = (
    'larger batches, or smaller ones in bytes (in Python `FaceDataLoader(..., dtype="uint8")`, normalised on the '
    'device; with `device="cuda"` it does that by itself)'
)
"""What to do about transport."""

_FIRST_TRIES = {
    "transport": ("to receive batches that are ready", LIGHTER_BATCHES),
    "sampling": ("for the sampler", "one that draws the order of an epoch at once, as a FaceDataLoader does"),
    "contention": ("for a free core", "fewer workers, or more cores"),
    "preparation": (
        "for batches that are still being made",
        "more workers while cores are free, else cheaper transforms or smaller crops",
    ),
}
"""Causes of waiting, named as in `Profile.step_part_seconds`: in words, and what to try against each."""


def no_advice_reason(profile: Profile, gate: Gate = Gate()) -> str:  # noqa: B008 (frozen)
    """Why `profile.advice` is empty and what to do, for every kind of verdict."""
    verdict = profile.verdict
    if verdict.kind is VerdictKind.FED:
        return _what_a_gate_lacks(verdict, gate) or "Nothing needs to change."
    if verdict.kind is VerdictKind.INCONCLUSIVE:
        tries = _what_to_try(profile) if is_plainly_waiting(verdict) else ""
        return " ".join(filter(None, (tries, how_to_decide(profile))))
    if not is_mainly_slow_at_epoch_start(verdict):
        return _reason_despite_waits(profile)
    steady = "" if is_fed_once_filled(verdict) else _reason_despite_waits(profile)
    return " ".join(filter(None, (epoch_start_reason(profile), steady)))


def beside_advice(profile: Profile) -> str:
    """What the advice, which is on the steady state, leaves open; empty where that is nothing."""
    return " ".join(filter(None, (how_to_decide(profile), epoch_start_note(profile))))


def _what_a_gate_lacks(verdict: Verdict, gate: Gate) -> str:
    """What a loader that is fed needs to meet a gate; empty where it does."""
    lacking = []
    if gate.max_wait_share is not None and Gate(max_wait_share=gate.max_wait_share).failures(verdict):
        lacking.append(_what_bounds_lack(verdict, gate.max_wait_share))
    if gate.min_headroom is not None and Gate(min_headroom=gate.min_headroom).failures(verdict):
        lacking.append(_what_headroom_lacks(verdict, gate.min_headroom))
    return f"Fed, but your gate wants {' It also wants '.join(lacking)}" if lacking else ""


def _what_headroom_lacks(verdict: Verdict, wanted: float) -> str:
    shown = verdict.headroom_lower
    if shown is None:
        return f"a headroom of {wanted:g}x, and none could be shown for this loader."
    lacks = f"a headroom of {wanted:g}x, and only {rounded_down(shown, 2):.2f}x is shown"
    if verdict.headroom is not None and verdict.headroom >= wanted:
        return (
            f"{lacks}, though {format_headroom(verdict.headroom)} is likely: measure again while nothing else runs on "
            "the machine."
        )
    return f"{lacks}: batches have to come {rounded_up(wanted / shown, 2):.2f} times as fast."


def _what_bounds_lack(verdict: Verdict, wanted: float) -> str:
    lacks = f"at most {as_given(wanted)} of waiting".replace("\u00a0", " ")
    measured = max(verdict.starved_share.value, *(share.value for share in verdict.wait_shares))
    if measured > wanted:
        return f"{lacks}, also in steps and over an epoch, and {percent(measured)} was measured."
    if max(verdict.wait_share.upper, verdict.starved_share.upper) <= wanted:
        return f"{lacks}, and the beginning of an epoch may take more: measure again while nothing else runs."
    num_steps = 100 * math.ceil(num_steps_to_show(wanted, verdict) / 100)
    return f"{lacks}, which only more steps can show: at least {num_steps:,} (`--steps`), even if none waits."


def _what_to_try(profile: Profile) -> str:
    """What to try where no change is predicted to help."""
    if reason := _reason_for_none(profile):
        return reason
    if is_almost_all_transport(profile):
        return _transport_reason(profile)
    cause, _ = main_cause(profile)
    in_words, first_try = _FIRST_TRIES[cause]
    return (
        f"No single change is predicted to take away a good part of the waits, which are mostly {in_words} "
        f"('{STEP_PART_LABELS[cause]}'): try {first_try} first."
    )


def _transport_reason(profile: Profile) -> str:
    who = "Some rank" if profile.ranks else "The device"
    may_read_loss = not profile.verdict.emulated and not profile.live.lead_steps
    loss = "; on a GPU, read the loss every 50 steps and not in each" if may_read_loss else ""
    return (
        f"{who} waits {percent(profile.verdict.wait_share.value)} of the time, almost all of it to receive batches "
        f"that are ready. More workers cannot help: take {LIGHTER_BATCHES}{loss}."
    )


def _reason_for_none(profile: Profile) -> str:
    """Why no advice could be worked out; empty where it could."""
    if not profile.live.batch_timings:
        return ("What the loader's workers do is not seen, so nothing can be advised. It is seen where each batch is "
                "one of a torch DataLoader, or of one of this project's.")  # fmt: skip
    if not profile.live.in_order:
        return "No advice: batches come out of order. Set `in_order=True` to get one."
    if not profile.is_explained:
        return "Only the verdict was requested: for advice leave out `--quick` (in Python, `quick=True`)."
    return ""


def _reason_despite_waits(profile: Profile) -> str:
    """Where some steps of the steady state waited, or may wait, too long to count as fed."""
    verdict = profile.verdict
    if max(verdict.wait_share.value, verdict.starved_share.value) < FED_BELOW:
        num_steps = max(num_steps_for_fed(verdict), 2 * verdict.num_steps)
        return (
            "So little waiting of the steady state counts as fed once more steps show it surely: measure again while "
            f"nothing else runs on the machine, at least {steps_text(profile, num_steps)}."
        )
    return _what_to_try(profile)
