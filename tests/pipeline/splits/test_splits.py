"""What a user notices of splits: nobody is in two of them, and nobody moves."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from facefeed.pipeline.dataset.schema import SPLITS
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.splits.assignment import Assignment, SplitRatio, assign_splits
from facefeed.pipeline.splits.coverage import coverage_warnings
from facefeed.pipeline.splits.leaks import refuse_new_leaks
from facefeed.pipeline.splits.people import spelling_warnings
from hypothesis import example, given
from hypothesis import strategies as st

Known = Mapping[str, tuple[Entry, str]]


def assign(
    entries: Sequence[Entry],
    *,
    ratio: tuple[float, float, float] = (80, 10, 10),
    seed: int = 0,
    allow_leaks: bool = False,
    known: Known | None = None,
    known_dropped: Sequence[str] = (),
) -> Assignment:
    train, val, test = ratio
    return assign_splits(
        entries, ratio=SplitRatio(train=train, val=val, test=test), seed=seed, allow_leaks=allow_leaks,
        known=known, known_dropped=known_dropped,
    )  # fmt: skip


def video(
    name: str,
    source: str | None = None,
    identity: str | None = None,
    split: str | None = None,
    *,
    related_identities: tuple[str, ...] = (),
    footage: str | None = None,
) -> Entry:
    return Entry(
        video_id=name, source_id=source, identity=identity, split=split, related_identities=related_identities,
        footage=footage,
    )  # fmt: skip


def planned(entries: Sequence[Entry], assigned: Assignment) -> dict[str, tuple[Entry, str]]:
    by_id = {entry.video_id: entry for entry in entries}
    return {name: (by_id[name], split) for name, split in assigned.split_of.items()}


def crossings(entries: Sequence[Entry], split_of: Mapping[str, str], dropped: Sequence[str] = ()) -> list[str]:
    """Originals and people that stand in more than one split; written without union-find, as an oracle."""
    splits: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if entry.video_id in split_of:
            splits[f"original {entry.source_id or entry.video_id}"].add(split_of[entry.video_id])
            splits[f"original {entry.video_id}"].add(split_of[entry.video_id])
            if entry.footage:
                splits[f"footage {entry.footage}"].add(split_of[entry.video_id])
            for person in entry.people:
                if person not in dropped:
                    splits[f"person {person}"].add(split_of[entry.video_id])
    return [name for name, where in splits.items() if len(where) > 1]


@st.composite
def collections(draw: st.DrawFn, *, most: int = 40, prefix: str = "v") -> list[Entry]:
    """Videos with random originals, also fakes of fakes and of videos that are not there, and random people."""
    count = draw(st.integers(1, most))
    names = [f"{prefix}{number}" for number in range(count)]
    sources = st.none() | st.sampled_from([*names, "elsewhere"])
    people = st.sampled_from([f"p{number}" for number in range(draw(st.integers(1, 12)))])
    related = st.lists(people, max_size=2).map(tuple)
    footage = st.none() | st.sampled_from(["scene 0", "scene 1", "scene 2"])
    return [
        video(name, draw(sources), draw(st.none() | people), related_identities=draw(related), footage=draw(footage))
        for name in names
    ]


# --- nothing crosses


@given(collections(), st.integers(0, 5))
def test_no_original_and_no_person_is_in_two_splits(entries: list[Entry], seed: int) -> None:
    assigned = assign(entries, seed=seed)
    assert assigned.split_of.keys() == {entry.video_id for entry in entries}
    assert not assigned.bridging
    assert not crossings(entries, assigned.split_of, assigned.dropped_identities)


@given(st.data())
def test_nothing_crosses_either_when_videos_come_later(data: st.DataObject) -> None:
    everything = data.draw(collections())
    cut = data.draw(st.integers(0, len(everything)))
    first, later = everything[:cut], everything[cut:]
    before = assign(first)
    known = planned(first, before)
    after = assign(later, known=known, known_dropped=before.dropped_identities)
    together = before.split_of | after.split_of
    assert not crossings(everything, together, after.dropped_identities)
    assert {*after.split_of, *after.bridging} == {entry.video_id for entry in later}
    assert not {*after.split_of} & {*after.bridging}
    assert set(before.dropped_identities) <= set(after.dropped_identities)


def test_a_person_stays_in_one_split_however_few_videos_come_later() -> None:
    people = [video(f"{number:03}", identity=f"p{number:03}") for number in range(60)]
    before = assign(people)
    known = planned(people, before)
    for number in range(60):
        late = [video(f"late{number:03}", identity=f"p{number:03}")]
        after = assign(late, known=known)
        assert not after.dropped_identities
        assert after.split_of[f"late{number:03}"] == before.split_of[f"{number:03}"]


# --- what a draw depends on


@given(collections(), st.randoms(use_true_random=False))
def test_the_order_of_the_listing_does_not_matter(entries: list[Entry], random: object) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign(shuffled) == assign(entries)


def test_unrelated_videos_move_nobody() -> None:
    some = [video(f"{number}.mp4") for number in range(200)]
    more = [video(f"other/{number}.mp4", f"other/{number // 3}.mp4") for number in range(500)]
    few = assign(some).split_of
    assert set(few.values()) == set(SPLITS), "the draw itself fills all three; the repair has nothing to do"
    many = assign(more + some).split_of
    assert {name: many[name] for name in few} == few


def test_a_draw_is_the_hash_of_seed_and_original() -> None:
    entries = [video(f"{number}.mp4") for number in range(300)]
    split_of = assign(entries, seed=7, ratio=(50, 30, 20)).split_of
    for name, split in split_of.items():
        position = int(hashlib.sha256(f"7/{name}".encode()).hexdigest()[:16], 16) / 2**64
        assert split == ("train" if position < 0.5 else "val" if position < 0.8 else "test")


def test_another_seed_draws_another_split() -> None:
    entries = [video(f"{number}.mp4") for number in range(100)]
    assert assign(entries, seed=1).split_of != assign(entries, seed=2).split_of


def test_a_fake_lands_where_its_original_lands_also_if_that_is_not_there() -> None:
    originals = [video(f"r{number}") for number in range(50)]
    fakes = [video(f"f{number}", f"r{number}") for number in range(50)]
    both = assign(originals + fakes).split_of
    assert all(both[f"f{number}"] == both[f"r{number}"] for number in range(50))
    alone = assign(fakes).split_of
    assert {f"r{name[1:]}": split for name, split in alone.items()} == assign(originals).split_of


@pytest.mark.parametrize("ratio", [(80, 10, 10), (34, 33, 33), (0, 50, 50)])
def test_the_ratio_is_roughly_kept(ratio: tuple[float, float, float]) -> None:
    entries = [video(f"v{number}/{copy}", f"v{number}/0") for number in range(5000) for copy in range(2)]
    counts = Counter(assign(entries, ratio=ratio).split_of.values())
    for name, share in zip(SPLITS, ratio, strict=True):
        assert abs(counts[name] / len(entries) * 100 - share) < 2.5  # four standard deviations of 5,000 draws


def test_all_in_one_split_is_a_ratio_too() -> None:
    entries = [video(f"{number}.mp4") for number in range(20)]
    assert set(assign(entries, ratio=(100, 0, 0)).split_of.values()) == {"train"}
    assert set(assign(entries, ratio=(0, 0, 100)).split_of.values()) == {"test"}


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("seed", range(8))
def test_a_small_set_leaves_no_split_empty(count: int, seed: int) -> None:
    entries = [video(f"{number}.mp4") for number in range(count)]
    assert set(assign(entries, seed=seed).split_of.values()) == set(SPLITS)
    assert "val" not in assign(entries, seed=seed, ratio=(90, 0, 10)).split_of.values()


def test_one_video_is_a_set_too() -> None:
    assert len(assign([video("a.mp4")]).split_of) == 1
    assert assign([]) == Assignment(split_of={}, bridging=[], dropped_identities=[])


# --- what was planned stays


@given(collections(prefix="old"), collections(prefix="new"))
def test_later_videos_join_what_they_belong_to(old: list[Entry], new: list[Entry]) -> None:
    before = assign(old)
    known = planned(old, before)
    after = assign(new, known=known, known_dropped=before.dropped_identities)
    for entry in new:
        for name, (planned_entry, split) in known.items():
            same_person = entry.identity is not None and entry.identity == planned_entry.identity
            is_linked = entry.source_id in {name, planned_entry.source_id} - {None}
            if is_linked or (same_person and entry.identity not in after.dropped_identities):
                assert entry.video_id in after.bridging or after.split_of[entry.video_id] == split


def test_a_later_video_that_would_join_two_splits_is_set_aside() -> None:
    old = [video("a.mp4", identity="ann"), video("b.mp4", identity="bob")]
    known = {"a.mp4": (old[0], "train"), "b.mp4": (old[1], "test")}
    swap = video("swap.mp4", source="a.mp4", identity="bob")
    alone = video("c.mp4", identity="bob")
    after = assign([swap, alone], known=known)
    assert after.bridging == ["swap.mp4"]
    assert after.split_of == {"c.mp4": "test"}


def test_fakes_of_a_video_that_is_set_aside_are_set_aside_too() -> None:
    known = {
        "a.mp4": (video("a.mp4", footage="one"), "train"), "c.mp4": (video("c.mp4", identity="ann"), "test"),
    }  # fmt: skip
    bridge = video("b.mp4", footage="one", identity="ann")
    fakes = [video(f"fake{number}.mp4", source="b.mp4") for number in range(12)]
    of_fake = video("again.mp4", source="fake0.mp4")
    others = [video("d.mp4", footage="one"), video("e.mp4", source="a.mp4"), video("f.mp4", identity="ann")]
    after = assign([bridge, *fakes, of_fake, *others], known=known)
    assert after.bridging == sorted(["b.mp4", "again.mp4", *(fake.video_id for fake in fakes)])
    assert after.split_of == {"d.mp4": "train", "e.mp4": "train", "f.mp4": "test"}


@pytest.mark.parametrize("known", [False, True])
def test_given_splits_that_only_a_video_without_one_shows_to_leak_are_refused(*, known: bool) -> None:
    """The fake's original is a version of the recording that the other split is tested on."""
    fake, other = video("f.mp4", source="x.mp4", split="train"), video("y.mp4", footage="one", split="test")
    link, further = video("x.mp4", footage="one"), video("z.mp4")
    planned_fake = {"f.mp4": (fake, "train")} if known else {}
    new = [link, other, further] if known else [link, other, further, fake]
    with pytest.raises(RefusedError, match=r"x.mp4: has no split of its own, but f.mp4 in train and y.mp4 in test"):
        assign(new, known=planned_fake)
    assert assign(new, known=planned_fake, allow_leaks=True).bridging == ["x.mp4"]
    assert assign([other, further, fake]).split_of.keys() == {"f.mp4", "y.mp4", "z.mp4"}


