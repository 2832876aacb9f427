"""`open_source`: SRC as a folder, also where it lies in a store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ..dataset.stores.address import StoreAddress, is_address
from ..dataset.stores.counts import StoreCounter
from ..dataset.stores.remote_files import WEB, MissingInStoreError, RemoteFiles
from ..dataset.stores.web_pages import quoted, unquoted
from ..dataset.stores.writing.process_folder import process_folder
from ..errors import FacefeedError, UsageError
from .outline import write_outline

_ALLOW_ROOT = re.compile(r"--allow-root (?:'[^']*'|\S+)(?: --allow-root (?:'[^']*'|\S+))*")
_QUERY = re.compile(r"\?\w+=")
_TABLES = (".csv", ".parquet", ".json")
"""Suffixes of what layouts read as a source in one file."""

_ABOVE, _LEVELS_ABOVE = "above", 16
"""The folders above what stands for the store: where a table leads there by `..`, it means no path of this machine."""


@dataclass(frozen=True, kw_only=True)
class OpenSource:
    """SRC for layouts: `path`, a folder or a table. `files`: of the store where it lies; None for a folder.

    address: its name for people. outlines: the folder that `path` lies in, with what stands for the store.
    warnings: what a user should know of it, as sentences without a full stop.
    """

    path: Path
    files: RemoteFiles | None = None
    address: str
    outlines: Path = Path()
    warnings: tuple[str, ...] = ()

    def with_address(self, text: str) -> str:
        """A message with addresses in place of the folders that stand for them, and without `--allow-root`.

        What a table names above its bucket becomes an address with `..`, and not a path of this machine.
        """
        if self.files is None:
            return text
        scheme, _, below = self.files.address.url.partition("://")
        top = f"{scheme}://{'/' if below.startswith('/') else ''}"
        text = re.sub(
            rf"{re.escape(str(self.outlines))}((?:/{_ABOVE}\b){{0,{_LEVELS_ABOVE}}})/?",
            lambda match: top + "../" * (_LEVELS_ABOVE - match[1].count("/")),
            text,
        )
        return _ALLOW_ROOT.sub("a SRC higher up in the store", text)

    def files_below(self, root: Path) -> RemoteFiles | None:
        """The files of the store below the folder that paths of inputs are relative to; None of a source in a folder.

        Raises `UsageError` where that lies above what was listed.
        """
        if self.files is None:
            return None
        listed = self.path.parent if self.path.is_file() else self.path
        if not root.is_relative_to(listed):
            above = self.with_address(str(root))
            at, remedy = f"at {above}", "give that address"
            if above.endswith("/") or not root.is_relative_to(self.outlines):
                at, remedy = "that lies above its bucket", "copy all of it into one folder of a bucket"
            raise UsageError(
                f"SRC={self.address!r}: is a part of the set {at}, and its inputs are named from there; of a store "
                f"only SRC is listed: {remedy}"
            )
        if root == listed:
            return self.files
        address, below = self.files.address, root.relative_to(listed).as_posix()
        if address.protocol in WEB:
            below = quoted(below)
        return RemoteFiles(StoreAddress(f"{address.url}/{below}", address.options), StoreCounter())


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
    address = _address(src, storage_options)
    files, table = _folder_of(address)
    with process_folder("facefeed-source-") as temporary:
        # All folders of the address: layouts look at names, also at those of the folders above.
        folder = temporary.joinpath(*[_ABOVE] * _LEVELS_ABOVE, str(files.address).partition("://")[2].strip("/"))
        path = folder / table if table else folder
        source = OpenSource(path=path, files=files, address=str(address), outlines=temporary)
        try:
            on_listing(f"listing {files.address}")
            odd_files = write_outline(files, folder, table)
            yield replace(source, warnings=tuple(odd_files.warnings))
        except FacefeedError as error:
            error.args = tuple(source.with_address(each) if isinstance(each, str) else each for each in error.args)
            raise


def _address(src: str, storage_options: Mapping[str, Any] | None) -> StoreAddress:
    scheme, _, below = src.partition("://")
    if not below.strip("/"):
        raise UsageError(f"SRC={src!r}: names no bucket; try 's3://bucket/videos'")
    address = StoreAddress(f"{scheme.lower()}://{below}", storage_options or {})
    if _QUERY.search(below) or (address.protocol in WEB and {"?", "#"} & {*below}):
        raise UsageError(
            f"SRC={str(address)!r}: has a query (?versionId=... or the like) or a fragment (#...) behind it; a source "
            "is read as it is now, by its path alone: leave that out, or copy the versions that you mean elsewhere"
        )
    if {"", ".", ".."} & {*below.strip("/").split("/")}:
        raise UsageError(f"SRC={str(address)!r}: has empty parts, '.' or '..'; write the address without them")
    return address


def _folder_of(address: StoreAddress) -> tuple[RemoteFiles, str | None]:
    """The files of a folder, or of the folder of a table, with its name."""
    folder, _, name = address.url.rpartition("/")
    if address.protocol in WEB:
        name = unquoted(name)
    if PurePosixPath(name).suffix and not folder.endswith("/"):
        parent = RemoteFiles(StoreAddress(folder, address.options), StoreCounter())
        with suppress(MissingInStoreError):
            parent.stat(name)
            # A web server may answer with a page for a folder's name, whatever dots that has.
            if PurePosixPath(name).suffix.lower() in _TABLES or not parent.is_page(name):
                return parent, name
    return RemoteFiles(address, StoreCounter()), None
