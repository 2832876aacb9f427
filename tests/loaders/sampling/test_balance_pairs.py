"""What a user notices of `Pairs`: each fake beside its own source, at the frame that is nearest."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from assets_dataset import Clip, make_dataset
from assets_random import examples
from assets_rows import RowsOnly, batches_of, make_small, order_of, stored_rows
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.sampling.balance import Pairs
from facefeed.pipeline.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

FIELDS = ("image", "label", "video_id", "source_id", "frame_index", "row")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def video(name: str, frames: list[int], source: str | None = None, track: int = 0) -> list[dict[str, Any]]:
    label = int(source is not None)
    return [
        {"video_id": name, "source_id": source, "frame_index": frame, "track_id": track, "label": label}
        for frame in frames
    ]


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


def test_of_two_people_in_a_frame_the_one_of_the_same_number_is_taken() -> None:
    two_people = [*video("a", [4, 8]), *video("a", [4, 8], track=1)]
    rows = rows_of(
        two_people, video("x", [4, 7, 9], "a"), video("y", [4, 7, 9], "a", track=1), video("z", [5], "a", track=2)
    )
    partner = {fake: real for real, fake in pairs_of(rows)}
    assert [partner[fake] for fake in range(4, 10)] == [0, 1, 1, 2, 3, 3]
    assert partner[10] in (0, 2)  # nobody has its number: whoever is in the nearest frame


def test_a_person_of_another_number_in_the_same_frame_is_nearer_than_the_same_one_long_before() -> None:
    rows = rows_of(video("a", [0]), video("a", [9], track=1), video("x", [9], "a"))
    assert pairs_of(rows) == [(1, 2)]


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
