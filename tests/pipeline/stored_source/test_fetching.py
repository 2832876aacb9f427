"""Files of a store are copied whole, whatever single responses hold."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from assets_stores import without_delays
from facefeed.pipeline.dataset.stores import fetching
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.fetching import fetch_latest
from facefeed.pipeline.dataset.stores.remote_files import RemoteFiles
from facefeed.pipeline.errors import StoppedError
from fsspec.implementations.local import LocalFileSystem

CONTENT = bytes(range(1, 101))
Spoil = Callable[[bytes, int], bytes]
"""From what the store would return of the second block, and the number of the request, to what it returns."""


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Spoil], bytes | None]:
    """Copies a file of ten blocks; None where it changes again and again."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a.mp4").write_bytes(CONTENT)
    monkeypatch.setattr(fetching, "BLOCK_BYTES", 10)
    without_delays(monkeypatch)
    cat_file, asked = LocalFileSystem.cat_file, Counter[int]()

    def call(spoil: Spoil) -> bytes | None:
        def spoilt(files: Any, path: str, start: int, end: int, **more: Any) -> bytes:
            data: bytes = cat_file(files, path, start=start, end=end, **more)
            asked[start] += 1
            return spoil(data, asked[start]) if start == 10 else data

        monkeypatch.setattr(LocalFileSystem, "cat_file", spoilt)
        files = RemoteFiles(StoreAddress(f"file://{tmp_path}/store", {}), StoreCounter())
        target = tmp_path / "copy.mp4"
        return target.read_bytes() if fetch_latest(files, "a.mp4", target) else None

    return call


@pytest.mark.parametrize("size", [0, 4, 15])
def test_a_response_of_another_length_is_asked_for_again(fetch: Callable[[Spoil], bytes | None], size: int) -> None:
    assert fetch(lambda data, number: data if number > 3 else (data * 2)[:size]) == CONTENT


def test_a_store_that_never_returns_a_part_stops_the_run_and_no_zeros_are_decoded(
    fetch: Callable[[Spoil], bytes | None],
) -> None:
    with pytest.raises(StoppedError, match=r"a.mp4: returns 4 of 10 bytes, also after 5 further attempts"):
        fetch(lambda data, _: data[:4])


class OutOfRangeError(Exception):
    """As of a store whose response is 416."""

    status = 416


def test_a_store_that_takes_the_middle_for_the_end_stops_the_run_and_no_zeros_are_decoded(
    fetch: Callable[[Spoil], bytes | None],
) -> None:
    def refuse_later(data: bytes, number: int) -> bytes:
        if number > 1:
            raise OutOfRangeError
        return data[:4]

    with pytest.raises(StoppedError, match=r"a.mp4: returns 0 of 10 bytes; resume"):
        fetch(refuse_later)


def test_a_disk_that_is_full_for_a_moment_leaves_no_hole_in_a_copy(
    fetch: Callable[[Spoil], bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write that fills a disk reports a short count and no error."""
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:4] if at == 10 else data, at))
    assert fetch(lambda data, _: data) == CONTENT


def test_a_file_that_is_cut_off_meanwhile_is_copied_as_it_is_then(
    fetch: Callable[[Spoil], bytes | None], tmp_path: Path
) -> None:
    def cut(data: bytes, number: int) -> bytes:
        if number == 1:
            (tmp_path / "store/a.mp4").write_bytes(CONTENT[:14])
        return data[:4]

    assert fetch(cut) == CONTENT[:14]
