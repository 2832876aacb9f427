"""What is advised for loaders whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assets_profiles import recorded
from facefeed.loaders.profiler.estimate.queue_model import QueueModel
from facefeed.loaders.profiler.measure.batch_timing import BatchTiming
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.verdict.advice import Advice, acceptable_wait_share, advise, unexplained_wait_share
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.verdict import VerdictKind

STEP = 0.010


def recording_of(load: Any, *, workers: int = 2, prefetch: int = 2, busy: float = 0.0, loop: float = 0.0,
                 queued: float = 0.0, spans: dict[str, float] | None = None) -> Recording:  # fmt: skip
    """What a loop would have seen of a queue. busy, queued, spans: parts of each load; loop: of the step's time."""
    queue = QueueModel(
        num_workers=workers, prefetch_factor=prefetch if workers else 1, transport_seconds=0.0001, lead_steps=1
    )
    timeline = queue.replay(load, STEP)
    stamps = [
        BatchTiming(start, finish, cpu_seconds=busy * (finish - start), core_wait_seconds=queued * (finish - start),
              stage_seconds={name: part * (finish - start) for name, part in (spans or {}).items()})
        for start, finish in zip(timeline.load_start_at, timeline.load_end_at, strict=True)
    ]  # fmt: skip
    return recorded(timeline, queue=queue, stamps=stamps, loop_cpu_seconds=loop * timeline.total_seconds)


def find_advice(advice: list[Advice], text: str) -> Advice:
    return next(item for item in advice if text in item.change)


def test_a_loader_that_waits_for_something_else_than_a_core_is_given_as_many_workers_as_it_needs() -> None:
    advice = advise(recording_of(np.full(600, 3.5 * STEP)), num_cores=2)
    workers = advice[0]
    assert workers.change == "workers 2 -> 4"
    assert workers.settings == {"num_workers": 4, "prefetch_factor": 2}
    assert workers.current_wait_share == pytest.approx(1 - 10.1 / 17.5, abs=0.01)
    assert workers.predicted_wait_share < 0.01
    assert str(workers) == f"workers 2 -> 4: waiting {workers.current_wait_share:.1%} -> 0.0%"
    assert str(replace(workers, measured_wait_share=0.004)).endswith("-> 0.0%, measured 0.4%")


def test_the_more_a_loader_starves_the_more_is_advised() -> None:
    """Four workers in place of one leave 80 % of waiting where 95 % was, and make the training four times as fast."""
    advice = advise(recording_of(np.full(600, 20 * STEP), workers=1, spans={"augment": 0.9}), num_cores=2)
    assert advice[0].settings == {"num_workers": 4, "prefetch_factor": 2}
    assert advice[0].current_wait_share == pytest.approx(0.95, abs=0.01)
    assert advice[0].predicted_wait_share == pytest.approx(0.80, abs=0.01)
    assert find_advice(advice, "of a batch's load time").predicted_wait_share < 0.91
    assert not replace(advice[0], measured_wait_share=0.80).failed
    assert replace(advice[0], measured_wait_share=0.945).failed


def test_more_workers_are_not_advised_where_the_cores_are_busy_but_more_cores_are() -> None:
    crowded = recording_of(np.full(600, 3.5 * STEP), busy=1.0, loop=0.2)
    advice = advise(crowded, num_cores=2)
    assert not [item for item in advice if item.settings]
    cores = find_advice(advice, "need more than 2 cores; with 4 cores and workers 2 -> 4")
    assert cores.predicted_wait_share < cores.current_wait_share / 2


def test_one_core_is_named_as_too_few_to_load_beside_the_loop() -> None:
    advice = advise(recording_of(np.full(600, 2 * STEP), workers=0, busy=1.0, loop=1.2), num_cores=1)
    change = find_advice(advice, "too few").change
    assert change == "1 core is too few to load batches while the loop runs; with 2 cores and workers 0 -> 1"


def test_a_loader_without_workers_is_given_some() -> None:
    advice = advise(recording_of(np.full(600, 2 * STEP), workers=0, busy=1.0, loop=0.5), num_cores=4)
    assert advice[0].change.startswith("workers 0 -> ")
    assert advice[0].settings["prefetch_factor"] == 2
    assert advice[0].predicted_wait_share < 0.01


def test_batches_of_very_different_length_are_given_a_longer_queue() -> None:
    load = np.random.default_rng(0).exponential(1.5 * STEP, 2000)
    advice = find_advice(advise(recording_of(load, prefetch=1, busy=1.0), num_cores=2), "prefetch 1 -> ")
    assert advice.predicted_wait_share < 0.7 * advice.current_wait_share
    assert advice.settings["num_workers"] == 2


def test_one_slow_batch_in_fifty_is_named() -> None:
    load = np.full(1000, STEP)
    load[25::50] = 20 * STEP
    advice = find_advice(advise(recording_of(load, busy=1.0), num_cores=2), "batches take")
    assert advice.change.startswith(
        "20 of 996 batches take 20 times as long as the others (up to 200 ms), the first at steps 25, 75, 125 of "
        "`--trace`: find out"
    )
    assert advice.predicted_wait_share < 0.01 < advice.current_wait_share


def test_the_stage_that_takes_longest_is_named_with_what_to_do_about_it() -> None:
    spans = {"read": 0.1, "decode": 0.2, "augment": 0.6}
    advice = find_advice(advise(recording_of(np.full(600, 3 * STEP), busy=1.0, spans=spans), num_cores=2), "augment")
    assert advice.change == (
        "augmenting is 60% of a batch's load time; if it took half as long (take cheaper transforms, or leave some to "
        "the device)"
    )
    assert advice.predicted_wait_share == pytest.approx(1 - 10.1 / 10.5, abs=0.01)


