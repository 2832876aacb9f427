"""`StagedFiles`: files of a store that are on the local disk while they are decoded."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from ..dataset.stores.fetching import fetch_latest
from ..dataset.stores.remote_files import MissingInStoreError, RemoteFiles
from ..errors import StoppedError, UsageError
from ..files import stop_on_disk_error
from ..video.image_folder import IMAGE_SUFFIXES

STAGING_PREFIX = "staged-"
"""Of the folders of such files; a killed run leaves them."""


class StagedFiles:
    """Fetches files into a folder of its own below `temporary` and removes them again. One thread at a time.

    root: that folder; a file has the path below it that it has in the store.
    """

    def __init__(self, files: RemoteFiles, temporary: Path) -> None:
        self._files = files
        self.root = temporary / f"{STAGING_PREFIX}{uuid.uuid4().hex}"
        with stop_on_disk_error(self.root):
            self.root.mkdir(parents=True, exist_ok=True)

    def fetch(self, name: str) -> None:
        """Fetches a file, or the images of a folder, unless they are there; nothing where the store has none.

        Raises `StoppedError` where the store does not return it or refuses it, or the local disk fails.
        """
        target = self.root / name
        if target.exists():
            return
        try:
            with stop_on_disk_error(target):
                if not self._fetch_file(name):
                    self._fetch_images(name)
        except UsageError as error:  # of credentials that have expired, for example: no input's fault
            raise StoppedError(str(error)) from error

    def discard(self) -> None:
        """Removes all files, but not the folder: a decoder that is confined to it could not read another one."""
        with stop_on_disk_error(self.root):
            for child in self.root.iterdir():
                if child.is_dir():
                    shutil.rmtree(child, ignore_errors=True)
                else:
                    child.unlink(missing_ok=True)

    def close(self) -> None:
        """Removes the folder; from any thread."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _fetch_file(self, name: str) -> bool:
        """Returns whether there is such a file. One that changes again and again is left out."""
        target, part = self.root / name, self.root / ".part"
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if fetch_latest(self._files, name, part):
                part.rename(target)
        except MissingInStoreError:
            return False
        return True

    def _fetch_images(self, folder: str) -> None:
        for stored in self._files.list(folder):
            is_direct = stored.name.rpartition("/")[0] == folder
            if is_direct and stored.name.lower().endswith(tuple(IMAGE_SUFFIXES)):
                self._fetch_file(stored.name)
