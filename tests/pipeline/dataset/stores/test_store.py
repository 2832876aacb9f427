"""What a reader notices of a dataset in a store: the same bytes, few requests, a cache that may be lost or damaged."""

from __future__ import annotations

import errno
import gc
import logging
import os
import pickle
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from assets_dataset import make_dataset
from assets_stores import BLOCK_BYTES, blocks_of, opened, small_blocks, uploaded
from facefeed.pipeline.dataset.byte_ranges import MissingFileError
from facefeed.pipeline.dataset.image_codec import ImageEncoder
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.index_like import OutdatedIndex
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.dataset.stores.blocks import Block
from facefeed.pipeline.dataset.stores.cache_space import CacheSpace
from facefeed.pipeline.dataset.stores.opening import OpenStore, StoreOptions
from facefeed.pipeline.dataset.stores.remote_files import RemoteFiles
from facefeed.pipeline.errors import CorruptDataError, UsageError


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stores") / "out"
    make_dataset(out)
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a dataset, whose files have several blocks each."""
    small_blocks(monkeypatch)
    return Path(shutil.copytree(finished, tmp_path / "out"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def images_of(store: OpenStore) -> list[bytes]:
    images = StoredImages(store.index, store.reader)
    return [images.image(row) for row in range(len(store.index))]


def local_images(out: Path) -> list[bytes]:
    images = StoredImages(Index(out))
    return [images.image(row) for row in range(len(Index(out)))]


@pytest.fixture
def memory(out: Path) -> Iterator[str]:
    files = fsspec.filesystem("memory")
    uploaded(out, files, "/faces")
    yield "memory://faces"
    files.rm("/faces", recursive=True)


def test_a_dataset_in_a_store_has_the_images_of_the_local_one(out: Path, memory: str, cache: Path) -> None:
    for number, url in enumerate((memory, f"file://{out}", f"file://{out}/")):
        store = opened(url, cache / str(number))
        assert images_of(store) == local_images(out)
        assert store.reader.counter.take().requests == len(blocks_of(cache / str(number)))
        assert images_of(pickle.loads(pickle.dumps(store))) == local_images(out)
        cached = opened(url, cache / str(number))
        assert images_of(cached) == local_images(out)
        assert cached.reader.counter.take().requests == 0


def test_neighbouring_images_are_one_request_and_what_is_cached_is_none(out: Path, cache: Path) -> None:
    store = opened(f"file://{out}", cache)
    images, rows = StoredImages(store.index, store.reader), range(len(store.index))
    images.prefetch(rows, masks=False)
    counts = store.reader.counter.take()
    most = sum(-(-path.stat().st_size // BLOCK_BYTES) for path in out.rglob("*.parquet"))
    assert 1 < counts.requests == counts.misses <= most < len(rows)
    assert (counts.hits, counts.retries, counts.fetched_bytes > 0) == (0, 0, True)
    images.prefetch(rows, masks=False)
    again = store.reader.counter.take()
    assert (again.requests, again.hits, again.misses) == (0, counts.requests, 0)
    assert (again.hit_share, counts.hit_share) == (1, 0)


def test_processes_that_share_a_cache_fetch_each_block_once(out: Path, cache: Path) -> None:
    store = opened(f"file://{out}", cache)
    (cache / "store.pickle").write_bytes(pickle.dumps((store.index, store.reader)))
    code = (
        "import pickle, sys, pathlib\n"
        "from facefeed.pipeline.dataset.stored_images import StoredImages\n"
        "images = StoredImages(*pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()))\n"
        "print('ready', flush=True), sys.stdin.readline()\n"
        "images.prefetch(range(len(images._index)), masks=True)\n"
        "print(images.ranges.counter.take().requests)\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(cache / "store.pickle")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    requests = [int(process.communicate()[0]) for process in started]
    assert sum(requests) == len(blocks_of(cache)) > 1


def test_a_damaged_block_of_the_cache_is_fetched_again_and_damage_in_the_store_is_reported(
    out: Path, cache: Path
) -> None:
    assert images_of(opened(f"file://{out}", cache)) == local_images(out)
    for path in blocks_of(cache):
        path.write_bytes(bytes(path.stat().st_size))  # as a power failure may leave it
    store = opened(f"file://{out}", cache)
    assert images_of(store) == local_images(out)
    assert store.reader.counter.take().requests == len(blocks_of(cache))
    file = out / str(store.index.text("file", 0))
    file.write_bytes(bytes(file.stat().st_size))
    for path in blocks_of(cache):
        path.write_bytes(b"")
    store = opened(f"file://{out}", cache)
    images = StoredImages(store.index, store.reader)
    for requests in (2, 0):  # the block, and once more; then it is known to be damaged
        with pytest.raises(CorruptDataError, match=r"parquet: the image at byte \d+ is not the one .* copy the file"):
            images.image(0)
        assert store.reader.counter.take().requests <= requests


@pytest.mark.parametrize("kept_bytes", [0, 4000, -3])
def test_an_index_that_is_cut_in_the_cache_is_reported_with_what_fetches_it_again(
    out: Path, cache: Path, kept_bytes: int
) -> None:
    url = f"file://{out}"
    folder = opened(url, cache).folder
    index = folder / "index.arrow"
    content = index.read_bytes()
    index.unlink()
    index.write_bytes(content[:kept_bytes])
    with pytest.raises(CorruptDataError, match=f"cannot be read .*; remove {folder}, so that it is fetched again"):
        opened(url, cache)
    shutil.rmtree(folder)
    assert images_of(opened(url, cache)) == local_images(out)


def test_a_manifest_that_is_damaged_in_the_cache_is_reported_with_what_fetches_it_again(out: Path, cache: Path) -> None:
    url = f"file://{out}"
    folder = opened(url, cache).folder
    (folder / "manifest.json").write_text("{")
    with pytest.raises(CorruptDataError, match=f"not a manifest .*; remove {folder}, so that it is fetched again"):
        opened(url, cache)
    shutil.rmtree(folder)
    assert images_of(opened(url, cache)) == local_images(out)


def test_an_index_whose_bytes_were_changed_in_the_store_is_refused_as_it_is_fetched(out: Path, cache: Path) -> None:
    index, scores = out / "index.arrow", Index(out).batches(["score"])
    (buffer,) = [each for each in next(iter(scores)).column(0).buffers() if each is not None]
    content = index.read_bytes()
    start = content.index(bytes(buffer))
    index.write_bytes(content[:start] + bytes([content[start] ^ 1]) + content[start + 1 :])
    with pytest.raises(CorruptDataError, match=rf"^file://{out}: .*column score: .* copy OUT to the store again"):
        opened(f"file://{out}", cache)
    index.write_bytes(content)
    assert images_of(opened(f"file://{out}", cache)) == local_images(out)


def test_a_cache_that_somebody_removes_is_fetched_again(out: Path, cache: Path) -> None:
    store = opened(f"file://{out}", cache)
    assert images_of(store) == local_images(out)
    text = pickle.dumps(store)
    shutil.rmtree(cache)
    images = StoredImages(store.index, store.reader.for_another_thread())
    assert [images.image(row) for row in range(len(store.index))] == local_images(out)
    assert images_of(pickle.loads(text)) == local_images(out)


def test_what_a_killed_process_left_is_written_over(out: Path, cache: Path) -> None:
    assert images_of(opened(f"file://{out}", cache)) == local_images(out)
    for path in blocks_of(cache):
        path.rename(path.with_name(f"{path.name}.part"))
    state = next(cache.glob("*/*/states/[!.]*"))
    state.rename(state.with_name(".new"))
    assert images_of(opened(f"file://{out}", cache)) == local_images(out)
    assert not [path for path in blocks_of(cache) if path.suffix]
    assert [path.name for path in state.parent.iterdir() if path.name != ".lock"] == [state.name]


class FullDisk(CacheSpace):
    def write(self, descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_with_a_full_disk_all_is_read_from_the_store_with_one_warning(
    out: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(f"file://{out}", cache)
    store.reader._cache.space = FullDisk(cache, 1 << 30)
    with caplog.at_level(logging.WARNING):
        assert images_of(store) == local_images(out)
    assert [record.message for record in caplog.records if "No space left" in record.message] == caplog.messages
    assert len(caplog.records) == 1
    assert blocks_of(cache) == []
    store.reader.counter.take()
    store.reader.read_ahead([(str(store.index.text("file", 0)), 0, 100_000)])
    assert store.reader.counter.take().requests == 0  # it would be fetched twice


@pytest.mark.parametrize("room", ["full", "small", "ample"])
def test_a_batch_fetches_each_block_once_whatever_room_the_cache_has_and_keeps_few_of_them(
    out: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    small_blocks(monkeypatch, 4 << 10)
    store = opened(f"file://{out}", cache)
    if room != "ample":
        store.reader._cache.space = FullDisk(cache, 1 << 30) if room == "full" else CacheSpace(cache, 64 << 10)
    created, alive, init, read = list[weakref.ref[Block]](), list[int](), Block.__init__, RemoteFiles.read

    def register(block: Block, *given: Any, **more: Any) -> None:
        init(block, *given, **more)
        created.append(weakref.ref(block))

    def count(files: RemoteFiles, *given: Any) -> bytes:
        alive.append(sum(block() is not None for block in created))
        return read(files, *given)

    monkeypatch.setattr(Block, "__init__", register)
    monkeypatch.setattr(RemoteFiles, "read", count)
    images, rows = StoredImages(store.index, store.reader), range(len(store.index))
    for _ in range(2):
        images.prefetch(rows, masks=False)
        counts = store.reader.counter.take()
        assert counts.hits + counts.misses > 64
        assert counts.requests == counts.misses
        assert [images.image(row) for row in rows] == local_images(out)
        assert store.reader.counter.take().requests == 0
    assert max(alive) <= 32


def test_all_images_of_a_damaged_block_are_fetched_again_after_they_were_prefetched(out: Path, cache: Path) -> None:
    assert images_of(opened(f"file://{out}", cache)) == local_images(out)
    for path in blocks_of(cache):
        path.write_bytes(bytes(path.stat().st_size))
    store = opened(f"file://{out}", cache)
    images, rows = StoredImages(store.index, store.reader), range(len(store.index))
    images.prefetch(rows, masks=False)
    assert [images.image(row) for row in rows] == local_images(out)
    assert store.reader.counter.take().requests == len(blocks_of(cache))


def test_an_update_of_the_store_is_seen_at_the_next_opening_and_refused_to_readers_of_before(
    out: Path, cache: Path, tmp_path: Path
) -> None:
    store = opened(f"file://{out}", cache)
    text = pickle.dumps(store.index)
    shutil.rmtree(out)
    make_dataset(out, image=ImageEncoder(quality=80))
    updated = opened(f"file://{out}", cache)
    assert updated.folder != store.folder
    assert images_of(updated) == local_images(out)
    with pytest.raises(MissingFileError, match=r"has changed since it was opened"):
        images_of(store)
    assert not isinstance(pickle.loads(text), OutdatedIndex)  # its state is in the cache still
    shutil.rmtree(cache)
    assert isinstance(pickle.loads(text), OutdatedIndex)


def test_a_copy_that_was_stopped_half_way_is_refused(out: Path, cache: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "other", image=ImageEncoder(quality=80))
    index = (out / "index.arrow").read_bytes()
    shutil.copy(tmp_path / "other" / "index.arrow", out / "index.arrow")
    with pytest.raises(CorruptDataError, match=r"file://.*/out: index and manifest are of two states"):
        opened(f"file://{out}", cache)
    (out / "index.next.arrow").write_bytes(index)  # as a run leaves it that was killed as it published
    assert images_of(opened(f"file://{out}", cache))
    (out / "index.arrow").unlink()
    with pytest.raises(UsageError, match=r"has no index.arrow; copy all of OUT"):
        opened(f"file://{out}", cache)
    (out / "manifest.json").unlink()
    with pytest.raises(UsageError, match=r"no manifest.json, so no finished dataset"):
        opened(f"file://{out}", cache)


def test_the_index_of_an_open_dataset_stays_and_that_of_none_goes_first(out: Path, cache: Path) -> None:
    store = opened(f"file://{out}", cache)
    size_bytes = sum(path.stat().st_size for path in store.folder.iterdir())
    space = CacheSpace(cache, size_bytes)
    assert not space.reserve(1)
    assert store.folder.is_dir()
    text = pickle.dumps(store)
    del store
    gc.collect()
    assert space.reserve(1)
    assert list((cache / "facefeed-store-cache-1").glob("*/states/[!.]*")) == []
    assert images_of(pickle.loads(text)) == local_images(out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_bytes": 1000}, r"cache_bytes=1000: must be a number of bytes of at least 67,108,864; try 200 << 30"),
        ({"cache_bytes": "200GB"}, r"cache_bytes='200GB': must be a number of bytes"),
        ({"storage_options": ["endpoint"]}, r"storage_options: must be a dict of options"),
        ({"cache": Path("/proc/cache")}, r"cache='/proc/cache': cannot be written"),
    ],
)
def test_options_that_cannot_hold_are_refused(
    out: Path, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        opened(f"file://{out}", **{"cache": tmp_path / "cache"} | options)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///nowhere", r"file:///nowhere: no manifest.json"),
        ("s3://", r"names no folder of the store; try 's3://bucket/faces'"),
        ("gs://faces", r"gs:// needs a package .* run `pip install 'facefeed\[gcs\]'`"),
        ("nosuch://faces", r"nosuch://faces: cannot be opened \(Protocol not known: nosuch\)"),
    ],
)
def test_addresses_that_cannot_be_read_are_refused(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opened(url, tmp_path / "cache")


def test_without_the_extra_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(UsageError, match=r"s3:// needs a package .* run `pip install 'facefeed\[s3\]'`"):
        opened("s3://bucket/faces", tmp_path / "cache")


def test_a_cache_without_a_limit_takes_half_of_what_the_disk_has_free(tmp_path: Path) -> None:
    space, free = StoreOptions(cache=tmp_path).space(), shutil.disk_usage(tmp_path).free
    assert 0.4 * free < space.limit_bytes < 0.6 * free


def test_a_cache_below_the_home_folder_is_there_and_not_in_a_folder_called_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    options = StoreOptions.of(cache="~/faces-cache", cache_bytes=None, storage_options=None)
    assert options.cache == tmp_path / "faces-cache"