def test_given_splits_that_share_nobody_are_no_leak_for_a_video_of_two_people() -> None:
    ann, ben = video("a.mp4", identity="ann", split="train"), video("b.mp4", identity="ben", split="test")
    both = video("m.mp4", identity="ann", related_identities=("ben",))
    others = [video(f"{number}.mp4") for number in range(9)]
    assert assign([ann, ben, both, *others]).bridging == ["m.mp4"]


@pytest.mark.parametrize("name", ["0.mp4", "zz.mp4"])
def test_versions_of_a_recording_that_joins_two_splits_are_set_aside_whatever_they_are_called(name: str) -> None:
    known = {"a.mp4": (video("a.mp4", identity="ann"), "train"), "b.mp4": (video("b.mp4", identity="ben"), "test")}
    both = video("m.mp4", footage="new", identity="ann", related_identities=("ben",))
    after = assign([both, video(name, footage="new"), video("s.mp4", source=name), video("x.mp4")], known=known)
    assert after.bridging == sorted(["m.mp4", name, "s.mp4"])
    assert after.split_of.keys() == {"x.mp4"}


def test_a_source_that_changed_into_a_leak_is_refused() -> None:
    old = [video("a.mp4"), video("b.mp4"), video("f.mp4", "a.mp4"), video("g.mp4", "b.mp4")]
    known = {entry.video_id: (entry, split) for entry, split in zip(old, ["train", "test"] * 2, strict=True)}
    refuse_new_leaks([video("f.mp4"), video("g.mp4", "b.mp4", identity="new")], known, set())
    with pytest.raises(RefusedError, match=r"f\.mp4: was planned into train.*in test: a leak"):
        refuse_new_leaks([video("f.mp4", "b.mp4")], known, set())
    with pytest.raises(RefusedError, match="a leak"):
        refuse_new_leaks([video("f.mp4", "a.mp4", "ann"), video("g.mp4", "b.mp4", "ann")], known, set())
    refuse_new_leaks([video("f.mp4", "a.mp4", "ann"), video("g.mp4", "b.mp4", "ann")], known, {"ann"})


