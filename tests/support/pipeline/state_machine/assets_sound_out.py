"""What must be true of an OUT whose last run has ended: for `verify`, for readers, and of added columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow.dataset as pads
from assets_columns import Colour
from assets_fresh_runs import Version, fresh_colours, run_state_of
from assets_out_model import OutModel
from facefeed.pipeline.dataset.added_columns import ColumnSet
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.open_dataset import open_dataset
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.findings import Finding

COLUMNS = f"columns/{Colour.name}"


def check_readers(out: Path) -> None:
    """A reader gets every image of the dataset."""
    _, index = open_dataset(out)
    images = StoredImages(index)
    for row in range(index.num_rows):
        images.image(row)


def check_sound(out: Path, model: OutModel) -> None:
    """OUT is finished; `verify` has no finding but on added columns that are not; readers get all that it holds."""
    result = verify(out)
    assert result.is_finished
    is_unfinished_set = (out / COLUMNS).exists() and Colour.name not in Index(out).added and not is_half_removed(out)
    expected = [COLUMNS] if is_unfinished_set else []
    assert [finding.location for finding in result.findings] == expected, result.findings
    check_readers(out)
    if Index(out).added:
        _check_colours(out, model)


def check_columns_are_complete(out: Path) -> None:
    """The index has the added columns where each file of rows, as it is now, has a file of them."""
    column_set = ColumnSet.read(OutPaths(out), Colour.name)
    if column_set is None or is_half_removed(out):
        return
    run_state = run_state_of(out)
    assert run_state is not None
    units = [receipt for _, _, receipt in run_state.finished_units() if receipt.file]
    assert (Colour.name in Index(out).added) == all(map(column_set.has_file_for, units))


def is_half_removed(out: Path) -> bool:
    """Whether the removal of the added columns was killed."""
    column_set = ColumnSet.read(OutPaths(out), Colour.name)
    return column_set is not None and column_set.is_being_removed


def is_of_unfinished_set(finding: Finding) -> bool:
    return finding.location == COLUMNS and "which completes them" in finding.remedy


def _check_colours(out: Path, model: OutModel) -> None:
    """The added columns are those that their maker gives for the rows that OUT holds, each face once."""
    expected: dict[str, Mapping[str, object]] = {}
    for name, held in model.may_hold.items():
        if version := _any_version(held):  # all of them give the same rows
            expected |= fresh_colours(model.setting, name, version)
    rows = pads.dataset(sorted((out / COLUMNS).glob("*.parquet")), partitioning=None).to_table().to_pylist()
    assert len(rows) == len(expected)
    assert {row.pop("face_id"): row for row in rows} == expected


def _any_version(held: Iterable[object]) -> Version | None:
    return next((each for each in held if isinstance(each, Version)), None)
