"""Files of added columns: published as a unit's own file is, each with a receipt after it."""

from __future__ import annotations

from pathlib import Path

from ..dataset.added_columns import ColumnReceipt, ColumnSet
from ..dataset.manifest import OutPaths, Receipt
from ..errors import CorruptDataError
from ..files import stop_on_disk_error, write_durably
from .publish import check_unit_file, publish, sha256_of, unit_file_metadata


def column_file_metadata(column_set: ColumnSet, unit: Receipt) -> dict[str, str]:
    """Key-value metadata of a column file, by which one without a receipt is recognised."""
    return unit_file_metadata(unit.unit, column_set.state_of(unit), unit.rows)


def adopt_columns(column_set: ColumnSet, unit: Receipt) -> bool:
    """Writes the receipt of a file that was published without one; returns whether there was such a file."""
    path = column_set.unit_file(unit.unit)
    if not path.exists():
        return False
    with stop_on_disk_error(path):
        try:
            check_unit_file(path, unit.unit, column_set.state_of(unit), unit.rows)
        except CorruptDataError:
            return False  # `publish_columns` replaces it
        _write_receipt(column_set, unit)
    return True


def publish_columns(column_set: ColumnSet, unit: Receipt, attempt: Path) -> None:
    """Publishes an attempt at the columns of a unit's rows; a file of another attempt, if it is intact, stays."""
    publish(attempt, column_set.unit_file(unit.unit), unit.unit, column_set.state_of(unit), unit.rows)
    _write_receipt(column_set, unit)


def _write_receipt(column_set: ColumnSet, unit: Receipt) -> None:
    path = column_set.unit_file(unit.unit)
    with stop_on_disk_error(path):
        receipt = ColumnReceipt(
            unit=unit.unit, state=column_set.state_of(unit), rows=unit.rows, bytes=path.stat().st_size,
            sha256=sha256_of(path),
        )  # fmt: skip
        target = column_set.receipt_file(unit.unit)
        write_durably(target, receipt.to_json(), OutPaths(column_set.root).temporary)


def check_columns(column_set: ColumnSet, unit: Receipt) -> None:
    """Reads a column file as a whole; raises `CorruptDataError` where it is not the one that its receipt vouches for.

    Raises `OSError` where the disk fails.
    """
    path, receipt = column_set.unit_file(unit.unit), column_set.receipt(unit.unit)
    name = path.relative_to(column_set.root)
    if not path.is_file():
        raise CorruptDataError(f"{name}: missing")
    if receipt is None:
        raise CorruptDataError(f"{name}: its receipt is missing")
    if receipt.state != column_set.state_of(unit):
        raise CorruptDataError(f"{name}: was computed for other rows: {unit.file} was written again after it")
    if (size_bytes := path.stat().st_size) != receipt.bytes:
        raise CorruptDataError(f"{name}: is {size_bytes} bytes, its receipt says {receipt.bytes}")
    if sha256_of(path) != receipt.sha256:
        raise CorruptDataError(f"{name}: its SHA-256 is not its receipt's")
    check_unit_file(path, unit.unit, receipt.state, unit.rows)