def test_a_new_link_to_kin_or_footage_in_another_split_is_refused_too() -> None:
    old = [video("a.mp4", identity="ann", footage="hall"), video("b.mp4")]
    known = {"a.mp4": (old[0], "train"), "b.mp4": (old[1], "test")}
    for more in ({"related_identities": ("ann",)}, {"footage": "hall"}):
        with pytest.raises(RefusedError, match=r"b\.mp4: was planned into test.*in train: a leak"):
            refuse_new_leaks([video("b.mp4", **more)], known, set())  # type: ignore[arg-type]


# --- related identities and footage


def test_both_people_of_a_swap_are_kept_together_also_when_no_original_is_there() -> None:
    swaps = [
        video(f"{a:03}_{b:03}.mp4", f"{a:03}.mp4", f"{b:03}", related_identities=(f"{a:03}",))
        for number in range(0, 100, 2)
        for a, b in ((number, number + 1), (number + 1, number))
    ]
    split_of = assign(swaps).split_of
    assert set(split_of.values()) == set(SPLITS)
    assert all(split_of[f"{a:03}_{a + 1:03}.mp4"] == split_of[f"{a + 1:03}_{a:03}.mp4"] for a in range(0, 100, 2))


def test_who_is_left_is_drawn_as_before_the_others_went_missing() -> None:
    whole = [video(f"{number}{take}.mp4", identity=f"p{number:02}") for number in range(50) for take in "abc"]
    before = assign(whole).split_of
    for gone in range(3):
        rest = [entry for number, entry in enumerate(whole) if number % 3 != gone]
        assert assign(rest).split_of == {entry.video_id: before[entry.video_id] for entry in rest}


