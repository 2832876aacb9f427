"""The verdict on a loader: its kind, its figures with bounds, and the thresholds they are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..estimate.bounds import BoundedEstimate
from ..estimate.rounding import rounded_down, rounded_up

FED_BELOW, STARVED_ABOVE = 0.01, 0.02
"""Shares of the time: waiting that counts as fed, and waiting that counts as starved."""

WARM_BYTES_PER_IMAGE = 1000
"""Bytes from storage an image, with all that the process reads besides, up to which the page cache counts as warm."""

_HEAVY_TRANSPORT_SHARE = 0.05
_MAX_SHOWN_HEADROOM = 100.0


class VerdictKind(StrEnum):
    """FED: all upper bounds are under 1 %. STARVED: the lower bound of waiting, steady or per epoch, is over 2 %.

    MARGINAL: between these. INCONCLUSIVE: the measurement does not support a verdict.
    """

    FED = "FED"
    MARGINAL = "MARGINAL"
    STARVED = "STARVED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, kw_only=True)
class SteadyFigures:
    """What step times alone show of a steady state. Shares are 0 to 1, times in seconds.

    num_steps: steps that are judged.
    block_steps: steps that the bounds resample together; see `bounds`.
    wait_share: `Estimator.LIVE`, device waiting time over total time.
    starved_share: share of steps that waited longer than `starved_threshold_seconds`; num_starved_steps: their number.
    epoch_wait_share: waiting over a whole epoch of `num_epoch_batches`, of which `epoch_start_wait_seconds` pass until
    the queue is filled; None where the length of an epoch is not known.
    median_step_seconds, mean_step_seconds: of steps.
    """

    num_steps: int
    block_steps: int
    wait_share: BoundedEstimate
    starved_share: BoundedEstimate
    num_starved_steps: int
    starved_threshold_seconds: float
    epoch_wait_share: BoundedEstimate | None
    num_epoch_batches: int | None
    epoch_start_wait_seconds: float
    median_step_seconds: float
    mean_step_seconds: float

    @property
    def wait_shares(self) -> tuple[BoundedEstimate, ...]:
        """The waiting that is judged: in the steady state and, where it is known, over a complete epoch."""
        return (self.wait_share,) if self.epoch_wait_share is None else (self.wait_share, self.epoch_wait_share)

    @property
    def longest_wait_share(self) -> float:
        """Share of waiting, in the steady state or over a complete epoch: the larger one."""
        return max(share.value for share in self.wait_shares)

    @property
    def is_surely_fed_once_steady(self) -> bool:
        """Whether the upper bound of the waiting in the steady state is at most 1 %."""
        return self.wait_share.upper <= FED_BELOW

    @property
    def is_surely_starved(self) -> bool:
        """Whether a lower bound of the waiting is over 2 %."""
        return max(share.lower for share in self.wait_shares) > STARVED_ABOVE


@dataclass(frozen=True, kw_only=True)
class Verdict(SteadyFigures):
    """What a recording shows of its steady state. Shares are 0 to 1, times in seconds.

    kind, reasons: what the figures are called, and why they are not conclusive. remarks: what they do not cover or
    rely on, however conclusive.
    num_transient_steps: steps before the steady state.
    model_wait_share: `Estimator.MODEL`, `wait_share` as predicted for the second half of the steady state by a model of
    the first half; None for a loader without batch timings or with `in_order=False`.
    unexplained_share: see `Recording.unexplained_share` (closure in reports).
    host_transport_share: share of the time in which the host transports ready batches, hidden by device work or not.
    transport_floor_seconds, median_load_seconds: of the transfer of a ready batch, of preparing a batch.
    fastest_step_seconds, fastest_step_upper_seconds: the shortest mean step with at most 1 % of waiting in the steady
    state, and its upper bound; None where the present step may wait for more already.
    overhead_share: share of the time that the profiler itself takes.
    storage_bytes_per_image: bytes an image read from local storage; None where the system does not report them.
    reads_store: whether the dataset, or one of several, is in an object store: what comes from there is not counted.
    replay_slowdown: of a job, its `Estimator.DIFFERENTIAL`; None for a loader alone, of which `Profile` has it.
    rank_wait_shares: of a job, the waiting of each rank; every other field is then of the job, which waits for its last
    rank. See `job.judge_job` for which doubts about one rank are the job's too.
    """

    kind: VerdictKind
    emulated: bool
    num_transient_steps: int
    model_wait_share: float | None
    unexplained_share: float
    host_transport_share: float
    transport_floor_seconds: float
    median_load_seconds: float
    fastest_step_seconds: float | None
    fastest_step_upper_seconds: float | None
    overhead_share: float
    storage_bytes_per_image: float | None
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    reads_store: bool = False
    replay_slowdown: float | None = None
    rank_wait_shares: tuple[float, ...] = ()

    @property
    def headroom(self) -> float | None:
        """How many times faster the step could be before it waits for 1 % of the time."""
        return self.mean_step_seconds / self.fastest_step_seconds if self.fastest_step_seconds else None

    @property
    def headroom_lower(self) -> float | None:
        """Lower bound of `headroom`; it does not cover batches rarer than one fifth of the run shows.

        None where waiting is not surely under 1 %. It is on the steady state: the start of an epoch is no faster with a
        faster step.
        """
        return self.mean_step_seconds / self.fastest_step_upper_seconds if self.fastest_step_upper_seconds else None

    @property
    def cache_state(self) -> str:
        """Page cache state: warm, unknown, or how many kB an image came from storage; or that a store is read."""
        if self.reads_store:
            return "from a store"
        if self.storage_bytes_per_image is None:
            return "cache unknown"
        warm = self.storage_bytes_per_image < WARM_BYTES_PER_IMAGE
        return "cache warm" if warm else f"from storage {self.storage_bytes_per_image / 1e3:,.1f} kB an image"

    @property
    def is_transport_heavy(self) -> bool:
        """Whether the transfer of batches takes over 5 % of the host's time."""
        return self.host_transport_share > _HEAVY_TRANSPORT_SHARE

    def __str__(self) -> str:
        return " · ".join([self.figures, *self.reasons, *self.remarks])

    @property
    def figures(self) -> str:
        """The line of the verdict, without its reasons and remarks."""
        who = f"some of {len(self.rank_wait_shares)} ranks wait" if self.rank_wait_shares else "device waits"
        parts = [f"{'EMULATED ' if self.emulated else ''}{self.kind}  {who} {self.wait_share}"]
        if self.rank_wait_shares:
            parts.append(f"each {min(self.rank_wait_shares):.2%} to {max(self.rank_wait_shares):.2%}")
        at_most = f" (<= {rounded_up(self.starved_share.upper, 4):.2%})" if self.starved_share.has_upper else ""
        parts.append(f"starved {self.num_starved_steps}/{self.num_steps}{at_most}")
        if self.epoch_wait_share is not None:
            parts.append(f"epoch of {self.num_epoch_batches:,} batches {self.epoch_wait_share}")
        if self.fastest_step_seconds is not None:
            fastest = f"{self.fastest_step_seconds * 1e3:.1f} ms"
            if self.emulated:
                parts.append(f"sustains steps >= {fastest}")
            lower = self.headroom_lower
            at_least = "no lower bound" if lower is None else f">= {format_headroom(rounded_down(lower, 1))}"
            parts.append(f"headroom {format_headroom(self.headroom)} ({at_least}, 1 % waiting at {fastest})")
        if self.is_transport_heavy:
            parts.append(f"transport {self.host_transport_share:.1%}")
        parts += [self.cache_state, f"closure {self.unexplained_share:.1%}"]
        return " · ".join(parts)


def format_headroom(headroom: float | None) -> str:
    """Formats headroom for reports, capped: a list in memory may be a million times as fast."""
    if headroom is None:
        return "unknown"
    return f"{headroom:.1f}x" if headroom < _MAX_SHOWN_HEADROOM else f"over {_MAX_SHOWN_HEADROOM:.0f}x"
