"""What a user of a ladder notices: in what order rungs run, what counts as a gain, and what makes the best set."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from assets_ladder import FakeRungRunner, measured, rungs
from facefeed.train.ladder.messages import Reference
from facefeed.train.ladder.results import RungResult, Spread
from facefeed.train.ladder.rungs import BEST, NAIVE, PRECOMPUTED, Rung
from facefeed.train.ladder.scheduler import Combination, Ladder, RungError, run_ladder
from facefeed.train.levers.registry import LADDER_TEXTS, NOT_ON_LADDER


def row_of(ladder: Ladder, name: str) -> RungResult:
    return next(row for row in ladder.rows if row.rung.name == name)


# ---- which rungs there are


def test_every_rung_is_run_or_listed_with_the_reason() -> None:
    ladder = run_ladder(rungs(), FakeRungRunner(), repeats=3)
    names = [row.rung.name for row in ladder.rows]
    assert names == [NAIVE, PRECOMPUTED, *LADDER_TEXTS, *NOT_ON_LADDER, BEST]
    for row in ladder.rows:
        assert len(row.repeats) == {"ran": 6 if row is ladder.base else 3, "refused": 0}[row.outcome], row
        assert (row.reason is None) == (row.outcome == "ran"), row
    assert row_of(ladder, "fsdp").reason == "fsdp: there is no GPU; run it where there is one"


def test_without_the_videos_the_naive_rung_says_how_to_have_it() -> None:
    naive, *_ = rungs(videos=False)
    assert naive.name == NAIVE
    assert "--videos SRC" in str(naive.refusal)


def test_a_module_with_its_own_batches_has_no_rungs_of_faces() -> None:
    ladder = run_ladder(rungs(("bf16",), own_data=True), FakeRungRunner(), repeats=2)
    outcomes = {row.rung.name: row.outcome for row in ladder.rows}
    assert outcomes == {NAIVE: "refused", PRECOMPUTED: "refused", "as it is": "ran", "bf16": "ran", BEST: "refused"}
    assert ladder.base is row_of(ladder, "as it is")


def test_a_lever_with_several_reasons_shows_all_of_them() -> None:
    (*_, fsdp) = rungs(("fsdp",), refused={"fsdp": ["no GPU", "no second process"]})
    assert fsdp.refusal == "no GPU; no second process"


# ---- the order


def test_repeats_are_interleaved_and_every_other_round_goes_down() -> None:
    runner = FakeRungRunner()
    run_ladder(rungs(("bf16", "clip:1"), refused={}), runner, repeats=3)
    rounds = [[name for name, number in runner.asked if number == repeat] for repeat in range(3)]
    up = [NAIVE, PRECOMPUTED, "bf16", "clip:1"]
    assert rounds == [up, up[::-1], up]
    assert [number for _, number in runner.asked] == sorted(number for _, number in runner.asked)


def test_the_best_set_runs_in_turn_with_the_base_in_rounds_of_their_own() -> None:
    runner = FakeRungRunner()
    run_ladder(rungs(("bf16", "compile"), refused={}), runner, repeats=2)
    last = [(name, number) for name, number in runner.asked if number >= 2]
    assert last == [(PRECOMPUTED, 2), (BEST, 2), (BEST, 3), (PRECOMPUTED, 3)]


def test_all_rungs_but_the_naive_one_see_the_samples_of_the_base() -> None:
    runner = FakeRungRunner()
    run_ladder(rungs(("bf16", "compile"), refused={}), runner, repeats=2)
    base = Reference(warm_up_steps=10, steps=20, steps_per_epoch=400, devices=1)
    assert runner.references[:2] == [(NAIVE, None), (PRECOMPUTED, None)]
    assert {reference for _, reference in runner.references[2:]} == {base}


def test_where_the_base_fails_the_first_rung_that_runs_is_what_others_see_the_samples_of() -> None:
    runner = FakeRungRunner(broken={PRECOMPUTED: 0})
    run_ladder(rungs(("bf16", "compile"), refused={}), runner, repeats=1)
    assert [reference is None for _, reference in runner.references] == [True, True, True, False]


def test_there_is_no_best_set_where_no_lever_was_asked_for() -> None:
    ladder = run_ladder(rungs(()), FakeRungRunner(), repeats=1)
    assert [row.rung.name for row in ladder.rows] == [NAIVE, PRECOMPUTED]


def test_what_there_is_so_far_is_reported_after_every_repeat() -> None:
    counts: list[int] = []
    run_ladder(
        rungs(()),
        FakeRungRunner(),
        repeats=2,
        on_update=lambda so_far: counts.append(sum(len(row.repeats) for row in so_far.rows)),
    )
    assert counts == [1, 2, 3, 4]


# ---- what breaks


def test_a_rung_that_fails_is_listed_with_its_reason_and_not_tried_again_and_the_others_go_on() -> None:
    runner = FakeRungRunner(broken={"bf16": 1})
    ladder = run_ladder(rungs(("bf16", "compile"), refused={}), runner, repeats=3)
    broken = row_of(ladder, "bf16")
    assert (broken.outcome, broken.reason, list(broken.repeats)) == ("failed", "bf16 broke", [0])
    assert [number for name, number in runner.asked if name == "bf16"] == [0, 1]
    assert len(row_of(ladder, "compile").repeats) == 3
    assert ladder.fastest is row_of(ladder, "compile")


def test_without_the_base_levers_are_measured_but_none_is_called_a_gain() -> None:
    ladder = run_ladder(rungs(("bf16", "compile"), refused={}), FakeRungRunner(broken={PRECOMPUTED: 0}), repeats=2)
    bf16 = row_of(ladder, "bf16")
    assert len(bf16.repeats) == 2
    assert bf16.speed_up(ladder.base) is None
    assert ladder.fastest is None
    assert "training without any did not run" in str(row_of(ladder, BEST).reason)


def test_the_set_fails_alone_where_nobody_can_say_what_goes_together() -> None:
    class Broken(FakeRungRunner):
        def combine(self, levers: Sequence[str]) -> Combination:
            raise RungError("its process ended with code 1")

    ladder = run_ladder(rungs(("bf16", "compile"), refused={}), Broken(), repeats=2)
    assert (row_of(ladder, BEST).outcome, row_of(ladder, BEST).reason) == ("failed", "its process ended with code 1")
    assert ladder.fastest is row_of(ladder, "bf16")


# ---- the arithmetic


def test_an_epoch_is_worked_out_from_steps_with_each_steps_share_of_its_end() -> None:
    measurement = measured(100.0, steps=20, steps_per_epoch=400, ending_seconds=4.0)
    assert measurement.seconds == 2.0
    assert measurement.epoch_seconds == pytest.approx(400 * 0.1 + 4.0)
    assert measurement.samples_per_second == pytest.approx(4000 / 44.0)
    assert not measurement.is_whole_epoch
    assert measured(100.0, steps=20, steps_per_epoch=20).is_whole_epoch


def test_what_has_no_end_has_no_epoch() -> None:
    measurement = measured(100.0, steps_per_epoch=None, ending_seconds=4.0)
    assert measurement.epoch_seconds is None
    assert measurement.samples_per_second == pytest.approx(100.0)


def test_a_speed_up_is_of_medians_and_its_spread_spans_any_two_repeats() -> None:
    base, fast = (
        RungResult(Rung(name=PRECOMPUTED, data="precomputed")),
        RungResult(Rung(name="x", data="precomputed", levers="x")),
    )
    base.repeats = dict(enumerate(map(measured, (100.0, 110.0, 90.0))))
    fast.repeats = dict(enumerate(map(measured, (150.0, 132.0, 180.0))))
    speed_up = fast.speed_up(base)
    assert speed_up is not None
    assert (speed_up.least, speed_up.median, speed_up.most) == pytest.approx((132 / 110, 150 / 100, 180 / 90))
    assert fast.pays(base)


def test_a_gain_within_the_spread_is_none() -> None:
    base, fast = (
        RungResult(Rung(name=PRECOMPUTED, data="precomputed")),
        RungResult(Rung(name="x", data="precomputed", levers="x")),
    )
    base.repeats = dict(enumerate(map(measured, (100.0, 134.0, 90.0))))
    fast.repeats = dict(enumerate(map(measured, (150.0, 132.0, 180.0))))
    assert fast.speed_up(base) == Spread(pytest.approx(132 / 134), pytest.approx(1.5), pytest.approx(2.0))  # type: ignore[arg-type]
    assert not fast.pays(base)


def test_only_rounds_in_which_both_ran_are_compared() -> None:
    base, fast = (
        RungResult(Rung(name=PRECOMPUTED, data="precomputed")),
        RungResult(Rung(name="x", data="precomputed", levers="x")),
    )
    base.repeats = dict(enumerate(map(measured, (100.0, 100.0, 50.0, 50.0))))
    fast.repeats = {2: measured(75.0), 3: measured(75.0)}
    assert fast.speed_up(base) == Spread(pytest.approx(1.5), pytest.approx(1.5), pytest.approx(1.5))  # type: ignore[arg-type]


def test_the_best_set_is_held_against_the_naive_rung_by_way_of_the_base() -> None:
    ladder = run_ladder(rungs(("bf16", "compile"), refused={}), FakeRungRunner(noise=0.0), repeats=2)
    over = ladder.over_naive(row_of(ladder, BEST))
    assert over is not None
    assert over.median == pytest.approx(190 / 0.5)


def test_a_metric_is_found_by_its_name_and_one_that_is_nan_is_left_out() -> None:
    row = RungResult(Rung(name="x", data="own"))
    metrics = {"val/video_auc": 0.9, "val/auc": 0.7, "valid_acc": 0.6}
    row.repeats = {0: measured(1.0, metrics=metrics), 1: measured(1.0, metrics={"val/auc": math.nan})}
    assert row.metric("auc") == Spread(0.7, 0.7, 0.7)
    assert row.metric("accuracy", "acc") == Spread(0.6, 0.6, 0.6)
    assert row.metric("recall") is None


# ---- the best set


def test_the_best_set_is_of_the_levers_that_pay_and_go_together_the_fastest_first() -> None:
    apart = frozenset({frozenset(("bf16", "channels_last"))})
    runner = FakeRungRunner(apart=apart)
    ladder = run_ladder(rungs(), runner, repeats=3)
    assert runner.combined == [("bf16", "compile", "channels_last")]
    assert ladder.combination.levers == ("bf16", "compile")
    assert "not beside" in ladder.combination.left_out["channels_last"]
    assert "changes what is learned" in ladder.combination.left_out["accumulate:4"]
    assert ladder.fastest is row_of(ladder, BEST)
    assert ladder.speed(row_of(ladder, BEST)) == pytest.approx(1.9, rel=0.02)


def test_a_lever_that_changes_what_is_learned_is_in_the_set_if_it_was_asked_for() -> None:
    runner = FakeRungRunner(speeds={"": 100, "bf16": 150, "accumulate:4": 120, "bf16,accumulate:4": 180})
    levers = ("bf16", "accumulate:4")
    ladder = run_ladder(rungs(levers, refused={}, videos=False), runner, repeats=2, named=levers)
    assert ladder.combination.levers == levers
    assert ladder.fastest is row_of(ladder, BEST)


def test_one_lever_alone_that_pays_is_the_best_set_and_is_not_measured_twice() -> None:
    runner = FakeRungRunner()
    ladder = run_ladder(rungs(("bf16", "clip:1"), refused={}), runner, repeats=2)
    assert row_of(ladder, BEST).reason == "it is bf16 alone: see there"
    assert ladder.fastest is row_of(ladder, "bf16")
    assert max(number for _, number in runner.asked) == 1


def test_a_single_lever_is_the_fastest_where_it_beats_the_set() -> None:
    speeds = {"naive": 0.5, "": 100, "bf16": 150, "compile": 130, "bf16,compile": 120}
    ladder = run_ladder(rungs(("bf16", "compile"), refused={}), FakeRungRunner(speeds=speeds), repeats=2)
    assert row_of(ladder, BEST).outcome == "ran"
    assert ladder.fastest is row_of(ladder, "bf16")


def test_noise_alone_makes_no_best_set() -> None:
    ladder = run_ladder(rungs(("clip:1", "channels_last"), refused={}), FakeRungRunner(noise=0.1), repeats=3)
    assert row_of(ladder, BEST).reason == "no lever is faster than none beyond the spread of the repeats"
    assert ladder.fastest is None


def test_one_repeat_tells_no_gain_from_noise() -> None:
    ladder = run_ladder(rungs(("bf16", "compile"), refused={}), FakeRungRunner(), repeats=1)
    assert "--repeats 3" in str(row_of(ladder, BEST).reason)
    assert ladder.fastest is None
