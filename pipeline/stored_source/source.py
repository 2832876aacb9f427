"""`open_source`: SRC as a folder, also where it lies in a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..console import first_names, plural
from ..dataset.stores.address import StoreAddress, is_address, name_of
from ..dataset.stores.counts import StoreCounter
from ..dataset.stores.remote_files import MissingInStoreError, RemoteFiles
from ..errors import FacefeedError
from .outline import write_outline


@dataclass(frozen=True, kw_only=True)
class OpenSource:
    """SRC for layouts: `path`, a folder or a table. `files`: of the store where it lies; None for a folder.

    address: its name for people. odd_names: files of the store that no path can name.
    """

    path: Path
    files: RemoteFiles | None = None
    address: str
    odd_names: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What a user should know of it, as a sentence without a full stop."""
        if not self.odd_names:
            return []
        count = plural(len(self.odd_names), "file")
        return [f"{count} left out, since no path can have such a name ({first_names(self.odd_names)})"]

    def with_address(self, text: str) -> str:
        """A message with the address in place of the folder that stands for it."""
        return text if self.files is None else text.replace(str(self._folder), str(self.files.address))

    @property
    def _folder(self) -> Path:
        return self.path.parent if self.path.is_file() else self.path


@contextmanager
def open_source(
    src: str | Path,
    storage_options: Mapping[str, Any] | None = None,
    *,
    on_listing: Callable[[str], object] = lambda _: None,
) -> Iterator[OpenSource]:
    """Yields SRC as a folder; one in a store is listed first, and its metadata is fetched.

    Args:
        src: a folder or a table, or the address of one, such as ``s3://bucket/videos``.
        storage_options: of the store's fsspec file system; never printed.
        on_listing: called with a sentence before a store is listed.

    Raises:
        UsageError: there is nothing at the address, or the store refuses to read it.
        StoppedError: the store does not return a file.

    """
    if not isinstance(src, str) or not is_address(src):
        yield OpenSource(path=Path(src), address=os.path.realpath(src))
        return
    address = StoreAddress(src, storage_options or {})
    files, table = _folder_of(address)
    with tempfile.TemporaryDirectory(prefix="facefeed-source-") as temporary:
        folder = Path(temporary).resolve() / name_of(files.address.url)  # a layout may look at its name
        on_listing(f"listing {files.address}")
        odd_names = write_outline(files, folder, table)
        path = folder / table if table else folder
        source = OpenSource(path=path, files=files, address=str(address), odd_names=tuple(odd_names))
        try:
            yield source
        except FacefeedError as error:
            error.args = tuple(source.with_address(each) if isinstance(each, str) else each for each in error.args)
            raise


def _folder_of(address: StoreAddress) -> tuple[RemoteFiles, str | None]:
    """The files of a folder, or of the folder of a table, with its name."""
    folder, _, name = address.url.rpartition("/")
    if Path(name).suffix and not folder.endswith("/"):
        parent = RemoteFiles(StoreAddress(folder, address.options), StoreCounter())
        try:
            parent.stat(name)
        except MissingInStoreError:
            pass
        else:
            return parent, name
    return RemoteFiles(address, StoreCounter()), None
