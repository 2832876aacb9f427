"""`RemoteFiles`: byte ranges of files in a store, by fsspec; transient errors are retried, others refused at once."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar

from ...errors import StoppedError, UsageError
from ..byte_ranges import RETRY_DELAYS_SECONDS
from .address import StoreAddress
from .concurrent import map_on_threads
from .counts import StoreCounter
from .failures import code_of, is_forbidden_by_google, is_missing_bucket, is_of_credentials, kind_of_failure
from .filesystem import open_filesystem
from .stored_file import StoredFile
from .web_pages import is_name, linked_names, quoted

_log = logging.getLogger("facefeed.stores")

REQUEST_TIMEOUT_SECONDS = 60.0
"""Longest that a request may take; after that the request is retried."""

WEB = ("http", "https")
_PAGES = ("text/html", "application/xhtml+xml", None)
_MAX_BYTES = 1 << 30
_LONG_DELAY_SECONDS = 2.0
_Result = TypeVar("_Result")
_Work = Literal["read", "write", "remove"]
_DONE: dict[_Work, str] = {"read": "read", "write": "written", "remove": "removed"}
_UNMET: dict[_Work, str] = {"read": "return", "write": "accept", "remove": "remove"}


class MissingInStoreError(Exception):
    """There is no such file in the store."""


class UnusableStoreError(UsageError):
    """The store refuses what it is asked for, has no such bucket, or cannot do it: it would do so again."""


class RefusedByStoreError(UnusableStoreError):
    """The store refuses a request. `what`: which, and why. `by_credentials`: those were refused, whatever was asked."""

    def __init__(self, what: str, *, by_credentials: bool) -> None:
        super().__init__(
            f"{what}; check the credentials, their rights and the address, then run the same command again"
        )
        self.what, self.by_credentials = what, by_credentials


@contextmanager
def stop_where_refused(kept: str) -> Iterator[None]:
    """Converts a refusal amid the work, as of credentials that have expired, to a resumable `StoppedError`.

    `kept`: what stays of the work, for the message.
    """
    try:
        yield
    except RefusedByStoreError as error:
        raise StoppedError(
            f"{error.what}; {kept} are kept: check the credentials and their rights, then run the same command again"
        ) from error


class RemoteFiles:
    """Files below an address. Picklable; its connections belong to one process. Thread-safe.

    Names are those of files, also on a web server: they are quoted as its addresses require when they are requested.
    `sleep`: for the delays between attempts; tests pass a fake.
    """

    def __init__(
        self, address: StoreAddress, counter: StoreCounter, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.address, self.counter, self._sleep = address, counter, sleep
        self._lock = threading.Lock()
        self._opened: tuple[int, Any, str] | None = None
        self._listing: tuple[int, Any, str] | None = None  # whose library repeats requests

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.address, self.counter, self._sleep)

    def read(self, name: str, start: int, end: int, *, is_within: bool = False) -> bytes:
        """Reads bytes `start` .. `end` of a file, fewer where it ends before.

        Args:
            name: of the file.
            start: first byte.
            end: last byte, excluded.
            is_within: whether the file does not end before; then a response of another length is a transient error.

        Raises:
            MissingInStoreError: it is not there.
            UsageError: the store refuses it, or there is no such bucket.
            StoppedError: the store does not return it.

        """

        def request(files: Any, path: str, limit: dict[str, Any]) -> bytes:
            data: bytes = files.cat_file(path, start=start, end=end, **limit)
            if is_within and len(data) != end - start:
                raise ConnectionError(f"returns {len(data)} of {end - start} bytes")
            return data

        data = self._attempt(name, request)
        if is_within and len(data) != end - start:  # "the range is not satisfiable" amid the file
            raise StoppedError(f"{self.address}/{name}: returns {len(data)} of {end - start} bytes; resume")
        self.counter.add(fetched_bytes=len(data))
        return data

    def read_all(self, name: str) -> bytes:
        """Reads a small file; raises as `read`."""
        return self.read(name, 0, _MAX_BYTES)  # a range: s3fs would first ask for the size of a whole file

    def stat(self, name: str) -> StoredFile:
        """Size, time and version of a file; raises as `read`."""
        info = self._info(name)
        if _is_folder(name, info) or not isinstance(info.get("size"), int):
            raise MissingInStoreError(name)
        return StoredFile.of(name, info)

    def _info(self, name: str) -> dict[str, Any]:
        info: dict[str, Any] = self._attempt(name, lambda files, path, limit: files.info(path, **limit))
        return info

    def is_page(self, name: str) -> bool:
        """Whether a web server returns a page of HTML under that name; raises as `read`."""
        return self._info(name).get("mimetype") == "text/html"

    def list(
        self,
        below: str = "",
        *,
        on_unnameable: Callable[[str], object] = lambda _: None,
        on_missing: Callable[[str], object] = lambda _: None,
    ) -> Iterator[StoredFile]:
        """All files, or those below a folder, in no particular order; none where there is no such folder.

        A listing has many requests, which cannot be repeated one by one, except for a web server's pages: the store's
        library repeats them, and not all are counted. Where a listing has no sizes, as that of a web server, each file
        is asked for.

        Args:
            below: the folder.
            on_unnameable: called with each name on a web server's pages that no file can have.
            on_missing: called with each name that is listed, but not there when it is asked for.

        Raises:
            UsageError: as `read`; or there are symbolic links, or the store does not say how large a file is.
            StoppedError: as `read`.

        """
        root, found = self._find(below, on_unnameable, on_missing)
        without_size: list[str] = []
        for path, info in found.items():
            if info.get("islink"):
                raise UsageError(
                    f"{self.address}: holds symbolic links ({path.removeprefix(f'{root}/')}), which are not followed; "
                    "name a folder of this machine by its path"
                )
            if info.get("type") != "file" or not path.startswith(f"{root}/"):
                continue
            if isinstance(info.get("size"), int):
                yield StoredFile.of(path.removeprefix(f"{root}/"), info)
            else:
                without_size.append(path.removeprefix(f"{root}/"))
        for name, stored in zip(without_size, map_on_threads(self._stat_listed, without_size), strict=True):
            if stored is None:
                on_missing(name)
            else:
                yield stored

    def _find(
        self, below: str, on_unnameable: Callable[[str], object], on_missing: Callable[[str], object]
    ) -> tuple[str, dict[str, dict[str, Any]]]:
        """The path of the address, and all files below `below`, by their paths."""
        if self.address.protocol in WEB:
            return self._filesystem()[1], self._find_by_pages(below.rstrip("/"), on_unnameable, on_missing)
        if self._listing is None or self._listing[0] != os.getpid():
            self._listing = (os.getpid(), *open_filesystem(self.address, repeats_requests=True))
        _, files, root = self._listing
        self.counter.add(requests=1)
        try:
            found = files.find(f"{root}/{below}".rstrip("/"), detail=True)
            return root, found if isinstance(found, dict) else {}  # adlfs: of a file, the list of its name
        except Exception as error:  # each store's library has errors of its own
            if kind_of_failure(error) == "transient":
                raise StoppedError(
                    f"{self.address}: cannot be listed ({self._reason(error)}); check the store, the network and "
                    "endpoint_url, then run the same command again"
                ) from None
            with suppress(MissingInStoreError):
                self._delay(below, error, None)
            return root, {}

    def _find_by_pages(
        self, below: str, on_unnameable: Callable[[str], object], on_missing: Callable[[str], object]
    ) -> dict[str, dict[str, Any]]:
        """The same of a web server, page by page: fsspec leaves out what is below a page that it cannot read."""
        root, found, folders = self._filesystem()[1], dict[str, dict[str, Any]](), [below]
        while folders:
            folder = folders.pop()
            try:
                if folder == below and self._info(folder).get("mimetype") not in _PAGES:
                    continue  # a file, however large
                page: bytes = self._attempt(folder, lambda files, path, limit: files.cat_file(path, **limit))
            except MissingInStoreError:
                if folder != below:
                    on_missing(folder)
                continue
            for name, is_folder in linked_names(page, f"{root}/{quoted(folder)}".rstrip("/")):
                path = f"{folder}/{name}" if folder else name
                if not is_name(name):
                    on_unnameable(path)
                elif is_folder:
                    folders.append(path)
                else:
                    found[f"{root}/{path}"] = {"type": "file"}
        return found

    def _stat_listed(self, name: str) -> StoredFile | None:
        """A file that is listed without its size; None where it is gone. Raises `UsageError` where that is unknown."""
        try:
            info = self._info(name)
        except MissingInStoreError:
            return None
        if not isinstance(info.get("size"), int):
            raise UsageError(
                f"{self.address}: the store does not say how large {name!r} is, so it cannot be fetched; copy the "
                "files to a folder of this machine"
            )
        return StoredFile.of(name, info)

    def accepts_credentials(self) -> bool:
        """Whether the store answers a request for the folder itself."""
        try:
            self._attempt("", lambda files, path, limit: files.info(path.rstrip("/"), **limit))
        except MissingInStoreError:
            return True
        except UsageError:
            return False
        return True

    def _attempt(
        self, name: str, request: Callable[[Any, str, dict[str, Any]], _Result], work: _Work = "read"
    ) -> _Result:
        delays_seconds = iter(RETRY_DELAYS_SECONDS)
        below = quoted(name) if self.address.protocol in WEB else name
        while True:
            files, root = self._filesystem()
            limit = {"timeout": REQUEST_TIMEOUT_SECONDS} if getattr(files, "async_impl", False) else {}
            self.counter.add(requests=1)
            try:
                return request(files, f"{root}/{below}", limit)
            except Exception as error:  # each store's library has errors of its own
                if kind_of_failure(error) == "beyond_end":
                    return b""  # type: ignore[return-value]  # only ranges have an end
                delay_seconds = self._delay(name, error, next(delays_seconds, None), work)
            self.counter.add(retries=1)
            self._sleep(delay_seconds)

    def _delay(self, name: str, error: Exception, delay_seconds: float | None, work: _Work = "read") -> float:
        """The delay before the next attempt; raises where there is none."""
        kind, where, reason = kind_of_failure(error), f"{self.address}/{name}".rstrip("/"), self._reason(error)
        if kind == "missing" and not is_missing_bucket(error):
            raise MissingInStoreError(name) from error
        if kind == "missing":
            raise UnusableStoreError(f"{self.address}: there is no such bucket ({reason}); check the address") from None
        if kind == "refused":
            what = f"{where}: the store refuses to {work} it ({reason})"
            raise RefusedByStoreError(what, by_credentials=is_of_credentials(error)) from None
        if kind == "unusable":
            raise UnusableStoreError(
                f"{where}: cannot be {_DONE[work]} ({reason}); check the address and storage_options"
            ) from None
        if delay_seconds is None:
            raise StoppedError(
                f"{where}: {reason}, also after {len(RETRY_DELAYS_SECONDS)} further attempts within "
                f"{sum(RETRY_DELAYS_SECONDS):.0f} s: the store does not {_UNMET[work]} the file; check the store, the "
                "network and endpoint_url, then resume"
            ) from None
        if delay_seconds >= _LONG_DELAY_SECONDS:
            _log.warning("%s: %s; retrying in %.0f s", where, reason, delay_seconds)
        return delay_seconds

    def _reason(self, error: Exception) -> str:
        code, text = code_of(error.__cause__ or error), self.address.redact(str(error)).strip().splitlines()
        num_lines = 2 if is_forbidden_by_google(error) else 1
        first = ": ".join(filter(None, text[:num_lines])) or type(error).__name__
        return first if code is None or code in first else f"{code}: {first}"

    def _filesystem(self) -> tuple[Any, str]:
        """The file system of this process and the dataset's path in it; created on first use, again after a fork."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            if opened is not None:
                self._lock = threading.Lock()  # a thread of the process before the fork may have held it
            with self._lock:
                if self._opened is None or self._opened[0] != os.getpid():
                    self._opened = (os.getpid(), *open_filesystem(self.address))
                opened = self._opened
        return opened[1], opened[2]


def _is_folder(name: str, info: Mapping[str, Any]) -> bool:
    """Whether it is no file: of a web server, what leads to an address with a slash, or to a page and has no suffix."""
    is_page = info.get("mimetype") == "text/html" and "." not in name.rpartition("/")[2]
    return is_page or info.get("type") == "directory" or str(info.get("url", "")).endswith("/")
