"""Advice that is followed: tried one after the other, each from where the last one that helped has led."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from assets_profiles import profile_of, recording_of, starved, trial_of, uneven
from facefeed.loaders.profiler.measure import page_cache
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.ranks import RankGroup
from facefeed.loaders.profiler.measure.steps import EmulatedDevice, SleepingStep
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.report.console import console_report
from facefeed.loaders.profiler.report.json_report import report_values
from facefeed.loaders.profiler.report.page.cost import trials as trials_section
from facefeed.loaders.profiler.trials import explanations
from facefeed.loaders.profiler.trials.explanations import Trials
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.loader_verdict import LoaderMeasurement
from facefeed.loaders.profiler.verdict.result import Profile, Trial
from facefeed.loaders.profiler.verdict.verdict import VerdictKind
from facefeed.pipeline.errors import UsageError
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

Load = Callable[[int, int], float]
FollowAdvice = Callable[..., Profile]


def trials_of_two_workers(num_batches: int = 1000) -> Trials:
    loader = DataLoader(TensorDataset(torch.zeros(4 * num_batches)), 4, num_workers=2, prefetch_factor=2)
    return Trials(LoaderMeasurement(
        loader, EmulatedDevice(0.01), num_steps=4000, confidence=0.95, device=None, num_epoch_batches=None,
        progress=lambda *_: None, ranks=RankGroup(),
    ))  # fmt: skip


@pytest.fixture
def follow_advice(monkeypatch: pytest.MonkeyPatch) -> FollowAdvice:
    """The profile of two starving workers once its advice was followed; `load`: of a batch under such settings.

    `trial_steps`: of a short trial.
    """

    def run(load: Load, trial_steps: int = 300) -> Profile:
        trials = trials_of_two_workers()

        def measured(name: str, trial_loader: Any, steps: int) -> Trial:
            workers, prefetch = trial_loader.num_workers, trial_loader.prefetch_factor
            loads = uneven(steps, load(workers, prefetch), spread=0.2)
            return trial_of(name, recording_of(loads, workers=workers, prefetch=prefetch))

        monkeypatch.setattr(trials, "measure", lambda name, trial_loader: measured(name, trial_loader, trial_steps))
        monkeypatch.setattr(trials, "_measure_in_full", lambda name, trial_loader: measured(name, trial_loader, 4000))
        return trials.verify_advice(profile_of(recording_of(uneven(1000, load(2, 2), spread=0.2))))

    return run


@pytest.fixture
def out_of_time(monkeypatch: pytest.MonkeyPatch) -> Trials:
    """Trials whose time is up after three steps from storage, before the queue of four batches was used up once."""
    cut_short = replace(recording_of(uneven(3, 0.028)), storage_bytes=10**9)
    monkeypatch.setattr(MeasuredLoop, "record", lambda *_args, **_options: cut_short)
    monkeypatch.setattr(MeasuredLoop, "drain", lambda _loop: None)
    monkeypatch.setattr(page_cache, "parquet_files", lambda _loader: [Path("a.parquet")])
    monkeypatch.setattr(page_cache, "evict", lambda _files: None)
    return trials_of_two_workers()


def test_what_was_tried_without_reaching_a_steady_state_is_left_out_of_the_report(out_of_time: Trials) -> None:
    profile = out_of_time.explain(starved())
    assert (profile.curve, profile.cold_cache) == ((), None)
    assert out_of_time.measure("evaluation transform", out_of_time.loader) is None


def test_a_setting_that_never_becomes_steady_is_noted_and_has_no_measured_waiting(out_of_time: Trials) -> None:
    profile = out_of_time.verify_advice(starved())
    assert profile.verified is None
    assert all(item.measured_wait_share is None for item in profile.advice)
    assert profile.verify_notes[0] == (
        "num_workers=4, prefetch_factor=2 could not be measured: no steady state within 45 s"
    )


def test_settings_that_an_epoch_cannot_hold_are_not_advised() -> None:
    advice = trials_of_two_workers(num_batches=8).advise(starved())
    assert [each.settings for each in advice if each.settings] == [{"num_workers": 3, "prefetch_factor": 2}]


def test_a_setting_that_an_epoch_cannot_hold_is_noted_as_that_and_not_as_one_without_time() -> None:
    profile = trials_of_two_workers(num_batches=6).verify_advice(starved())
    assert profile.verify_notes[0] == (
        "num_workers=4, prefetch_factor=2 could not be measured: an epoch has 6 batches, and 8 can be made ahead: it "
        "ends before its steady state; give more data or a smaller batch_size, or take fewer workers"
    )


class Stream(IterableDataset[int]):
    """Has no length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(6))


