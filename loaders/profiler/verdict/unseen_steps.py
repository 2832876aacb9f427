"""Doubts about steps that an accelerator may still run while the host, whose clock times them, waits for a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..measure.recording import Recording
from .judge import shares_contradict

GIVE_DEVICE = "give the `device` that they run on"
_SYNCHRONISE = "synchronise in the step (`torch.accelerator.synchronize()`)"  # other devices' clocks cannot be given
_UNSEEN = "it does not see all of them"


def replay_doubts(recording: Recording, replays: Sequence[Recording], *, accelerator: str) -> tuple[str, ...]:
    """The reason for doubt where the clock shows more waiting than steps take longer than on preloaded batches.

    Then the host waits for batches while the device still works, whose steps its clock sees only in part. Waiting of
    under 2 % is not doubted: so little can hide nothing that matters, and longer replays have another cause.

    Args:
        recording: of steps under load, timed by the host.
        replays: the same steps on preloaded batches, timed until the device had done all of them. The shorter one
            counts: something else may have run beside the other.
        accelerator: type of the device, as in `torch.device.type`.

    """
    if not recording.is_steady.any():
        return ()
    step_seconds, period_seconds, wait_seconds = (
        float(series[recording.is_steady].mean())
        for series in (recording.step_seconds, recording.period_seconds, recording.wait_seconds)
    )
    replayed_seconds = min(float(replay.step_seconds.mean()) for replay in replays)
    wait_share, replay_slowdown = wait_seconds / period_seconds, max(1 - replayed_seconds / period_seconds, 0.0)
    if wait_share <= replay_slowdown or not shares_contradict(wait_share, replay_slowdown):
        return ()
    return (
        f"steps take {1e3 * step_seconds:.1f} ms by the clock, and {1e3 * replayed_seconds:.1f} ms on preloaded "
        f"batches: {_UNSEEN}; {GIVE_DEVICE if accelerator == 'cuda' else _SYNCHRONISE}",
    )


def has_unseen_steps(reasons: Iterable[str]) -> bool:
    """Whether one of a verdict's reasons for doubt is that of `replay_doubts`, for this rank or another."""
    return any(_UNSEEN in reason for reason in reasons)
