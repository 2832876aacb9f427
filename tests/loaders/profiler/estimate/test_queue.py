"""What the model of the loader's queue says of cases that can be worked out by hand, on no clock at all."""

from __future__ import annotations

import numpy as np
import pytest
from assets_profiles import recorded, uneven
from facefeed.loaders.profiler.estimate.queue_model import QueueModel
from facefeed.loaders.profiler.verdict.what_if import WhatIfModel
from facefeed.pipeline.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st


def test_without_workers_every_step_waits_for_its_whole_batch() -> None:
    timeline = QueueModel(num_workers=0).replay([3.0, 1.0, 2.0], [10.0, 10.0, 10.0])
    assert timeline.wait_seconds.tolist() == timeline.not_ready_seconds.tolist() == [3.0, 1.0, 2.0]
    assert timeline.total_seconds == 36.0


@pytest.mark.parametrize(("workers", "share"), [(1, 0.75), (2, 0.5), (3, 0.25), (4, 0.0), (5, 0.0)])
def test_constant_loads_are_waited_for_until_there_are_workers_enough(workers: int, share: float) -> None:
    timeline = QueueModel(num_workers=workers, prefetch_factor=2).replay(np.full(4800, 4.0), 1.0)
    assert timeline.wait_share(skip_batches=2 * workers) == pytest.approx(share, abs=2e-3)


def test_two_slow_workers_give_one_long_wait_and_one_short() -> None:
    wait = QueueModel(num_workers=2, prefetch_factor=1).replay(np.full(20, 10.0), 1.0).wait_seconds[2:]
    assert wait[0::2].tolist() == [8.0] * 9
    assert wait[1::2].tolist() == [0.0] * 9


@pytest.mark.parametrize(("times", "starved"), [(0.9, 0), (1.1, 1)])
@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (1, 4), (2, 2), (4, 2)])
def test_one_slow_batch_is_hidden_as_long_as_those_ahead_of_it_last(
    times: float, starved: int, workers: int, prefetch: int
) -> None:
    queue, load = QueueModel(num_workers=workers, prefetch_factor=prefetch), np.full(100, 0.01)
    load[50] = times * workers * prefetch
    wait = queue.replay(load, 1.0).wait_seconds[queue.max_in_flight :]
    assert int((wait > 1e-9).sum()) == starved


def test_a_mean_below_the_steps_mean_proves_nothing() -> None:
    load = np.random.default_rng(1).exponential(0.9 * 4, 40_000)  # four workers at 90 % of their capacity, CV 1
    assert QueueModel(num_workers=4, prefetch_factor=2).replay(load, 1.0).wait_share(skip_batches=8) == pytest.approx(
        0.29, abs=0.02
    )


def test_handing_over_is_waited_for_unless_the_host_does_it_while_the_device_works() -> None:
    """A device that takes 1 s works on while the host, a step ahead, takes 0.1 s for a batch that is ready."""
    for lead, wait in ((0, 0.1), (1, 0.0), (2, 0.0)):
        timeline = QueueModel(num_workers=2, transport_seconds=0.1, lead_steps=lead).replay(np.full(50, 0.01), 1.0)
        assert timeline.not_ready_seconds[1:].max() == 0.0
        assert timeline.wait_seconds[3:] == pytest.approx(np.full(47, wait))
        assert np.diff(timeline.step_begin_at)[3:] == pytest.approx(1.0 + wait)


def test_an_idle_worker_begins_a_batch_once_its_request_has_come() -> None:
    """Batches of 10 s and steps of 1: a worker that is one batch ahead waits 2 s for each request, others for none."""
    waits = [
        QueueModel(num_workers=1, prefetch_factor=prefetch, request_seconds=2.0).replay(np.full(40, 10.0), 1.0)
        for prefetch in (1, 2, 4)
    ]
    assert [timeline.wait_seconds[10:].tolist() for timeline in waits] == [[11.0] * 30, [9.0] * 30, [9.0] * 30]


@pytest.mark.parametrize("workers", [1, 2])
def test_how_long_a_request_takes_is_learned_from_workers_that_were_idle(workers: int) -> None:
    queue = QueueModel(num_workers=workers, prefetch_factor=1, request_seconds=0.003, transport_seconds=0.0004)
    timeline = queue.replay(uneven(400, 0.05), 0.02)
    recording = recorded(timeline, queue=queue)
    assert recording.request_seconds == pytest.approx(0.003)
    assert recording.turnaround_seconds == 0.0
    assert recording.modelled_not_ready_seconds()[10:] == pytest.approx(timeline.not_ready_seconds[10:], abs=1e-9)
    assert WhatIfModel.fit(recording, 8).wait_share() == pytest.approx(timeline.wait_share(), abs=0.005)


def test_a_host_that_launches_and_makes_batches_has_less_time_for_either() -> None:
    """Steps of 20 ms, of which launching takes 4; batches of 18 ms that the host makes itself: 22 a step."""
    timeline = QueueModel(num_workers=0, lead_steps=1, launch_seconds=0.004).replay(np.full(200, 0.018), 0.020)
    assert timeline.wait_share(skip_batches=5) == pytest.approx(0.002 / 0.022, rel=0.01)


def test_a_host_that_is_ahead_hides_a_slow_batch_for_as_long_as_the_device_has_work() -> None:
    load = np.full(100, 0.01)
    load[50] = 2.5
    waits = [QueueModel(num_workers=0, lead_steps=lead).replay(load, 1.0).wait_seconds[50] for lead in (0, 1, 2, 3)]
    assert waits == pytest.approx([2.5, 1.5, 0.5, 0.0])


@given(
    loads=st.lists(st.floats(0, 10), min_size=1, max_size=40), step=st.floats(0.01, 10), workers=st.integers(0, 5),
    prefetch=st.integers(1, 4), transport=st.floats(0, 1), lead=st.integers(0, 3),
)  # fmt: skip
def test_time_is_spent_on_steps_and_waits_and_nothing_else(
    loads: list[float], step: float, workers: int, prefetch: int, transport: float, lead: int
) -> None:
    timeline = QueueModel(
        num_workers=workers, prefetch_factor=prefetch, transport_seconds=transport, lead_steps=lead
    ).replay(loads, step)
    assert timeline.wait_seconds.sum() + timeline.step_seconds.sum() == pytest.approx(timeline.total_seconds)
    assert (timeline.not_ready_seconds <= timeline.wait_seconds + 1e-9).all()
    if not lead:
        assert timeline.wait_seconds - timeline.not_ready_seconds == pytest.approx(
            np.full(len(loads), transport), abs=1e-9
        )


@given(loads=st.lists(st.floats(0, 10), min_size=5, max_size=60), step=st.floats(0.01, 5), workers=st.integers(1, 4))
def test_more_ahead_never_waits_longer(loads: list[float], step: float, workers: int) -> None:
    total = [
        QueueModel(num_workers=workers, prefetch_factor=ahead).replay(loads, step).total_seconds for ahead in (1, 2, 8)
    ]
    assert total[0] + 1e-9 >= total[1] >= total[2] - 1e-9


def test_settings_that_no_loader_has_are_refused() -> None:
    for wrong in ({"num_workers": -1}, {"prefetch_factor": 0}, {"transport_seconds": -0.1}, {"lead_steps": -1}):
        with pytest.raises(UsageError, match=r"needs at least 0 workers, 1 batch of prefetch"):
            QueueModel(**{"num_workers": 1, **wrong})  # type: ignore[arg-type]
