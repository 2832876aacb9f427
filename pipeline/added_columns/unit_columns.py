"""One unit: from its stored crops to the published file of added columns."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..commit.column_files import adopt_columns, column_file_metadata, column_writer_options, publish_columns
from ..commit.publish import attempt_path
from ..dataset.added_columns import ColumnSet
from ..dataset.image_codec import decode_rgb_strictly
from ..dataset.manifest import Receipt
from ..dataset.out import OutPaths
from ..dataset.schema import BINARY_COLUMNS
from ..errors import CorruptDataError, StoppedError
from ..files import raise_unless_damage, stop_on_disk_error
from ..user_file import describe_error
from .maker import ColumnMaker, StoredFaces, describe
from .values import WrongValuesError, as_batch

FACES_AT_ONCE = 64
"""Number of faces that a maker gets at once, at most."""

OnFaces = Callable[[int], object]


def add_to_unit(column_set: ColumnSet, maker: ColumnMaker, unit: Receipt, on_faces: OnFaces = lambda _: None) -> None:
    """Publishes the set's file for the rows of a unit, or adopts one that a killed run has published.

    `on_faces`: called after some faces were computed, with their number; what it raises ends the work.
    Raises `StoppedError` where the maker fails or the disk does, `CorruptDataError` where the unit's file is damaged.
    """
    if adopt_columns(column_set, unit):
        on_faces(unit.rows)
        return
    attempt = attempt_path(column_set.paths, f"{column_set.name}.{unit.unit}")
    try:
        options = column_writer_options(column_set.file_schema)
        with stop_on_disk_error(attempt), pq.ParquetWriter(attempt, column_set.file_schema, **options) as writer:
            for row_group in _computed(column_set, maker, unit, on_faces):
                writer.write_table(row_group, row_group_size=len(row_group))
            writer.add_key_value_metadata(column_file_metadata(column_set, unit))
        publish_columns(column_set, unit, attempt)
    finally:
        attempt.unlink(missing_ok=True)


def _computed(column_set: ColumnSet, maker: ColumnMaker, unit: Receipt, on_faces: OnFaces) -> Iterator[pa.Table]:
    """The set's columns for each row group of the unit's file."""
    paths, path = column_set.paths, column_set.paths.root / str(unit.file)
    for stored in _row_groups(paths, path):
        batches = []
        for start in range(0, len(stored), FACES_AT_ONCE):
            rows = stored.slice(start, FACES_AT_ONCE)
            faces = StoredFaces(_images(rows, path), rows.drop_columns([*BINARY_COLUMNS]))
            columns = [rows.column("face_id").combine_chunks(), *_compute(maker, faces, column_set.schema)]
            batches.append(pa.Table.from_arrays(columns, schema=column_set.file_schema))
            on_faces(len(faces))
        yield pa.concat_tables(batches).combine_chunks()


def _row_groups(paths: OutPaths, path: Path) -> Iterator[pa.Table]:
    try:
        with paths.files.local(path) as local, pq.ParquetFile(local, page_checksum_verification=True) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise_unless_damage(path, error)
        raise _damaged(path, str(error)) from error


def _images(rows: pa.Table, path: Path) -> list[Any]:
    images = []
    for face_id, image, crc32 in zip(*(rows.column(name) for name in ("face_id", "image", "image_crc32")), strict=True):
        data = image.as_py()
        if zlib.crc32(data) != crc32.as_py():
            raise _damaged(path, f"the image of {face_id} is not the one that was written")
        try:
            images.append(decode_rgb_strictly(data))
        except CorruptDataError as error:
            raise _damaged(path, f"{face_id}: {error}") from error
    return images


def _damaged(path: Path, detail: str) -> CorruptDataError:
    return CorruptDataError(f"{path}: {detail}; run `facefeed verify {path.parents[2]}`")


def _compute(maker: ColumnMaker, faces: StoredFaces, schema: pa.Schema) -> list[pa.Array]:
    try:
        return as_batch(maker.compute(faces), schema, len(faces))
    except WrongValuesError as error:
        raise _failed(maker, str(error), faces) from error
    except (Exception, SystemExit) as error:
        culprit, raised = _first_failing_face(maker, faces) or (faces, error)
        raise _failed(maker, f"raised {describe_error(raised, *_files_of(maker))}", culprit) from error


def _first_failing_face(maker: ColumnMaker, faces: StoredFaces) -> tuple[StoredFaces, BaseException] | None:
    """The first face that the maker fails on alone, and how."""
    for number, image in enumerate(faces.images):
        face = StoredFaces([image], faces.rows.slice(number, 1))
        try:
            maker.compute(face)
        except (Exception, SystemExit) as error:
            return face, error
    return None


def _files_of(maker: ColumnMaker) -> list[str]:
    """The files of a maker's class and of its base classes."""
    modules = [sys.modules.get(each.__module__) for each in type(maker).__mro__]
    return [file for module in modules if (file := getattr(module, "__file__", None)) is not None]


def _failed(maker: ColumnMaker, problem: str, faces: StoredFaces) -> StoppedError:
    ids = faces.rows.column("face_id")
    which = f"face {ids[0]}" if len(ids) == 1 else f"the {len(ids)} faces from {ids[0]} to {ids[-1]}"
    return StoppedError(
        f"{describe(maker)}: {problem}, given {which}; files of finished units are kept; fix it and run the same "
        "command again"
    )
