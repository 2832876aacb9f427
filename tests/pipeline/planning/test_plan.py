"""What a user notices of the plan: whole families, units of a sensible size, and that it never changes."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
import tracemalloc
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from assets_paths import python_path
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import CorruptDataError, InputError, RefusedError
from facefeed.pipeline.planning.cost_model import CostModel
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit, group_units
from facefeed.pipeline.planning.recorded import RecordedDataset
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits
from facefeed.pipeline.video import MediaInfo, Sampling
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30

CONFIG = {"labels": ["real", "fake"], "schema": 3}


def group(entries: list[Entry], split_of: dict[str, str] | None = None, seconds: float = 1.0) -> list[Unit]:
    split_of = split_of or {entry.video_id: "train" for entry in entries}
    return group_units(entries, split_of, config_hash="c", salt="0", cost_seconds=lambda _: seconds)


def videos(*sizes: int) -> list[Entry]:
    return [Entry(video_id=f"{number:05}.mp4", size_bytes=size) for number, size in enumerate(sizes)]


def names(unit: Unit) -> list[str]:
    return [entry.video_id for entry in unit.inputs]


@pytest.fixture
def paths(tmp_path: Path) -> OutPaths:
    out = OutPaths(tmp_path / "out")
    make_folders(out)
    return out


# --- units


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["train", "val", "test"])), min_size=1, max_size=60),
    st.floats(0.1, 200),
)
def test_units_hold_whole_families_of_one_split(families: list[tuple[int, str]], seconds: float) -> None:
    entries, split_of = [], {}
    for number, (fakes, split) in enumerate(families):
        for fake in range(fakes + 1):
            name = f"{fake}/{number}.mp4"  # the members of a family lie far apart in the listing
            entries.append(Entry(video_id=name, source_id=f"0/{number}.mp4" if fake else None))
            split_of[name] = split
    entries.sort(key=lambda entry: entry.video_id)
    units = group(entries, split_of, seconds)
    where = {name: unit for unit in units for name in names(unit)}
    assert Counter(name for unit in units for name in names(unit)) == Counter(split_of.keys())
    for entry in entries:
        assert where[entry.video_id].split == split_of[entry.video_id]
        assert where[entry.video_id] is where[entry.source_id or entry.video_id]
    assert len({unit.unit_id for unit in units}) == len(units)


def test_units_take_about_two_minutes_each() -> None:
    sizes = [len(unit.inputs) for unit in group(videos(*[1] * 1000), seconds=10)]
    assert set(sizes[:-1]) == {12}
    assert sizes[-1] <= 12


def test_a_small_job_is_cut_finer_so_that_all_slots_have_work() -> None:
    assert len(group(videos(*[1] * 64), seconds=10)) == 32
    assert len(group(videos(*[1] * 64), seconds=0.001)) == 1, "but not into units of less than a second"


def test_bytes_limit_a_unit_too() -> None:
    units = group(videos(*[GIB] * 10), seconds=0.001)
    assert [len(unit.inputs) for unit in units] == [4, 4, 2]


def test_a_family_larger_than_a_unit_stays_whole_and_alone() -> None:
    big = [Entry(video_id="b"), *(Entry(video_id=f"b{number}", source_id="b") for number in range(50))]
    units = group([Entry(video_id="a"), *big, Entry(video_id="c")], seconds=10)
    assert sorted(len(unit.inputs) for unit in units) == [1, 1, 51]


def test_the_same_inputs_give_the_same_names_and_any_difference_another() -> None:
    (base,) = group(videos(1, 2), seconds=0.1)
    assert group(videos(1, 2), seconds=0.1) == [base]
    others = [
        *group(videos(1, 3), seconds=0.1),
        *group(videos(1)),
        *group(videos(1, 2), {"00000.mp4": "val", "00001.mp4": "val"}, seconds=0.1),
        Unit.make(videos(1, 2), "train", config_hash="d", salt="0"),
        Unit.make(videos(1, 2), "train", config_hash="c", salt="1"),
        Unit.make(
            [Entry(video_id="00000.mp4", size_bytes=1, label=1), videos(1, 2)[1]], "train", config_hash="c", salt="0"
        ),
    ]
    assert len({base.unit_id, *(unit.unit_id for unit in others)}) == len(others) + 1


@given(st.integers(2, 50))
def test_halves_together_are_the_whole_and_always_the_same(count: int) -> None:
    unit = Unit.make(videos(*range(count)), "val", config_hash="c", salt="0", supersedes=["old"])
    first, last = unit.halves("c")
    assert names(first) + names(last) == names(unit)
    assert abs(len(first.inputs) - len(last.inputs)) <= 1
    assert {first.split, last.split} == {"val"}
    repeated = Unit.make(videos(*range(count)), "val", config_hash="c", salt="0", supersedes=["old"])
    assert repeated.halves("c") == (first, last), "another run must find the parts that this one planned"
    assert len({unit.unit_id, first.unit_id, last.unit_id}) == 3


def test_halving_on_and_on_ends_with_each_input_alone() -> None:
    waiting, alone = [Unit.make(videos(*range(13)), "train", config_hash="c", salt="0")], []
    while waiting:
        unit = waiting.pop()
        if len(unit.inputs) == 1:
            alone.append(unit)
        else:
            waiting += unit.halves("c")
    assert sorted(name for unit in alone for name in names(unit)) == [f"{number:05}.mp4" for number in range(13)]
    assert len({unit.unit_id for unit in alone}) == 13


class Headers:
    """Stands in for the reader: what the headers of files claim, by name."""

    def __init__(self, **num_frames: int) -> None:
        self.num_frames, self.opened = num_frames, list[str]()

    def probe(self, path: Path) -> MediaInfo:
        self.opened.append(path.name)
        if path.name not in self.num_frames:
            raise InputError("not_video")
        frames = self.num_frames[path.name]
        return MediaInfo(width=1000, height=1000, num_frames=frames, duration_seconds=frames / 25, is_image=False)


def cost(entries: list[Entry], headers: Headers, **sampling: Any) -> float:
    model = CostModel(entries, Path(), Sampling(**sampling), headers)  # type: ignore[arg-type]
    return model(entries[-1]).seconds


def test_work_is_guessed_from_a_dozen_files_and_the_wanted_frames() -> None:
    entries = [Entry(video_id=f"v{number}", size_bytes=1000) for number in range(1000)]
    headers = Headers(**{entry.video_id: 100 for entry in entries})
    few, many = (cost(entries, headers, every=every) for every in (50, 1))
    assert few < many
    assert len(headers.opened) <= 24
    assert cost([*entries[:-1], replace(entries[-1], size_bytes=2000)], headers, every=1) > many


@pytest.mark.parametrize("inputs", [2, 12, 13, 23, 24, 25, 35, 100])
def test_headers_are_read_from_all_over_the_set_whatever_its_size(inputs: int) -> None:
    """Fakes sort before reals, and may be of another size and rate."""
    headers = Headers()
    cost([Entry(video_id=str(number), size_bytes=1000) for number in range(inputs)], headers, every=10)
    read = [*map(int, headers.opened), inputs]
    assert len(headers.opened) == min(inputs, 12)
    assert max(last - first for first, last in pairwise(read)) == math.ceil(inputs / 12)


def test_a_header_may_claim_anything_and_a_file_may_be_none() -> None:
    entries = [Entry(video_id=name, size_bytes=1000) for name in ("bomb", "broken", "empty")]
    for sampling in ({"every": 10}, {"fps": 3}, {"frames": 5}, {"keyframes": True}):
        assert 0 < cost(entries, Headers(bomb=1 << 62, empty=0), **sampling) < math.inf  # type: ignore[arg-type]
    assert cost(entries, Headers(), every=10) > 0


# --- on disk

_ENTRIES = st.builds(
    Entry,
    video_id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    size_bytes=st.integers(0, 1 << 62),
    mtime_ns=st.integers(-(1 << 62), 1 << 62),
    label=st.integers(-1, 127),
    split=st.sampled_from([None, "train", "val", "test"]),
    source_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    identity=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    related_identities=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=2).map(tuple),
    footage=st.none() | st.just("hall"),
    dataset=st.none() | st.just("dfdc"),
    method=st.none() | st.just("Deepfakes"),
    compression=st.none() | st.just("c23"),
)


@given(st.lists(st.lists(_ENTRIES, min_size=1, max_size=3), max_size=4), st.sets(st.sampled_from("abc")))
def test_a_plan_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[Entry]], dropped: set[str]
) -> None:
    out = OutPaths(tmp_path_factory.mktemp("plan"))
    make_folders(out)
    units = tuple(Unit.make(group, "test", config_hash="c", salt="0", supersedes=["x", "y"]) for group in groups)
    config = {"labels": [str(number) for number in range(128)], "schema": 3, "size_px": 256}
    part = PlanPart(config=config, units=units, dropped_identities=tuple(sorted(dropped)))
    Plan().append(out, part)
    assert Plan.load(out).parts == [part]


def test_reading_a_plan_takes_little_more_memory_than_its_inputs(paths: OutPaths) -> None:
    entries = [
        Entry(video_id=f"part/{number:030}.mp4", source_id=f"part/{number // 5:030}.mp4", dataset="dfdc", label=1)
        for number in range(10_000)
    ]
    Plan().append(paths, PlanPart(config=CONFIG, units=tuple(group(entries))))
    size_bytes = (paths.plan / "0.json").stat().st_size
    tracemalloc.start()
    try:
        plan = Plan.load(paths)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(plan.planned_videos()) == 10_000
    assert most - kept < size_bytes, "its text is never in memory as a whole"


def test_what_a_killed_dry_run_has_left_in_an_out_is_no_other_data(paths: OutPaths) -> None:
    (paths.root / f".{paths.root.name}-dry-run-abcd").mkdir()
    assert RecordedDataset(paths).config is None
    (paths.root / "thesis.txt").touch()
    with pytest.raises(RefusedError, match="holds files that are no facefeed dataset"):
        RecordedDataset(paths)


def test_a_dataset_whose_plan_is_gone_is_refused_with_the_way_out(paths: OutPaths) -> None:
    paths.manifest.touch()
    with pytest.raises(RefusedError, match=r"no plan/0\.json, .*; restore the folder plan from a backup, or name"):
        RecordedDataset(paths)


def test_a_plan_is_only_ever_appended_to(paths: OutPaths) -> None:
    first, second = (PlanPart(config=CONFIG, units=tuple(group(videos(size)))) for size in (1, 2))
    plan = Plan()
    plan.append(paths, first)
    with pytest.raises(FileExistsError):
        second.write(paths, 0)
    with pytest.raises(FileExistsError):
        Plan().append(paths, second)  # a second driver that had read the folder before
    assert Plan.load(paths).parts == [first]
    plan.append(paths, second)
    assert Plan.load(paths).parts == [first, second]
    assert not list(paths.temporary.iterdir()), "no attempt is left behind"


def test_more_than_ten_parts_are_read_in_their_order(paths: OutPaths) -> None:
    plan = Plan()
    for number in range(12):
        plan.append(paths, PlanPart(config=CONFIG | {"number": number}, units=()))
    assert [part.config["number"] for part in Plan.load(paths).parts] == list(range(12))


def test_a_folder_without_a_plan_is_an_empty_plan(tmp_path: Path) -> None:
    assert Plan.load(OutPaths(tmp_path / "nothing")).parts == []


def test_a_missing_part_is_an_error_that_names_it(paths: OutPaths) -> None:
    plan = Plan()
    for _ in range(3):
        plan.append(paths, PlanPart(config=CONFIG, units=()))
    (paths.plan / "1.json").unlink()
    with pytest.raises(CorruptDataError, match=r"2\.json, but not 1\.json"):
        Plan.load(paths)


def test_a_file_that_is_no_part_is_an_error_that_names_it(paths: OutPaths) -> None:
    Plan().append(paths, PlanPart(config=CONFIG, units=()))
    (paths.plan / "0 (copy).json").write_text("{}")
    with pytest.raises(CorruptDataError, match=r"0 \(copy\)\.json"):
        Plan.load(paths)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", '{"version": 2}', '{"version": 1, "config": {}, "units": [], "dropped_identities": []}',
        '{"version": 1, "config": {"labels": [], "schema": 3}, "units": [{}], "dropped_identities": []}',
        '{"version": 1, "config": {"labels": [], "schema": 3}, "dropped_identities": [], '
        '"units": [{"unit": "u", "split": "train", '
        '"supersedes": [], "inputs": [{"video_id": "a", "colour": "red"}]}]}', "\xff",
    ],
)  # fmt: skip
def test_a_damaged_part_is_an_error_that_names_it(paths: OutPaths, text: str) -> None:
    (paths.plan / "0.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptDataError, match=r"plan/0\.json: not a plan"):
        Plan.load(paths)


def test_what_a_later_unit_replaces_is_no_longer_work_but_stays_known(paths: OutPaths) -> None:
    old, other = group(videos(1)), group([Entry(video_id="other.mp4")])
    new = Unit.make(videos(2), "train", config_hash="c", salt="1", supersedes=[old[0].unit_id])
    plan = Plan()
    plan.append(paths, PlanPart(config=CONFIG, units=(*old, *other)))
    plan.append(paths, PlanPart(config=CONFIG, units=(new,)))
    assert list(plan.units()) == [*other, new]
    assert list(plan.all_units()) == [*old, *other, new]
    assert plan.planned_videos()["00000.mp4"] == (videos(2)[0], "train")
    assert plan.planned_videos().keys() == {"00000.mp4", "other.mp4"}


# --- size


def peak_bytes() -> int:
    """The most memory this process has ever held; not `getrusage`, which a child inherits from its parent."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


