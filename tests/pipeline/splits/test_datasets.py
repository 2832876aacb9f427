"""Splits of published datasets at their full size, from names alone: nobody crosses, and it takes a moment."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import permutations

import pytest
from facefeed.pipeline.errors import RefusedError
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.splits.assignment import Assignment, SplitRatio, assign_splits

GRADES = ("raw", "c23", "c40")
METHODS = ("Deepfakes", "Face2Face", "FaceSwap", "NeuralTextures", "FaceShifter")


def ffpp() -> list[Entry]:
    """1,000 originals in 500 pairs, both fakes of each by five methods, all in three grades: 18,000 videos."""
    numbers = [f"{number:03}" for number in range(1000)]
    random.Random(0).shuffle(numbers)
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    entries = []
    for grade in GRADES:
        videos = f"original_sequences/youtube/{grade}/videos"
        for number in numbers:
            person = f"youtube/{number}"
            entries.append(Entry(video_id=f"{videos}/{number}.mp4", footage=person, identity=person, compression=grade))
        entries += [
            Entry(
                video_id=f"manipulated_sequences/{method}/{grade}/videos/{target}_{source}.mp4", label=1,
                source_id=f"{videos}/{target}.mp4", footage=f"youtube/{target}", identity=f"youtube/{source}",
                related_identities=(f"youtube/{target}",), method=method, compression=grade,
            )
            for method in METHODS
            for pair in pairs
            for target, source in permutations(pair)
        ]  # fmt: skip
    return entries


def deepfake_detection() -> list[Entry]:
    """28 actors in 13 scenes, 3,068 swaps among them, in three grades: everyone is linked to everyone."""
    draw = random.Random(1)
    actors = [f"{number:02}" for number in range(1, 29)]
    swaps = draw.sample([(*pair, scene) for pair in permutations(actors, 2) for scene in range(13)], 3068)
    entries = []
    for grade in GRADES:
        videos = f"original_sequences/actors/{grade}/videos"
        entries += [
            Entry(
                video_id=f"{videos}/{actor}__scene{scene}.mp4", footage=f"actors/{actor}__scene{scene}",
                identity=f"actors/{actor}", compression=grade,
            )
            for actor in actors
            for scene in range(13)
        ]  # fmt: skip
        entries += [
            Entry(
                video_id=f"manipulated_sequences/DeepFakeDetection/{grade}/videos/{target}_{source}__scene{scene}.mp4",
                label=1, source_id=f"{videos}/{target}__scene{scene}.mp4", footage=f"actors/{target}__scene{scene}",
                identity=f"actors/{source}", related_identities=(f"actors/{target}",), compression=grade,
            )
            for target, source, scene in swaps
        ]  # fmt: skip
    return entries


def celebdf(*, listed: bool) -> list[Entry]:
    """59 people with ten videos each, 5,639 swaps among them, 300 strangers; 518 of them `listed` as test."""
    draw = random.Random(2)
    people = [f"id{number}" for number in range(59)]
    swaps = draw.sample([(*pair, take) for pair in permutations(people, 2) for take in range(10)], 5639)
    entries = [
        Entry(video_id=f"Celeb-real/{person}_{take:04}.mp4", identity=person) for person in people for take in range(10)
    ]
    entries += [
        Entry(
            video_id=f"Celeb-synthesis/{target}_{source}_{take:04}.mp4", label=1, identity=source,
            related_identities=(target,), source_id=f"Celeb-real/{target}_{take:04}.mp4",
        )
        for target, source, take in swaps
    ]  # fmt: skip
    entries += [Entry(video_id=f"YouTube-real/{number:05}.mp4") for number in range(300)]
    if not listed:
        return entries
    test = {entry.video_id for entry in draw.sample(entries, 518)}
    return [
        Entry(video_id=entry.video_id, label=entry.label, source_id=entry.source_id, identity=entry.identity,
              related_identities=entry.related_identities, split="test" if entry.video_id in test else "train")
        for entry in entries
    ]  # fmt: skip


def assign(entries: Sequence[Entry], *, allow_leaks: bool = False) -> Assignment:
    return assign_splits(entries, ratio=SplitRatio(), seed=0, allow_leaks=allow_leaks)


def crossing(entries: Sequence[Entry], assigned: Assignment) -> dict[str, set[str]]:
    """Originals, footage and people with videos in two splits, by kind; written without union-find, as an oracle."""
    splits_by_name: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in entries:
        split = assigned.split_of[entry.video_id]
        splits_by_name["original", entry.source_id or entry.video_id].add(split)
        if entry.footage:
            splits_by_name["footage", entry.footage].add(split)
        for person in entry.people:
            splits_by_name["person", person].add(split)
    names_by_kind: dict[str, set[str]] = defaultdict(set)
    for (kind, name), splits in splits_by_name.items():
        if len(splits) > 1:
            names_by_kind[kind].add(name)
    return names_by_kind


def shares(assigned: Assignment) -> dict[str, float]:
    counts = Counter(assigned.split_of.values())
    return {split: 100 * count / len(assigned.split_of) for split, count in counts.items()}


def test_faceforensics_has_nobody_in_two_splits_and_about_the_shares_asked_for() -> None:
    entries = ffpp()
    assert len(entries) == 18_000
    assigned = assign(entries)
    assert crossing(entries, assigned) == {}
    assert (assigned.dropped_identities, assigned.bridging) == ([], [])
    for split, share in shares(assigned).items():
        assert abs(share - {"train": 80, "val": 10, "test": 10}[split]) < 6  # four standard deviations of 500 pairs


@pytest.mark.parametrize("grade", GRADES)
def test_one_grade_of_faceforensics_is_split_as_all_three_are(grade: str) -> None:
    entries = ffpp()
    split_of_all = assign(entries).split_of
    split_of_part = assign([entry for entry in entries if entry.compression == grade]).split_of
    assert split_of_part == {name: split_of_all[name] for name in split_of_part}


def test_actors_who_are_all_linked_are_given_up_by_name_but_no_recording_is_cut() -> None:
    entries = deepfake_detection()
    assigned = assign(entries)
    assert assigned.dropped_identities == [f"actors/{number:02}" for number in range(1, 29)]
    assert crossing(entries, assigned).keys() == {"person"}
    assert min(shares(assigned).values()) > 5


def test_actors_beside_faceforensics_cost_its_people_nothing() -> None:
    youtube, actors = ffpp(), deepfake_detection()
    assigned = assign(youtube + actors)
    assert {name.split("/")[0] for name in assigned.dropped_identities} == {"actors"}
    assert crossing(youtube, assigned) == {}
    split_of_part = assign(youtube).split_of
    assert {name: assigned.split_of[name] for name in split_of_part} == split_of_part


def test_celebrities_who_are_all_linked_are_given_up_by_name_but_no_original_is_cut() -> None:
    entries = celebdf(listed=False)
    assigned = assign(entries)
    assert len(assigned.dropped_identities) == 59
    assert crossing(entries, assigned).keys() == {"person"}
    assert min(shares(assigned).values()) > 5


def test_a_given_test_list_that_shares_people_stops_however_much_they_link() -> None:
    entries = celebdf(listed=True)
    with pytest.raises(RefusedError, match=r"59 people and [\d,]+ originals are in more than one given split"):
        assign(entries)
    accepted = assign(entries, allow_leaks=True)
    assert accepted.split_of == {entry.video_id: entry.split for entry in entries}
    assert (accepted.dropped_identities, accepted.bridging) == ([], [])
