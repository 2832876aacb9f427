"""What the profiler says of loaders whose truth is known, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_profiles import SlowItems, recorded
from facefeed.loaders.profiler import profile
from facefeed.loaders.profiler.estimate.queue_model import QueueModel
from facefeed.loaders.profiler.estimate.rounding import rounded_down, rounded_up
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.verdict import loader_verdict
from facefeed.loaders.profiler.verdict.epoch_starts import EpochStarts
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.job import judge_job, report_of_rank
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.verdict import VerdictKind
from facefeed.loaders.profiler.verdict.what_if import WhatIfModel
from facefeed.pipeline.errors import UsageError
from torch.utils.data import DataLoader, IterableDataset

STEP = 0.010


def recording_of(load: Any, step: Any = STEP, *, workers: int = 2, lead: int = 1) -> Recording:
    """What a loop would have recorded of a queue with these load and step times, its host `lead` steps ahead."""
    queue = QueueModel(num_workers=workers, prefetch_factor=2, transport_seconds=0.0004, lead_steps=lead)
    return recorded(queue.replay(load, step), queue=queue)


def test_a_loader_that_is_twice_as_fast_as_the_step_feeds_it() -> None:
    verdict = judge(recording_of(np.full(4000, STEP)), emulated=False, num_cores=4)
    assert verdict.kind is VerdictKind.FED
    assert verdict.wait_share.value == 0.0
    assert verdict.starved_share.upper < 0.01
    assert verdict.fastest_step_seconds == pytest.approx(STEP / 2, rel=0.1)
    assert verdict.headroom == pytest.approx(2.0, rel=0.1)


def test_handing_over_counts_as_far_as_the_device_waits_for_it() -> None:
    hidden = judge(recording_of(np.full(4000, STEP / 20)), emulated=False, num_cores=4)
    assert (hidden.kind, hidden.wait_share.value) == (VerdictKind.FED, 0.0)
    assert hidden.host_transport_share == pytest.approx(0.4 / 10, abs=0.001)
    assert "transport" not in str(hidden)
    exposed = judge(recording_of(np.full(4000, STEP / 20), lead=0), emulated=False, num_cores=4)
    assert exposed.kind is VerdictKind.STARVED
    assert exposed.wait_share.value == pytest.approx(0.4 / 10.4, abs=0.001)
    short = judge(recording_of(np.full(4000, STEP / 20), step=STEP / 2), emulated=False, num_cores=4)
    assert short.kind is VerdictKind.FED
    assert "· transport 8.0% ·" in str(short)


def test_no_headroom_is_claimed_where_the_present_step_waits_and_the_model_says_that_a_faster_one_would_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = recording_of(np.full(4000, 2.2 * STEP))
    assert judge(waiting, emulated=True, num_cores=4).headroom == pytest.approx(0.9, abs=0.02)
    monkeypatch.setattr(WhatIfModel, "fastest_step_seconds", lambda _model, _share: 0.9 * STEP)
    verdict = judge(waiting, emulated=True, num_cores=4)
    assert (verdict.wait_share.value, verdict.headroom) == (pytest.approx(0.09, abs=0.005), None)
    assert "sustains" not in str(verdict)
    job, _ = judge_job(
        [
            report_of_rank(number, replace(verdict, fastest_step_seconds=0.9 * STEP), waiting, waiting, None)
            for number in (0, 1)
        ]
    )
    assert (job.wait_share.value, job.headroom) == (pytest.approx(0.09, abs=0.005), None)


def test_a_device_that_waits_too_long_in_both_halves_is_starved_whatever_the_model_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(WhatIfModel, "wait_share", lambda _model, **_options: 0.3)
    starved = judge(recording_of(np.full(4000, 2.2 * STEP)), emulated=True, num_cores=4)
    assert (starved.kind, starved.reasons, starved.headroom) == (VerdictKind.STARVED, (), None)
    assert starved.remarks == (
        "the queue's model, from the first half, says 30.0% of waiting, the clock of the second half 9.1%: headroom is "
        "not known",
    )
    fed = judge(recording_of(np.full(4000, STEP)), emulated=True, num_cores=4)
    assert fed.kind is VerdictKind.INCONCLUSIVE
    assert fed.reasons == ("the queue's model, from the first half, says 30.0% of waiting, the clock of the second "
                           "half 0.0%",)  # fmt: skip


def test_a_step_can_be_no_faster_than_a_batch_is_handed_over() -> None:
    verdict = judge(recording_of(np.full(4000, 1e-7)), emulated=False)
    assert "headroom 25.3x (>= 25.2x, 1 % waiting at 0.4 ms)" in str(verdict)


def test_a_loader_that_is_too_slow_starves_it_by_as_much_as_it_lacks() -> None:
    verdict = judge(recording_of(np.full(2000, 3 * STEP)), emulated=False, num_cores=4)
    assert verdict.kind is VerdictKind.STARVED
    assert verdict.wait_share.value == pytest.approx((15 - 10) / 15, abs=0.001)  # two workers make one in 15 ms
    assert verdict.model_wait_share == pytest.approx(verdict.wait_share.value, abs=0.002)
    assert verdict.unexplained_share < 1e-9


def busy_process(recording: Recording, cores: float) -> Recording:
    """The same, in a process whose threads use that many cores all the time, as a pool's that spin do."""
    return replace(recording, loop_cpu_seconds=cores * float(recording.period_seconds.sum()))