def test_people_who_are_given_up_do_not_take_their_footage_with_them() -> None:
    crowd = [
        video(f"{grade}/{number}.mp4", identity="ann", related_identities=("bob",), footage=f"scene {number}")
        for number in range(40)
        for grade in ("c23", "c40")
    ]
    assigned = assign(crowd)
    assert assigned.dropped_identities == ["ann", "bob"]
    assert set(assigned.split_of.values()) == set(SPLITS)
    assert not crossings(crowd, assigned.split_of, ["ann", "bob"])


# --- given splits


def test_given_splits_are_kept_and_what_hangs_on_them_follows() -> None:
    entries = [
        video("a.mp4", split="test"),
        video("b.mp4", split="train"),
        video("c.mp4", split="val"),
        video("fake_a.mp4", source="a.mp4"),
        video("z.mp4"),
    ]
    for ratio in [(80, 10, 10), (100, 0, 0)]:
        split_of = assign(entries, ratio=ratio).split_of  # type: ignore[arg-type]
        assert [split_of[name] for name in ("a.mp4", "b.mp4", "c.mp4", "fake_a.mp4")] == [
            "test",
            "train",
            "val",
            "test",
        ]
    assert split_of["z.mp4"] == "train"


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ({"source": "o.mp4"}, "original 'o.mp4'"),
        ({"identity": "ann"}, "person 'ann'"),
        ({"related_identities": ("ann", "bob")}, "person 'ann'"),
        ({"footage": "hall"}, "original 'hall'"),
    ],
)
def test_a_leak_in_given_splits_stops_unless_it_is_accepted(link: dict[str, Any], what: str) -> None:
    entries = [video("a.mp4", split="train", **link), video("b.mp4", split="test", **link), *map(video, "cdefgh")]
    with pytest.raises(
        RefusedError, match=rf"b\.mp4: .* in test, but a\.mp4, of the same {what}, in train: a leak; .*--allow-leaks"
    ):
        assign(entries)
    split_of = assign(entries, allow_leaks=True).split_of
    assert (split_of["a.mp4"], split_of["b.mp4"]) == ("train", "test")


