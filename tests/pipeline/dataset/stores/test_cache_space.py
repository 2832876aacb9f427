"""What the owner of a disk notices of a cache: its limit holds, what was used last stays."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pytest
from facefeed.pipeline.dataset.stores import blocks, cache_space
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.blocks import Block, BlockCache
from facefeed.pipeline.dataset.stores.cache_space import LAYOUT, CacheSpace
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.remote_files import RemoteFiles

SIZE = 1000


@pytest.fixture(autouse=True)
def _frees_no_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_space, "_EVICTION_MARGIN_SHARE", 0)


class Zeros(RemoteFiles):
    """Files of zeros without end, which are read by one thread after another."""

    def __init__(self) -> None:
        super().__init__(StoreAddress("memory://zeros"), StoreCounter())
        self.asked: list[tuple[str, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def read(self, name: str, start: int, end: int) -> bytes:
        self.gate.wait(60)
        self.asked.append((name, start // SIZE))
        return bytes(end - start)


def cache_of(folder: Path, *, limit: int = 1 << 20, dataset: str = "one") -> BlockCache:
    space = CacheSpace(folder, limit)
    return BlockCache(Zeros(), space, space.root / dataset / "blocks" / "rows", block_bytes=SIZE)


def load(cache: BlockCache, number: int) -> None:
    block = cache.load("file", number)
    assert block is not None
    assert block.read(1, 4) == bytes(3)
    block.close()


def asked(cache: BlockCache) -> list[int]:
    files = cache.files
    assert isinstance(files, Zeros)
    return [number for _, number in files.asked]


def test_the_limit_holds_and_what_was_used_least_recently_goes(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, limit=10 * SIZE)
    for number in range(10):
        load(cache, number)
        os.utime(cache.path("file", number), ns=(number, number))
    load(cache, 0)  # marks it as used
    for number in range(10, 15):
        load(cache, number)
        assert cache.space.used_bytes() <= 10 * SIZE
    assert [number for number in range(15) if cache.has("file", number)] == [0, *range(6, 15)]
    assert asked(cache) == [*range(15)]


def test_datasets_that_share_a_cache_share_its_limit(tmp_path: Path) -> None:
    first, second = (cache_of(tmp_path, limit=10 * SIZE, dataset=name) for name in ("one", "two"))
    for number in range(10):
        load(first, number)
        os.utime(first.path("file", number), ns=(number, number))
    for number in range(4):
        load(second, number)
    assert second.space.used_bytes() <= 10 * SIZE
    assert [number for number in range(10) if first.has("file", number)] == [*range(4, 10)]
    assert all(second.has("file", number) for number in range(4))


def test_a_block_that_is_evicted_while_it_is_open_can_be_read_to_its_end(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, limit=2 * SIZE)
    block = cache.load("file", 0)
    assert block is not None
    for number in range(1, 9):
        load(cache, number)
    assert not cache.has("file", 0)
    assert block.read(0, SIZE) == bytes(SIZE)
    block.close()


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(bytes(100 * SIZE))
    cache = cache_of(tmp_path, limit=2 * SIZE)
    for number in range(5):
        load(cache, number)
    assert (tmp_path / "mine").stat().st_size == 100 * SIZE
    assert cache.space.used_bytes() == 2 * SIZE


def test_what_killed_processes_left_is_counted_and_removed(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, limit=4 * SIZE)
    load(cache, 0)
    part = cache.path("file", 7).with_name("7.part")
    part.write_bytes(bytes(3 * SIZE))
    evicted = tmp_path / LAYOUT / "one" / "states" / ".evicted-1"
    evicted.mkdir(parents=True)
    (tmp_path / LAYOUT / "usage").write_bytes(b"damaged")
    load(cache, 1)
    assert not part.exists()
    assert not evicted.exists()
    assert cache.has("file", 0)
    assert cache.has("file", 1)


def test_a_block_larger_than_the_limit_is_read_and_not_kept(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, limit=SIZE - 1)
    load(cache, 0)
    load(cache, 0)
    assert asked(cache) == [0, 0]
    assert cache.space.used_bytes() == 0


def test_of_two_that_want_a_block_one_fetches_it_and_the_other_waits(tmp_path: Path) -> None:
    first, second = cache_of(tmp_path), cache_of(tmp_path)
    assert isinstance(first.files, Zeros)
    first.files.gate.clear()
    loaded: list[Block | None] = []
    threads = [threading.Thread(target=lambda: loaded.append(first.load("file", 0)))]
    threads[0].start()
    while not list(tmp_path.rglob("0.part")):
        threads[0].join(0.01)
    assert second.load("file", 0, timeout_seconds=0) is None  # it does not wait
    threads.append(threading.Thread(target=lambda: loaded.append(second.load("file", 0))))
    threads[1].start()
    first.files.gate.set()
    for thread in threads:
        thread.join(60)
    assert [block.read(0, 2) for block in loaded if block] == [bytes(2)] * 2
    assert (asked(first), asked(second)) == ([0], [])
    for block in loaded:
        assert block
        block.close()


def test_a_block_that_another_process_completes_as_it_is_asked_for_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, other = cache_of(tmp_path), cache_of(tmp_path)
    open_block = blocks._open

    def complete_after(path: Path) -> Block:
        monkeypatch.setattr(blocks, "_open", open_block)
        load(other, 0)
        raise FileNotFoundError

    monkeypatch.setattr(blocks, "_open", complete_after)
    load(cache, 0)
    assert (asked(cache), asked(other)) == ([], [0])
    assert [path.name for path in cache.path("file", 0).parent.iterdir()] == ["0"]


def test_a_block_that_its_store_does_not_return_is_asked_for_again(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)

    def fail(name: str, start: int, end: int) -> bytes:
        raise OSError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache.files, "read", fail)
        with pytest.raises(OSError):  # noqa: PT011 (it has no text)
            cache.load("file", 0)
    load(cache, 0)
    assert pickle.loads(pickle.dumps(cache.space)).limit_bytes == cache.space.limit_bytes