def test_what_others_on_the_machine_took_is_not_expected_to_go_away() -> None:
    """Half of the time, makers wanted a core that somebody else had: more of them would wait as well."""
    advice = advise(recording_of(np.full(600, 3 * STEP), busy=0.5, queued=0.5), num_cores=2)
    assert not [item for item in advice if item.predicted_wait_share < 0.01 and "prefetch" in item.change]


def test_nobody_who_never_waits_is_advised() -> None:
    assert advise(recording_of(np.full(600, STEP)), num_cores=2) == []


def test_a_rank_that_may_wait_for_less_is_advised_where_one_alone_is_not() -> None:
    """It waits for 0.8 % of the time; four such ranks may keep each other waiting for 3 %."""
    load = np.full(4000, STEP)
    load[100::500] = 8.5 * STEP
    rank = recording_of(load)
    assert advise(rank, num_cores=4) == []
    first = advise(rank, num_cores=4, acceptable_share=0.0025)[0]
    assert first.settings
    assert first.predicted_wait_share <= first.current_wait_share / 2


def test_a_job_that_is_fed_is_not_advised_whatever_its_ranks_wait() -> None:
    """Each of four ranks waits for 0.8 % of the time, in the same steps as the others."""
    load = np.full(4000, STEP)
    load[100::500] = 8.5 * STEP
    rank = recording_of(load)
    job = replace(judge(rank, emulated=True, num_cores=4), rank_wait_shares=(0.008,) * 4)
    advised, fed = (
        advise(rank, num_cores=4, acceptable_share=acceptable_wait_share(replace(job, kind=kind)))
        for kind in (VerdictKind.MARGINAL, VerdictKind.FED)
    )
    assert advised
    assert fed == []


@pytest.mark.parametrize("steps", [11.0, 12.0, 13.0])
def test_little_waiting_is_not_answered_by_leaving_most_of_it(steps: float) -> None:
    """Between 1 and 2 % of the time."""
    load = np.full(4000, STEP)
    load[100::500] = steps * STEP
    settings = [item for item in advise(recording_of(load), num_cores=4) if item.settings]
    assert len(settings) == 2
    assert all(0.01 < item.current_wait_share < 0.02 for item in settings)
    assert all(item.predicted_wait_share <= item.current_wait_share / 2 for item in settings)


def test_steps_that_wait_often_but_briefly_are_advised_since_they_never_count_as_fed() -> None:
    load = np.full(4000, STEP)
    load[::50] = 5.2 * STEP
    recording = recording_of(load)
    verdict = judge(recording, emulated=True, num_cores=4)
    assert verdict.kind is VerdictKind.MARGINAL
    assert verdict.wait_share.value < 0.01 < verdict.starved_share.value
    advice = advise(recording, num_cores=4, acceptable_share=acceptable_wait_share(verdict))
    assert advice[0].settings
    assert advice[0].predicted_wait_share <= advice[0].current_wait_share / 2


def test_no_change_is_predicted_to_take_away_waits_that_the_model_does_not_explain() -> None:
    recording = recording_of(np.full(600, 3.5 * STEP))
    explained = advise(recording, num_cores=2)
    doubted = advise(recording, num_cores=2, unexplained_share=0.1)
    assert [each.settings for each in doubted] == [each.settings for each in explained]
    assert doubted[0].predicted_wait_share == pytest.approx(explained[0].predicted_wait_share + 0.1)
    assert advise(recording, num_cores=2, unexplained_share=explained[0].current_wait_share) == []


def test_waits_that_the_model_surely_does_not_explain_are_the_rest_by_the_clock() -> None:
    verdict = judge(recording_of(np.full(600, 3.5 * STEP)), emulated=True, num_cores=4)
    assert unexplained_wait_share(verdict) == 0
    doubted = replace(verdict, model_wait_share=0.1)
    assert unexplained_wait_share(doubted) == pytest.approx(verdict.wait_share.value - 0.1)
    assert unexplained_wait_share(replace(verdict, model_wait_share=None)) == 0, "of a job"
    assert unexplained_wait_share(replace(verdict, model_wait_share=verdict.wait_share.value - 0.02)) == 0
    wide = replace(doubted, wait_share=replace(verdict.wait_share, lower=0.05))
    assert unexplained_wait_share(wide) == 0


def test_a_sampler_that_keeps_the_loop_is_named_whatever_the_model_explains() -> None:
    recording = with_sampler(recording_of(np.full(600, 3 * STEP), workers=0), 2 * STEP)
    advice = advise(recording, num_cores=4, unexplained_share=1.0)
    assert [item.change.split()[:2] for item in advice] == [["the", "sampler"]]


def test_a_sampler_is_not_advised_against_for_more_time_than_it_takes() -> None:
    # At its end, which alone the model is fitted to, the loader nearly keeps up: to the model any change would help.
    load = np.concatenate([np.full(2000, 2 * STEP), np.full(1200, 1e-5)])
    load[2000::100] = 3 * STEP
    advice = advise(with_sampler(recording_of(load, workers=0), 0.0004 * STEP), num_cores=4)
    assert advice[0].current_wait_share > 0.3
    assert not [item for item in advice if "sampler" in item.change]


def with_sampler(recording: Recording, seconds: float) -> Recording:
    """The recording of a loader whose sampler takes that long for each batch."""
    return replace(
        recording, batch_timings=[replace(timing, sampler_seconds=seconds) for timing in recording.batch_timings]
    )
