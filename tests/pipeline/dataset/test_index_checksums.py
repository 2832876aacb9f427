"""What a user notices of an index with a flipped bit: an error where it is read, never other labels or boxes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assets_dataset import ROWS, copy_dataset, make_dataset
from assets_index import flip_bit
from assets_random import examples
from facefeed.loaders import FaceDataset
from facefeed.pipeline.dataset.index import Index, layout
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import CorruptDataError, FacefeedError
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file
from hypothesis import given
from hypothesis import strategies as st

COUNT = sum(ROWS.values())
BATCH = 100


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("checksums") / "out"
    make_dataset(out)
    return out


@pytest.fixture
def copy(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset whose index has several batches."""
    monkeypatch.setattr(layout, "BATCH_ROWS", BATCH)
    out = copy_dataset(dataset, tmp_path / "out")
    assert rebuild_index_file(out)
    return out


DAMAGED = r"index\.arrow: column {}: its bytes are not those that were written; run `facefeed verify .*--rebuild-index`"


def test_a_flipped_bit_of_a_label_is_an_error_where_its_batch_is_read_and_nowhere_else(copy: Path) -> None:
    expected = Index(copy).numbers("label", range(BATCH)).tolist()
    flip_bit(copy / "index.arrow", "label", batch=1)
    index = Index(copy)
    assert index.numbers("label", range(BATCH)).tolist() == expected
    for read in (
        lambda: index.number("label", BATCH + 1), lambda: index.numbers("label", range(COUNT)),
        lambda: Index(copy).value("label", BATCH), lambda: index.column("label"), lambda: [*index.batches(["label"])],
        lambda: FaceDataset(copy, split=None)[BATCH], lambda: FaceDataset(copy, filters=[("label", "==", 1)]),
    ):  # fmt: skip
        with pytest.raises(CorruptDataError, match=DAMAGED.format("label")):
            read()


READS = {"landmarks": "points", "hull": "points", "box_xyxy": "box", "split": "text", "pts_seconds": "number"}


@pytest.mark.parametrize("column", READS)
def test_a_flipped_bit_of_any_kind_of_cell_is_an_error(copy: Path, column: str) -> None:
    flip_bit(copy / "index.arrow", column, batch=2)
    with pytest.raises(CorruptDataError, match=DAMAGED.format(column)):
        getattr(Index(copy), READS[column])(column, 2 * BATCH)


def test_a_flipped_bit_of_a_name_is_an_error(copy: Path) -> None:
    flip_bit(copy / "index.arrow", "video_id", of_dictionary=True)
    with pytest.raises(CorruptDataError, match=DAMAGED.format("video_id")):
        Index(copy).text("video_id", 0)


def cells(out: Path) -> list[dict[str, Any]]:
    index = Index(out)
    for name in index.categorical_columns:
        index.categories(name)
    return [row for batch in index.batches(index.schema.names) for row in batch.to_pylist()]


@examples(25, same_fixtures=True)
@given(data=st.data(), flip=st.integers(1, 255))
def test_readers_get_the_rows_that_were_written_or_an_error_whichever_byte_changed(
    copy: Path, data: Any, flip: int
) -> None:
    path = copy / "index.arrow"
    expected, content = cells(copy), path.read_bytes()
    damaged = bytearray(content)
    damaged[data.draw(st.integers(0, len(content) - 1))] ^= flip
    try:
        path.unlink()
        path.write_bytes(damaged)
        with suppress(FacefeedError):
            assert cells(copy) == expected
    finally:
        path.unlink()
        path.write_bytes(content)


def without_checksums(out: Path) -> bytes:
    """Writes the index as it was before it had checksums; returns its bytes."""
    path = OutPaths(out).index
    with pa.ipc.open_file(path) as reader:
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        schema = reader.schema
        path.unlink()
        with pa.ipc.new_file(path, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return path.read_bytes()


def test_an_index_from_before_there_were_checksums_is_read_as_ever(copy: Path) -> None:
    expected = cells(copy)
    without_checksums(copy)
    assert cells(copy) == expected
    assert verify(copy).findings == []


def test_checksums_of_other_bytes_are_a_finding_as_readers_refuse_the_index(copy: Path) -> None:
    path = copy / "index.arrow"
    content = path.read_bytes()
    at = content.index(b'"label": ') + len(b'"label": ')
    path.unlink()
    path.write_bytes(content[:at] + (b"1" if content[at : at + 1] != b"1" else b"2") + content[at + 1 :])
    (finding,) = verify(copy).findings
    assert finding.kind == "index"
    assert "column label: its bytes are not those that were written" in finding.detail
    assert rebuild_index_file(copy)
    assert path.read_bytes() == content
