"""What a user notices when a source has changed between two runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import RefusedError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.incremental import Changes, next_plan_part
from facefeed.pipeline.planning.incremental.changes import find_changes
from facefeed.pipeline.planning.options import JobSpec, Options, config_differences, hash_config
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.sources import Entry, Listing, listing_warnings
from facefeed.pipeline.splits.assignment import SplitRatio
from hypothesis import given
from hypothesis import strategies as st

CONFIG: dict[str, Any] = {"labels": ["real", "fake"], "schema": 3}


def video(name: str, **more: Any) -> Entry:
    return Entry(video_id=name, **{"size_bytes": 10, "mtime_ns": 1, "label": 0, **more})


@dataclass
class Dataset:
    """One OUT, run after run, without the work itself."""

    paths: OutPaths
    plan: Plan = field(default_factory=Plan)
    ratio: SplitRatio = field(default_factory=SplitRatio)

    @property
    def run_state(self) -> RunState:
        return RunState(self.paths, self.plan, hash_config(CONFIG))

    @property
    def job(self) -> JobSpec:
        return JobSpec(
            root=Path(), out=self.paths.root, options=Options(split_ratio=self.ratio), detector=FixedBoxDetector(),
            labels=("real", "fake"), config_hash=hash_config(CONFIG),
        )  # fmt: skip

    def run(
        self,
        entries: Sequence[Entry],
        *,
        retry: Callable[[str], bool] = lambda _: False,
        allow_leaks: bool = False,
        same: Container[str] = (),
        footage_from_names: bool = False,
    ) -> tuple[Changes, list[Unit]]:
        """What has changed, and the units that this makes; they are planned, and not yet done.

        `same`: the inputs whose content is as it was, if anybody asks.
        """
        listing = Listing(
            layout="table", root=Path(), labels=("real", "fake"), entries=list(entries),
            footage_from_names=footage_from_names,
        )  # fmt: skip
        changes = find_changes(listing, self.plan.planned_videos(), lambda _: same)
        part = next_plan_part(
            self.run_state, listing, changes, job=self.job, config=CONFIG, allow_leaks=allow_leaks, retry=retry,
            cost_seconds=lambda _: 0.001,
        )  # fmt: skip
        if part.units or part.mtime_updates or not self.plan.parts:
            self.plan.append(self.paths, part)
        return changes, list(part.units)

    def work(self, units: Iterable[Unit], failing: dict[str, str] | None = None) -> None:
        """Writes the receipts of units whose inputs come to nothing, or fail with a reason."""
        for unit in units:
            outcomes = [
                InputOutcome(
                    video_id=entry.video_id, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns,
                    outcome="failed" if entry.video_id in (failing or {}) else "no_faces",
                    reason=(failing or {}).get(entry.video_id),
                )
                for entry in unit.inputs
            ]  # fmt: skip
            receipt = Receipt(
                unit=unit.unit_id, config_hash=hash_config(CONFIG), outcome="done", supersedes=list(unit.supersedes),
                inputs=outcomes,
            )  # fmt: skip
            self.paths.receipt(unit.unit_id).write_text(receipt.to_json())

    def outcomes(self) -> dict[str, str | None]:
        """Reason or None of every input; fails where one has two outcomes."""
        pairs = [(outcome.video_id, outcome.reason) for _, outcome in self.run_state.outcomes()]
        assert len(dict(pairs)) == len(pairs), "an input is counted twice"
        return dict(pairs)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    out = OutPaths(tmp_path / "out")
    make_folders(out)
    return Dataset(out, ratio=SplitRatio(train=100, val=0, test=0))


def names(unit: Unit) -> list[str]:
    return [entry.video_id for entry in unit.inputs]


FOUR = [video(f"{name}.mp4") for name in "abcd"]


# --- what has changed


class CountedInputs(tuple[Entry, ...]):
    """The inputs of a unit; counts in `visited` how often one of them is looked at."""

    visited = 0

    def __iter__(self) -> Iterator[Entry]:
        for entry in super().__iter__():
            type(self).visited += 1
            yield entry


def test_what_a_second_run_looks_at_grows_with_the_inputs_and_not_with_their_square(dataset: Dataset) -> None:
    entries = [video(f"{number}.mp4") for number in range(200)]
    _, (unit,) = dataset.run(entries)
    dataset.work([unit])
    dataset.plan.parts[0] = replace(dataset.plan.parts[0], units=(replace(unit, inputs=CountedInputs(unit.inputs)),))
    assert dataset.run(entries) == (Changes(), [])
    assert CountedInputs.visited < 20 * len(entries)


def test_a_second_run_over_the_same_source_has_nothing_to_do(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    assert [names(unit) for unit in units] == [["a.mp4", "b.mp4", "c.mp4", "d.mp4"]]
    dataset.work(units)
    assert dataset.run(FOUR) == (Changes(), [])
    assert dataset.run(list(reversed(FOUR))) == (Changes(), [])
    assert not list(dataset.run_state.pending_units())


def test_new_videos_make_new_units_and_leave_the_old_ones_alone(dataset: Dataset) -> None:
    _, first = dataset.run(FOUR)
    changes, units = dataset.run([*FOUR, video("new.mp4")])
    assert [entry.video_id for entry in changes.added] == ["new.mp4"]
    assert [names(unit) for unit in units] == [["new.mp4"]]
    assert not units[0].supersedes
    assert list(dataset.plan.units()) == [*first, *units]


@pytest.mark.parametrize(
    "change",
    [
        {"size_bytes": 11},
        {"mtime_ns": 2},
        {"label": 1},
        {"source_id": "b.mp4"},
        {"identity": "ann"},
        {"related_identities": ("ann",)},
        {"footage": "hall"},
        {"method": "x"},
    ],
    ids=str,
)
def test_a_changed_input_is_done_again_with_its_whole_unit(dataset: Dataset, change: dict[str, Any]) -> None:
    _, first = dataset.run(FOUR)
    dataset.work(first)
    current = [replace(FOUR[0], **change), *FOUR[1:]]
    changes, units = dataset.run(current)
    assert [entry.video_id for entry in changes.changed] == ["a.mp4"]
    (unit,) = units
    assert unit.inputs == tuple(current), "the rows will say what the source says now"
    assert unit.supersedes == (first[0].unit_id,)
    assert list(dataset.plan.units()) == [unit]
    assert dataset.run(current) == (Changes(), []), "and then it is settled"


def test_a_new_time_of_the_same_content_is_recorded_and_nothing_is_done(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units)
    current = [replace(entry, mtime_ns=2) for entry in FOUR]
    changes, new_units = dataset.run(current, same=names(units[0]))
    assert (changes, new_units) == (Changes(touched=current), [])
    assert dataset.run(current) == (Changes(), []), "known now: nobody is asked about the content"
    on_disk = Plan.load(dataset.paths)
    assert [entry for entry, _ in on_disk.planned_videos().values()] == current
    assert list(on_disk.units()) == units, "units keep their names, and with them their files"
    newer = [replace(current[0], mtime_ns=3), *current[1:]]
    assert [entry.video_id for entry in dataset.run(newer)[0].changed] == ["a.mp4"]


def test_a_size_or_label_that_changed_is_a_change_whatever_the_content(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units)
    current = [replace(FOUR[0], size_bytes=11), replace(FOUR[1], label=1, mtime_ns=2), *FOUR[2:]]
    changes, _ = dataset.run(current, same=names(units[0]))
    assert ([entry.video_id for entry in changes.changed], changes.touched) == (["a.mp4", "b.mp4"], [])


def test_a_time_that_was_recorded_goes_with_its_input_into_a_later_unit(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units)
    current = [replace(entry, mtime_ns=2) for entry in FOUR]
    dataset.run(current, same=names(units[0]))
    current[0] = replace(current[0], size_bytes=11)
    _, (unit,) = dataset.run(current)
    assert unit.inputs == tuple(current)
    assert dataset.run(current) == (Changes(), [])


def test_neighbours_of_a_changed_input_are_reused_and_its_fakes_are_not(dataset: Dataset) -> None:
    first = [video("a.mp4"), fake("a-swap.mp4", "a.mp4"), video("b.mp4"), video("gone.mp4"), video("bad.mp4")]
    _, units = dataset.run(first)
    dataset.work(units, {"bad.mp4": "crashed"})
    current = [video("a.mp4", mtime_ns=2), *first[1:3], first[4]]
    _, (replacement,) = dataset.run(current)
    assert set(replacement.reuses) == {"b.mp4", "gone.mp4", "bad.mp4"}
    assert {entry.video_id for entry in replacement.inputs_to_decode} == {"a.mp4", "a-swap.mp4"}
    dataset.work([replacement], {"bad.mp4": "crashed"})
    later = [*current[:1], replace(current[1], mtime_ns=5), *current[2:]]
    _, (retried,) = dataset.run(later, retry=lambda _: True)
    assert {entry.video_id for entry in retried.inputs_to_decode} == {"a-swap.mp4", "bad.mp4"}


@pytest.mark.parametrize("change", [{"related_identities": ("ann",)}, {"footage": "hall"}], ids=str)
def test_what_only_concerns_splits_is_planned_anew_without_decoding_anything(
    dataset: Dataset, change: dict[str, Any]
) -> None:
    _, units = dataset.run([*FOUR, fake("swap.mp4", "a.mp4")])
    dataset.work(units)
    current = [*(replace(entry, **change) for entry in FOUR), fake("swap.mp4", "a.mp4")]
    changes, (replacement,) = dataset.run(current)
    assert [entry.video_id for entry in changes.changed] == ["a.mp4", "b.mp4", "c.mp4", "d.mp4"]
    assert set(replacement.inputs) == set(current)
    assert replacement.inputs_to_decode == ()
    dataset.work([replacement])
    assert dataset.run(current) == (Changes(), [])


def test_what_an_unfinished_unit_was_to_decode_is_not_reused_from_before(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units)
    once = [replace(FOUR[0], mtime_ns=2), *FOUR[1:]]
    dataset.run(once)  # interrupted: a.mp4 was never decoded again
    twice = [once[0], replace(FOUR[1], mtime_ns=2), *FOUR[2:]]
    _, (unit,) = dataset.run(twice)
    assert unit.reuses == ("c.mp4", "d.mp4")
    for half in unit.halves(hash_config(CONFIG)):
        assert half.reuses == tuple(name for name in names(half) if name in unit.reuses)


def test_a_changed_input_leaves_other_units_alone(dataset: Dataset) -> None:
    dataset.run(FOUR)
    _, (other,) = dataset.run([*FOUR, video("new.mp4")])
    _, units = dataset.run([*FOUR, video("new.mp4", mtime_ns=5)])
    assert [names(unit) for unit in units] == [["new.mp4"]]
    assert units[0].supersedes == (other.unit_id,)


def test_what_is_gone_is_reported_and_kept(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units)
    changes, new_units = dataset.run(FOUR[1:])
    assert (changes.gone, new_units) == (["a.mp4"], [])
    assert dataset.outcomes().keys() == {"a.mp4", "b.mp4", "c.mp4", "d.mp4"}


def test_a_gone_sibling_of_a_changed_input_stays_accounted_for(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units)
    changes, (replacement,) = dataset.run([video("b.mp4", mtime_ns=9), *FOUR[2:]])
    assert (changes.gone, [entry.video_id for entry in changes.changed]) == (["a.mp4"], ["b.mp4"])
    assert names(replacement) == ["a.mp4", "b.mp4", "c.mp4", "d.mp4"]
    dataset.work([replacement], {"a.mp4": "unreadable"})
    assert dataset.outcomes() == {"a.mp4": "unreadable", "b.mp4": None, "c.mp4": None, "d.mp4": None}


def test_an_input_with_a_problem_is_refused_and_never_reaches_a_unit(dataset: Dataset) -> None:
    bad = video("bad.mp4", problem="outside_root", detail="a link out of the source")
    changes, units = dataset.run([*FOUR, bad])
    assert changes.refused == [bad]
    assert all("bad.mp4" not in names(unit) for unit in units)
    changes, units = dataset.run([*FOUR, video("bad.mp4")])
    assert [names(unit) for unit in units] == [["bad.mp4"]], "once mended it is simply new"


def test_a_planned_input_that_now_has_a_problem_counts_as_gone(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units)
    changes, new_units = dataset.run([replace(FOUR[0], problem="unreadable"), *FOUR[1:]])
    assert (changes.gone, changes.refused, new_units) == (["a.mp4"], [], [])


# --- splits


def test_a_split_is_fixed_once_planned(dataset: Dataset) -> None:
    dataset.run([video("a.mp4", split="train"), video("b.mp4", split="test")])
    with pytest.raises(RefusedError, match=r"b\.mp4: was planned into test, the source now says train.*new OUT"):
        dataset.run([video("a.mp4", split="train"), video("b.mp4", split="train")])


def test_a_given_split_that_says_what_was_drawn_is_no_change(dataset: Dataset) -> None:
    dataset.run(FOUR)
    current = [*(replace(entry, split="train") for entry in FOUR), video("t.mp4", split="test")]
    changes, units = dataset.run(current)
    assert not changes.changed
    assert [(names(unit), unit.split) for unit in units] == [(["t.mp4"], "test")]


def test_a_later_video_between_two_splits_is_refused_with_its_reason(dataset: Dataset) -> None:
    old = [video("a.mp4", split="train", identity="ann"), video("b.mp4", split="test")]
    dataset.run(old)
    changes, units = dataset.run([*old, video("c.mp4", source_id="b.mp4", identity="ann")])
    assert not units
    assert [(entry.video_id, entry.problem) for entry in changes.refused] == [("c.mp4", "bridges_splits")]
    assert "fixed" in str(changes.refused[0].detail)


def test_a_new_video_follows_what_the_source_now_says_of_an_old_one(dataset: Dataset) -> None:
    old = [video("a.mp4", split="train"), video("b.mp4", split="test")]
    dataset.run(old)
    current = [old[0], replace(old[1], identity="bob"), video("c.mp4", identity="bob")]
    _, units = dataset.run(current)
    assert {name: unit.split for unit in units for name in names(unit)} == {"b.mp4": "test", "c.mp4": "test"}


def test_a_change_that_makes_a_leak_is_refused_unless_it_is_accepted(dataset: Dataset) -> None:
    old = [video("a.mp4", split="train"), video("b.mp4", split="test"), video("c.mp4", split="test")]
    dataset.run(old)
    leak = [*old[:2], replace(old[2], source_id="a.mp4")]
    with pytest.raises(RefusedError, match=r"c\.mp4.*--allow-leaks"):
        dataset.run(leak)
    _, (unit,) = dataset.run(leak, allow_leaks=True)
    assert unit.split == "test"
    later = [replace(entry, mtime_ns=7) for entry in leak]
    assert len(dataset.run(later)[0].changed) == 3, "a leak that was accepted once is not asked about again"


# --- trying again


def test_a_unit_with_a_failure_is_replaced_and_keeps_the_rows_of_the_others(dataset: Dataset) -> None:
    _, (both,) = dataset.run(FOUR[:2])
    _, (mixed,) = dataset.run(FOUR)
    dataset.work([both, mixed], {"a.mp4": "crashed", "b.mp4": "timeout", "c.mp4": "timeout"})
    _, units = dataset.run(FOUR, retry=lambda _: True)
    assert [(names(unit), unit.supersedes, unit.reuses) for unit in units] == [
        (["a.mp4", "b.mp4"], (both.unit_id,), ()),
        (["c.mp4", "d.mp4"], (mixed.unit_id,), ("d.mp4",)),
    ]
    dataset.work(units, {"a.mp4": "crashed"})
    assert dataset.outcomes() == {"a.mp4": "crashed", "b.mp4": None, "c.mp4": None, "d.mp4": None}


def test_failures_are_tried_again_by_reason(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units, {"a.mp4": "crashed", "b.mp4": "timeout"})
    _, (retried,) = dataset.run(FOUR, retry=lambda reason: reason == "timeout")
    assert {*names(retried)} - {*retried.reuses} == {"b.mp4"}
    _, none = dataset.run(FOUR, retry=lambda reason: reason == "truncated")
    assert none == []


def test_a_lost_unit_is_redone_without_an_input_that_an_earlier_version_retried_in_a_unit_of_its_own(
    dataset: Dataset,
) -> None:
    _, (unit,) = dataset.run(FOUR)
    dataset.work([unit], {"a.mp4": "crashed"})
    retried = Unit.make(FOUR[:1], "train", config_hash=hash_config(CONFIG), salt="1")
    dataset.plan.append(dataset.paths, PlanPart(config=CONFIG, units=(retried,)))
    dataset.work([retried])
    assert dataset.run(FOUR)[1] == [], "both are finished"
    dataset.paths.receipt(unit.unit_id).unlink()
    _, (redone,) = dataset.run(FOUR)
    assert (names(redone), redone.supersedes, redone.reuses) == (["b.mp4", "c.mp4", "d.mp4"], (unit.unit_id,), ())
    dataset.work([redone])
    assert dataset.run(FOUR)[1] == []


def test_what_failed_can_be_tried_any_number_of_times(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units, {"a.mp4": "crashed"})
    for _ in range(3):
        _, retried = dataset.run(FOUR, retry=lambda _: True)
        assert [{*names(unit)} - {*unit.reuses} for unit in retried] == [{"a.mp4"}]
        assert retried[0].unit_id not in {unit.unit_id for unit in units}
        dataset.work(retried, {"a.mp4": "crashed"})
        units += retried
    assert dataset.outcomes()["a.mp4"] == "crashed"
    _, retried = dataset.run(FOUR, retry=lambda _: True)
    dataset.work(retried)
    assert dataset.outcomes()["a.mp4"] is None
    assert dataset.run(FOUR, retry=lambda _: True)[1] == []


def test_what_failed_is_tried_again_also_where_a_stopped_run_was_to_copy_that_it_failed(dataset: Dataset) -> None:
    _, (unit,) = dataset.run(FOUR)
    dataset.work([unit], {"a.mp4": "timeout"})
    current = [FOUR[0], video("b.mp4", mtime_ns=2), *FOUR[2:]]
    _, (stopped,) = dataset.run(current)
    assert stopped.reuses == ("a.mp4", "c.mp4", "d.mp4")
    _, (retried,) = dataset.run(current, retry=lambda reason: reason == "timeout")
    assert retried.reuses == ("c.mp4", "d.mp4")
    dataset.work([retried])
    assert dataset.outcomes() == {"a.mp4": None, "b.mp4": None, "c.mp4": None, "d.mp4": None}


def test_a_failed_input_that_was_mended_goes_with_its_unit_once(dataset: Dataset) -> None:
    _, units = dataset.run(FOUR)
    dataset.work(units, {"a.mp4": "crashed"})
    _, retried = dataset.run([video("a.mp4", mtime_ns=2), *FOUR[1:]], retry=lambda _: True)
    assert [names(unit) for unit in retried] == [["a.mp4", "b.mp4", "c.mp4", "d.mp4"]]


def test_a_change_after_a_retry_leaves_what_the_retry_gave(dataset: Dataset) -> None:
    _, (first,) = dataset.run(FOUR)
    dataset.work([first], {"a.mp4": "crashed"})
    _, (retried,) = dataset.run(FOUR, retry=lambda _: True)
    dataset.work([retried])
    _, units = dataset.run([FOUR[0], video("b.mp4", mtime_ns=2), *FOUR[2:]])
    assert [(unit.supersedes, unit.reuses) for unit in units] == [((retried.unit_id,), ("a.mp4", "c.mp4", "d.mp4"))]
    dataset.work(units)
    assert dataset.outcomes() == {"a.mp4": None, "b.mp4": None, "c.mp4": None, "d.mp4": None}


# --- settings


def test_settings_that_differ_are_named_with_both_values() -> None:
    before = {"size_px": 256, "labels": ["real", "fake"], "sampling": {"every": 10}, "old": 1}
    now = {"size_px": 128, "labels": ["real", "fake", "x"], "sampling": {"every": 10}, "new": None}
    assert list(config_differences(before, now)) == [
        "labels: real,fake there, real,fake,x now",
        "new: not set there, None now",
        "old: 1 there, not set now",
        "size_px: 256 there, 128 now",
    ]
    assert list(config_differences(before, json.loads(json.dumps(before)))) == []


_VALUES = st.none() | st.booleans() | st.integers(0, 1) | st.sampled_from([0.0, 1.0, "1", ["a"], {"every": 1}])
_CONFIGS = st.dictionaries(st.sampled_from("ab"), _VALUES)


@given(_CONFIGS, _CONFIGS)
def test_no_difference_that_renames_the_config_goes_unreported(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Or a run that was not refused would do everything again, since no receipt is of its config."""
    assert bool(list(config_differences(before, now))) == (hash_config(before) != hash_config(now))