def test_an_epoch_of_no_known_length_that_ends_before_a_step_is_steady_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    six_an_epoch = replace(recording_of(uneven(40, 0.028), prefetch=4), segment_step=np.arange(40) % 6)
    monkeypatch.setattr(MeasuredLoop, "record", lambda *_args, **_options: six_an_epoch)
    monkeypatch.setattr(MeasuredLoop, "drain", lambda _loop: None)
    with pytest.raises(UsageError, match="an epoch has 6 batches, and 8 can be made ahead"):
        trials_of_two_workers().measure("stream", DataLoader(Stream(), num_workers=2, prefetch_factor=4))


def test_settings_that_feed_the_device_are_measured_in_full_and_printed_to_paste(
    follow_advice: FollowAdvice,
) -> None:
    profile = follow_advice(lambda _workers, _prefetch: 0.028)
    assert profile.verified is not None
    assert profile.verified.name == "num_workers=3, prefetch_factor=2"
    assert (profile.verified.verdict.kind, profile.verified.verdict.num_steps) == (VerdictKind.FED, 3994)
    assert profile.advice[0].measured_wait_share == profile.verified.verdict.wait_share.value < 0.001
    assert "give the loader num_workers=3, prefetch_factor=2: FED" in console_report(profile, Gate())
    assert report_values(profile, Gate())["followed"]["settings"] == profile.verified.name


def test_what_helps_in_part_is_gone_on_from(follow_advice: FollowAdvice) -> None:
    """Every worker more makes all of them slower: what was predicted is not enough, what follows from there is."""
    profile = follow_advice(lambda workers, _prefetch: 0.028 * (1 + 0.1 * (workers - 2)))
    tried = [item for item in profile.advice if item.measured_wait_share is not None]
    assert len(tried) >= 2
    assert [item.change for item in tried[:2]] == ["workers 2 -> 3", "workers 3 -> 4"]
    assert profile.verified is not None
    assert profile.verified.name == "num_workers=4, prefetch_factor=2"


def test_a_loader_that_waits_nearly_always_is_led_to_the_setting_that_feeds_the_device(
    follow_advice: FollowAdvice,
) -> None:
    """Twice as many workers as there are cores first, and from there as many as are needed."""
    profile = follow_advice(lambda _workers, _prefetch: 0.1)
    assert profile.verdict.wait_share.value > 0.75
    tried = [item for item in profile.advice if item.measured_wait_share is not None]
    assert [item.settings["num_workers"] for item in tried] == [8, 12]
    assert profile.verified is not None
    assert profile.verified.verdict.kind is VerdictKind.FED


def test_a_setting_that_seems_better_in_too_few_steps_is_noted_as_not_kept(
    follow_advice: FollowAdvice,
) -> None:
    profile = follow_advice(lambda workers, _prefetch: {2: 0.028, 3: 0.036}.get(workers, 0.06), trial_steps=40)
    tried = [item for item in profile.advice if item.measured_wait_share is not None]
    assert not tried[0].failed
    assert profile.verified is None
    assert profile.verify_notes[0].startswith("num_workers=3, prefetch_factor=2 waited less, but ")
    assert profile.verify_notes[0].endswith(" steps do not show that surely: not kept")


def test_settings_that_do_not_help_are_not_recommended(follow_advice: FollowAdvice) -> None:
    profile = follow_advice(lambda workers, _prefetch: 0.014 * workers)
    assert profile.verified is None
    assert profile.advice[0].failed
    assert "give the loader" not in console_report(profile, Gate())


def test_settings_that_wait_a_little_less_by_chance_are_not_recommended(
    follow_advice: FollowAdvice,
) -> None:
    profile = follow_advice(lambda workers, _prefetch: 0.028 if workers == 2 else 0.0138 * workers)
    tried = [item.measured_wait_share for item in profile.advice if item.measured_wait_share is not None]
    assert min(tried) < profile.verdict.wait_share.value  # but by less than a point
    assert profile.verified is None


def test_a_setting_that_cannot_be_measured_costs_neither_the_verdict_nor_the_next_one(
    follow_advice: FollowAdvice,
) -> None:
    def load(workers: int, _prefetch: int) -> float:
        if workers == 3:
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error.")
        return 0.014 * workers

    profile = follow_advice(load)
    assert profile.verdict.kind is VerdictKind.STARVED
    note = "num_workers=3, prefetch_factor=2 could not be measured: RuntimeError: DataLoader worker (pid 7) is killed"
    assert any(line.startswith(note) for line in profile.verify_notes)
    assert all(item.measured_wait_share is None for item in profile.advice if item.settings.get("num_workers") == 3)
    assert "could not be measured" in console_report(profile, Gate())
    assert report_values(profile, Gate())["verify_notes"] == list(profile.verify_notes)


