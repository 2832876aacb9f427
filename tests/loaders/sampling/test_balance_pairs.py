"""What a user notices of `Pairs`: each fake beside its own source, at the frame that is nearest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_dataset import Clip, make_dataset
from assets_random import examples
from assets_rows import RowsOnly, batches_of, make_small, order_of, stored_rows
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.sampling.balance import Pairs
from facefeed.pipeline.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

LEFT, RIGHT, LEFT_TOO = (10, 10, 30, 40), (60, 10, 80, 40), (14, 10, 34, 40)  # the last overlaps the first
FIELDS = ("image", "label", "video_id", "source_id", "frame_index", "row")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def video(
    name: str, frames: list[int], source: str | None = None, *, track: int = 0, box: tuple[int, ...] = LEFT,
    frame_side: int = 100,
) -> list[dict[str, Any]]:  # fmt: skip
    """Rows of one person of a video, whose face is at one place, `box` of a frame of `frame_side` px."""
    label = int(source is not None)
    size = {"frame_width": frame_side, "frame_height": frame_side}
    return [
        {"video_id": name, "source_id": source, "frame_index": frame, "track_id": track, "label": label,
         "box_xyxy": box, **size} for frame in frames
    ]  # fmt: skip


def rows_of(*videos: list[dict[str, Any]]) -> RowsOnly:
    rows = [row for clip in videos for row in clip]
    return RowsOnly({name: [row[name] for row in rows] for name in rows[0]})


def pairs_of(rows: RowsOnly, **options: Any) -> list[tuple[int, int]]:
    """(row of the real, row of the fake) in the order of an epoch."""
    epoch_rows = order_of(rows, 2, balance=Pairs(), **options).rows(0).tolist()
    return list(zip(epoch_rows[::2], epoch_rows[1::2], strict=True))


frames = st.lists(st.integers(0, 30), max_size=12)


@examples(200)
@given(st.tuples(frames, frames), st.lists(st.tuples(st.sampled_from(["a", "b", "gone"]), frames), max_size=5))
def test_each_fake_follows_the_nearest_frame_of_its_source(
    reals: tuple[list[int], list[int]], fakes: list[tuple[str, list[int]]]
) -> None:
    real = {name: frame_list for name, frame_list in zip("ab", reals, strict=True) if frame_list}
    expected = [(source, frame) for source, frame_list in fakes for frame in frame_list if source in real]
    videos = [video(name, frame_list) for name, frame_list in real.items()]
    videos += [video(f"fake {number}", frame_list, source) for number, (source, frame_list) in enumerate(fakes)]
    if not expected:
        with pytest.raises(UsageError, match="Pairs: no fake of these rows has rows of its source"):
            pairs_of(rows_of(*videos, video("c", [1])))
        return
    rows = rows_of(*videos)
    columns = rows.index._columns
    counts = Counter()
    for real_row, fake_row in pairs_of(rows):
        source, frame = columns["source_id"][fake_row], columns["frame_index"][fake_row]
        assert columns["video_id"][real_row] == source
        distance = abs(columns["frame_index"][real_row] - frame)
        assert distance == min(abs(candidate - frame) for candidate in real[source])
        counts[source, frame] += 1
    assert counts == Counter(expected)


def test_of_two_frames_as_near_the_earlier_one_is_taken() -> None:
    rows = rows_of(video("a", [4, 8]), video("x", [6], "a"))
    assert pairs_of(rows) == [(0, 2)]


def at_rate(rows: list[dict[str, Any]], frames_per_second: float, start_seconds: float = 0.0) -> list[dict[str, Any]]:
    return [{**row, "pts_seconds": start_seconds + row["frame_index"] / frames_per_second} for row in rows]


def test_a_fake_at_another_frame_rate_follows_the_frame_of_its_time() -> None:
    real, fake = video("a", [*range(0, 50, 5)]), video("x", [*range(0, 25, 5)], "a")
    rows = rows_of(at_rate(real, 25), at_rate(fake, 12), at_rate(video("y", [3, 45], "a"), 25))
    partner = {fake: real for real, fake in pairs_of(rows)}
    assert [partner[fake] for fake in range(10, 15)] == [0, 2, 4, 6, 8], "5 / 12 s is frame 10 of 25 a second"
    assert [partner[fake] for fake in (15, 16)] == [1, 9]


def test_a_fake_at_another_frame_rate_follows_the_frame_of_its_time_whatever_filters_leave_out() -> None:
    rows = rows_of(at_rate(video("a", [*range(0, 50, 5)]), 25), at_rate(video("x", [*range(25)], "a"), 12))
    rows.selection, reals = np.setdiff1d(rows.selection, range(5, 10)), [*range(5)]
    seconds, pairs = rows.index._columns["pts_seconds"], pairs_of(rows)
    assert len(pairs) == 25
    for real, fake in pairs:
        assert abs(seconds[real] - seconds[fake]) == min(abs(seconds[row] - seconds[fake]) for row in reals)


@pytest.mark.parametrize("length", [4, 60], ids="of {} s".format)
@pytest.mark.parametrize("first", [0, 7], ids="face from frame {}".format)
@pytest.mark.parametrize(("start", "fake_start"), [(1.5, 0.0), (0.0, 0.08), (-0.04, 2.0)])
def test_times_of_a_fake_at_another_frame_rate_count_from_the_first_frame_of_each_video(
    length: int, first: int, start: float, fake_start: float
) -> None:
    real = at_rate(video("a", [*range(first, 30 * length)]), 30, start)
    fake = at_rate(video("x", [*range(first, 25 * length, 5)], "a"), 25, fake_start)
    rows = rows_of(real, fake)
    columns = rows.index._columns
    pairs = [(columns["frame_index"][real], columns["frame_index"][fake]) for real, fake in pairs_of(rows)]
    assert len(pairs) == len(fake)
    assert all(abs(real / 30 - fake / 25) <= 1 / 60 + 1e-6 for real, fake in pairs)


def test_a_video_of_variable_frame_rate_without_its_first_frame_keeps_its_times() -> None:
    seconds = [*np.arange(20.0), *(20 + 0.05 * np.arange(400))]
    real = [{**row, "pts_seconds": seconds[row["frame_index"]]} for row in video("a", [*range(10, 420)])]
    rows = rows_of(real, at_rate(video("x", [*range(0, 1000, 50)], "a"), 25))
    columns = rows.index._columns
    pairs = [(columns["pts_seconds"][real], columns["pts_seconds"][fake]) for real, fake in pairs_of(rows)]
    assert [real for real, fake in pairs if fake >= 10] == [fake for _, fake in pairs if fake >= 10]


@pytest.mark.parametrize(("frames", "rate"), [(50, 30.0), (50, 24.975), (25, 25.0), (45, 25.0)])
def test_the_same_frames_written_at_another_rate_and_a_cut_fake_go_by_frame_index(frames: int, rate: float) -> None:
    rows = rows_of(at_rate(video("a", [*range(0, 50, 5)]), 25), at_rate(video("x", [*range(0, frames, 5)], "a"), rate))
    assert sorted(pairs_of(rows)) == [(number, 10 + number) for number in range(frames // 5)]


def test_of_two_people_in_a_frame_the_one_at_the_place_of_the_fake_is_taken_whatever_their_numbers() -> None:
    two_people = [*video("a", [4, 8]), *video("a", [4, 8], track=1, box=RIGHT)]
    rows = rows_of(
        two_people, video("x", [4, 7, 9], "a", track=1), video("y", [4, 7, 9], "a", box=RIGHT),
    )  # fmt: skip
    partner = {fake: real for real, fake in pairs_of(rows)}
    assert [partner[fake] for fake in range(4, 10)] == [0, 1, 1, 2, 3, 3]


def test_of_two_faces_that_overlap_the_fake_the_one_that_overlaps_more_is_taken() -> None:
    rows = rows_of(
        video("a", [4], box=LEFT_TOO), video("a", [4], track=1), video("a", [6], track=1),
        video("x", [4, 5], "a"), video("y", [5], "a", box=LEFT_TOO),
    )  # fmt: skip
    assert sorted(pairs_of(rows)) == [(0, 5), (1, 3), (1, 4)]  # of two frames as near, the earlier one


def test_a_fake_of_another_resolution_is_at_the_place_that_its_frame_shows() -> None:
    people = [*video("a", [0]), *video("a", [0], track=1, box=RIGHT)]
    small = tuple(side // 2 for side in RIGHT)  # in px it overlaps the person on the left
    assert pairs_of(rows_of(people, video("x", [0], "a", box=small, frame_side=50))) == [(1, 2)]


def test_another_person_in_the_same_frame_is_no_partner_and_the_same_one_long_before_is() -> None:
    rows = rows_of(video("a", [0]), video("a", [9], box=RIGHT), video("x", [9], "a"))
    assert pairs_of(rows) == [(0, 2)]


def test_fakes_of_people_who_are_not_in_their_source_are_left_out_and_counted() -> None:
    rows = rows_of(video("a", [0, 9]), video("x", [9], "a"), video("y", [0, 9], "a", box=RIGHT))
    assert pairs_of(rows) == [(1, 2)]
    notes = order_of(rows, 2, balance=Pairs()).bound_balance.notes
    assert notes == ["2 fakes whose source has no face at their place in the frame"]
    with pytest.raises(UsageError, match=r"Pairs: no fake of these rows.* 1 have, but no face at their place"):
        pairs_of(rows_of(video("a", [0]), video("y", [0], "a", box=RIGHT)))


def test_a_row_whose_source_is_labelled_fake_is_no_fake_of_it() -> None:
    swapped = [{**row, "label": 1} for row in video("b", [0, 1])], [{**row, "label": 0} for row in video("y", [0], "b")]
    rows = rows_of(video("a", [0]), *swapped, video("x", [0], "a"))
    assert pairs_of(rows) == [(0, 4)]
    assert order_of(rows, 2, balance=Pairs()).bound_balance.notes == ["1 rows whose source is not labelled real"]
    with pytest.raises(UsageError, match="1 rows have a source that is not labelled real"):
        pairs_of(rows_of(*swapped))


def test_where_no_class_is_called_real_rows_of_two_labels_are_pairs_and_it_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = rows_of(video("a", [0]), video("x", [0], "a"))
    assert pairs_of(rows) == [(0, 1)]
    assert caplog.records == []
    rows.index.labels = ("calm", "sad")  # type: ignore[misc]
    assert pairs_of(rows) == [(0, 1)]
    (note,) = order_of(rows, 2, balance=Pairs()).bound_balance.notes
    assert note.startswith("no class is known to be real (calm, sad): ")
    assert note in caplog.text


def test_a_state_of_pairs_by_track_number_is_refused(dataset: Path) -> None:
    for out in (dataset, [dataset]):
        loader = FaceDataLoader(out, balance=Pairs(), image_size=8, batch_size=8, num_workers=0)
        state = loader.state_dict()
        loader.load_state_dict(state)
        assert " by place in the frame" in state["order"]
        state["order"] = state["order"].replace(" by place in the frame", "")
        with pytest.raises(UsageError, match="start the epoch anew"):
            loader.load_state_dict(state)


def test_a_crowd_at_other_places_does_not_hide_the_face() -> None:
    people = [(left, top) for top in (50, 70) for left in range(60)]
    crowd = [row for left, top in people for row in video("a", [5], box=(left, top, left + 1, top + 9))]
    rows = rows_of(crowd, video("a", [5]), video("x", [5], "a"))
    assert pairs_of(rows) == [(len(crowd), len(crowd) + 1)], "the last of 121 people in the frame"
    rows = rows_of(crowd[::6], video("a", [4]), video("x", [5], "a"))
    assert pairs_of(rows) == [(20, 21)], "in the frame before, and 20 others in this one"


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), min_size=1, max_size=20),
       st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), min_size=1, max_size=20))  # fmt: skip
def test_pairs_are_those_of_a_search_through_all_faces(
    reals: list[tuple[int, int]], fakes: list[tuple[int, int]]
) -> None:
    def box(left: int) -> tuple[int, ...]:
        return (left, 10, left + 20, 40)

    def shared(one: int, other: int) -> float:
        overlap = max(0, 20 - abs(one - other))
        return overlap / (40 - overlap)

    rows = rows_of(*(video("a", [frame], box=box(left)) for frame, left in reals),
                   *(video("x", [frame], "a", box=box(left)) for frame, left in fakes))  # fmt: skip
    expected = {}
    for number, (frame, left) in enumerate(fakes):
        ranked = [
            (abs(real_frame - frame), -shared(left, real_left), real_frame)
            for real_frame, real_left in reals if shared(left, real_left) > 0.1
        ]  # fmt: skip
        if ranked:
            expected[len(reals) + number] = min(ranked)
    if not expected:
        with pytest.raises(UsageError, match="no face at their place"):
            pairs_of(rows)
        return
    found = {}
    for real, fake in pairs_of(rows):
        (real_frame, real_left), (frame, left) = reals[real], fakes[fake - len(reals)]
        found[fake] = (abs(real_frame - frame), -shared(left, real_left), real_frame)
    assert found == expected


def numbered(rows: list[dict[str, Any]], numbers: list[int]) -> list[dict[str, Any]]:
    """The rows of a folder of frames whose names end in `numbers`; -1: in none."""
    return [{**row, "frame_number": number} for row, number in zip(rows, numbers, strict=True)]


@pytest.mark.parametrize("first", [0, 1_700_000_000_000_000_000], ids=["small", "time stamps"])
def test_two_folders_of_frames_are_paired_by_the_numbers_in_their_names(first: int) -> None:
    real = numbered(video("a", [0, 1, 2, 3]), [first + number for number in (0, 30, 60, 120)])
    fake = numbered(video("x", [0, 1, 2], "a"), [first + number for number in (30, 100, 130)])
    assert pairs_of(rows_of(real, fake), shuffle=False) == [(1, 4), (3, 5), (3, 6)]


@pytest.mark.parametrize("real_numbers", [[7, 8], [-1, -1]], ids=["folder", "video"])
@pytest.mark.parametrize("fake_numbers", [[8, 9], [-1, -1]], ids=["folder", "video"])
def test_only_two_folders_of_frames_have_numbers_that_mean_the_same(
    real_numbers: list[int], fake_numbers: list[int]
) -> None:
    rows = rows_of(
        numbered(video("a", [0, 1]), real_numbers), numbered(video("x", [0, 1], "a"), fake_numbers),
        numbered(video("y", [0, 1], "a"), [-1, -1]),
    )  # fmt: skip
    partners = [1, 1] if min(*real_numbers, *fake_numbers) >= 0 else [0, 1]
    assert pairs_of(rows, shuffle=False) == [(partners[0], 2), (partners[1], 3), (0, 4), (1, 5)]


@examples(30)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 5), st.sampled_from(["full", "window", False]))
def test_every_batch_of_every_rank_is_real_fake_real_fake(fakes: int, half: int, ranks: int, shuffle: Any) -> None:
    rows = rows_of(video("a", list(range(7))), video("x", list(range(fakes)), "a"))
    counts: Counter[int] = Counter()
    for rank in range(ranks):
        order = order_of(rows, 2 * half, shuffle, window_images=128, balance=Pairs(), rank=rank, num_replicas=ranks)
        for batch in batches_of(order):
            assert [rows.index._columns["label"][row] for row in batch] == [0, 1] * (len(batch) // 2)
            counts.update(batch[1::2])
    repeated = order.padded_images // 2
    assert sum(counts.values()) == fakes + repeated
    assert set(counts) == set(range(7, 7 + fakes))


def test_a_window_of_pairs_holds_as_many_images_as_was_requested() -> None:
    rows = rows_of(video("a", list(range(1024))), video("x", list(range(1024)), "a"))
    order = order_of(rows, 16, "window", window_images=512, balance=Pairs())
    for window in order.windows(0):
        assert len(window) == 512
        blocks = {(row % 1024) // 128 for row in window.tolist()}
        assert len(blocks) == 2


def test_fakes_without_rows_of_their_source_are_left_out_and_counted(tmp_path: Path) -> None:
    clips = (Clip("real/anna.mp4", 4), Clip("fake/anna-swap.mp4", 3), Clip("fake/nobody-swap.mp4", 5))
    make_dataset(tmp_path / "out", (("train", clips),))
    loader = FaceDataLoader(tmp_path / "out", balance=Pairs(), image_size=8, batch_size=4, fields=FIELDS, num_workers=0)
    assert loader.describe().notes == ("5 fakes without rows of their source",)
    assert "5 fakes without rows of their source" in str(loader.describe())
    assert {name for batch in loader for name in batch["video_id"]} == {"real/anna.mp4", "fake/anna-swap.mp4"}


def test_rows_of_unknown_label_are_no_real_and_no_fake_and_are_counted() -> None:
    def unknown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "label": -1} for row in rows]

    rows = rows_of(
        video("a", [0, 1]), unknown(video("b", [0, 1])),
        video("x", [1], "a"), unknown(video("y", [0], "a")), video("z", [0, 1, 5], "b"), video("w", [0], "gone"),
    )  # fmt: skip
    assert pairs_of(rows) == [(1, 4)]
    assert order_of(rows, 2, balance=Pairs()).bound_balance.notes == [
        "1 fakes without rows of their source",
        "4 rows of unknown label, or whose source's is",
    ]
    rows = rows_of(video("a", [0]), unknown(video("y", [0], "a")))
    with pytest.raises(
        UsageError, match=r"no fake of these rows has rows of its source.* 1 rows have an unknown label"
    ):
        pairs_of(rows)


def test_a_loader_of_pairs_hands_out_each_fake_once_after_its_source(dataset: Path) -> None:
    filters = [[("label", "==", 1)], [("frame_index", "in", [0, 5, 9])]]
    loader = FaceDataLoader(
        dataset, balance=Pairs(), image_size=8, batch_size=16, fields=FIELDS, filters=filters, num_workers=0
    )
    assert loader.describe().notes == ()
    stored = stored_rows(dataset)
    fakes = Counter()
    for batch in loader:
        assert batch["label"].tolist() == [0, 1] * (len(batch["label"]) // 2)
        for real, fake in zip(batch["row"][::2].tolist(), batch["row"][1::2].tolist(), strict=True):
            assert stored[real]["video_id"] == stored[fake]["source_id"]
            frame = stored[fake]["frame_index"]
            assert stored[real]["frame_index"] == min((0, 5, 9), key=lambda candidate: abs(candidate - frame))
            fakes[fake] += 1
    assert set(fakes.values()) == {1}
    assert len(fakes) == 25 + 30


def test_pairs_of_rows_without_any_fake_are_refused(dataset: Path) -> None:
    with pytest.raises(UsageError, match="Pairs: no fake of these rows has rows of its source"):
        FaceDataLoader(dataset, balance=Pairs(), filters=[("label", "==", 0)], num_workers=0)
