"""`WritableFiles`: files of a store that are created only where there is none, replaced and removed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..failures import is_missing_bucket
from ..filesystem import AZURE
from ..remote_files import MissingInStoreError, RemoteFiles, UnusableStoreError

_SLOWEST_BYTES_A_SECOND = 1 << 20

Content = bytes | Path
"""What a file is to hold: bytes, or those of a local file."""


class WritableFiles(RemoteFiles):
    """Files below an address that may be written. What is written is there as a whole, or not at all."""

    def create(self, name: str, content: Content) -> None:
        """Writes a file where there is none.

        Raises:
            FileExistsError: there is one, be it the one that a request of this very call wrote, whose answer was lost.
            UsageError: the store refuses it, or cannot create files on this condition.
            StoppedError: the store does not answer.

        """
        if not self._write(name, content, mode="create"):
            raise FileExistsError(name)

    def replace(self, name: str, content: Content) -> None:
        """Writes a file, in place of the one of that name if there is one; raises as `create`."""
        self._write(name, content)

    def _write(self, name: str, content: Content, **mode: str) -> bool:
        size_bytes = len(content) if isinstance(content, bytes) else content.stat().st_size

        def request(files: Any, path: str, limit: dict[str, Any]) -> bool:
            limit = _longer(limit, size_bytes)
            unfinished = None
            try:
                if isinstance(content, bytes):
                    files.pipe_file(path, content, **mode, **limit)
                else:
                    files.put_file(str(content), path, **mode, **limit)
            except FileExistsError:
                return False
            except FileNotFoundError as error:
                if is_missing_bucket(error) or not _has_bucket(files, path):
                    raise
                unfinished = str(error)
            if unfinished is not None:  # of a file in parts, whose last answer was lost: it cannot be taken back either
                raise ConnectionError(unfinished)
            return True

        try:
            return self._attempt(name, request, "write")
        except MissingInStoreError:
            raise UnusableStoreError(f"{self.address}: there is no such bucket; check the address") from None

    def copy(self, name: str, target: str, size_bytes: int) -> None:
        """Copies a file of that size within the store.

        Raises `MissingInStoreError` where it is not there, else as `create`.
        """

        def request(files: Any, path: str, limit: dict[str, Any]) -> None:
            copied = f"{path.removesuffix(name)}{target}"
            files.cp_file(path, copied, **_longer(limit, size_bytes))
            # Azure may answer first and copy later: until then there is an empty file.
            if self.address.protocol in AZURE and size_bytes and not files.info(copied, **limit)["size"]:
                raise ConnectionError("the copy is not finished yet")

        self._attempt(name, request, "write")

    def remove(self, name: str) -> None:
        """Removes a file, if it is there; raises as `create`."""
        with suppress(MissingInStoreError):
            self._attempt(name, lambda files, path, limit: files.rm_file(path, **limit), "remove")


def _has_bucket(files: Any, path: str) -> bool:
    """Whether there is the bucket of a path; assumed where it cannot be listed."""
    try:
        files.ls(path.partition("/")[0])
    except Exception as error:  # each store's library has errors of its own
        return not isinstance(error, FileNotFoundError)
    return True


def _longer(limit: Mapping[str, float], size_bytes: int) -> dict[str, float]:
    """The time limit of a request, as fsspec takes it, for so many bytes."""
    return {name: seconds + size_bytes / _SLOWEST_BYTES_A_SECOND for name, seconds in limit.items()}