# --- fakes and their originals


def fake(name: str, source: str) -> Entry:
    return video(name, label=1, source_id=source)


def test_a_fake_is_done_again_once_its_original_comes_or_changes(dataset: Dataset) -> None:
    first = [fake("fake.mp4", "real.mp4")]
    _, units = dataset.run(first)
    dataset.work(units)
    _, units = dataset.run([*first, video("real.mp4")])
    assert sorted(entry.video_id for unit in units for entry in unit.inputs) == ["fake.mp4", "real.mp4"]
    dataset.work(units)
    _, units = dataset.run([*first, video("real.mp4", mtime_ns=2)])
    assert sorted(entry.video_id for unit in units for entry in unit.inputs) == ["fake.mp4", "real.mp4"]
    dataset.work(units)
    assert dataset.run([*first, video("real.mp4", mtime_ns=2)])[1] == []


def test_an_original_that_would_bridge_splits_does_not_make_its_fakes_anew_in_every_run(dataset: Dataset) -> None:
    dataset.ratio = SplitRatio(train=50, val=0, test=50)
    names = [f"fake{number}.mp4" for number in range(20)]
    first = [video(name, label=1, source_id="real.mp4" if name == names[0] else None, identity=name) for name in names]
    _, units = dataset.run(first)
    dataset.work(units)
    split = {entry.video_id: unit.split for unit in units for entry in unit.inputs}
    other = next(name for name in names if split[name] != split[names[0]])
    with_bridge = [*first, video("real.mp4", identity=other)]
    for _ in range(2):
        changes, units = dataset.run(with_bridge)
        assert [entry.problem for entry in changes.refused] == ["bridges_splits"]
        assert units == []


