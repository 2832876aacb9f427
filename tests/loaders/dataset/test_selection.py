"""What a user notices of selection: the rows they asked for, as pyarrow finds them; and names, where a wish fails."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import assets_dataset
import numpy as np
import pyarrow.compute as pc
import pytest
from assets_dataset import NO_ROWS, Clip, make_dataset
from assets_random import examples
from assets_rows import ROWS, ColumnsOnly, make_small, rows_seen, stored_rows
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.dataset.selection import select_rows
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


@pytest.fixture(scope="module")
def stored(dataset: Path) -> list[dict[str, Any]]:
    return stored_rows(dataset)


def rows_where(stored: list[dict[str, Any]], matches: Callable[[dict[str, Any]], bool]) -> list[int]:
    return [number for number, row in enumerate(stored) if matches(row)]


@pytest.mark.parametrize("split", ["train", "val", "test", None])
def test_a_split_is_its_rows_and_none_is_all(dataset: Path, stored: list[dict[str, Any]], split: str | None) -> None:
    faces = FaceDataset(dataset, split=split)
    assert faces.rows.tolist() == rows_where(stored, lambda row: split in (None, row["split"]))
    assert len(faces) == (ROWS[split] if split else sum(ROWS.values()))


FILTERS: dict[str, tuple[Any, Callable[[dict[str, Any]], bool]]] = {
    "number": ([("frame_index", ">=", 20)], lambda row: row["frame_index"] >= 20),
    "label": ([("label", "==", 1)], lambda row: row["label"] == 1),
    "text": ([("method", "==", "swap")], lambda row: row["method"] == "swap"),
    "not text": ([("video_id", "!=", "real/anna.mp4")], lambda row: row["video_id"] != "real/anna.mp4"),
    "one of texts": ([("method", "in", ["swap", "talk"])], lambda row: row["method"] in ("swap", "talk")),
    "one of a set": ([("video_id", "in", {"real/anna.mp4"})], lambda row: row["video_id"] == "real/anna.mp4"),
    "none of texts": ([("identity", "not in", ["person of anna"])], lambda row: row["identity"] != "person of anna"),
    "both": ([("label", "=", 1), ("frame_index", "<", 3)], lambda row: row["label"] == 1 and row["frame_index"] < 3),
    "either": (
        [[("method", "=", "talk")], [("frame_index", "=", 0), ("label", "=", 0)]],
        lambda row: row["method"] == "talk" or (row["frame_index"] == 0 and row["label"] == 0),
    ),
    "size": ([("height", ">=", 32), ("image_bytes", ">", 0)], lambda row: row["height"] >= 32),
    "score": (pc.field("score") > 0.5, lambda row: row["score"] > 0.5),
    "sharpness": (pc.field("sharpness") < 200.0, lambda row: row["sharpness"] < 200.0),
    "expression": (
        (pc.field("label") == 0) | (pc.field("frame_index") > 7),
        lambda row: row["label"] == 0 or row["frame_index"] > 7,
    ),
    "expression of text": (pc.field("method") == "talk", lambda row: row["method"] == "talk"),
    "expression of texts": (pc.field("method").isin(["talk"]), lambda row: row["method"] == "talk"),
    "start of text": (pc.starts_with(pc.field("face_id"), "fake/"), lambda row: row["face_id"].startswith("fake/")),
    "start of a text that repeats": (
        pc.starts_with(pc.field("video_id"), "fake/") & (pc.utf8_length(pc.field("method")) > 3),
        lambda row: row["video_id"].startswith("fake/") and row["method"] is not None,
    ),
    "null": (pc.field("method").is_null(), lambda row: row["method"] is None),
    "no null": (pc.field("source_id").is_valid(), lambda row: row["source_id"] is not None),
    "not": (~(pc.field("label") == 1), lambda row: row["label"] != 1),
    "nobody": ([("score", ">", 2)], lambda row: False),
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_keeps_the_rows_that_it_names(dataset: Path, stored: list[dict[str, Any]], name: str) -> None:
    filters, matches = FILTERS[name]
    rows = FaceDataset(dataset, split=None, filters=filters).rows.tolist()
    assert rows == rows_where(stored, matches)
    assert name == "nobody" or rows
    in_train = FaceDataset(dataset, filters=filters).rows.tolist()
    assert in_train == rows_where(stored, lambda row: matches(row) and row["split"] == "train")


def test_a_comparison_with_null_keeps_no_row(dataset: Path, stored: list[dict[str, Any]]) -> None:
    rows = FaceDataset(dataset, split=None, filters=[("method", "!=", "swap")]).rows.tolist()
    # As pyarrow: a null is neither equal nor unequal.
    assert rows == rows_where(stored, lambda row: row["method"] == "talk")
    rows = FaceDataset(dataset, split=None, filters=[("manipulated", "<", 2)]).rows.tolist()
    assert rows == rows_where(stored, lambda row: row["manipulated"] is not None)
    assert {stored[row]["label"] for row in rows} == {1}


@pytest.mark.parametrize(
    ("filters", "column"),
    [
        ([("method", "!=", "swap")], "method"),
        (~(pc.field("method") == "swap"), "method"),
        ([("manipulated", ">", 0.01), ("score", ">", 0.5)], "manipulated"),
        ([[("label", "==", 1)], [("source_id", "!=", "real/anna.mp4")]], "source_id"),
        ([[("method", "==", "swap")], [("manipulated", ">", 0.01)]], "manipulated"),
    ],
    ids=str,
)
def test_a_filter_that_removes_a_class_by_a_column_that_is_null_in_it_says_so(
    dataset: Path, filters: Any, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    faces = FaceDataset(dataset, filters=filters)
    assert {faces.info(position)["label"] for position in range(len(faces))} == {1}
    assert len(pickle.loads(pickle.dumps(faces)).rows) == len(faces)
    (message,) = [record.getMessage() for record in caplog.records]  # none by a worker, which selects the rows anew
    assert f"leaves out all faces of label 'real', 52 of them since {column} is null there" in message
    kept = FaceDataset(dataset, filters=pc.field(column).is_null() | (pc.field("label") == 1))
    assert len(kept) == ROWS["train"]


@pytest.mark.parametrize(
    "filters",
    [
        [("method", "==", "swap"), ("score", ">", 0.5)],
        [("method", "==", "swap"), ("manipulated", ">", 0.01)],
        (pc.scalar("swap") == pc.field("method")) & (pc.field("manipulated") > 0.01),
        [("method", "in", ["swap"])],
        [("method", "not in", ["swap"])],
        [("label", "==", 1), ("method", "!=", "swap")],
        [("frame_index", ">=", 5)],
        [("score", ">", 2)],
        pc.field("method").is_null() | (pc.field("method") != "swap"),
    ],
    ids=str,
)
def test_a_filter_that_names_what_is_wanted_is_not_commented_on(
    dataset: Path, filters: Any, caplog: pytest.LogCaptureFixture
) -> None:
    FaceDataset(dataset, filters=filters)
    assert caplog.records == []


def test_faces_of_fakes_that_nobody_changed_can_be_left_out(dataset: Path, stored: list[dict[str, Any]]) -> None:
    smallest = min(row["manipulated"] for row in stored if row["manipulated"] is not None)
    share = pc.field("manipulated")
    rows = FaceDataset(dataset, split=None, filters=share.is_null() | (share > smallest)).rows.tolist()
    assert rows == rows_where(stored, lambda row: row["manipulated"] is None or row["manipulated"] > smallest)
    assert len(rows) < len(stored)
    assert {stored[row]["label"] for row in rows} == {0, 1}


def test_a_loader_of_no_rows_has_no_batches(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, filters=[("score", ">", 2)], num_workers=0)
    assert (len(loader), list(loader)) == (0, [])
    assert loader.describe().rows == 0


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([("nonsense", ">", 1)], "the columns are face_id, video_id"),
        (pc.field("nonsense") > 1, "nonsense.*the columns are face_id, video_id"),
        ([("score", "?", 1)], 'try .*"score", ">"'),
        ([("score", ">")], r"must be a list of \(column, operator, value\), such as"),
        ([], r"must be a list of \(column, operator, value\), such as"),
        ("score > 1", r"must be a list of \(column, operator, value\), such as"),
        ([{"label": 1}], r"must be a list of \(column, operator, value\), such as"),
        (3, r"must be a list of \(column, operator, value\), such as"),
        ({"score": 0.9}, r"must be a list of \(column, operator, value\), such as"),
        ([("score", ">", "high")], "the columns are face_id, video_id"),
        ([("method", ">", 3)], "the columns are face_id, video_id"),
        ([("method", "not in", "swap")], r"method not in 'swap': must be a list; try \['swap'\]"),
        ([[("label", "==", 0)], [("method", "in", b"swap")]], r"method in b'swap': must be a list; try \[b'swap'\]"),
        (pc.field("label"), "must be true or false for each row; .*the columns are face_id, video_id"),
        (pc.field("score") + 1, "the columns are face_id, video_id"),
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_meant_is_refused_with_what_there_is(dataset: Path, filters: Any, message: str) -> None:
    with pytest.raises(UsageError, match=rf"(?s)^filters=.*{message}"):
        FaceDataset(dataset, filters=filters)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "Train"}, "split='Train': must be one of train, val, test, or None for all"),
        ({"frames_per_video": 0}, "frames_per_video=0: must be at least 1; try 32"),
        ({"frames_per_video": -3}, "frames_per_video=-3: must be at least 1"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataset(dataset, **options)


# ---- frames_per_video


def evenly(rows: list[tuple[str, int]], frames: int) -> list[int]:
    """Row numbers, spelled out: of each video the middles of so many equal stretches of its frames."""
    of_video: dict[str, set[int]] = defaultdict(set)
    for video, frame in rows:
        of_video[video].add(frame)
    selected = set()
    for video, video_frames in of_video.items():
        ordered, count = sorted(video_frames), len(video_frames)
        middles = ordered if count <= frames else [ordered[(2 * i + 1) * count // (2 * frames)] for i in range(frames)]
        selected |= {(video, frame) for frame in middles}
    return [number for number, row in enumerate(rows) if row in selected]


@examples(300)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), max_size=80), st.integers(1, 12))
def test_the_frames_of_a_video_are_those_of_the_rule_written_out(rows: list[tuple[str, int]], frames: int) -> None:
    index: Any = ColumnsOnly({"video_id": [video for video, _ in rows], "frame_index": [frame for _, frame in rows]})
    assert np.asarray(select_rows(index, None, None, frames)).tolist() == evenly(rows, frames)


def test_so_many_frames_of_each_video_are_kept_and_short_videos_whole(dataset: Path) -> None:
    faces = FaceDataset(dataset, frames_per_video=15)
    frames = defaultdict(list)
    for position in range(len(faces)):
        row = faces.info(position)
        frames[row["video_id"]].append(row["frame_index"])
    assert {video: len(indices) for video, indices in frames.items()} == {
        "real/anna.mp4": 15, "fake/anna-swap.mp4": 15, "real/bert.mp4": 12, "fake/bert-talk.mp4": 15
    }  # fmt: skip
    assert frames["fake/bert-talk.mp4"] == list(range(1, 30, 2))  # the middles of 15 stretches of two
    assert frames["real/anna.mp4"][0] <= 2
    assert frames["real/anna.mp4"][-1] >= 37


def test_frames_are_counted_after_the_filters(dataset: Path) -> None:
    faces = FaceDataset(dataset, filters=[("video_id", "=", "real/anna.mp4"), ("frame_index", ">=", 20)],
                        frames_per_video=2)  # fmt: skip
    assert [faces.info(position)["frame_index"] for position in range(len(faces))] == [25, 35]


@pytest.fixture(scope="module")
def two_faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos with two people in each frame."""
    out = tmp_path_factory.mktemp("two") / "out"
    detector = FixedBoxDetector(((0.1, 0.2, 0.4, 0.7), (0.6, 0.2, 0.9, 0.7)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assets_dataset, "_MIDDLE", detector)
        make_dataset(out, (("train", (Clip("real/anna.mp4", 10), Clip("real/bert.mp4", 7), *NO_ROWS)),))
    return out


def test_all_faces_of_a_kept_frame_stay_together(two_faces: Path) -> None:
    faces = FaceDataset(two_faces, frames_per_video=5)
    kept = defaultdict(set)
    for position in range(len(faces)):
        row = faces.info(position)
        kept[row["video_id"], row["frame_index"]].add(row["track_id"])
    assert len(faces) == 20
    assert all(tracks == {0, 1} for tracks in kept.values())
    assert [frame for video, frame in sorted(kept) if video == "real/anna.mp4"] == [1, 3, 5, 7, 9]


def test_selected_rows_are_what_ranks_share(dataset: Path) -> None:
    options: dict[str, Any] = {"filters": [("label", "==", 0)], "frames_per_video": 9, "batch_size": 4, "image_size": 8}
    rows = [
        row
        for rank in range(2)
        for row in rows_seen(
            FaceDataLoader(dataset, rank=rank, num_replicas=2, num_workers=0, fields=("image", "row"), **options)
        )
    ]
    index = Index(dataset)
    assert sorted(rows) == np.asarray(select_rows(index, "train", options["filters"], 9)).tolist()
    assert len(rows) == 18
