"""What a user with very many rows notices of the index: their numbers, what is read of it, and how much memory."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from assets_dataset import ROWS, copy_dataset, make_dataset
from assets_memory import peak_bytes
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline.dataset.index import Index, RowRange, layout, row_range
from facefeed.pipeline.dataset.index import batches as index_batches
from facefeed.pipeline.dataset.index.batches import Batches
from facefeed.pipeline.dataset.index.reader import rows_of_batch
from facefeed.pipeline.dataset.index.row_range import joined
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.pipeline.verify.rebuild import rebuild_index_file

COUNT = sum(ROWS.values())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows") / "out"
    make_dataset(out)
    return out


def repeated(dataset: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> Index:
    """The index of a dataset whose rows come again and again."""
    index = Index(dataset)
    monkeypatch.setattr(layout, "BATCH_ROWS", COUNT)
    batch, count = index._batches[0], -(-rows // COUNT)
    file = SimpleNamespace(num_record_batches=count, get_batch_with_custom_metadata=lambda _: (batch, None))
    index._batches, index.num_rows = Batches(file, dataset, "-"), count * COUNT
    return index


@pytest.mark.parametrize("rows", [2**31 + 10_000, 2**32 - COUNT])
def test_rows_beyond_2_to_the_31_have_their_own_cells(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    small = Index(dataset)
    expected = {
        name: getattr(small, read)(name, range(COUNT)).tolist()
        for name, read in (("frame_index", "numbers"), ("video_id", "codes"), ("box_xyxy", "boxes"))
    }
    files = [small.text("file", row) for row in range(COUNT)]
    index = repeated(dataset, monkeypatch, rows)
    first = rows // COUNT * COUNT - COUNT
    last = RowRange(first, first + COUNT)
    for chosen in (last, last[:], last[:].tolist()):
        assert index.numbers("frame_index", chosen).tolist() == expected["frame_index"]
        assert index.codes("video_id", chosen).tolist() == expected["video_id"]
        assert index.boxes("box_xyxy", chosen).tolist() == expected["box_xyxy"]
    assert [index.text("file", first + row) for row in range(COUNT)] == files
    assert rows_of_batch(first // COUNT, np.ones(COUNT, np.bool_)).tolist() == [*range(first, first + COUNT)]


def test_cells_of_all_rows_take_little_memory_besides_themselves(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = repeated(dataset, monkeypatch, 1_000 * COUNT)
    index.numbers("label", [COUNT * number for number in range(1000)])  # its views of batches
    monkeypatch.setattr("facefeed.pipeline.dataset.index.reader._ROWS_AT_ONCE", 5_000)
    for rows in (RowRange(0, len(index)), np.arange(len(index), dtype=np.uint32)[::-1]):
        assert peak_bytes(lambda rows=rows: index.numbers("label", rows)) < len(index) + 400_000  # type: ignore[misc]


def test_rows_that_follow_one_another_are_selected_as_a_range(dataset: Path) -> None:
    index = Index(dataset)
    train = index.select("split", "train")
    assert isinstance(train, RowRange)
    assert np.asarray(train).tolist() == index.rows_where("split", "train").tolist()
    assert repr(FaceDataset(dataset, split=None).selection) == f"RowRange(0, {COUNT})"
    assert len(index.select("split", "no split")) == 0
    some = FaceDataset(dataset, split="train", filters=[("frame_index", ">", 2)])
    assert some.rows.dtype == some.selection[:].dtype == np.uint32
    assert 0 < len(some) < len(train)


@pytest.mark.parametrize(
    "parts", [[], [[]], [[3]], [[3, 4], [5]], [[3, 4], [], [6]], [[1, 3], [4, 5]], [[4, 5], [6, 8]], [[0], [1], [5, 6]]]
)
def test_parts_of_a_selection_are_joined_in_order(parts: list[list[int]]) -> None:
    selection = joined(np.array(part, np.uint32) for part in parts)
    rows = [row for part in parts for row in part]
    assert selection[:].tolist() == rows
    assert selection[:].dtype == np.uint32
    assert isinstance(selection, RowRange) == (bool(rows) and rows == [*range(rows[0], rows[-1] + 1)])


def test_a_range_of_rows_is_indexed_like_an_array_of_them() -> None:
    rows = RowRange(2**32 - 9, 2**32 - 1)
    array = np.arange(2**32 - 9, 2**32 - 1).astype(np.uint32)
    for positions in (
        0, -1, np.int64(3), slice(None), slice(2, 5), slice(None, None, -2), slice(7, 2), np.array([4, 0, 4]), [1, 2],
        np.array([], np.int64), array % 2 == 0,
    ):  # fmt: skip
        assert np.asarray(rows[positions]).tolist() == array[positions].tolist()
        assert rows[positions].dtype == np.uint32
    assert [*rows] == array.tolist()
    with pytest.raises(IndexError):
        rows[8]


@pytest.mark.parametrize(
    "positions", [[8], [-1], [0, 2**32], [True] * 7, [1.0], 1.5, True, None, (slice(None), None)], ids=repr
)
def test_positions_outside_a_range_of_rows_are_refused_in_place_of_giving_rows_of_another_split(positions: Any) -> None:
    with pytest.raises(IndexError, match=r"RowRange\(100, 108\): .*"):
        RowRange(100, 108)[np.asarray(positions) if isinstance(positions, list) else positions]


def test_a_filter_reads_the_columns_that_it_names_alone(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    batches = Index.batches

    def note(self: Index, columns: Sequence[str]) -> Any:
        read.update(columns)
        return batches(self, columns)

    monkeypatch.setattr(Index, "batches", note)
    FaceDataset(dataset, filters=[("label", "==", 1), ("score", ">=", 0)])
    assert read == {"label", "score"}
    expected = FaceDataset(dataset, filters=[("label", "==", 1)]).rows.tolist()
    by_position = pc.field(Index(dataset).schema.get_field_index("label"))
    assert FaceDataset(dataset, filters=by_position == 1).rows.tolist() == expected


def test_more_rows_than_row_numbers_count_are_refused(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixture = {"a": dataset, "b": copy_dataset(dataset, tmp_path / "out")}
    monkeypatch.setattr(row_range, "MAX_ROWS", COUNT)
    assert len(FaceDataset(dataset, split=None)) == COUNT
    with pytest.raises(UsageError, match=rf"a, b: {2 * COUNT} rows, of at most {COUNT}, which row numbers count"):
        FaceDataLoader(mixture, num_workers=0)
    monkeypatch.setattr(row_range, "MAX_ROWS", COUNT - 1)
    with pytest.raises(UsageError, match=rf"index.arrow: {COUNT} rows, of at most {COUNT - 1}"):
        Index(dataset)


def test_opening_an_index_reads_two_of_its_batches_and_keeps_some_of_those_in_use(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Index(dataset).numbers("frame_index", range(COUNT)).tolist()
    out = copy_dataset(dataset, tmp_path / "out")
    monkeypatch.setattr(layout, "BATCH_ROWS", 7)
    assert rebuild_index_file(out)
    monkeypatch.setattr(index_batches, "_MAX_KEPT", 3)
    index = Index(out)
    assert len(index) == COUNT
    assert len(index._batches) > 50
    assert len(index._batches._kept) == 2
    assert index.numbers("frame_index", range(COUNT)).tolist() == expected
    assert [index.value("frame_index", row) for row in range(COUNT)] == expected
    assert len(index._batches._kept) <= 3


def resident_bytes(path: Path) -> int:
    """How much of a file the page cache has."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        is_resident = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        content = np.frombuffer(mapped, np.uint8)
        assert libc.mincore(content.ctypes.data, len(mapped), is_resident.ctypes.data) == 0
        del content
    return int((is_resident & 1).sum()) * mmap.PAGESIZE


