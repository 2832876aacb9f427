"""Added columns of a merged unit, from those of the units that it replaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..commit.column_files import (
    adopt_columns,
    check_columns,
    column_file_metadata,
    column_writer_options,
    publish_columns,
)
from ..commit.publish import attempt_path
from ..commit.unit_file import RowGroupWriter
from ..dataset.added_columns import ColumnSet
from ..dataset.index_builder import faces_of
from ..dataset.manifest import Receipt
from ..errors import CorruptDataError
from ..files import stop_on_disk_error
from ..planning.plan import Unit
from ..planning.run_state import RunState


def merge_columns(
    run_state: RunState, column_set: ColumnSet, unit: Unit, receipt: Receipt, read_faces: Callable[[], pa.ChunkedArray]
) -> bool:
    """Publishes the set's file for a merged unit, from those for the units that it replaces.

    `read_faces`: reads the ids of the merged unit's faces.

    False where one of these is missing or damaged: the set then lacks these rows, and `facefeed add` computes them.
    Raises `StoppedError` where the disk fails.
    """
    if column_set.has_file_for(receipt) or adopt_columns(column_set, receipt):
        return True
    replaced = [each for each in run_state.receipts.superseded(unit) if each.file]
    attempt = attempt_path(run_state.paths, f"{column_set.name}.{unit.unit_id}")
    with run_state.paths.files.fetched([column_set.unit_file(each.unit) for each in replaced]):
        try:
            with stop_on_disk_error(column_set.folder):
                for each in replaced:
                    check_columns(column_set, each)
        except CorruptDataError:
            return False
        try:
            _write_merged(column_set, replaced, receipt, attempt)
            if not faces_of(attempt).equals(read_faces()):
                return False
            publish_columns(column_set, receipt, attempt)
        finally:
            attempt.unlink(missing_ok=True)
    return True


def _write_merged(column_set: ColumnSet, replaced: Sequence[Receipt], receipt: Receipt, attempt: Path) -> None:
    schema = column_set.file_schema
    with stop_on_disk_error(attempt), pq.ParquetWriter(attempt, schema, **column_writer_options(schema)) as writer:
        row_groups = RowGroupWriter(writer)
        for each in replaced:
            with (
                column_set.paths.files.local(column_set.unit_file(each.unit)) as local,
                pq.ParquetFile(local) as file,
            ):
                for batch in file.iter_batches():
                    row_groups.add(batch)
        row_groups.flush()
        writer.add_key_value_metadata(column_file_metadata(column_set, receipt))
