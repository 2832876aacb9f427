"""The sentences on how to get a verdict where there is none."""

from __future__ import annotations

import math

from ....pipeline.console import percent
from ..estimate.bounds import MIN_BLOCKS, UNSEEN_EPISODE_STEPS
from ..verdict.judge import too_few_steps_reasons
from ..verdict.result import Profile
from ..verdict.steady_state import NOT_STEADY
from ..verdict.unseen_steps import GIVE_DEVICE, has_unseen_steps
from ..verdict.verdict import FED_BELOW, STARVED_ABOVE, Verdict, VerdictKind

_IDLE = "while nothing else runs on the machine"
_MIN_STEPS = 100
_MARGIN = 1.2  # times the steps of which none may wait: a few will
_MAX_EXTENSION = 4
"""Times the requested steps that a loader without a steady state is measured in."""


_REMEDIES = {
    "the profiler itself takes": "Batches pass so quickly that timing them takes {overhead} of the time: take larger "
    "ones (`--batch-size`, or `batch_size=`).",
    "end their steps together": "More steps would not decide it: take a step that ends on all ranks together, as one "
    f"that sums gradients every time, and measure on cards that are equally fast, {_IDLE}.",
    "is not accounted for": f"More steps alone would not decide it: measure again {_IDLE}.",
}
"""What to do where more steps would not decide it, by what a reason for doubt says."""


def how_to_decide(profile: Profile) -> str:
    """How to get a verdict where there is none, by the reason for doubt; empty where there is one."""
    verdict = profile.verdict
    if verdict.kind is not VerdictKind.INCONCLUSIVE:
        return ""
    who = "some rank" if profile.ranks else "the device"
    waits = f"By the clock {who} waits {percent(verdict.wait_share.value)} of the time. "
    return f"{waits if is_plainly_waiting(verdict) else ''}{_what_prevents_it(profile) or _longer_run(profile)}"


def is_plainly_waiting(verdict: Verdict) -> bool:
    """Whether the clock shows a starved device, whatever can be concluded; not where it does not see the device."""
    return verdict.wait_share.value > STARVED_ABOVE and not has_unseen_steps(verdict.reasons)


def _what_prevents_it(profile: Profile) -> str:
    """What to do where more steps would not decide it; empty where they may."""
    verdict = profile.verdict
    if verdict.storage_bytes_per_image is None:
        return (
            "This system does not report what is read from storage (`/proc/PID/io`), so no verdict is possible here: "
            "run it where that file can be read, such as on the host and not in a container."
        )
    if has_unseen_steps(verdict.reasons):
        return (
            "More steps would not decide it: the host waits for batches while the device still works, and no advice "
            f"follows from such waits. {_how_to_see_steps(verdict)}"
        )
    remedies = (remedy for doubt, remedy in _REMEDIES.items() if _is_doubted_for(verdict, doubt))
    return next(remedies, "").format(overhead=percent(verdict.overhead_share))


def _how_to_see_steps(verdict: Verdict) -> str:
    if _is_doubted_for(verdict, GIVE_DEVICE):
        return (
            'Give `profile` the device (`device="cuda"`), whose own clock is then read, or end each step with '
            "`torch.accelerator.synchronize()`."
        )
    return "End each step with `torch.accelerator.synchronize()`: the clock of such a device is not read."


def _longer_run(profile: Profile) -> str:
    verdict = profile.verdict
    if _is_doubted_for(verdict, NOT_STEADY):
        num_steps = _rounded(len(profile.live) / 2)
        return (
            f"Measure again {_IDLE}. Where that changes nothing, give it more steps ({_options(num_steps)}, of which "
            f"up to {_MAX_EXTENSION} times as many are run: {_duration(profile, _MAX_EXTENSION * num_steps)})."
        )
    if too_few_steps_reasons(verdict):
        least_steps = MIN_BLOCKS * verdict.block_steps
        if verdict.wait_share.value < FED_BELOW:
            least_steps = max(least_steps, num_steps_for_fed(verdict))
        return f"Measure again {_IDLE}, at least {steps_text(profile, least_steps)}."
    return (
        f"Measure again {_IDLE}. Where that changes nothing, measure at least "
        f"{steps_text(profile, 2 * len(profile.live))}."
    )


def steps_text(profile: Profile, least_steps: float) -> str:
    """A number of steps to measure, with the options that request it and the time that it takes."""
    num_steps = _rounded(least_steps)
    return f"{num_steps:,} steps ({_options(num_steps)}: {_duration(profile, num_steps)})"


def num_steps_to_show(wait_share: float, verdict: Verdict) -> int:
    """Steps that show, if none of them waits, that waiting is surely under a share."""
    return math.ceil(-math.log(1 - verdict.wait_share.confidence) * UNSEEN_EPISODE_STEPS / wait_share)


def num_steps_for_fed(verdict: Verdict, wait_share: float = FED_BELOW) -> int:
    """Steps that a loader that hardly waits needs to be FED, where it has to show that it waits less than that."""
    return math.ceil(_MARGIN * num_steps_to_show(wait_share, verdict))


def _is_doubted_for(verdict: Verdict, reason: str) -> bool:
    return any(reason in each for each in verdict.reasons)


def _rounded(num_steps: float) -> int:
    return max(100 * math.ceil(num_steps / 100), _MIN_STEPS)


def _options(num_steps: int) -> str:
    return f"`--steps {num_steps}`, or `steps={num_steps}`"


def _duration(profile: Profile, num_steps: int) -> str:
    """How long so many steps take at the measured pace."""
    seconds = num_steps * float(profile.live.period_seconds.mean())
    if seconds < 90:
        return f"about {max(round(seconds), 1)} s"
    return f"about {round(seconds / 60)} min" if seconds < 90 * 60 else f"about {round(seconds / 3600)} h"
