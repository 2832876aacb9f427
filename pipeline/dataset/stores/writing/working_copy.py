"""`working_copy`: the local folder of an OUT in a store, for as long as a process works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ....errors import UsageError
from ....files import DISK_IS_FULL, cache_folder, make_folder, stop_on_disk_error
from ...out import OutPaths
from ..address import StoreAddress
from .process_folder import process_folder


@contextmanager
def working_copy(address: StoreAddress) -> Iterator[Path]:
    """Yields a local folder for the files of an OUT, which is removed after the block."""
    parent = cache_folder() / "working"
    with ExitStack() as stack:
        try:
            make_folder(parent)
            root = stack.enter_context(process_folder("facefeed-out-", parent))
            paths = OutPaths(root)
            for folder in (paths.plan, paths.receipts, paths.temporary, paths.index_parts):
                folder.mkdir()
        except OSError as error:
            if error.errno in DISK_IS_FULL:
                with stop_on_disk_error(parent):
                    raise
            raise UsageError(
                f"{parent}: the working copy of {address} cannot be written ({error.strerror}); set XDG_CACHE_HOME to "
                "a folder of a local disk"
            ) from error
        yield root
