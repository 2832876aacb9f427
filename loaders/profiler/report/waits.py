"""What several reports say of a loop: its workers, the steps that are not judged, and what its waits are."""

from __future__ import annotations

from ....pipeline.console import plural
from ..measure.recording import Recording
from ..verdict.result import Profile

_ALMOST_ALL = 0.9  # of the waiting
_NEGLIGIBLE_SHARE = 0.0005  # of the time: shown as under 0.1 %


def main_cause(profile: Profile) -> tuple[str, float]:
    """The largest cause of waits, named as in `Profile.step_part_seconds`, and its part of all waiting, 0 to 1."""
    part_seconds = {name: max(profile.step_part_seconds.get(name, 0.0), 0.0) for name in profile.live.waits_by_cause}
    cause = max(part_seconds, key=lambda name: part_seconds[name])
    return cause, part_seconds[cause] / max(sum(part_seconds.values()), 1e-12)


def is_almost_all_transport(profile: Profile) -> bool:
    """Whether nearly all waiting is for receiving batches that are ready, which no worker can take away."""
    cause, part = main_cause(profile)
    return cause == "transport" and part >= _ALMOST_ALL and bool(profile.live.batch_timings)


def waits_briefly(profile: Profile) -> bool:
    """Whether most of the waiting is in steps that each wait too briefly to count as starved."""
    verdict, live = profile.verdict, profile.live
    if verdict.wait_share.value < _NEGLIGIBLE_SHARE:
        return False
    if profile.ranks:  # only this rank's waits are at hand, and not those of the job
        return not verdict.num_starved_steps
    wait_seconds = live.wait_seconds[live.is_steady]
    long_seconds = float(wait_seconds[wait_seconds > verdict.starved_threshold_seconds].sum())
    return long_seconds < float(wait_seconds.sum()) / 2


def worker_setup(live: Recording) -> str:
    """The loader's workers and how far they work ahead; empty where that is not seen."""
    if not live.batch_timings:
        return ""
    if not live.num_workers:
        return "no workers"
    return f"{plural(live.num_workers, 'worker')} x {plural(live.prefetch_factor, 'batch', 'batches')} ahead"


def num_unjudged_steps(profile: Profile) -> int:
    """Steps before the judged ones: the transient, and at least those in which the queue fills."""
    live = profile.live
    return max(profile.verdict.num_transient_steps, live.num_workers * live.prefetch_factor, 1)