def test_a_search_that_ends_before_its_advice_does_says_what_is_left(
    follow_advice: FollowAdvice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanations, "_MAX_TRIED_SETTINGS", 1)
    profile = follow_advice(lambda workers, _prefetch: 0.028 * (1 + 0.1 * (workers - 2)))
    assert profile.verify_notes == ("stopped after 1 setting; not tried: num_workers=4, prefetch_factor=2",)
    assert "not tried: num_workers=4" in " ".join(console_report(profile, Gate()).split())


def test_where_no_setting_is_advised_there_is_nothing_to_verify(follow_advice: FollowAdvice) -> None:
    profile = follow_advice(lambda _workers, _prefetch: 0.005)
    assert profile.verified is None
    assert profile.verify_notes == ("no setting was advised, so none was tried",)


def test_settings_that_make_it_worse_are_not_gone_on_from(follow_advice: FollowAdvice) -> None:
    """Three workers are far slower than two; what would follow from there is not tried, a longer queue is."""
    loads = {2: 0.024, 3: 0.090}
    profile = follow_advice(lambda workers, _prefetch: loads.get(workers, 0.3))
    tried = [item for item in profile.advice if item.measured_wait_share is not None]
    assert tried[0].failed
    assert all(item.settings["num_workers"] <= 3 for item in tried)
    assert profile.verified is None or profile.verified.verdict.wait_share.value < profile.verdict.wait_share.value


# ---- what is tried besides settings


class Broken:
    """A loader that fails, say since its videos are gone."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("a.mp4: No such file")


def test_another_loader_that_fails_is_noted_and_costs_not_the_verdict() -> None:
    batches = [torch.zeros(4)] * 60
    profiled = profile(batches, SleepingStep(0.0005), steps=50, against={"gone": Broken(), "same": batches})
    assert [trial.name for trial in profiled.trials] == ["same"]
    note = "gone could not be measured: RuntimeError: a.mp4: No such file"
    assert profiled.trial_notes == (note,)
    assert note in console_report(profiled, Gate())
    assert report_values(profiled, Gate())["trial_notes"] == [note]
    section = trials_section(profiled)
    assert section is not None
    assert note in section.notes


def test_a_curve_that_fails_is_noted_and_costs_not_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = trials_of_two_workers()

    def fail(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error.")

    monkeypatch.setattr(MeasuredLoop, "record", fail)
    profiled = trials.explain(starved())
    assert profiled.curve == ()
    assert profiled.verdict.kind is VerdictKind.STARVED
    assert profiled.advice
    assert profiled.trial_notes[0].startswith("the wait curve could not be measured: RuntimeError: DataLoader worker")


def test_a_cold_loader_of_a_batch_sampler_is_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """How large its batches are is not known: one eviction for as many steps as there are items is enough then."""
    evictions = list[int]()
    monkeypatch.setattr(MeasuredLoop, "drain", lambda _loop: None)
    monkeypatch.setattr(MeasuredLoop, "record", lambda *_args, **_options: starved().live)
    monkeypatch.setattr(page_cache, "parquet_files", lambda _loader: [Path("a.parquet")])
    monkeypatch.setattr(page_cache, "evict", lambda files: evictions.append(len(files)))
    items = TensorDataset(torch.zeros(4000))
    trials = trials_of_two_workers()
    trials.loader = DataLoader(items, batch_sampler=BatchSampler(SequentialSampler(items), 4, drop_last=True))
    trials._cold_cache()
    assert len(evictions) == 2


def test_a_cold_loader_is_measured_with_an_empty_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    monkeypatch.setattr(MeasuredLoop, "drain", lambda _loop: done.append("drain"))
    monkeypatch.setattr(MeasuredLoop, "record", lambda *_args, **_options: done.append("record") or starved().live)
    monkeypatch.setattr(page_cache, "parquet_files", lambda _loader: [Path("a.parquet")])
    monkeypatch.setattr(page_cache, "evict", lambda _files: done.append("evict"))
    trials_of_two_workers()._cold_cache()
    assert done[:4] == ["evict", "drain", "evict", "record"]


def test_advice_that_fails_is_noted_and_costs_not_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = trials_of_two_workers()

    def fail(*_args: Any, **_options: Any) -> Any:
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr(explanations, "advise", fail)
    monkeypatch.setattr(trials, "_wait_curve", lambda _profile: ())
    profiled = trials.explain(starved())
    assert (profiled.verdict.kind, profiled.advice) == (VerdictKind.STARVED, ())
    assert "what would help could not be measured: OverflowError: int too large" in " ".join(profiled.trial_notes)