def test_a_host_that_launches_slowly_waits_for_batches_by_the_model_as_by_the_clock() -> None:
    """The device is idle while the host receives a batch: the step took as long to launch as to run."""
    queue = QueueModel(
        num_workers=8, prefetch_factor=2, transport_seconds=0.004, lead_steps=1, launch_seconds=0.95 * STEP
    )
    recording = recorded(queue.replay(np.full(4000, STEP), STEP), queue=queue)
    for cores in (0.5, 1.0, 7.0):
        verdict = judge(busy_process(recording, cores), emulated=False, num_cores=16)
        assert verdict.wait_share.value == pytest.approx(3.5 / 13.5, abs=0.001)
        assert verdict.model_wait_share == pytest.approx(verdict.wait_share.value, abs=0.001)
        assert verdict.kind is VerdictKind.STARVED


@pytest.mark.parametrize("cores", [1.0, 7.0])
def test_other_threads_of_a_process_make_no_loader_wait_in_the_model(cores: float) -> None:
    """No step shows how long its launch takes, as the device is always busy; the shortest show how long it may take."""
    steps = np.random.default_rng(0).gamma(1 / 0.3**2, 0.3**2 * STEP, 4000)
    verdict = judge(busy_process(recording_of(np.full(4000, STEP), steps), cores), emulated=False, num_cores=16)
    assert verdict.kind is VerdictKind.FED
    assert verdict.model_wait_share == pytest.approx(0.0, abs=0.005)
    assert verdict.headroom is not None
    assert verdict.headroom > 1.3


def test_a_pause_of_the_host_is_one_pause_in_the_model() -> None:
    """A late batch in a hundred, and after one of them the host writes a checkpoint."""
    load = np.full(4000, STEP / 4)
    load[::100] = 8 * STEP
    launch = np.full(4000, 0.002)
    launch[1900] = 0.1
    queue = QueueModel(num_workers=2, prefetch_factor=2, transport_seconds=0.0004, lead_steps=1)
    recording = busy_process(recorded(queue.replay(load, STEP, launch_seconds=launch), queue=queue), 0.3)
    assert recording.queue_model.launch_seconds == pytest.approx(0.002)
    verdict = judge(recording, emulated=False, num_cores=4)
    assert verdict.kind is VerdictKind.STARVED  # by model and clock alike, of which the first half holds the pause
    assert verdict.model_wait_share == pytest.approx(verdict.wait_share.value, abs=0.01)


def test_one_slow_batch_in_fifty_is_neither_fed_nor_starved() -> None:
    load = np.full(4000, STEP / 4)
    load[::50] = 5.2 * STEP
    verdict = judge(recording_of(load), emulated=False, num_cores=4)
    assert verdict.kind is VerdictKind.MARGINAL
    assert verdict.num_starved_steps == pytest.approx(79, abs=2)