def hundred_thousand() -> list[Entry]:
    """As many videos as 10 TB hold: originals with four fakes each, and people who link a good part of them."""
    draw = random.Random(0)
    entries = []
    for number in range(100_000):
        original = f"dfdc_train_part_{number // 2500:02}/{number // 5:06}.mp4"
        entries.append(
            Entry(
                video_id=f"{original[:-4]}_{number % 5}.mp4" if number % 5 else original,
                size_bytes=draw.randrange(1 << 20, 1 << 24),
                mtime_ns=1_700_000_000_000_000_000 + number,
                label=int(number % 5 > 0),
                source_id=original if number % 5 else None,
                identity=f"person {draw.randrange(3000)}" if number % 3 == 0 else None,
            )
        )
    return entries


def plan_a_hundred_thousand(out: str) -> None:
    before = peak_bytes()
    paths = OutPaths(Path(out))
    make_folders(paths)
    entries = hundred_thousand()
    assigned = assign_splits(entries, ratio=SplitRatio(), seed=0)
    units = group_units(
        entries, assigned.split_of, config_hash="c", salt="0", cost_seconds=lambda entry: entry.size_bytes / 1e6
    )
    part = PlanPart(config=CONFIG, units=tuple(units), dropped_identities=tuple(assigned.dropped_identities))
    Plan().append(paths, part)
    assert Plan.load(paths).parts == [part]
    print(peak_bytes() - before)


@pytest.mark.processes
def test_a_hundred_thousand_videos_are_planned_in_little_memory(paths: OutPaths) -> None:
    """Listing, splits, units, writing and reading, in a process of its own, so that nothing else is measured."""
    run = [sys.executable, "-c", f"import test_plan as t; t.plan_a_hundred_thousand({str(paths.root)!r})"]
    environment = {**os.environ, "PYTHONPATH": python_path(Path(__file__).parent)}
    result = subprocess.run(run, check=True, capture_output=True, text=True, env=environment)
    assert int(result.stdout) < 400 << 20
    units = list(Plan.load(paths).units())
    assert sum(len(unit.inputs) for unit in units) == 100_000
    splits: dict[str, set[str]] = defaultdict(set)
    for unit in units:
        for entry in unit.inputs:
            splits[entry.source_id or entry.video_id].add(unit.split)
    assert len(splits) == 20_000
    assert {len(used_splits) for used_splits in splits.values()} == {1}