LEAK = (video("a.mp4", split="train"), video("leak.mp4", "a.mp4", split="test"))
STRANGERS = tuple(video(f"stranger{number}.mp4") for number in range(200))
"""So many that no person links too large a share of all videos."""


def test_beside_an_accepted_leak_a_fake_follows_its_original() -> None:
    entries = [*LEAK, *(video(f"f{number}.mp4", "a.mp4") for number in range(9))]
    split_of = assign(entries, allow_leaks=True).split_of
    assert {split_of[f"f{number}.mp4"] for number in range(9)} == {"train"}
    assert split_of["leak.mp4"] == "test"


def test_beside_an_accepted_leak_a_version_follows_its_footage_and_its_fakes_follow_it() -> None:
    leak = [video("a.mp4", identity="ana", split="train"), video("b.mp4", identity="ana", split="test", footage="b")]
    entries = [*leak, video("b-c40.mp4", identity="ana", footage="b"), video("fake.mp4", "b-c40.mp4", "ben")]
    split_of = assign(entries, allow_leaks=True).split_of
    assert (split_of["b-c40.mp4"], split_of["fake.mp4"]) == ("test", "test")
    earlier = planned(leak, assign(leak, allow_leaks=True))
    assert assign(entries[2:], known=earlier).split_of == {"b-c40.mp4": "test", "fake.mp4": "test"}


def test_a_leak_of_a_person_is_accepted_for_that_person_alone() -> None:
    leak = [
        video("a.mp4", identity="ana", split="test"), video("b.mp4", "a.mp4", "ana", related_identities=("ben",),
        split="train"),
    ]  # fmt: skip
    originals = [video(f"{number}.mp4", identity="ben", related_identities=("ana",)) for number in range(20)]
    fakes = [video(f"{number}-fake.mp4", f"{number}.mp4") for number in range(20)]
    split_of = assign([*leak, *originals, *fakes, *STRANGERS], allow_leaks=True).split_of
    assert {split_of[entry.video_id] for entry in (*originals, *fakes)} == {"train"}, "ben is in train alone"


def test_videos_of_a_person_in_two_splits_are_drawn_among_these_each_with_its_fakes() -> None:
    leak = [video("a.mp4", identity="ana", split="val"), video("b.mp4", identity="ana", split="test")]
    originals = [video(f"{number}.mp4", identity="ana") for number in range(20)]
    fakes = [video(f"{number}-fake.mp4", f"{number}.mp4", "ana") for number in range(20)]
    split_of = assign([*leak, *originals, *fakes, *STRANGERS], allow_leaks=True).split_of
    assert {split_of[entry.video_id] for entry in originals} == {"val", "test"}
    assert all(split_of[entry.video_id] == split_of[str(entry.source_id)] for entry in fakes)
    one_more = [*leak, *originals, *fakes, *STRANGERS, video("0-more.mp4", "0.mp4")]
    assert assign(one_more, allow_leaks=True).split_of["0-more.mp4"] == split_of["0.mp4"]
    for splits in ((0, 0, 100), (100, 0, 0)):
        drawn = assign([*leak, *originals, *STRANGERS], allow_leaks=True, ratio=splits).split_of
        assert {drawn[entry.video_id] for entry in originals} == ({"test"} if splits[2] else {"val", "test"})


@pytest.mark.parametrize("number", range(8))
def test_versions_of_one_recording_stay_together_beside_an_accepted_leak_of_its_fakes(number: int) -> None:
    versions = [video(f"{name}{number}.mp4", footage="hall") for name in "ab"]
    for original in versions:
        leak = [video(f"f{split}.mp4", original.video_id, split=split) for split in ("train", "test")]
        split_of = assign([*versions, *leak], allow_leaks=True).split_of
        assert split_of[versions[0].video_id] == split_of[versions[1].video_id]