def test_a_fake_is_done_again_once_its_failed_original_is_retried(dataset: Dataset) -> None:
    entries = [fake("fake.mp4", "real.mp4"), video("real.mp4")]
    _, units = dataset.run(entries)
    dataset.work(units, failing={"real.mp4": "not_video"})
    _, units = dataset.run(entries, retry=lambda reason: reason == "truncated")
    assert units == []
    _, units = dataset.run(entries, retry=lambda reason: reason == "not_video")
    assert sorted(entry.video_id for unit in units for entry in unit.inputs) == ["fake.mp4", "real.mp4"]
    dataset.work(units)
    assert dataset.run(entries, retry=lambda _: True)[1] == []


# --- links


def test_links_that_a_new_rule_finds_in_old_names_are_no_change_and_count_for_what_is_added(dataset: Dataset) -> None:
    dataset.ratio = SplitRatio(train=50, val=0, test=50)
    names = [f"{number}.mp4" for number in range(20)]
    _, units = dataset.run([video(name) for name in names])
    dataset.work(units)
    split = {entry.video_id: unit.split for unit in units for entry in unit.inputs}
    other = next(name for name in names if split[name] != split[names[0]])
    linked = [video(name, footage="both" if name in (names[0], other) else split[name]) for name in names]
    assert dataset.run(linked, footage_from_names=True) == (Changes(relinked=linked), [])
    added = [video(f"{name}-{number}.mp4", footage=name) for name in ("train", "test") for number in range(8)]
    fakes = [fake(f"fake-{name}", name) for name in (names[0], other)]
    _, units = dataset.run([*linked, *added, *fakes], footage_from_names=True)
    expected = {entry.video_id: str(entry.footage) for entry in added}
    expected |= {entry.video_id: split[str(entry.source_id)] for entry in fakes}
    assert {entry.video_id: unit.split for unit in units for entry in unit.inputs} == expected
    with pytest.raises(RefusedError, match="a leak"):
        dataset.run([*linked, *added])
    other_file = replace(linked[0], mtime_ns=2)
    changes, _ = dataset.run([other_file, *linked[1:], *added, *fakes], footage_from_names=True)
    assert other_file in changes.changed