def test_few_steps_prove_nothing() -> None:
    verdict = judge(recording_of(np.full(60, STEP)), emulated=False, num_cores=4)
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert "too few steps: 56, needs 80" in str(verdict)


def test_waits_in_long_runs_starve_a_step_though_nobody_knows_by_how_much_at_most() -> None:
    load = np.repeat([STEP, 4 * STEP, STEP, 4 * STEP, STEP, 4 * STEP, STEP, 4 * STEP], 500)
    verdict = judge(recording_of(load), emulated=False, num_cores=4)
    assert verdict.num_steps < 20 * verdict.block_steps
    assert verdict.kind is VerdictKind.STARVED
    assert not verdict.wait_share.has_upper
    lower = rounded_down(verdict.wait_share.lower, 4)
    assert f"device waits {verdict.wait_share.value:.2%} (95% >= {lower:.2%}) · starved" in str(verdict)
    assert Gate(max_wait_share=0.9).exit_code(verdict) == 1
    fast = judge(recording_of(load / 5), emulated=False, num_cores=4)
    assert fast.kind is VerdictKind.FED


def test_a_step_that_no_gpu_took_is_always_marked_as_emulated() -> None:
    text = str(judge(recording_of(np.full(4000, STEP)), emulated=True, num_cores=4))
    assert text.startswith("EMULATED FED  device waits 0.00%")
    assert "sustains steps >= 5.0 ms" in text


def test_waiting_for_cores_is_separated_from_handing_over_and_a_clocks_noise_is_not() -> None:
    recording = recording_of(np.full(4000, STEP / 4), lead=0)
    late = np.zeros(4000)
    late[::2] = 0.005  # each second hand-over of a batch that is made takes 5 ms: nobody had a core for it
    shift_before, shift_after = np.cumsum(late) - late, np.cumsum(late)
    delayed = replace(
        recording,
        requested_at=recording.requested_at + shift_before,
        host_requested_at=recording.host_requested_at + shift_before,
        received_at=recording.received_at + shift_after,
        host_received_at=recording.host_received_at + shift_after,
        step_begin_raw_at=recording.step_begin_raw_at + shift_after,
        step_end_at=recording.step_end_at + shift_after,
    )
    assert delayed.late_seconds[delayed.is_steady].mean() == pytest.approx(0.0025, rel=0.05)
    assert judge(delayed, emulated=False, num_cores=4).wait_share.value == pytest.approx(0.0029 / 0.0129, abs=0.01)
    noise = 0.0003 * (np.arange(4000) % 2)
    noisy = replace(
        recording, received_at=recording.received_at + noise, host_received_at=recording.host_received_at + noise
    )
    assert noisy.late_seconds.sum() == 0.0
    assert noisy.transport_seconds[noisy.is_steady].mean() == pytest.approx(0.00055)


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ({}, 0),
        ({"max_wait_share": 0.01, "min_headroom": 1.5}, 0),
        ({"min_headroom": 3.0}, 1),
    ],
)
def test_the_gate_is_on_the_bound(gate: dict[str, float], code: int) -> None:
    verdict = judge(recording_of(np.full(4000, STEP)), emulated=False, num_cores=4)
    assert Gate(**gate).exit_code(verdict) == code
    assert bool(Gate(**gate).failures(verdict)) == bool(code)
    starving = judge(recording_of(np.full(2000, 3 * STEP)), emulated=False, num_cores=4)
    assert Gate(**gate).exit_code(starving) == 1
    assert Gate(**gate).exit_code(judge(recording_of(np.full(60, STEP)), emulated=False, num_cores=4)) == 4


def test_headroom_is_not_proved_for_a_step_that_may_wait_for_more_than_one_percent() -> None:
    rarely_late = np.full(4000, STEP)
    rarely_late[::400] = 16 * STEP
    for load, kind in ((np.full(2000, 3 * STEP), VerdictKind.STARVED), (rarely_late, VerdictKind.MARGINAL)):
        verdict = judge(recording_of(load), emulated=False, num_cores=4)
        assert verdict.kind is kind
        assert verdict.headroom is not None
        assert (verdict.headroom_lower, verdict.fastest_step_upper_seconds) == (None, None)
        assert f"headroom {verdict.headroom:.1f}x (no lower bound, 1 % waiting at" in str(verdict)
        assert Gate(min_headroom=0.1).exit_code(verdict) == 1
        assert Gate(min_headroom=0.1).failures(verdict) == ["headroom not known, wanted 0.1x"]


