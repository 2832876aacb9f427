"""Steps that an accelerator does while the host's clock runs on: what is concluded of them, on a simulated device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_profiles import SlowItems, TwoAlike, recording_of
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.report.no_advice import no_advice_reason
from facefeed.loaders.profiler.verdict.advice import acceptable_wait_share, advise
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.loader_verdict import LoaderMeasurement
from facefeed.loaders.profiler.verdict.unseen_steps import replay_doubts
from facefeed.loaders.profiler.verdict.verdict import VerdictKind
from torch.utils.data import DataLoader

DEVICE_STEP = 0.020


@dataclass
class SimulatedDevice:
    """An accelerator on the test's clock that works off what the host queues, at most `max_queued` steps."""

    clock: Clock
    max_queued: int = 10_000
    queued_until: deque[float] = field(default_factory=deque)

    def launch(self, launch_seconds: float, device_seconds: float) -> None:
        """The host queues a step, and waits only where the queue is full."""
        self.clock.pass_by(launch_seconds)
        if len(self.queued_until) == self.max_queued:
            self.clock.now = max(self.clock.now, self.queued_until.popleft())
        free_at = self.queued_until[-1] if self.queued_until else self.clock.now
        self.queued_until.append(max(free_at, self.clock.now) + device_seconds)

    def synchronize(self) -> None:
        """The host waits until the queue is empty."""
        if self.queued_until:
            self.clock.now = max(self.clock.now, self.queued_until[-1])
        self.queued_until.clear()


@pytest.fixture
def device(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> SimulatedDevice:
    simulated = SimulatedDevice(clock)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "synchronize", simulated.synchronize)
    return simulated


def step_of(device: SimulatedDevice, launch_seconds: float, *, reads_loss_every: int = 0) -> Callable[[Any], None]:
    """A step that queues 20 ms of work, and waits for the device in every `reads_loss_every`-th step alone."""
    num_steps = 0

    def step(_batch: Any) -> None:
        nonlocal num_steps
        num_steps += 1
        device.launch(launch_seconds, DEVICE_STEP)
        if reads_loss_every and num_steps % reads_loss_every == 0:
            device.synchronize()

    return step


UNSEEN = "it does not see all of them"


def test_a_loop_that_reads_its_loss_every_fifty_steps_is_not_called_starved(
    clock: Clock, device: SimulatedDevice
) -> None:
    """A batch is there every 10 ms, and the device needs 20: it never idles, though the host waits 5 ms a batch."""
    step = step_of(device, 0.005, reads_loss_every=50)
    verdict = profile(DataLoader(SlowItems(clock, 0.005), 1), step, steps=1000, quick=True).verdict
    assert verdict.wait_share.lower > 0.02
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert UNSEEN in str(verdict)


def test_steps_of_few_launches_that_a_replay_never_waits_for_are_not_called_starved(
    clock: Clock, device: SimulatedDevice
) -> None:
    """The queue holds as many of them as a replay has steps, so its steps take no longer than those under load."""
    device.max_queued = 200
    verdict = profile(DataLoader(SlowItems(clock, 0.005), 1), step_of(device, 0.0001), steps=1000, quick=True).verdict
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert UNSEEN in str(verdict)


def test_waits_that_a_launch_of_nearly_a_step_leaves_are_not_called_starved(
    clock: Clock, device: SimulatedDevice
) -> None:
    """Of 20 ms the host launches for 19 and waits for 1, while the device works on."""
    device.max_queued = 4
    verdict = profile(DataLoader(SlowItems(clock, 0.001), 1), step_of(device, 0.019), steps=1000, quick=True).verdict
    assert verdict.wait_share.value == pytest.approx(0.05, abs=0.001)
    assert verdict.kind is VerdictKind.INCONCLUSIVE


@pytest.mark.parametrize(
    ("load_seconds", "reads_loss_every", "kind", "wait_share"),
    [(1e-5, 0, VerdictKind.FED, 0.0005), (0.01, 1, VerdictKind.STARVED, 0.01 / 0.035)],
    ids=["always ready", "every loss read"],
)
def test_a_verdict_is_reached_where_no_wait_overlaps_the_devices_work(
    clock: Clock, device: SimulatedDevice, load_seconds: float, reads_loss_every: int, kind: VerdictKind,
    wait_share: float,
) -> None:  # fmt: skip
    device.max_queued = 4
    step = step_of(device, 0.005, reads_loss_every=reads_loss_every)
    found = profile(DataLoader(SlowItems(clock, load_seconds), 1), step, steps=4000, quick=True)
    assert found.verdict.kind is kind
    assert found.verdict.wait_share.value == pytest.approx(wait_share, abs=0.001)


