"""`StagedFiles`: files of a store that are on the local disk while they are decoded."""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from ..dataset.stores.concurrent import map_on_threads
from ..dataset.stores.fetching import fetch_latest
from ..dataset.stores.remote_files import MissingInStoreError, RefusedByStoreError, RemoteFiles
from ..dataset.stores.stored_file import StoredFile
from ..errors import StoppedError, UsageError
from ..files import stop_on_disk_error
from ..video.image_folder import IMAGE_SUFFIXES
from .outline import is_path

STAGING_PREFIX = "staged-"
"""Of the folders of such files; a killed run leaves them."""


class StagedFiles:
    """Fetches files into a folder of its own below `temporary` and removes them again. One thread at a time.

    root: that folder; a file has the path below it that it has in the store.
    """

    def __init__(self, files: RemoteFiles, temporary: Path) -> None:
        self._files = files
        self.root = temporary / f"{STAGING_PREFIX}{uuid.uuid4().hex}"
        self._problems: dict[str, str | None] = {}  # of all names that were asked for
        with stop_on_disk_error(self.root):
            self.root.mkdir(parents=True, exist_ok=True)

    def fetch(self, name: str) -> str | None:
        """Fetches a file, or the images of a folder, unless that was done; nothing where the store has none.

        Returns why it cannot be read, where the store has it. Raises `StoppedError` where the store does not return it,
        refuses the credentials, or the local disk fails.
        """
        if name not in self._problems:
            try:
                with stop_on_disk_error(self.root / name):
                    self._problems[name] = self._fetch(name)
            except RefusedByStoreError as error:
                if error.by_credentials or not self._files.accepts_credentials():
                    raise StoppedError(str(error)) from error
                self._problems[name] = error.what
            except UsageError as error:
                raise StoppedError(str(error)) from error
        return self._problems[name]

    def discard(self) -> None:
        """Removes all files, but not the folder: a decoder that is confined to it could not read another one."""
        self._problems.clear()
        with stop_on_disk_error(self.root), suppress(FileNotFoundError):  # `close` has removed it
            for child in self.root.iterdir():
                if child.is_dir():
                    shutil.rmtree(child, ignore_errors=True)
                else:
                    child.unlink(missing_ok=True)

    def close(self) -> None:
        """Removes the folder; from any thread."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _fetch(self, name: str) -> str | None:
        target, part = self.root / name, self.root / ".part"
        try:
            if not fetch_latest(self._files, name, part):
                return "changes in the store again and again while it is read"
        except MissingInStoreError:
            part.unlink(missing_ok=True)
            self._fetch_images(name)
            return None
        if not part.stat().st_size and self._fetch_images(name):  # a tool has marked the folder by an empty file
            part.unlink()
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        part.rename(target)
        return None

    def _fetch_images(self, folder: str) -> bool:
        """Returns whether the store has a folder of images there."""
        suffixes = tuple(IMAGE_SUFFIXES)
        images = [
            stored
            for stored in self._files.list(folder)
            if stored.name.rpartition("/")[0] == folder
            and stored.name.lower().endswith(suffixes)
            and is_path(stored.name)
        ]
        if images:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
            map_on_threads(self._fetch_image, images)
        return bool(images)

    def _fetch_image(self, stored: StoredFile) -> None:
        """By one request, as listed. One that is gone, or of another size, is left out: the clip is another then."""
        try:
            data = self._files.read(stored.name, 0, stored.size_bytes + 1)
        except MissingInStoreError:
            return
        if len(data) == stored.size_bytes:
            target = self.root / stored.name
            target.write_bytes(data)
            os.utime(target, ns=(stored.mtime_ns, stored.mtime_ns))
