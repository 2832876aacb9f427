"""What a training run notices of where its bytes lie: checked ranges, files that stay open, failures that pass."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import random
import zlib
from pathlib import Path

import pytest
from assets_dataset import copy_dataset
from assets_rows import make_small
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.dataset.byte_ranges import RETRY_DELAYS_SECONDS, ByteRangeReader, Storage, UnreadableFileError
from facefeed.pipeline.errors import CorruptDataError


class FailingStorage(Storage):
    """Counts opened files; the first reads fail with these errors; time passes only on its own clock."""

    def __init__(self, *failures: int, room: int = 1000, descriptors: int = 1000) -> None:
        self.failures, self.room, self.descriptors = list(failures), room, descriptors
        self.opened: list[str] = []
        self.waited: list[float] = []

    def open(self, path: Path) -> int:
        if self.descriptors == 0:
            self.descriptors = 1000
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.descriptors -= 1
        self.opened.append(path.name)
        return super().open(path)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        if self.failures:
            error_code = self.failures.pop(0)
            raise OSError(error_code, os.strerror(error_code))
        return super().read(descriptor, size, offset)

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    def max_open_files(self) -> int:
        return self.room


def letters(folder: Path, names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(name.encode())
    return folder


def read_all(ranges: ByteRangeReader, names: str) -> None:
    for name in names:
        assert ranges.read(name, 0, 1, zlib.crc32(name.encode())) == name.encode()


def test_a_range_is_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    ranges = ByteRangeReader(tmp_path)
    assert ranges.read("a", 2, 3, zlib.crc32(b"234")) == b"234"
    assert pickle.loads(pickle.dumps(ranges)).read("a", 0, 1, zlib.crc32(b"0")) == b"0"
    for offset, size, crc in ((2, 3, 0), (8, 3, zlib.crc32(b"89")), (20, 1, zlib.crc32(b""))):
        with pytest.raises(CorruptDataError, match=rf"a: the image at byte {offset} is not the one that was written"):
            ranges.read("a", offset, size, crc)


def test_the_error_message_of_the_system_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CorruptDataError, match=r"folder: Is a directory; run `facefeed verify"):
        ByteRangeReader(tmp_path).read("folder", 0, 1, 0)
    with pytest.raises(UnreadableFileError, match=r"gone: No such file or directory; run `facefeed verify"):
        ByteRangeReader(tmp_path).read("gone", 0, 1, 0)


def test_the_files_that_were_used_last_stay_open(tmp_path: Path) -> None:
    storage = FailingStorage(room=2)
    ranges = ByteRangeReader(letters(tmp_path, "abc"), storage)
    read_all(ranges, "abababcaca")
    assert "".join(storage.opened) == "abca"
    del ranges
    gc.collect()
    assert not [link for link in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(link)]


def test_thousands_of_images_of_hundreds_of_files_open_each_file_once(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / str(number)).write_bytes(b"0123456789")
    storage = FailingStorage()
    storage.max_open_files = lambda: Storage.max_open_files(storage)  # type: ignore[method-assign]  # this process's own limit
    ranges, rng = ByteRangeReader(tmp_path, storage), random.Random(0)
    for _ in range(3000):
        ranges.read(str(rng.randrange(300)), 0, 1, None)
    assert len(storage.opened) == len(set(storage.opened)) == 300


def test_where_the_process_has_no_descriptor_left_files_that_rested_are_closed(tmp_path: Path) -> None:
    storage = FailingStorage(descriptors=4)
    ranges = ByteRangeReader(letters(tmp_path, "abcde"), storage)
    read_all(ranges, "abcdeecd")
    assert "".join(storage.opened) == "abcde"


@pytest.mark.parametrize("failure", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT], ids=errno.errorcode.get)
def test_a_failure_of_storage_that_passes_is_waited_for(tmp_path: Path, failure: int) -> None:
    storage = FailingStorage(failure, failure)
    read_all(ByteRangeReader(letters(tmp_path, "a"), storage), "aa")
    assert storage.waited == list(RETRY_DELAYS_SECONDS[:2])
    assert "".join(storage.opened) == "aaa"  # a stale descriptor never recovers


@pytest.mark.parametrize("failure", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT], ids=errno.errorcode.get)
def test_a_failure_of_storage_that_lasts_ends_the_run_and_is_not_called_damage(tmp_path: Path, failure: int) -> None:
    storage = FailingStorage(*[failure] * 100)
    with pytest.raises(UnreadableFileError, match=rf"{errno.errorcode[failure]}.*35 s.*see to the disk or mount"):
        ByteRangeReader(letters(tmp_path, "a"), storage).read("a", 0, 1, 0)
    assert storage.waited == list(RETRY_DELAYS_SECONDS)


def test_a_loader_over_a_disk_that_fails_counts_no_image_as_damaged(tmp_path: Path) -> None:
    out = copy_dataset(make_small(tmp_path / "made"), tmp_path / "out")
    storage = FailingStorage(errno.EIO, errno.ESTALE)
    loader = FaceDataLoader(out, split="val", num_workers=0, image_size=8, batch_size=5)
    loader.dataset._read = ByteRangeReader(out, storage).read
    assert sum(len(labels) for _, labels in loader) == 15
    assert (loader.stats().corrupt, len(storage.waited)) == (0, 2)
    storage.failures = [errno.EIO] * 6
    with pytest.raises(UnreadableFileError, match="EIO"):
        list(loader)
    assert loader.stats().corrupt == 0