def test_a_replay_lasts_until_the_device_has_done_all_of_it(clock: Clock, device: SimulatedDevice) -> None:
    found = profile(DataLoader(SlowItems(clock, 0.005), 1), step_of(device, 0.005), steps=200, quick=True)
    assert found.preloaded.step_seconds.mean() == pytest.approx(DEVICE_STEP, rel=0.02)


def test_a_job_of_ranks_whose_steps_are_not_seen_says_so_and_blames_no_rank_for_it(
    clock: Clock, device: SimulatedDevice
) -> None:
    verdict = LoaderMeasurement(
        DataLoader(SlowItems(clock, 0.005), 1), step_of(device, 0.005, reads_loss_every=50), num_steps=1000,
        confidence=0.95, device=None, num_epoch_batches=None, progress=lambda *_: None, ranks=TwoAlike(),
    ).measure().verdict  # fmt: skip
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert [reason.split(": ")[0] for reason in verdict.reasons] == ["rank 0", "rank 1"]
    assert all(UNSEEN in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("accelerator", "remedy"),
    [
        (
            "cuda",
            'Give `profile` the device (`device="cuda"`), whose own clock is then read, or end each step with '
            "`torch.accelerator.synchronize()`.",
        ),
        ("mps", "End each step with `torch.accelerator.synchronize()`: the clock of such a device is not read."),
    ],
)
def test_the_report_names_the_remedy_and_calculates_nothing_from_times_that_are_not_the_devices(
    clock: Clock, device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch, accelerator: str, remedy: str
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(accelerator))
    step = step_of(device, 0.005, reads_loss_every=50)
    found = profile(DataLoader(SlowItems(clock, 0.005), 1), step, steps=1000)
    assert found.verdict.wait_share.value == pytest.approx(0.25, abs=0.01)
    assert found.advice == ()
    assert no_advice_reason(found) == (
        "More steps would not decide it: the host waits for batches while the device still works, and no advice "
        f"follows from such waits. {remedy}"
    )
    job = replace(found.verdict, reasons=tuple(f"rank 1: {reason}" for reason in found.verdict.reasons))
    assert no_advice_reason(replace(found, verdict=job)) == no_advice_reason(found)
    assert advise(found.live, 4, acceptable_share=acceptable_wait_share(job)) == []
    assert advise(found.live, 4, acceptable_share=acceptable_wait_share(replace(job, reasons=()))) != []


def waiting_three_quarters() -> Recording:
    """Of 20.1 ms from one batch to the next, steps take 5 by the host's clock."""
    return recording_of(np.full(1000, 0.0201), 0.005, workers=1)


def replays_of(*step_seconds: float) -> list[Recording]:
    return [recording_of(np.full(125, 1e-5), seconds) for seconds in step_seconds]


@pytest.mark.parametrize(
    ("accelerator", "remedy"),
    [
        ("cuda", "give the `device` that they run on"),
        ("mps", "synchronise in the step (`torch.accelerator.synchronize()`)"),
        ("xpu", "synchronise in the step (`torch.accelerator.synchronize()`)"),
    ],
)
def test_a_doubt_names_the_remedy_that_the_accelerator_has(accelerator: str, remedy: str) -> None:
    (doubt,) = replay_doubts(waiting_three_quarters(), replays_of(0.02, 0.02), accelerator=accelerator)
    assert doubt == (
        f"steps take 5.0 ms by the clock, and 20.0 ms on preloaded batches: it does not see all of them; {remedy}"
    )
    verdict = judge(waiting_three_quarters(), emulated=False, num_cores=4, doubts=(doubt,))
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert doubt in str(verdict)


@pytest.mark.parametrize("replayed", [(0.005, 0.005), (0.005, 0.02), (0.02, 0.0051), (0.004, 0.004), (0.0055, 0.0055)])
def test_steps_that_last_about_as_long_as_a_replay_are_seen(replayed: tuple[float, float]) -> None:
    """One of the two replays may have run beside another job, and the first batch may be a longer one."""
    assert replay_doubts(waiting_three_quarters(), replays_of(*replayed), accelerator="cuda") == ()


def test_longer_replays_are_no_doubt_about_a_loader_that_hardly_waits() -> None:
    """A wait that is not there hides nothing: the batch that is replayed is a longer one."""
    fed = recording_of(np.full(1000, 0.001), 0.005)
    assert replay_doubts(fed, replays_of(0.02, 0.02), accelerator="cuda") == ()