def test_storage_is_asked_for_the_column_that_is_read_alone(tmp_path: Path) -> None:
    path, sink, cells = tmp_path / "index.arrow", pa.BufferOutputStream(), pa.array(np.zeros(1 << 17))
    batch = pa.record_batch([cells] * 64, names=[str(number) for number in range(64)])
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content = np.frombuffer(sink.getvalue(), np.uint8)
    with path.open("wb") as file:  # zeros as holes, which nothing has read
        for start in range(0, len(content), 1 << 20):
            if (block := content[start : start + (1 << 20)]).any():
                file.seek(start)
                file.write(block)
        file.truncate(len(content))
    before = resident_bytes(path)
    mapped = index_batches.MappedFile(path)
    column = mapped.reader.get_batch(0).column("9")
    assert column[5].as_py() == 0
    assert resident_bytes(path) - before <= mmap.PAGESIZE
    mapped.read_ahead(column)
    assert np.from_dlpack(column).sum() == 0
    assert 0 <= resident_bytes(path) - before - cells.nbytes <= 2 * mmap.PAGESIZE


def test_a_batch_of_another_length_is_found_where_it_is_needed(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = copy_dataset(dataset, tmp_path / "out")
    with pa.ipc.open_file(out / "index.arrow") as reader:
        batch, schema = reader.get_batch(0), reader.schema
    (out / "index.arrow").unlink()
    with pa.ipc.new_file(out / "index.arrow", schema) as writer:
        for start, count in ((0, 100), (100, 90), (190, 100), (290, COUNT - 290)):
            writer.write_batch(batch.slice(start, count))
    monkeypatch.setattr(layout, "BATCH_ROWS", 100)
    index = Index(out)
    assert index.number("frame_index", 3) == batch["frame_index"][3].as_py()
    for use in (
        lambda: index.numbers("label", [150]),
        lambda: index.select("split", "train"),
        lambda: list(index.batches(["label"])),
        lambda: FaceDataset(out),
    ):
        with pytest.raises(CorruptDataError, match=r"index\.arrow: is not laid out as this facefeed .*--rebuild-index"):
            use()