def test_headroom_of_the_steady_state_is_none_for_epochs_that_wait_at_their_beginning() -> None:
    recording = recording_of(np.full(4000, STEP))
    short, long = (
        judge(
            recording, emulated=False, num_cores=4,
            epoch=EpochStarts(num_batches=num_batches, start_wait_seconds=(0.3,) * 5),
        )
        for num_batches in (100, 100_000)
    )  # fmt: skip
    assert (short.kind, long.kind) == (VerdictKind.STARVED, VerdictKind.FED)
    gate = Gate(min_headroom=1.5)
    assert gate.failures(short) == ["headroom not known, since an epoch's waiting <= 23.67%, wanted 1.5x"]
    assert (gate.exit_code(short), gate.exit_code(long)) == (1, 0)


def test_the_gate_is_on_the_bounds_of_waiting_and_starved_steps_not_on_what_was_seen() -> None:
    load = np.full(4000, STEP / 4)
    load[::1000] = 5 * STEP
    verdict = judge(recording_of(load), emulated=False, num_cores=4)
    shares = (verdict.wait_share, verdict.starved_share)
    for share in shares:
        between = (share.value + share.upper) / 2
        shown = f"<= {rounded_up(share.upper, 4):.2%}"
        assert any(shown in failure for failure in Gate(max_wait_share=between).failures(verdict))
    assert Gate(max_wait_share=max(share.upper for share in shares)).failures(verdict) == []


def test_a_gate_that_cannot_be_meant_is_refused() -> None:
    for wrong in ({"max_wait_share": 1.0}, {"max_wait_share": 0.0}, {"min_headroom": 0.0}):
        with pytest.raises(UsageError, match="must be"):
            Gate(**wrong)


# ---- real loaders without workers, on the test's own clock


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, items: SlowItems) -> None:
        self.items = items

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self.items[number] for number in range(600))


@pytest.mark.parametrize("kind", ["map-style", "iterable", "plain iterable"])
def test_the_three_estimators_agree_on_a_loader_without_workers(clock: Clock, kind: str) -> None:
    items = SlowItems(clock, 0.001)
    loaders = {"map-style": lambda: DataLoader(items, 4), "iterable": lambda: DataLoader(Stream(items), 4)}
    loader: Any = loaders[kind]() if kind in loaders else [None] and _Plain(items)
    samples: list[int] = []

    def step(batch: torch.Tensor) -> None:
        samples.extend(batch.ravel().tolist())
        clock.pass_by(STEP)

    loader_profile = profile.profile(loader, step, steps=500)
    assert loader_profile.verdict.kind is VerdictKind.STARVED
    assert loader_profile.verdict.wait_share.value == pytest.approx(4 / 14)
    assert loader_profile.replay_slowdown == pytest.approx(4 / 14)
    assert loader_profile.verdict.model_wait_share in (None, pytest.approx(4 / 14))
    assert samples[:4] == list(range(4))  # the batches are as they were
    first = 4 * (1 + loader_verdict.NUM_REPLAY_STEPS)
    continued = samples[first : first + 8]
    assert continued == [(continued[0] + offset) % 600 for offset in range(8)]
    assert loader_profile.live.images_per_second == pytest.approx(4 / 0.014)
    assert sum(loader_profile.step_part_seconds.values()) == pytest.approx(0.014)


class _Plain:
    """Batches that come from no loader of torch's."""

    def __init__(self, items: SlowItems) -> None:
        self.items = items

    def __iter__(self) -> Iterator[torch.Tensor]:
        for first in range(0, 600, 4):
            yield torch.stack([self.items[first + offset] for offset in range(4)])


def test_a_loader_without_batches_is_refused(clock: Clock) -> None:
    with pytest.raises(UsageError, match="the loader has no batches"):
        profile.profile(DataLoader(SlowItems(clock, 0.001), 4, sampler=[]), lambda _: None)
