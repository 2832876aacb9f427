"""What a training run notices of the clips of an epoch: which come, how often, with which label."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import numpy as np
import pytest
from assets_random import examples
from assets_rows import order_of
from assets_tracks import CONSTANT, Track, TracksOnly, tracks
from facefeed.loaders import Clip, Pairs, Quotas, Weights
from facefeed.loaders.clips.clip_items import ClipItems
from facefeed.loaders.clips.labels import clip_labels
from facefeed.pipeline.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

LABELS = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=31).map(tuple)
picks = st.sampled_from(["even", "random", "all"])


def items_of(made: TracksOnly, seed: int = 0, *, are_pairs: bool = False, **settings: Any) -> ClipItems:
    data: Any = made
    return ClipItems(data, Clip(**settings), seed, {"every": 1}, are_pairs=are_pairs)


def video(length: int, name: str = "a.mp4", **options: Any) -> TracksOnly:
    return TracksOnly([Track(name, 0, (0.04,) * (length - 1), **options)])


def firsts(items: ClipItems, epoch: int = 0) -> list[int]:
    return sorted(items.clips(items.rows, epoch).rows[:, 0].tolist())


@examples(150)
@given(tracks(CONSTANT, labels=LABELS), st.integers(1, 5), st.integers(1, 4), picks, st.integers(0, 3))
def test_an_epoch_has_so_many_different_clips_of_each_video_and_label(
    people: list[Track], frames: int, clips_per_video: int, pick: Any, epoch: int
) -> None:
    made = TracksOnly(people)
    every = items_of(made, frames=frames, pick="even", clips_per_video=10_000)
    settings = {"frames": frames, "pick": pick} | ({} if pick == "all" else {"clips_per_video": clips_per_video})
    items = items_of(made, **settings)
    clips = items.clips(items.rows, epoch)
    labels = clip_labels(made.index.numbers("label", clips.rows.ravel()).reshape(clips.rows.shape), 0)
    assert items.index.numbers("label", items.rows).tolist() == labels.tolist()
    assert made.of(clips.rows[:, 0], "video_id") == made.of(items.rows, "video_id")
    assert len({tuple(rows) for rows in clips.rows.tolist()}) == len(items)
    if pick == "all":
        assert max(Counter(clips.rows.ravel().tolist()).values(), default=1) == 1
        return
    available = Counter(
        zip(made.of(every.rows, "video_id"), every.index.numbers("label", every.rows).tolist(), strict=True)
    )
    picked = Counter(zip(made.of(items.rows, "video_id"), labels.tolist(), strict=True))
    assert picked == {group: min(count, clips_per_video) for group, count in available.items()}


@pytest.mark.parametrize("pick", ["random", "even", "all"])
@pytest.mark.parametrize("clips_per_video", [1, 2])
def test_a_pair_of_clips_shows_one_person_whatever_their_numbers_and_no_fake_is_left_out(
    pick: Any, clips_per_video: int
) -> None:
    steps = (0.04,) * 19
    made = TracksOnly([
        *(Track("a", track, steps) for track in (0, 1)),
        *(Track("x", track, steps, labels=(1,), place=1 - track, source="a") for track in (0, 1)),
    ])  # fmt: skip
    settings = {} if pick == "all" else {"clips_per_video": clips_per_video}
    items = items_of(made, are_pairs=True, frames=4, pick=pick, **settings)
    data: Any = items
    order = order_of(data, 2, balance=Pairs())
    assert order.bound_balance.notes == items.notes == []
    people = set()
    for epoch in range(6):
        rows = order.rows(epoch)
        assert len(rows) == 2 * sum(items.index.numbers("label", items.rows))
        clips = items.clips(rows, epoch).rows
        places = (np.array(made.of(clips.ravel(), "box_xyxy"))[:, 0] // 100).reshape(clips.shape)
        assert (places[::2] == places[1::2]).all()
        assert made.of(clips[::2, 0], "frame_index") == made.of(clips[1::2, 0], "frame_index")
        people.update(places.ravel().tolist())
    if pick == "random":
        assert people == {0, 1}


def test_a_clip_of_a_fake_at_another_frame_rate_begins_beside_the_frame_of_its_time() -> None:
    made = TracksOnly([Track("a", 0, (0.04,) * 39), Track("x", 0, (0.08,) * 19, labels=(1,), source="a")])
    items = items_of(made, are_pairs=True, frames=4, pick="random", clips_per_video=1)
    rows = order_of(cast("Any", items), 2, balance=Pairs()).rows(0)
    for epoch in range(4):
        real, fake = items.clips(rows, epoch).rows[:, 0].tolist()
        assert made.table[real]["pts_seconds"] == pytest.approx(made.table[fake]["pts_seconds"])


@pytest.mark.parametrize("pick", ["random", "even", "all"])
def test_fake_clips_of_people_who_are_not_in_their_source_are_left_out_and_counted(pick: Any) -> None:
    steps = (0.04,) * 19
    made = TracksOnly([
        *(Track("a", track, steps, place=place) for track, place in enumerate((0, 2))),
        *(Track("x", track, steps, labels=(1,), place=track, source="a") for track in (0, 1)),
        Track("y", 0, steps, labels=(1,), place=1, source="a"),
    ])  # fmt: skip
    items = items_of(made, are_pairs=True, frames=4, pick=pick)
    order = order_of(cast("Any", items), 2, balance=Pairs())
    count = 2 * (5 if pick == "all" else 17)
    assert items.notes == [
        f"{count} clips of fakes are left out: no clip of the source begins with a face at the same place in the frame"
    ]
    for epoch in range(6):
        clips = items.clips(order.rows(epoch), epoch).rows
        assert len(clips) == 2 * (5 if pick == "all" else 1)
        assert set(made.of(clips[1::2].ravel(), "video_id")) == {"x"}
        assert {int(left) // 100 for left, *_ in made.of(clips.ravel(), "box_xyxy")} == {0}
        assert made.of(clips[::2, 0], "frame_index") == made.of(clips[1::2, 0], "frame_index")


def test_even_clips_are_the_middles_of_equal_segments_in_every_epoch() -> None:
    items = items_of(video(103), frames=4, pick="even", clips_per_video=4)  # 100 clips
    assert firsts(items) == firsts(items, 5) == [12, 37, 62, 87]


def test_random_clips_are_drawn_anew_for_each_epoch_and_seed_within_their_segments() -> None:
    made = video(103)
    items = items_of(made, frames=4, pick="random", clips_per_video=4)
    epochs = [firsts(items, epoch) for epoch in range(200)]
    assert epochs == [firsts(items_of(made, frames=4, pick="random", clips_per_video=4), epoch) for epoch in range(200)]
    for number, drawn in enumerate(zip(*epochs, strict=True)):
        assert set(drawn) <= set(range(25 * number, 25 * number + 25))
        assert len(set(drawn)) == 25  # in 200 draws every one of 25
    assert epochs != [firsts(items_of(made, seed=1, frames=4, pick="random", clips_per_video=4), e) for e in range(200)]


def test_videos_draw_independently() -> None:
    made = TracksOnly([Track(f"{name}.mp4", 0, (0.04,) * 102) for name in "abcdefgh"])
    items = items_of(made, frames=4, pick="random")
    assert len(set(made.of(firsts(items), "ordinal"))) > 4


def test_all_clips_follow_one_another_and_padding_adds_the_rest_of_each_run() -> None:
    made = video(23, lost=frozenset([10]))
    assert firsts(items_of(made, frames=4, pick="all")) == [0, 4, 10, 14, 18]
    padded = items_of(made, frames=4, pick="all", pad=True)
    clips = padded.clips(padded.rows, 0)
    assert sorted(clips.rows[:, 0].tolist()) == [0, 4, 8, 10, 14, 18]
    assert sorted(set(clips.rows.ravel().tolist())) == list(range(22))
    assert firsts(items_of(made, frames=3, stride=2, pick="all")) == [0, 5, 10, 15]


def test_a_damaged_clip_is_replaced_by_those_that_others_draw_before_any_other_of_theirs() -> None:
    """Where damage covers whole videos, each clip of theirs would be tried in vain else."""
    made = TracksOnly([Track(f"{name}.mp4", 0, (0.04,) * 39) for name in "abcd"])
    items = items_of(made, frames=4)
    found = list(items.replacements(int(items.rows[0]), 0, made.rows[:80].tolist(), ("label",)))
    videos = [made.of(clip.rows[0], "video_id")[0] for clip in found]
    assert videos[:2] == ["c.mp4", "d.mp4"]
    drawn = items.clips(items.rows[2:], 0).rows.tolist()
    assert [clip.rows[0].tolist() for clip in found[:2]] == drawn
    assert len({tuple(clip.rows[0].tolist()) for clip in found}) == len(found) > 4


def test_a_clip_is_fake_if_any_frame_is_and_unknown_only_where_none_is_and_one_is_unknown() -> None:
    frames = [[0, 0], [0, 1], [1, 1], [-1, -1], [-1, 0], [-1, 1], [2, 1]]
    assert clip_labels(np.array(frames, np.int8), 0).tolist() == [0, 1, 1, -1, -1, 1, 2]
    frames = [[1, 1], [1, 0], [0, 0], [-1, -1], [-1, 1], [-1, 0], [2, 1], [0, 2]]
    assert clip_labels(np.array(frames, np.int8), 1).tolist() == [1, 0, 0, -1, -1, 0, 2, 2]


def test_a_clip_with_a_fake_image_is_fake_where_the_dataset_names_fake_before_real() -> None:
    made = video(16, labels=(1, *(0,) * 14, 1))
    made.index.labels = ("fake", "Real")
    items = items_of(made, frames=8, pick="all")
    assert items.index.numbers("label", items.rows).tolist() == [0, 0]


def test_a_video_that_is_fake_in_part_has_real_clips_and_fake_ones() -> None:
    labels = (0,) * 10 + (1,) * 5 + (0,) * 15
    items = items_of(video(30, labels=labels), frames=4, pick="random", clips_per_video=2)
    assert items.index.numbers("label", items.rows).tolist() == [0, 1, 1, 0]
    for epoch in range(50):
        for item, rows in zip(items.rows, items.clips(items.rows, epoch).rows.tolist(), strict=True):
            is_fake = any(10 <= row < 15 for row in rows)
            assert items.index.number("label", int(item)) == is_fake


@examples(50)
@given(st.integers(0, 20), st.integers(1, 4))
def test_quotas_hold_for_the_labels_of_clips_in_every_batch_and_epoch(epoch: int, half: int) -> None:
    people = [
        Track(f"{number}.mp4", 0, (0.04,) * 29, labels=(0,) * (3 * number) + (1,) * 4 + (0,)) for number in range(6)
    ]
    made = TracksOnly(people)
    items = items_of(made, frames=5, pick="random", clips_per_video=3)
    sampler = order_of(items, batch_size=2 * half, balance=Quotas({"real": 1, "fake": 1}))  # type: ignore[arg-type]
    for step in range(len(sampler)):
        request = sampler.request(epoch, step)
        clips = items.clips(request.rows, epoch).rows
        labels = made.index.numbers("label", clips.ravel()).reshape(clips.shape).max(axis=1)
        assert 2 * labels.sum() == len(labels)


@pytest.mark.parametrize("sampled", [33, 36, 40, 45, 64, 200])
@pytest.mark.parametrize("sampling", [{"every": 10}, {"fps": 2.5}, {}], ids=str)
def test_frames_that_were_picked_of_each_video_follow_one_another_without_a_gap(
    sampled: int, sampling: dict[str, Any]
) -> None:
    data: Any = TracksOnly([Track("a.mp4", 0, (0.4,) * (sampled - 1), frames=tuple(range(0, 10 * sampled, 10)))], 32)
    items = ClipItems(data, Clip(frames=32, pick="even"), 0, sampling)
    assert items.clips(items.rows, 0).rows.tolist() == [data.rows.tolist()]


def test_no_clip_of_frames_that_were_picked_of_each_video_steps_over_a_lost_one_or_a_cut() -> None:
    lost, alone = frozenset(range(18, 24)), Track("b.mp4", 0, (0.04,) * 20, cuts=frozenset([10]))
    data: Any = TracksOnly([Track("a.mp4", 0, (0.04,) * 45, lost=lost), alone, Track("c.mp4", 0, ())], 32)
    runs = ClipItems(data, Clip(frames=4, pick="all"), 0, {"every": 1}).table.runs
    parts = [data.of(rows, "ordinal") for rows in np.split(runs.rows, runs.starts[1:])]
    assert len(data.rows) == 32 + 21 + 1
    assert [(part[0], part[-1]) for part in parts] == [(0, 16), (24, 45), (0, 9), (10, 20), (0, 0)]
    assert runs.tracks.tolist() == [0, 0, 1, 1, 2]
    data.selection = data.rows[:-1]
    assert ClipItems(data, Clip(frames=20, pick="all"), 0, {"every": 1}).notes == [
        "2 of 2 tracks without a clip; 53 faces are in runs of under 20 images without a gap"
    ]


def test_tracks_that_are_too_short_are_counted() -> None:
    short = Track("a.mp4", 1, (0.04,) * 2)
    made = TracksOnly([Track("a.mp4", 0, (0.04,) * 29, lost=frozenset([3])), short, Track("b.mp4", 0, (0.04,) * 9)])
    assert items_of(made, frames=8, pick="even").notes == [
        "1 of 3 tracks without a clip; 6 faces are in runs of under 8 images without a gap"
    ]
    assert items_of(made, frames=3, pick="even").notes == []
    assert items_of(made, frames=8, pick="even", pad=True).notes == [
        "6 faces are in runs of under 8 images without a gap, whose clips are filled up"
    ]
    assert items_of(made, frames=3, pick="even", pad=True).notes == []


def test_a_dataset_without_any_clip_is_an_error_that_names_the_longest_run() -> None:
    items = items_of(video(15, lost=frozenset([5])), frames=10, pick="even")
    with pytest.raises(UsageError, match=r"no track has 10 images in a row without a gap, the longest run has 9; take"):
        items.check({"": (0, 15)})


def test_a_part_of_a_mixture_without_any_clip_is_named_though_others_have_some() -> None:
    made = TracksOnly([Track("a.mp4", 0, (0.04,) * 9), Track("b.mp4", 0, (0.04,) * 3)])
    items = items_of(made, frames=8, pick="even")
    items.check({"long": (0, 10)})
    with pytest.raises(UsageError, match=r"^short: Clip\(.*no track has 8 images.* the longest run has 4; take"):
        items.check({"long": (0, 10), "short": (10, 14)})


def test_a_dataset_whose_tracks_all_have_clips_says_so_of_its_short_runs() -> None:
    items = items_of(video(30, lost=frozenset([3])), frames=8, pick="even")
    assert items.notes == ["every track has a clip; 3 faces are in runs of under 8 images without a gap"]


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (Clip(frames=4, stride=2), Clip(frames=np.int64(4), stride=np.int32(2))),  # type: ignore[arg-type]
        (Clip(frames=4), Clip(frames=4, clips_per_video=1)),
        (Clip(frames=4, max_gap_seconds=1.0), Clip(frames=4, max_gap_seconds=1)),
        (Clip(frames=4, pad=True), Clip(frames=4, pad=np.bool_(True))),  # type: ignore[arg-type]
        (Weights({"fake": 3.0, "real": 1.0}), Weights({"real": 1, "fake": 3})),
        (Quotas({"real": 1, "fake": 3}), Quotas({"real": np.int64(1), "fake": np.int8(3)})),  # type: ignore[dict-item]
    ],
    ids=str,
)
def test_settings_that_are_equal_are_one_and_the_same_to_a_saved_state(one: Any, same: Any) -> None:
    assert (one, str(one)) == (same, str(same))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frames": 0}, "Clip: frames=0: must be at least 1; try 16"),
        ({"frames": 2.5}, r"Clip: frames=2\.5: must be a whole number"),
        ({"stride": 0}, "Clip: stride=0"),
        ({"of": "video"}, "of='video': must be 'track'; the faces of a whole video are those of several people"),
        ({"pick": "first"}, "pick='first': must be 'even', 'random', 'all'"),
        ({"pick": "all", "clips_per_video": 3}, "clips_per_video=3: pick='all' takes all"),
        ({"clips_per_video": 0}, "clips_per_video=0: must be at least 1"),
        ({"max_gap_seconds": 0}, "max_gap_seconds=0: must be a finite number above 0"),
        ({"max_gap_seconds": float("nan")}, "max_gap_seconds=nan"),
        ({"max_gap_seconds": 10**400}, "max_gap_seconds=1000"),
        ({"pad": "zeros"}, "pad='zeros': must be True or False"),
    ],
)
def test_settings_that_cannot_hold_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Clip(**{"frames": 8, **settings})
