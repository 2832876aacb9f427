"""What a reader of the index notices: it says what the files say, opens anywhere, and never lies by half."""

from __future__ import annotations

import errno
import mmap
import multiprocessing
import os
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_columns import Colour, Large
from assets_dataset import FILES, LABELS, NO_ROWS, ROWS, DenseStandIn, copy_dataset, make_dataset, open_run_state
from facefeed.loaders import FaceDataset
from facefeed.pipeline.added_columns.landmarks import LandmarkColumns
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.commit.finalize import build_manifest, publish_manifest, write_index
from facefeed.pipeline.dataset.index import Index, current_index_path, layout
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.open_dataset import open_dataset
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.schema import BINARY_COLUMNS, SPLITS, face_schema, parquet_writer_options
from facefeed.pipeline.errors import CorruptDataError, StoppedError, UsageError
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file

LIGHT = [name for name in face_schema(LABELS).names if name not in BINARY_COLUMNS]
NULLABLE_STRINGS = ("source_id", "method", "compression")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("index") / "out"
    make_dataset(out)
    return out


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


def test_a_file_system_that_maps_no_files_is_not_taken_for_damage(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(mmap, "mmap", fail)
    for read in (Index, verify, FaceDataset):
        with pytest.raises(UsageError, match=rf"{copy}: its file system cannot map files into memory .* another one"):
            read(copy)


def test_memory_that_is_refused_is_not_taken_for_damage(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def refuse_as_arrow_does(_: str) -> Any:
        raise OSError("Memory mapping file failed: Cannot allocate memory")  # without an errno

    message = r"index.*\.arrow: Cannot allocate memory.* run the same command again"
    with monkeypatch.context() as patched:
        patched.setattr(pa, "memory_map", refuse_as_arrow_does)
        with pytest.raises(StoppedError, match=message):
            verify(copy)
    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(StoppedError, match=message):
        Index(copy)


def stored(out: Path) -> pa.Table:
    """All rows of all files, in the order of the files' names."""
    files = sorted((out / "faces").rglob("*.parquet"))
    return pa.concat_tables(pq.read_table(path, partitioning=None) for path in files)


@pytest.mark.parametrize("name", LIGHT)
def test_a_column_of_the_index_is_that_of_the_files(dataset: Path, name: str) -> None:
    column = Index(dataset).column(name)
    expected = stored(dataset).column(name)
    assert len(column) == sum(ROWS.values())
    assert column.cast(expected.type).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("batch_rows", [7, 256, 391, 65_536])
def test_every_image_lies_where_the_index_says(copy: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int) -> None:
    monkeypatch.setattr(layout, "BATCH_ROWS", batch_rows)
    assert rebuild_index_file(copy)
    index = Index(copy)
    images = []
    for row in range(len(index)):
        with (copy / index.value("file", row)).open("rb") as file:
            file.seek(index.value("image_offset", row))
            images.append((index.value("face_id", row), file.read(index.value("image_bytes", row))))
    expected = stored(copy)
    assert images == list(zip(expected["face_id"].to_pylist(), expected["image"].to_pylist(), strict=True))


@pytest.mark.parametrize("batch_rows", [7, 65_536])
@pytest.mark.parametrize("split", SPLITS)
def test_rows_of_a_split_are_those_below_its_folder(
    copy: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, split: str
) -> None:
    monkeypatch.setattr(layout, "BATCH_ROWS", batch_rows)
    rebuild_index_file(copy)
    index = Index(copy)
    rows = index.rows_where("split", split)
    assert rows.dtype == np.uint32
    assert len(rows) == ROWS[split]
    files = index.column("file").to_pylist()
    assert rows.tolist() == [row for row, file in enumerate(files) if file.startswith(f"faces/{split}/")]


@pytest.mark.parametrize("value", ["", "Train", "holdout", "swap\0"])
def test_a_value_that_no_row_has_finds_no_row(dataset: Path, value: str) -> None:
    index = Index(dataset)
    assert [index.rows_where(name, value).tolist() for name in ("split", "method", "source_id")] == [[], [], []]


@pytest.mark.parametrize("batch_rows", [7, 65_536])
def test_rows_are_found_in_columns_with_nulls(copy: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int) -> None:
    monkeypatch.setattr(layout, "BATCH_ROWS", batch_rows)
    rebuild_index_file(copy)
    index = Index(copy)
    methods = stored(copy)["method"].to_pylist()
    assert set(methods) == {None, "swap", "talk"}
    for method in ("swap", "talk"):
        expected = [row for row, row_method in enumerate(methods) if row_method == method]
        assert index.rows_where("method", method).tolist() == expected
    # A column of nothing but nulls has an empty dictionary.
    assert index.column("compression").null_count == len(index)
    assert index.rows_where("compression", "c23").tolist() == []


@pytest.mark.parametrize("name", NULLABLE_STRINGS)
def test_a_null_is_read_as_none(dataset: Path, name: str) -> None:
    index = Index(dataset)
    expected = stored(dataset)[name].to_pylist()
    assert None in expected
    assert [index.value(name, row) for row in range(len(index))] == expected


def test_it_names_labels_and_fingerprint_of_the_manifest(dataset: Path) -> None:
    index, manifest = Index(dataset), Manifest.read(dataset)
    assert (index.labels, index.fingerprint) == (LABELS, manifest.fingerprint)


def test_it_opens_twice_and_pickles_to_a_few_bytes(dataset: Path) -> None:
    first, second = Index(dataset), Index(dataset)
    data = pickle.dumps(first)
    assert len(data) < 500
    third: Index = pickle.loads(data)
    names = [index.column("face_id").to_pylist() for index in (first, second, third)]
    assert names[0] == names[1] == names[2]
    assert len(third) == sum(ROWS.values())


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_another_process_reads_the_same_rows(dataset: Path, start: str) -> None:
    index = Index(dataset)
    last = len(index) - 1
    with ProcessPoolExecutor(1, multiprocessing.get_context(start)) as pool:
        assert pool.submit(index.value, "face_id", last).result() == index.value("face_id", last)


def test_reopened_it_is_outdated_once_a_column_that_it_had_is_of_another_set_or_gone(copy: Path) -> None:
    add_columns(copy, Colour(), workers=1)
    reopen = partial(pickle.loads, pickle.dumps(Index(copy)))
    add_columns(copy, Large(), workers=1)  # columns that were not there before
    assert reopen().column("tone") == Index(copy).column("tone")
    remove_columns(copy, "colour")
    with pytest.raises(CorruptDataError, match="has changed since it was opened; open it again"):
        reopen().column("tone")
    other = Colour()
    other.fingerprint = "colour-2"
    add_columns(copy, other, workers=1)
    with pytest.raises(CorruptDataError, match="has changed since it was opened; open it again"):
        reopen().column("tone")
    remove_columns(copy, "colour")
    add_columns(copy, Colour(), workers=1)  # as it was
    assert reopen().column("tone") == Index(copy).column("tone")


def test_reopened_it_is_outdated_once_landmarks_took_the_place_of_its_hulls(copy: Path) -> None:
    before = pickle.dumps(Index(copy))
    add_columns(copy, LandmarkColumns(DenseStandIn()), workers=1)
    after = pickle.dumps(Index(copy))
    assert pickle.loads(after).points("hull", 0).shape == Index(copy).points("hull", 0).shape
    with pytest.raises(CorruptDataError, match="has changed since it was opened; open it again"):
        pickle.loads(before).points("hull", 0)
    remove_columns(copy, "landmarks")
    with pytest.raises(CorruptDataError, match="has changed since it was opened; open it again"):
        pickle.loads(after).points("hull", 0)
    assert pickle.loads(before).points("hull", 0).shape == Index(copy).points("hull", 0).shape


def test_letting_go_of_it_gives_back_its_file_and_memory_map(copy: Path) -> None:
    path = str(copy / "index.arrow")

    def held() -> tuple[int, bool]:
        links = Path("/proc/self/fd").iterdir()
        descriptors = sum(link.is_symlink() and str(link.readlink()) == path for link in links)
        return descriptors, path in Path("/proc/self/maps").read_text(encoding="utf-8")

    indexes = [Index(copy) for _ in range(5)]
    descriptors, mapped = held()
    assert descriptors <= 5
    assert mapped
    del indexes
    assert held() == (0, False)


def test_a_dataset_without_rows_has_an_index_of_none(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", NO_ROWS),))
    index = Index(tmp_path / "out")
    assert (len(index), index.rows_where("split", "train").tolist()) == (0, [])
    assert (len(index.numbers("label", [])), len(index.codes("split", [])), index.categories("split")) == (0, 0, [])
    assert index.column("label").to_pylist() == []


def test_a_missing_index_says_how_to_make_one(copy: Path) -> None:
    (copy / "index.arrow").unlink()
    with pytest.raises(UsageError, match=r"index\.arrow: not there.*facefeed verify .* --rebuild-index"):
        Index(copy)


def test_a_truncated_index_says_how_to_mend_it(copy: Path) -> None:
    path = copy / "index.arrow"
    content = path.read_bytes()
    for length in [0, 1, 8, 100, len(content) // 2, len(content) - 10, len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(CorruptDataError, match=r"index\.arrow: .*facefeed verify .* --rebuild-index"):
            Index(copy)


def rewrite(out: Path, schema: pa.Schema, batches: list[pa.RecordBatch]) -> None:
    (out / "index.arrow").unlink()
    with pa.ipc.new_file(out / "index.arrow", schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def batches_of(out: Path) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    with pa.ipc.open_file(out / "index.arrow") as reader:
        return reader.schema, [reader.get_batch(number) for number in range(reader.num_record_batches)]


def test_an_index_in_other_batches_is_refused(copy: Path) -> None:
    schema, (batch,) = batches_of(copy)
    rewrite(copy, schema, [batch.slice(0, 100), batch.slice(100)])
    with pytest.raises(CorruptDataError, match="not laid out as this facefeed"):
        Index(copy)


def test_an_index_without_one_of_its_columns_is_refused(copy: Path) -> None:
    schema, (batch,) = batches_of(copy)
    short = schema.remove(schema.get_field_index("image_offset"))
    rewrite(copy, short, [batch.select(short.names)])
    with pytest.raises(CorruptDataError, match="not laid out as this facefeed"):
        Index(copy)


@pytest.mark.parametrize("key", [None, b"facefeed.labels", b"facefeed.fingerprint"])
def test_an_index_that_does_not_say_what_it_is_of_is_refused(copy: Path, key: bytes | None) -> None:
    schema, batches = batches_of(copy)
    metadata = {name: value for name, value in schema.metadata.items() if key and name != key}
    bare = schema.with_metadata(metadata)
    rewrite(copy, bare, [batch.replace_schema_metadata(metadata) for batch in batches])
    with pytest.raises(CorruptDataError, match=r"index\.arrow: .*--rebuild-index"):
        Index(copy)


def test_an_index_can_be_made_where_no_temporary_folder_was_copied_along(copy: Path) -> None:
    shutil.rmtree(copy / "_tmp")
    (copy / "index.arrow").unlink()
    assert rebuild_index_file(copy)
    assert len(Index(copy)) == sum(ROWS.values())


@pytest.mark.parametrize("column", ["split", "frame_index", "landmarks"])
def test_damage_in_a_light_column_never_reaches_an_index(copy: Path, column: str) -> None:
    run_state = open_run_state(copy)
    path, _ = run_state.parquet_files()[0]
    footer = pq.read_metadata(path)
    numbers = [n for n in range(footer.num_columns) if footer.row_group(0).column(n).path_in_schema.startswith(column)]
    chunk = footer.row_group(0).column(numbers[0])
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0x10
    path.write_bytes(content)
    before = (copy / "index.arrow").read_bytes()
    with pytest.raises(CorruptDataError, match=path.name):
        write_index(run_state.paths, run_state.parquet_files(), face_schema(LABELS), "fingerprint")
    assert (copy / "index.arrow").read_bytes() == before
    assert list((copy / "_tmp").iterdir()) == []


def test_files_without_a_column_or_of_another_type_are_refused(copy: Path) -> None:
    paths, tables = open_run_state(copy).paths, open_run_state(copy).parquet_files()
    path, _ = tables[-1]
    table = pq.read_table(path, partitioning=None)
    number = table.schema.get_field_index("score")
    wrong = [table.drop_columns("score"), table.set_column(number, "score", table["score"].cast(pa.float64()))]
    for other in wrong:
        pq.write_table(other, path, **parquet_writer_options(other.schema))
        with pytest.raises(CorruptDataError, match=f"{path.stem}.*columns"):
            write_index(paths, tables, face_schema(LABELS), "fingerprint")


def test_the_dataset_of_these_tests_has_what_they_need(dataset: Path) -> None:
    files = sorted((dataset / "faces").rglob("*.parquet"))
    assert len(files) == FILES
    assert max(pq.read_metadata(path).num_row_groups for path in files) > 1


def next_state(out: Path) -> Manifest:
    """The manifest of another state of a dataset, whose index is written but not installed."""
    run_state, before = open_run_state(out), Manifest.read(out)
    _, unit, receipt = next(finished for finished in run_state.finished_units() if finished[2].file)
    other = replace(receipt, sha256="0" * 64)  # another state, as far as the account goes
    run_state.paths.receipt(unit.unit_id).write_text(other.to_json())
    after = build_manifest(run_state, before.config, [], missing=0)
    assert after.fingerprint != before.fingerprint
    write_index(run_state.paths, run_state.parquet_files(), after.face_schema(), after.fingerprint)
    return after


@pytest.mark.parametrize("chosen", ["the old index", "the next index"])
def test_a_dataset_that_is_published_while_it_is_opened_is_that_of_the_new_state(
    copy: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    after, paths = next_state(copy), OutPaths(copy)
    if chosen == "the next index":
        paths.manifest.write_text(after.to_json())

    def publish_and_open(out: Path) -> Path:
        path = current_index_path(out)
        publish_manifest(paths, after)
        return path

    monkeypatch.setattr(layout, "current_index_path", publish_and_open)
    manifest, index = open_dataset(copy)
    assert manifest.fingerprint == index.fingerprint == after.fingerprint


def test_killed_at_any_moment_between_index_and_manifest_a_dataset_stays_readable(copy: Path) -> None:
    before, run_state = Manifest.read(copy), open_run_state(copy)
    after = next_state(copy)
    assert Index(copy).fingerprint == before.fingerprint, "killed here, the old manifest has its old index"
    run_state.paths.manifest.write_text(after.to_json())
    assert Index(copy).fingerprint == after.fingerprint, "killed here, the new manifest has its new index"
    assert not [finding for finding in verify(copy).findings if finding.kind == "index"]
    publish_manifest(run_state.paths, after)
    assert Index(copy).fingerprint == after.fingerprint
    assert [path.name for path in copy.glob("index*")] == ["index.arrow"]
