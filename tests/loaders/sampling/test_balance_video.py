"""What a user notices of `max_per_video`: it holds in every step of every epoch, or is refused with what would."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from assets_random import examples
from assets_rows import RowsOnly, make_small, order_of, rows_seen, stored_rows
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.sampling.balance import Pairs, Quotas
from facefeed.pipeline.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

EVEN = Quotas({"real": 1, "fake": 1})
sizes = st.lists(st.integers(1, 20), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def rows_of(*videos: tuple[int, int], source: str | None = None) -> RowsOnly:
    """Videos as (frames, label); the fakes are all of the first video."""
    rows = [
        {"video_id": f"video {number}", "label": label, "source_id": "video 0" if label else None, "frame_index": frame,
         "track_id": 0}
        for number, (frames, label) in enumerate(videos) for frame in range(frames)
    ]  # fmt: skip
    return RowsOnly({name: [row[name] for row in rows] for name in rows[0]})


def most_in_a_step(rows: RowsOnly, epoch: int, ranks: int = 1, **options: Any) -> int:
    """The most images of one video in any step of an epoch, over all ranks."""
    orders = [order_of(rows, rank=rank, num_replicas=ranks, **options) for rank in range(ranks)]
    most = 0
    for step in range(len(orders[0])):
        counts: Counter[str] = Counter()
        for order in orders:
            counts.update(rows.index._columns["video_id"][row] for row in order.request(epoch, step).rows)
        most = max(most, *counts.values())
    return most


def smallest_accepted(rows: RowsOnly, **options: Any) -> int:
    """The smallest `max_per_video` that is promised to work, by the refusal of a smaller one; 1 if 1 is not refused."""
    try:
        _ = order_of(rows, max_per_video=1, **options).bound_balance
    except UsageError as error:
        return int(str(error).split("one video has so many images")[1].split("try max_per_video=")[1].split(",")[0])
    return 1


@examples(80)
@given(sizes, st.integers(1, 12))
def test_the_refusal_names_the_smallest_that_works_and_it_holds_in_every_epoch(
    frames: list[int], batch_size: int
) -> None:
    rows = rows_of(*((count, 0) for count in frames))
    smallest = smallest_accepted(rows, batch_size=batch_size)
    for epoch in range(4):
        assert most_in_a_step(rows, epoch, batch_size=batch_size, max_per_video=smallest) <= smallest
    if smallest > 1:
        with pytest.raises(
            UsageError, match=f"max_per_video={smallest - 1}: .*try max_per_video={smallest}, or frames_per"
        ):
            _ = order_of(rows, batch_size, max_per_video=smallest - 1).bound_balance
        # No order at all could do better: some step would have to hold fewer of the largest video.
        steps = -(-sum(frames) // batch_size)
        assert smallest >= -(-max(frames) // steps)


@examples(60)
@given(sizes, sizes, st.integers(1, 6))
def test_with_quotas_what_is_promised_holds_in_every_epoch(real: list[int], fake: list[int], half: int) -> None:
    rows = rows_of(*((count, 0) for count in real), *((count, 1) for count in fake))
    options: dict[str, Any] = {"batch_size": 2 * half, "balance": EVEN}
    smallest = smallest_accepted(rows, **options)
    for epoch in range(6):
        assert most_in_a_step(rows, epoch, max_per_video=smallest, **options) <= smallest


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=8), st.integers(1, 6))
def test_with_quotas_it_holds_for_videos_that_have_frames_of_both_labels(
    videos: list[tuple[int, int]], half: int
) -> None:
    frames = [(name, label) for name, counts in enumerate([(1, 1), *videos]) for label in (0, 1)
              for _ in range(counts[label])]  # fmt: skip
    rows = RowsOnly({"video_id": [f"video {name}" for name, _ in frames], "label": [label for _, label in frames]})
    options: dict[str, Any] = {"batch_size": 2 * half, "balance": EVEN}
    smallest = smallest_accepted(rows, **options)
    assert smallest >= 2  # a step may have the real and the fake frame of the first video
    for epoch in range(4):
        assert most_in_a_step(rows, epoch, max_per_video=smallest, **options) <= smallest


def test_a_stream_that_runs_over_the_ends_of_epochs_is_thought_of() -> None:
    # Each epoch draws 15 of 16 real rows: at times both of a video twice, four in three batches.
    rows = rows_of(*((2, 0) for _ in range(8)), *((1, 1) for _ in range(14)))
    options: dict[str, Any] = {"batch_size": 10, "balance": EVEN}
    assert smallest_accepted(rows, **options) == 2
    most = [most_in_a_step(rows, epoch, max_per_video=2, **options) for epoch in range(30)]
    assert set(most) == {1, 2}


@examples(40)
@given(st.integers(1, 15), st.lists(st.integers(1, 10), min_size=1, max_size=4), st.integers(1, 6))
def test_with_pairs_it_counts_the_real_videos_which_their_fakes_cannot_exceed(
    frames: int, fakes: list[int], half: int
) -> None:
    rows = rows_of((frames, 0), *((count, 1) for count in fakes))
    options: dict[str, Any] = {"batch_size": 2 * half, "balance": Pairs()}
    smallest = smallest_accepted(rows, **options)
    assert smallest == min(half, sum(fakes))  # all fakes are of one video
    assert most_in_a_step(rows, 0, max_per_video=smallest, **options) <= smallest


def test_it_holds_over_all_ranks_of_a_step_together() -> None:
    rows = rows_of(*((5, 0) for _ in range(40)))
    for ranks, batch_size in ((1, 32), (2, 16), (4, 8)):
        for epoch in range(3):
            assert most_in_a_step(rows, epoch, ranks, batch_size=batch_size, max_per_video=1) == 1


@examples(200)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(1, 2), st.integers(2, 5), st.booleans())
def test_it_holds_in_a_last_step_that_is_filled_up_with_repeated_rows(
    frames: list[int], half: int, ranks: int, are_pairs: bool
) -> None:
    options: dict[str, Any] = {"batch_size": half}
    rows = rows_of(*((count, 0) for count in frames))
    if are_pairs:
        columns = rows.index._columns
        fakes = {"video_id": [f"fake {name}" for name in columns["video_id"]], "source_id": columns["video_id"],
                 "label": [1] * len(rows)}  # fmt: skip
        rows = RowsOnly({name: [*values, *fakes.get(name, values)] for name, values in columns.items()})
        options = {"batch_size": 2 * half, "balance": Pairs()}
    smallest = smallest_accepted(rows, num_replicas=ranks, rank=0, **options)
    order = order_of(rows, num_replicas=ranks, rank=0, max_per_video=smallest, **options)
    if order.num_images < ranks * order.bound_balance.unit_size:
        return  # every row comes, and some twice
    for epoch in range(4):
        assert most_in_a_step(rows, epoch, ranks, max_per_video=smallest, **options) <= smallest


def test_a_step_that_no_row_can_fill_up_within_it_repeats_the_first_ones() -> None:
    parts = [order_of(rows_of((1, 0)), 1, max_per_video=1, rank=rank, num_replicas=3) for rank in range(3)]
    assert [part.request(0, 0).rows.tolist() for part in parts] == [[0]] * 3
    assert parts[0].padded_images == 2


def test_every_row_still_comes_once_and_in_another_order_each_epoch() -> None:
    rows = rows_of((30, 0), (20, 0), (50, 0))
    order = order_of(rows, 10, max_per_video=5)
    first, second = order.rows(0).tolist(), order.rows(1).tolist()
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


@examples(30)
@given(st.lists(st.integers(1, 150), min_size=1, max_size=20), st.integers(1, 20), st.integers(128, 400), st.booleans())
def test_with_windows_what_is_promised_holds_in_every_epoch(
    frames: list[int], half: int, window: int, are_pairs: bool
) -> None:
    rows = rows_of((max(frames), 0), *((count, int(are_pairs)) for count in frames))
    options: dict[str, Any] = {"batch_size": 2 * half, "shuffle": "window", "window_images": window}
    options |= {"balance": Pairs()} if are_pairs else {}
    smallest = smallest_accepted(rows, **options)
    for epoch in range(4):
        assert most_in_a_step(rows, epoch, max_per_video=smallest, **options) <= smallest
    if smallest > 1:
        with pytest.raises(UsageError, match=f"max_per_video={smallest - 1}: .*try max_per_video={smallest}, "):
            _ = order_of(rows, max_per_video=smallest - 1, **options).bound_balance


def test_with_windows_it_holds_in_every_epoch_however_many_images_are_left_for_the_last_one() -> None:
    for left in (1, 8, 20, 40):
        rows = rows_of(*((40, 0) for _ in range(64)), (left, 0))
        options: dict[str, Any] = {"batch_size": 16, "shuffle": "window", "window_images": 512, "max_per_video": 3}
        assert max(most_in_a_step(rows, epoch, **options) for epoch in range(20)) <= 3


def test_an_epoch_with_windows_that_cannot_surely_keep_it_is_refused_at_once_and_larger_windows_are_named() -> None:
    rows = rows_of(*((100, 0) for _ in range(100)))
    options: dict[str, Any] = {"batch_size": 16, "shuffle": "window", "max_per_video": 2}
    with pytest.raises(UsageError, match="try max_per_video=4, frames_per_video, or a larger window_images"):
        _ = order_of(rows, window_images=500, **options).bound_balance
    _ = order_of(rows, window_images=1000, **options).bound_balance


def test_a_state_of_windows_of_which_the_last_one_had_what_the_others_left_is_refused() -> None:
    options: dict[str, Any] = {"shuffle": "window", "window_images": 512}
    order = order_of(rows_of((40, 0)), max_per_video=8, **options)
    order.resume(state := order.state())
    older = {**state, "order": "Shuffling(mode='window', window_images=512) Natural() max_per_video=8 drop_last=False"}
    with pytest.raises(UsageError, match=r"the state has order=.* or start the epoch anew"):
        order.resume(older)
    unlimited = order_of(rows_of((40, 0)), **options)
    unlimited.resume({**older, "order": older["order"].replace("=8", "=None")})


def test_with_windows_it_holds_in_every_step_or_is_refused_with_what_would() -> None:
    rows = rows_of(*((10, 0) for _ in range(256)))
    order = order_of(rows, 64, "window", window_images=1000, max_per_video=2)
    assert most_in_a_step(rows, 0, batch_size=64, shuffle="window", window_images=1000, max_per_video=2) <= 2
    assert [len(window) for window in order.windows(0)] == [832, 832, 896]  # of whole batches, so no step is in two
    for window in order.windows(0):
        runs = 1 + sum(
            after - before != 1 for before, after in zip(sorted(window)[:-1], sorted(window)[1:], strict=True)
        )
        assert runs <= 960 // 128 + 2
    with pytest.raises(UsageError, match=r"max_per_video=1: .*try max_per_video=\d+"):
        _ = order_of(rows_of((2560, 0)), 64, "window", window_images=1000, max_per_video=1).bound_balance


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ({}, ((2, 0), (30, 0), (2, 1))),
        ({"balance": EVEN}, ((8, 0), (8, 0), (12, 1), (2, 1), (2, 1))),
        ({"balance": Pairs()}, ((9, 0), (9, 1))),
        ({"shuffle": "window", "window_images": 128}, ((2, 0), (600, 0), (2, 1))),
    ],
    ids=["rows", "quotas", "pairs", "window"],
)
def test_the_video_that_has_too_many_images_is_named(options: Any, frames: Any) -> None:
    largest = max(range(len(frames)), key=lambda number: frames[number][0])
    with pytest.raises(UsageError, match=f"may have to hold . of them, video {largest}; try max_per_video="):
        order_of(rows_of(*frames), 8, max_per_video=1, **options).rows(0)


def test_a_window_smaller_than_a_step_is_made_a_step_long() -> None:
    rows = rows_of(*((4, 0) for _ in range(300)))
    order = order_of(rows, 100, "window", window_images=150, max_per_video=100)
    assert [len(window) for window in order.windows(0)] == [200] * 6
    assert sorted(order.rows(0).tolist()) == list(range(1200))


@pytest.mark.parametrize(("limit", "shuffle"), [(0, True), (-1, True), (2, False)])
def test_a_bound_that_cannot_be_meant_is_refused(limit: int, shuffle: bool) -> None:
    with pytest.raises(
        UsageError, match=f"max_per_video={limit}: {'needs shuffle' if limit > 0 else 'must be at least 1'}"
    ):
        order_of(10, 4, shuffle, max_per_video=limit)


def test_the_loader_refuses_when_it_is_made_and_else_keeps_its_word(dataset: Path) -> None:
    with pytest.raises(UsageError, match=r"max_per_video=2: .*try max_per_video=3"):
        FaceDataLoader(dataset, batch_size=8, max_per_video=2, num_workers=0)
    loader = FaceDataLoader(
        dataset, batch_size=8, max_per_video=3, image_size=8, fields=("image", "row", "video_id"), num_workers=0
    )
    batches = list(loader)
    assert max(max(Counter(batch["video_id"]).values()) for batch in batches) == 3
    assert sorted(rows_seen(batches)) == [
        number for number, row in enumerate(stored_rows(dataset)) if row["split"] == "train"
    ]
    assert "at most 3 of one video in a step" in loader.describe().order
