"""What a loader notices of the index: cells of any rows in any order, the same however the rows lie in batches."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_dataset import copy_dataset, make_dataset
from facefeed.pipeline.dataset.index import Index, arrays, layout
from facefeed.pipeline.dataset.index.batches import Batches
from facefeed.pipeline.errors import CorruptDataError
from facefeed.pipeline.verify.rebuild import rebuild_index_file


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("index") / "out"
    make_dataset(out)
    return out


@pytest.fixture(scope="module", params=[7, 65_536])
def whole_and_in_batches(
    request: pytest.FixtureRequest, dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Index, list[dict[str, Any]]]]:
    """An index in batches of a few rows, or in one; and all rows as the files say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "BATCH_ROWS", request.param)
        out = copy_dataset(dataset, tmp_path_factory.mktemp("batches") / "out")
        assert rebuild_index_file(out)
        yield Index(out), stored(out)


def index_of(batch: pa.RecordBatch, dataset: Path) -> Index:
    """An index that has read this batch in its file."""
    index = Index(dataset)
    file = SimpleNamespace(num_record_batches=1, get_batch_with_custom_metadata=lambda _: (batch, None))
    index._batches = Batches(file, dataset, "-")
    return index


def stored(out: Path) -> list[dict[str, Any]]:
    """All rows of all files, in the order of the files' names."""
    files = sorted((out / "faces").rglob("*.parquet"))
    return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


Rows = tuple[Index, list[dict[str, Any]]]
MIXED = [390, 0, 6, 7, 8, 200, 7, 390, 13, 14]


@pytest.mark.parametrize("name", ["label", "frame_index", "pts_seconds", "score", "image_crc32", "height"])
def test_numbers_come_in_the_order_they_are_asked_for(whole_and_in_batches: Rows, name: str) -> None:
    index, rows = whole_and_in_batches
    expected = [rows[row][name] for row in MIXED]
    values = index.numbers(name, MIXED)
    assert values.tolist() == expected
    assert values.dtype == index.numbers(name, []).dtype
    assert [index.number(name, row) for row in MIXED] == expected
    assert index.numbers(name, np.array(MIXED, np.uint32)).tolist() == expected
    assert index.numbers(name, 3).tolist() == [rows[3][name]]


def test_numbers_may_be_written_to_without_harm(whole_and_in_batches: Rows) -> None:
    index, rows = whole_and_in_batches
    for wanted in (MIXED, list(range(len(index)))):
        index.numbers("label", wanted)[:] = 99
    assert index.numbers("label", MIXED).tolist() == [rows[row]["label"] for row in MIXED]


def test_a_null_among_numbers_is_not_a_number(whole_and_in_batches: Rows) -> None:
    index, rows = whole_and_in_batches
    expected = [rows[row]["manipulated"] for row in MIXED]
    assert None in expected
    assert any(expected)
    np.testing.assert_array_equal(index.numbers("manipulated", MIXED), np.array(expected, np.float32))
    assert np.isnan(index.number("manipulated", MIXED[expected.index(None)]))


@pytest.mark.parametrize("name", ["video_id", "method", "compression", "split"])
def test_codes_are_places_in_the_names(whole_and_in_batches: Rows, name: str) -> None:
    index, rows = whole_and_in_batches
    names = [*index.categories(name), None]
    expected = [rows[row][name] for row in MIXED]
    assert [names[code] for code in index.codes(name, MIXED)] == expected
    assert [index.text(name, row) for row in MIXED] == expected
    assert len(index.codes(name, [])) == 0
    assert set(names) == {row[name] for row in rows} | {None}


def test_columns_of_text_are_named(dataset: Path) -> None:
    assert set(Index(dataset).categorical_columns) == {
        "video_id", "source_id", "identity", "dataset", "method", "compression", "split", "hull_method", "file"
    }  # fmt: skip


def test_points_and_regions_are_those_of_the_row(whole_and_in_batches: Rows) -> None:
    index, rows = whole_and_in_batches
    for row in MIXED:
        for name in ("landmarks", "hull"):
            points = index.points(name, row)
            assert points.dtype == np.float32
            assert points.tolist() == rows[row][name]
        assert {name: box.tolist() for name, box in index.regions(row).items()} == rows[row]["regions"]


def test_points_cannot_be_written_to_by_mistake(dataset: Path) -> None:
    index = Index(dataset)
    with pytest.raises(ValueError, match="read-only"):
        index.points("hull", 0)[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        index.regions(0)["nose"][:] = 0


def test_batches_are_all_rows_in_order(whole_and_in_batches: Rows) -> None:
    index, rows = whole_and_in_batches
    batched_rows = [row for batch in index.batches(["face_id", "label"]) for row in batch.to_pylist()]
    assert batched_rows == [{name: row[name] for name in ("face_id", "label")} for row in rows]


def test_reading_cells_does_not_wait_for_pandas_which_pyarrow_would_import(dataset: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from facefeed.pipeline.dataset.index import Index;"
        "index = Index(Path(sys.argv[1]));"
        "index.check_bytes();"
        "index.numbers('label', [0]); index.codes('split', [0]); index.points('hull', 0); index.regions(0);"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(dataset)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("values", "kind"),
    [(["abcde", "fg", "hij"], pa.string()), ([[1.0] * 5, [2.0] * 2, [3.0] * 3], pa.list_(pa.float32()))],
)
def test_an_offset_beyond_the_values_is_damage_and_ends_no_process(
    dataset: Path, values: list[Any], kind: pa.DataType
) -> None:
    """Arrow aborts where it makes a text of such a cell; the first and the last offset alone are checked at opening."""
    sound = pa.array(values, kind)
    offsets = np.array([0, 5, 3, 10], np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), *sound.buffers()[2:]]
    children = [sound.values] if pa.types.is_list(kind) else []
    damaged = pa.Array.from_buffers(kind, 3, buffers[:2] if children else buffers, children=children)
    damaged.validate()
    index = index_of(pa.record_batch({"face_id": damaged}), dataset)
    for read in (lambda: index.value("face_id", 1), lambda: index.column("face_id")):
        with pytest.raises(CorruptDataError, match=r"column face_id: .*--rebuild-index"):
            read()


def test_a_list_that_is_shorter_than_it_states_is_damage_and_ends_no_process(dataset: Path) -> None:
    """Arrow checks it where it flattens the list, and aborts; a file of such lists is opened without a word."""
    sound = pa.record_batch({"box_xyxy": pa.array([[1.0] * 4] * 3, pa.list_(pa.float32(), 4))})
    values, fewer = struct.pack("<qq", 12, 0), struct.pack("<qq", 2, 0)  # their number, and that of nulls
    message = sound.serialize().to_pybytes()
    assert message.count(values) == 1
    short = pa.ipc.read_record_batch(pa.py_buffer(message.replace(values, fewer)), sound.schema)
    for view in (arrays.boxes, arrays.vectors, len):
        with pytest.raises(CorruptDataError, match=r"column box_xyxy: .*--rebuild-index"):
            index_of(short, dataset)._viewed("box_xyxy", 0, view)