# --- the next delivery of a source with given splits


def extend(out: Path, src: Path, **settings: Any) -> tuple[dict[str, str], Listing]:
    """Plans what `src` adds to `out`; returns the split of every planned input, and the listing."""
    job, listing, config = prepare_job(src, out, detector=FixedBoxDetector(), **settings)
    make_folders(job.paths)
    run_state = RunState(job.paths, Plan.load(job.paths), job.config_hash)
    changes = find_changes(listing, run_state.plan.planned_videos())
    part = next_plan_part(
        run_state, listing, changes, job=job, config=config, allow_leaks=False, retry=None, cost_seconds=lambda _: 1.0
    )
    run_state.plan.append(job.paths, part)
    return {name: split for name, (_, split) in run_state.plan.planned_videos().items()}, listing


def deliver(src: Path, *names: str) -> Path:
    for name in names:
        (src / name).parent.mkdir(parents=True, exist_ok=True)
        (src / name).write_bytes(name.encode())
    return src


@pytest.mark.parametrize("layout", ["folder", "table"])
def test_test_videos_that_are_delivered_alone_are_test(tmp_path: Path, layout: str) -> None:
    src, out = tmp_path / "src", tmp_path / "out"

    def source(*names: str) -> Path:
        deliver(src, *names)
        if layout == "folder":
            return src
        rows = (f"{name},{Path(name).parent.name},{name.split('/')[0]}" for name in names)
        (src / "t.csv").write_text("\n".join(["path,label,split", *rows]) + "\n")
        return src / "t.csv"

    first = source("train/real/a.mp4", "train/fake/b.mp4", "test/real/c.mp4")
    extend(out, first)
    for name in ("train/real/a.mp4", "train/fake/b.mp4"):
        (src / name).unlink()
    later = [f"test/{label}/{number}.mp4" for label in ("real", "fake") for number in range(8)]
    split_of, listing = extend(out, source(*later))
    assert {split_of[name] for name in later} == {"test"}
    assert not [text for text in listing_warnings(listing) if "split" in text and "drawn" in text]