def test_a_given_leak_is_reported_with_how_many_leak_and_how_splits_are_drawn_instead() -> None:
    entries = [
        video("a.mp4", identity="ann", split="train"),
        video("b.mp4", "a.mp4", "bob", "test", related_identities=("ann",)),
        video("c.mp4", identity="bob", split="val"),
    ]  # fmt: skip
    with pytest.raises(
        RefusedError, match=r"2 people and 1 originals are in more than one given split.* or drop it, so"
    ):
        assign_splits(entries, ratio=SplitRatio(), seed=0, without_splits="drop it")


def test_people_whom_an_earlier_plan_gave_up_are_no_leak_later() -> None:
    old = [video("a.mp4", identity="ann"), video("b.mp4", identity="ann")]
    known = {"a.mp4": (old[0], "train"), "b.mp4": (old[1], "test")}
    new = [video("c.mp4", identity="ann", split="val")]
    with pytest.raises(RefusedError, match="a leak"):
        assign(new, known=known)
    assert assign(new, known=known, known_dropped=["ann"]).split_of == {"c.mp4": "val"}


@pytest.mark.parametrize("name", ["0.mp4", "m.mp4", "zz.mp4"])
def test_what_joins_two_given_splits_is_set_aside_whatever_it_is_called(name: str) -> None:
    entries = [
        video("a.mp4", split="train", identity="ann"),
        video("s.mp4", split="test"),
        *(video(f"x{number}.mp4") for number in range(10)),
        video(name, source="s.mp4", identity="ann"),
    ]
    assigned = assign(entries)
    assert assigned.bridging == [name]
    assert (assigned.split_of["a.mp4"], assigned.split_of["s.mp4"]) == ("train", "test")


# --- components that are too large


def test_people_who_link_too_much_are_dropped_by_name_and_originals_still_hold() -> None:
    crowd = [
        video(f"crowd{number:02}{kind}", None if kind == "r" else f"crowd{number:02}r", "everybody")
        for number in range(20)
        for kind in "rf"
    ]
    others = [video(f"o{number:02}{take}", identity=f"p{number:02}") for number in range(20) for take in "ab"]
    assigned = assign(crowd + others)
    assert assigned.dropped_identities == ["everybody"]
    assert len({assigned.split_of[entry.video_id] for entry in crowd}) > 1, (
        "or the split would be as lopsided as before"
    )
    assert not crossings(crowd + others, assigned.split_of, ["everybody"])


def test_the_limit_is_30_percent_of_all_videos() -> None:
    def dropped(of_one: int, total: int) -> list[str]:
        rest = [video(f"o{number:03}") for number in range(total - of_one)]
        return assign([video(f"p{number}", identity="p") for number in range(of_one)] + rest).dropped_identities

    assert dropped(30, 100) == []
    assert dropped(31, 100) == ["p"]


def test_people_of_given_splits_are_never_given_up_however_many_they_link() -> None:
    train = [video(f"a{number}", identity="ann", split="train") for number in range(40)]
    test = [video(f"b{number}", identity="bob", split="test") for number in range(40)]
    swap = video("swap", identity="ann", related_identities=("bob",))
    assigned = assign([*train, *test, swap, video("late", identity="bob"), *(video(f"o{n}") for n in range(9))])
    assert (assigned.dropped_identities, assigned.bridging) == ([], ["swap"])
    assert assigned.split_of["late"] == "test"


def test_a_person_who_links_nothing_is_not_dropped() -> None:
    one_family = [video("r", identity="ann"), *(video(f"f{number}", "r", "ann") for number in range(9))]
    assert assign([*one_family, video("x", identity="bob")]).dropped_identities == []
    assert assign([video("only", identity="ann")]).dropped_identities == []


def test_an_original_with_most_of_the_fakes_cannot_be_cut() -> None:
    entries = [video("r"), *(video(f"f{number}", "r") for number in range(90)), *(video(f"o{n}") for n in range(10))]
    assigned = assign(entries)
    assert len({assigned.split_of[entry.video_id] for entry in entries[:91]}) == 1


# --- the ratio as an option


