"""What a reader notices of where its bytes lie: ranges, files that stay open, failures that pass and that last."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from assets_storage import FailingStorage
from facefeed.pipeline.dataset.byte_ranges import RETRY_DELAYS_SECONDS, ByteRangeReader, MissingFileError, Storage
from facefeed.pipeline.errors import StoppedError


def letters(folder: Path, names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(name.encode())
    return folder


def read_all(ranges: ByteRangeReader, names: str) -> None:
    for name in names:
        assert ranges.read(name, 0, 1) == name.encode()


def test_a_range_is_read_and_ends_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    ranges = ByteRangeReader(tmp_path)
    assert [ranges.read("a", *span) for span in ((2, 3), (8, 3), (20, 1))] == [b"234", b"89", b""]
    assert pickle.loads(pickle.dumps(ranges)).read("a", 0, 1) == b"0"


@pytest.mark.parametrize(("put", "kind"), [(Path.mkdir, "a folder"), (os.mkfifo, "a pipe")])
def test_what_is_in_place_of_a_file_is_named_and_not_waited_for(
    put: Callable[[Path], None], kind: str, tmp_path: Path
) -> None:
    put(tmp_path / "a")
    with pytest.raises(MissingFileError, match=rf"a: is {kind}, must be a file; run `facefeed verify"):
        ByteRangeReader(tmp_path).read("a", 0, 1)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for gone, reason in (("gone", "No such file or directory"), ("file/gone", "Not a directory")):
        with pytest.raises(MissingFileError, match=rf"gone: {reason}; run `facefeed verify"):
            ByteRangeReader(tmp_path).read(gone, 0, 1)


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
        ranges.read(str(rng.randrange(300)), 0, 1)
    assert len(storage.opened) == len(set(storage.opened)) == 300


def test_where_the_process_has_no_descriptor_left_files_that_rested_are_closed(tmp_path: Path) -> None:
    storage = FailingStorage(descriptors=4)
    ranges = ByteRangeReader(letters(tmp_path, "abcde"), storage)
    read_all(ranges, "abcdeecd")
    assert "".join(storage.opened) == "abcde"


PASSING = [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN]
"""EAGAIN: of a file that another process, such as a file server, holds a lease on until it hears that it is wanted."""


@pytest.mark.parametrize("failure", PASSING, ids=errno.errorcode.get)
def test_a_failure_of_storage_that_passes_is_waited_for(tmp_path: Path, failure: int) -> None:
    storage = FailingStorage(failure, failure)
    read_all(ByteRangeReader(letters(tmp_path, "a"), storage), "aa")
    assert storage.waited == list(RETRY_DELAYS_SECONDS[:2])
    assert "".join(storage.opened) == "aaa"  # a stale descriptor never recovers


@pytest.mark.parametrize("failure", PASSING, ids=errno.errorcode.get)
def test_a_failure_of_storage_that_lasts_ends_the_run_and_is_not_called_damage(tmp_path: Path, failure: int) -> None:
    storage = FailingStorage(*[failure] * 100)
    with pytest.raises(StoppedError, match=rf"{errno.errorcode[failure]}.*35 s.*check the disk or mount"):
        ByteRangeReader(letters(tmp_path, "a"), storage).read("a", 0, 1)
    assert storage.waited == list(RETRY_DELAYS_SECONDS)