def test_test_videos_alone_are_drawn_where_no_split_was_ever_given(tmp_path: Path) -> None:
    src, out = deliver(tmp_path / "src", "test/real/a.mp4", "test/fake/b.mp4"), tmp_path / "out"
    extend(out, src)
    split_of, listing = extend(out, deliver(src, *(f"test/real/{number}.mp4" for number in range(20))))
    assert set(split_of.values()) == {"train", "val"}
    assert [text for text in listing_warnings(listing) if "22 of 22 media files have the split test" in text]


def test_a_run_without_the_splits_file_that_out_was_made_with_names_the_inputs_it_draws(tmp_path: Path) -> None:
    src, out = deliver(tmp_path / "src", "real/a.mp4", "real/b.mp4"), tmp_path / "out"
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": ["real/a.mp4"], "test": ["real/b.mp4", "real/c.mp4"]}))
    extend(out, src, splits=splits)
    assert not [text for text in extend(out, src)[1].warnings if "--splits" in text]  # nothing is new
    deliver(src, "real/c.mp4")
    _, listing, _ = prepare_job(src, out, detector=FixedBoxDetector())
    [warning] = [text for text in listing.warnings if "--splits FILE" in text]
    assert "none is for 1 new input (real/c.mp4)" in warning
    split_of, listing = extend(out, src, splits=splits)
    assert split_of["real/c.mp4"] == "test"
    assert not [text for text in listing.warnings if "--splits FILE" in text]
