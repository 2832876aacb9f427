"""`open_out`: OUT as a folder or at the address of a store, of which a local folder is the working copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....errors import FacefeedError, UsageError
from ....files import refuse_address
from ...out import OutPaths
from ..address import StoreAddress, is_address
from ..counts import StoreCounter
from .out_store import StoreFiles
from .remote import WritableFiles
from .working_copy import working_copy

_PROTOCOLS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
"""Of stores whose fsspec file system creates a file where there is none by one request."""


@contextmanager
def open_out(
    out: str | Path,
    storage_options: Mapping[str, Any] | None = None,
    *,
    on_listing: Callable[[str], object] = lambda _: None,
) -> Iterator[OutPaths]:
    """Yields the paths of OUT; of one in a store, with what it holds so far.

    Args:
        out: a folder, or an address such as ``s3://bucket/faces``.
        storage_options: of the store's fsspec file system; never printed.
        on_listing: called with a sentence before a store is listed.

    Raises:
        UsageError: it cannot hold a dataset, or the store refuses to be read.
        StoppedError: the store does not answer.

    """
    if not isinstance(out, str) or not is_address(out):
        refuse_address(Path(out), "write it with two slashes, and from Python as a text, not as a Path")
        yield OutPaths(Path(out))
        return
    address = StoreAddress(out, storage_options or {})
    if address.protocol not in _PROTOCOLS:
        raise UsageError(
            f"OUT={str(address)!r}: a dataset is written to a folder, or to s3://, gs:// or az://; name one of these, "
            "or copy the finished dataset there"
        )
    if {"?", "#"} & {*out}:
        raise UsageError(f"OUT={str(address)!r}: has a ? or #, which addresses of a dataset cannot have; name another")
    with working_copy(address) as root:
        files = StoreFiles(WritableFiles(address, StoreCounter()), root)
        try:
            on_listing(f"listing {address}")
            files.refresh()
            yield OutPaths(root, files)
        except FacefeedError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
                raise  # of the local disk, where the working copy is
            error.args = tuple(
                each.replace(str(root), str(address)) if isinstance(each, str) else each for each in error.args
            )
            raise
