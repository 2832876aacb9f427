"""The result of a profile: recordings, verdicts, trials, the parts of a step's time, and `Estimator.DIFFERENTIAL`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....pipeline.machine import usable_cores
from ..measure.recording import Recording
from .advice import Advice
from .job import RankResult
from .verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Another loader under the same step: its name, recording and verdict."""

    name: str
    recording: Recording = field(repr=False)
    verdict: Verdict


STEP_PART_LABELS = {
    "step alone": "step alone",
    "copy": "copy",
    "slower step": "slowed step",
    "other ranks": "other ranks",
    "transport": "transport",
    "sampling": "sampler",
    "contention": "no core free",
    "preparation": "not ready",
}
"""The parts of `Profile.bars` as the terminal, the page and the timeline call them."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A point of the wait curve: mean step time, and the share of waiting as predicted and as measured, 0 to 1.

    measured_wait_share_lower: lower bound of what was measured.
    load_ratio: load time of a batch here over that at the profiled step.
    """

    step_seconds: float
    predicted_wait_share: float
    measured_wait_share: float
    measured_wait_share_lower: float
    load_ratio: float = 1.0


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """Workers of a loader, and batches that each makes ahead; None without workers."""

    num_workers: int
    prefetch_factor: int | None

    @property
    def loader_arguments(self) -> str:
        """The settings as keyword arguments of a DataLoader."""
        ahead = f", prefetch_factor={self.prefetch_factor}" if self.prefetch_factor else ""
        return f"num_workers={self.num_workers}{ahead}"


@dataclass(frozen=True, kw_only=True)
class SweepResult(LoaderSettings):
    """Loader settings, their verdict, and images a second of all ranks."""

    verdict: Verdict
    images_per_second: float


@dataclass(frozen=True, kw_only=True)
class SweepFailure(LoaderSettings):
    """Loader settings that could not be measured, and why."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Result of `profile`. Times in seconds, shares 0 to 1.

    Args:
        verdict: of the whole job.
        live: all steps under load.
        preloaded: the same step on preloaded batches.
        preloaded_on_device: on batches that were already on the device, where that is another place and the step takes
            all of their tensors there.
        opening_seconds: of the first `iter()`.
        first_batch_seconds: from there to the first batch.
        step_name: of the step.
        cold_cache: after the page cache was evicted, where that succeeded.
        curve: the wait curve.
        trials: the loader with other transforms, and other loaders. trial_notes: what could not be tried, and why.
        verified: with the best of the advised settings, which are its name; None where none was tried, or none surely
            waited less. verify_notes: what could not be tried, and why.
        advice: what would help.
        num_cores: available to this rank.
        ranks: results of each rank of a job with several.
        rank: the one that all fields but `verdict`, `ranks` and those of the sweep are of.
        is_explained: False where only the verdict was requested.
        sweep: other settings, the best first. sweep_failures: those that could not be measured. sweep_note: why the
            best could not be measured again, so that all fields are those of the sweep; empty where they could.

    """

    verdict: Verdict
    live: Recording = field(repr=False)
    preloaded: Recording = field(repr=False)
    preloaded_on_device: Recording | None = field(repr=False)
    opening_seconds: float
    first_batch_seconds: float
    step_name: str
    cold_cache: Trial | None = None
    curve: tuple[CurvePoint, ...] = ()
    trials: tuple[Trial, ...] = ()
    trial_notes: tuple[str, ...] = ()
    verified: Trial | None = None
    verify_notes: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    num_cores: int = field(default_factory=usable_cores)
    ranks: tuple[RankResult, ...] = ()
    rank: int = 0
    is_explained: bool = True
    sweep: tuple[SweepResult, ...] = ()
    sweep_failures: tuple[SweepFailure, ...] = ()
    sweep_note: str = ""

    @property
    def own_verdict(self) -> Verdict:
        """The verdict on this rank's loader alone, whatever the other ranks of its job wait for."""
        return self.ranks[self.rank].verdict if self.ranks else self.verdict

    @property
    def replay_slowdown(self) -> float:
        """`Estimator.DIFFERENTIAL`: slowdown compared with preloaded batches, as a share of the time, 0 to 1.

        Of a job that of the whole job, as it is judged.
        """
        if self.verdict.replay_slowdown is not None:
            return self.verdict.replay_slowdown
        return 1 - float(self.preloaded.step_seconds.mean()) / float(
            self.live.period_seconds[self.live.is_steady].mean()
        )

    @property
    def as_trial(self) -> Trial:
        """The profiled loader as a trial."""
        return Trial(name="this loader", recording=self.live, verdict=self.own_verdict)

    @property
    def all_trials(self) -> tuple[Trial, ...]:
        """All trials, the cold cache last."""
        return self.trials if self.cold_cache is None else (*self.trials, self.cold_cache)

    @property
    def step_part_seconds(self) -> dict[str, float]:
        """Where a step's time goes: mean seconds a step by part; the parts sum to its period.

        step alone; copy: to the device; slower step: slowdown by concurrent loading; other ranks: until the last rank's
        batch is ready; transport; sampling: the sampler ran in the loop; contention: a ready batch was late, with too
        few cores; preparation: the batch was not ready.
        """
        is_steady, live = self.live.is_steady, self.live
        preloaded_seconds = float(self.preloaded.step_seconds.mean())
        wait_for_others_seconds = self.ranks[self.rank].wait_for_others_seconds if self.ranks else 0.0
        on_device_seconds = (
            preloaded_seconds
            if self.preloaded_on_device is None
            else float(self.preloaded_on_device.step_seconds.mean())
        )
        parts = {
            "step alone": on_device_seconds,
            "copy": preloaded_seconds - on_device_seconds,
            "slower step": float(live.step_seconds[is_steady].mean()) - preloaded_seconds - wait_for_others_seconds,
            "other ranks": wait_for_others_seconds,
            **{cause: float(seconds[is_steady].mean()) for cause, seconds in live.waits_by_cause.items()},
        }
        if self.preloaded_on_device is None:
            del parts["copy"]
        for name in ("sampling", "other ranks"):
            if not parts[name]:
                del parts[name]
        return parts

    @property
    def cold_fetch_seconds(self) -> float:
        """Additional seconds a step with a cold page cache; 0 where that was not measured."""
        if self.cold_cache is None:
            return 0.0
        cold, live = self.cold_cache.recording, self.live
        return max(float(cold.period_seconds[cold.is_steady].mean() - live.period_seconds[live.is_steady].mean()), 0.0)