@pytest.mark.parametrize(
    "text", ["80,10", "80,10,10,0", "a,b,c", "", "80;10;10", "90,10,10", "-10,100,10", "nan,10,10"]
)
def test_a_ratio_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"split_ratio=.*try 80,10,10"):
        SplitRatio.parse(text)


def test_a_ratio_means_the_same_however_it_is_written() -> None:
    written = [SplitRatio(), SplitRatio.parse("80,10,10"), SplitRatio.parse(" 80.0, 10, 1e1"), SplitRatio(train=80.0)]
    assert len({json.dumps(ratio.shares) for ratio in written}) == 1, "else their rows would be of two configs"


@example(0.9999999999999999, 57, 86)  # 57 + 29 + 14 % add up to a little less
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 100), st.integers(0, 100))
def test_every_position_falls_into_a_split_that_has_a_share(position: float, a: int, b: int) -> None:
    low, high = sorted((a, b))
    ratio = SplitRatio(train=low, val=high - low, test=100 - high)
    split = ratio.split_at(position)
    assert ratio.shares[SPLITS.index(split)] > 0
    assert ratio.distance(position, split) < 1e-9


def of_label(name: str, label: int, **given: Any) -> Entry:
    return Entry(video_id=name, label=label, **given)


def test_a_split_without_a_class_that_others_have_is_named_with_the_class() -> None:
    both = [(of_label("a", 0), "train"), (of_label("b", 1), "train")]
    (warning,) = coverage_warnings([*both, (of_label("c", 0), "val"), (of_label("d", -1), "val")], ("real", "fake"))
    assert warning.startswith("val has no input that is fake: ")
    assert coverage_warnings([*both, (of_label("c", 0), "test"), (of_label("d", 1), "test")], ("real", "fake")) == []


def test_no_split_lacks_a_class_that_is_another_one_misspelt() -> None:
    planned = [(of_label("a", 0), "train"), (of_label("b", 1), "train"), (of_label("c", 0), "val")]
    assert coverage_warnings(planned, ("real", "rael"), {"rael"}) == []
    (warning,) = coverage_warnings([*planned, (of_label("d", 2), "train")], ("real", "rael", "fake"), {"rael"})
    assert warning.startswith("val has no input that is fake: ")


def test_a_video_that_is_fake_in_part_gives_its_split_both_classes() -> None:
    partly = of_label("c", 1, fake_segments=((0.0, 1.0),), outside_label=0)
    planned = [(of_label("a", 0), "train"), (of_label("b", 1), "train"), (partly, "val")]
    assert coverage_warnings(planned, ("real", "fake")) == []


@pytest.mark.parametrize("label", [-1, 0])
def test_where_all_inputs_are_of_one_class_no_split_lacks_another(label: int) -> None:
    assert coverage_warnings([(of_label("a", label), "train"), (of_label("b", label), "val")], ("real", "fake")) == []
    assert coverage_warnings([], ("real", "fake")) == []


# ---- people of several spellings


@pytest.mark.parametrize("other", ["ben", "BEN", " Ben\u00a0", "\uff22en"])
def test_a_person_of_two_spellings_in_two_splits_is_named_with_both(other: str) -> None:
    anna = (video("c", identity="Anna"), "train")
    (warning,) = spelling_warnings([(video("a", identity="Ben"), "val"), (video("b", identity=other), "test"), anna])
    assert "1 person may be spelt in several ways" in warning
    assert "'Ben' (val)" in warning
    assert f"{other!r} (test)" in warning
    assert "Anna" not in warning


def test_someone_who_was_swapped_in_counts_as_a_person_of_two_spellings_too() -> None:
    swap = video("b", identity="anna", related_identities=("Ben van Dam",))
    (warning,) = spelling_warnings([(video("a", identity="ben  van Dam"), "train"), (swap, "test")])
    assert "'Ben van Dam' (test) and 'ben  van Dam' (train)" in warning


def test_spellings_in_one_split_and_one_spelling_in_two_are_no_matter_of_spelling() -> None:
    ben = video("a", identity="Ben")
    assert spelling_warnings([(ben, "val"), (video("b", identity="ben"), "val")]) == []
    assert spelling_warnings([(ben, "val"), (video("b", identity="Ben"), "test"), (video("c"), "train")]) == []
