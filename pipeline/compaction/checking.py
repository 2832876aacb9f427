"""What a compaction checks before it writes anything: files that it will copy and then remove."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from ..commit.column_files import check_columns
from ..console import plural
from ..dataset.added_columns import ColumnSet, refuse_lost_sets
from ..dataset.manifest import Receipt
from ..dataset.stores.concurrent import MAX_REQUESTS
from ..errors import CorruptDataError, RefusedError
from ..files import stop_on_disk_error
from ..planning.run_state import RunState


def check_files(
    run_state: RunState, receipts: Sequence[Receipt], sets: Sequence[ColumnSet], check: Callable[[], object]
) -> None:
    """Reads the files of units that are to be replaced, and those of their added columns.

    Args:
        run_state: of the dataset.
        receipts: of these units.
        sets: added columns, of which none is being removed.
        check: called before each file; what it raises ends the check.

    Raises:
        RefusedError: a set lacks rows: it would lack all that are merged with them; or one that the index has is gone.
        CorruptDataError: a file is damaged.
        StoppedError: the disk fails.

    """
    paths, with_file = run_state.paths, [receipt for receipt in receipts if receipt.file]
    refuse_lost_sets(paths)
    for column_set in sets:
        if lacking := [receipt for receipt in with_file if not column_set.has_file_for(receipt)]:
            rows = sum(receipt.rows for receipt in lacking)
            raise RefusedError(
                f"{paths.root}: {plural(rows, 'row')} of small files lack the added columns "
                f"{column_set.name!r}, and so would all that are merged with them; nothing was written: run "
                f"`{column_set.command}`, or `{column_set.remove_command}`"
            )
    digests = paths.files.digests([paths.root / str(receipt.file) for receipt in with_file])
    for receipt in with_file:
        check()
        with stop_on_disk_error(paths.root / str(receipt.file)):
            if next(digests) != receipt.sha256:
                raise _damaged(run_state, f"{receipt.file}: its SHA-256 is not its receipt's")
    for column_set in sets:
        for start in range(0, len(with_file), MAX_REQUESTS):
            some = with_file[start : start + MAX_REQUESTS]
            with paths.files.fetched([column_set.unit_file(receipt.unit) for receipt in some]):
                for receipt in some:
                    check()
                    _check_columns(run_state, column_set, receipt)


def _check_columns(run_state: RunState, column_set: ColumnSet, receipt: Receipt) -> None:
    try:
        with stop_on_disk_error(column_set.unit_file(receipt.unit)):
            check_columns(column_set, receipt)
    except CorruptDataError as error:
        raise _damaged(run_state, str(error)) from error


def _damaged(run_state: RunState, what: str) -> CorruptDataError:
    root = run_state.paths.root
    return CorruptDataError(
        f"{root}: {what}; nothing was written: run `facefeed verify {shlex.quote(str(root))}`, which says what to do"
    )
