"""What training notices of a dataset in a store: the images, order and states of a local one, and what reading took."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from assets_docs import GUIDES, blocks
from assets_rows import damage, make_small, shown
from assets_stores import blocks_of, s3_server, small_blocks, uploaded, without_delays
from facefeed.loaders import Clip, FaceDataLoader, FaceDataset, Pairs
from facefeed.loaders.augment import MouthCrop
from facefeed.loaders.batching.batch_dataset import BatchDataset
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.stores import opening
from facefeed.pipeline.errors import CorruptDataError, UsageError


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


@pytest.fixture
def out(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_blocks(monkeypatch, 8 << 10)
    return Path(shutil.copytree(finished, tmp_path / "out"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def loader_of(source: Any, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(source, **{"num_workers": 0, "image_size": 16, "batch_size": 16, "dtype": "uint8", **options})


def address_of(out: Path) -> str:
    return f"file://{out}"


@pytest.mark.parametrize(
    "options",
    [
        {}, {"shuffle": False}, {"shuffle": "window", "window_images": 128}, {"balance": Pairs()}, {"split": "val"},
        {"clip": Clip(frames=4)}, {"fields": ("image", "label", "mask", "video_id")}, {"crop": "sbi", "image_size": 32},
        {"filters": [("label", "==", 1)], "frames_per_video": 8},
    ],
    ids=str,
)  # fmt: skip
def test_images_and_order_are_those_of_the_local_dataset(out: Path, cache: Path, options: dict[str, Any]) -> None:
    local, stored = loader_of(out, **options), loader_of(address_of(out), cache=cache, cache_bytes=1 << 30, **options)
    for _ in range(2):
        assert shown(stored) == shown(local) != []
    assert stored.state_dict() == local.state_dict()
    assert (stored.stats().corrupt, local.stats().store) == (0, None)


def test_a_state_of_either_resumes_the_other_at_the_next_image(out: Path, cache: Path) -> None:
    local, stored = loader_of(out), loader_of(address_of(out), cache=cache, cache_bytes=1 << 30)
    expected = shown(loader_of(out))
    for first, second in ((local, stored), (stored, local)):
        first.set_epoch(0)
        batches = iter(first)
        begun = [next(batches), next(batches)]
        state = first.state_dict()
        del batches
        second.load_state_dict(state)
        assert shown(begun) + shown(second) == expected


def test_workers_share_the_cache_and_their_counts_come_together(out: Path, cache: Path) -> None:
    stored = loader_of(address_of(out), cache=cache, cache_bytes=1 << 30, num_workers=2)
    assert shown(stored) == shown(loader_of(out))
    cold = stored.stats().store
    assert cold is not None
    assert cold.requests == len(blocks_of(cache)) > 1
    assert (cold.retries, cold.fetched_bytes > 0, cold.hits + cold.misses >= cold.requests) == (0, True, True)
    assert shown(stored)
    warm = stored.stats().store
    assert warm is not None
    assert (warm.requests, warm.misses, warm.hit_share) == (0, 0, 1)
    assert "; store: 0 requests, 0 MB fetched, 100% of" in str(stored.stats())


def test_torchs_own_loader_reads_a_batch_at_once(out: Path, cache: Path) -> None:
    local, stored = FaceDataset(out, image_size=16), FaceDataset(address_of(out), image_size=16, cache=cache)
    for dataset in (stored, pickle.loads(pickle.dumps(stored))):
        batches = torch.utils.data.DataLoader(dataset, batch_size=16)
        assert shown(batches) == shown(torch.utils.data.DataLoader(local, batch_size=16))
    assert stored.stores.datasets[0].reader.counter.take().requests == len(blocks_of(cache))
    assert stored.out != local.out


def test_a_mixture_takes_addresses_beside_folders(out: Path, cache: Path) -> None:
    other = Path(shutil.copytree(out, out.with_name("other")))
    local = loader_of([out, other], shuffle="window")
    stored = loader_of([address_of(out), other], shuffle="window", cache=cache, cache_bytes=1 << 30)
    assert stored.dataset.index.names == ["out", "other"]
    assert shown(stored) == shown(local)
    counts = stored.stats().store
    assert counts is not None
    assert counts.requests == len(blocks_of(cache)) > 0


def test_messages_name_the_address_and_not_the_folder_of_the_cache(out: Path, cache: Path) -> None:
    other = Path(shutil.copytree(out, out.with_name("other")))
    settings: dict[str, Any] = {"cache": cache, "cache_bytes": 1 << 30}
    loader = pickle.loads(pickle.dumps(loader_of([address_of(out), other], **settings)))
    assert [str(each.out) for each in loader.describe().datasets] == [address_of(out), str(other)]
    assert f"; {address_of(out)}" in str(loader.describe())
    for source in (address_of(out), [address_of(out), other]):
        lacking = (
            f"MouthCrop: needs landmarks_68, which {address_of(out)} lacks; run `facefeed add OUT landmarks` on the"
        )
        with pytest.raises(UsageError, match=lacking):
            loader_of(source, face_transform=[MouthCrop()], **settings)
    with pytest.raises(UsageError, match=rf"rename: out \({address_of(out)}\) has no label 'nobody'"):
        loader_of([address_of(out), other], rename={"out": {"label": {"nobody": "real"}}}, **settings)


def test_windows_are_fetched_before_batches_need_them(out: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for order in ({"shuffle": "window", "window_images": 128}, {"shuffle": False}):
        shutil.rmtree(cache, ignore_errors=True)
        stored = loader_of(address_of(out), cache=cache, cache_bytes=1 << 30, **order)
        batches = iter(stored)
        next(batches)
        expected = stored.dataset.stores.block_bytes(stored.dataset.rows) // (8 << 10)
        ahead = stored._request_preparer._readahead
        assert ahead is not None
        ahead._windows.put(None)  # ends the thread once it has fetched what was submitted
        for thread in [each for each in threading.enumerate() if each.name == "facefeed-readahead"]:
            thread.join(60)
        assert len(blocks_of(cache)) == expected
        del batches


def test_damage_in_the_store_is_replaced_and_reported_with_what_to_do(
    out: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = int(FaceDataset(out).rows[5])
    damage(out, row)
    stored = loader_of(address_of(out), cache=cache)
    assert len(shown(stored)) == 107
    assert stored.stats().corrupt == 1
    assert "run `facefeed verify` on the folder that it was copied from, and copy the file again" in caplog.text
    with pytest.raises(CorruptDataError, match=rf"file://{out}/faces/train/.* is not the one that was written"):
        shown(loader_of(address_of(out), cache=cache, on_corrupt="raise"))


def test_a_cache_smaller_than_the_dataset_is_advised_windows(
    out: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enough = str(loader_of(address_of(out), cache=cache, cache_bytes=1 << 30).describe())
    assert f"store: 0 MB of file://{out}, a cache of 1,074 MB" in enough
    assert "advice" not in enough
    monkeypatch.setattr(opening, "_MIN_CACHE_BYTES", 1)
    small = {"cache": cache, "cache_bytes": 100_000}
    description = loader_of(address_of(out), **small).describe()
    assert description.store is not None
    assert description.store.epoch_bytes > description.store.cache_bytes == 100_000
    assert "advice: shuffle='window': the cache holds" in str(description)
    for order in ({"shuffle": "window", "window_images": 256}, {"shuffle": False}):
        windowed = loader_of(address_of(out), **order, **small).describe()
        assert windowed.store is not None
        assert windowed.store.advice.startswith("cache_bytes=")
        assert "two windows take more than the cache" in windowed.store.advice
        assert windowed.store.advice.endswith("or window_images=128")
    smallest = loader_of(address_of(out), shuffle="window", window_images=128, **small).describe().store
    assert smallest is not None
    assert smallest.advice.endswith("before their use"), "no window is smaller"


def test_windows_of_clips_are_advised_with_the_bytes_and_the_number_of_all_their_images(
    out: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_MIN_CACHE_BYTES", 1)
    small_blocks(monkeypatch, 1 << 10)
    options = {"shuffle": "window", "window_images": 2048, "clip": Clip(frames=4, pick="all")}
    store = loader_of(address_of(out), cache=cache, cache_bytes=90_000, **options).describe().store
    assert store is not None
    assert store.advice.startswith(f"cache_bytes={2 * store.epoch_bytes}: two windows")  # one window has all clips
    assert store.advice.endswith("or window_images=512")


def test_a_cache_that_is_far_too_small_changes_no_image(
    out: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_MIN_CACHE_BYTES", 1)
    stored = loader_of(address_of(out), cache=cache, cache_bytes=100_000)
    assert shown(stored) == shown(loader_of(out))
    assert sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) <= 100_100


def test_what_is_of_stores_alone_is_refused_with_a_folder(out: Path, cache: Path) -> None:
    for options in ({"cache": cache}, {"cache_bytes": 1 << 30}, {"storage_options": {"anon": True}}):
        with pytest.raises(UsageError, match=r"is a folder, and cache, cache_bytes .* give 'file:///.*' to read"):
            loader_of(out, **options)
    with pytest.raises(UsageError, match=r"cache: belongs to the dataset"):
        loader_of(FaceDataset(out, image_size=16), cache=cache, image_size="auto")
    with pytest.raises(UsageError, match=r"cache=3: must be a folder of a local disk"):
        loader_of(address_of(out), cache=3)


# ---- a real S3 server that misbehaves


@pytest.fixture
def on_s3(out: Path) -> Iterator[tuple[str, Any]]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as server:
        files = fsspec.filesystem("s3", skip_instance_cache=True, **server.options)
        files.mkdir("datasets")
        uploaded(out, files, "datasets/faces")
        without_delays(patch)
        yield "s3://datasets/faces", server


def test_an_epoch_from_a_server_that_fails_now_and_then_is_that_of_the_local_dataset(
    out: Path, cache: Path, on_s3: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_delays(monkeypatch, timeout_seconds=3)
    url, server = on_s3
    faults = {7: "slow_down", 11: "cut", 17: "stall"}
    server.faults = lambda number: faults.get(number % 20)
    stored = loader_of(url, cache=cache, cache_bytes=1 << 30, storage_options=server.options)
    expected = loader_of(out)
    assert shown(stored) == shown(expected)
    cold = stored.stats().store
    assert cold is not None
    assert cold.retries >= 2
    assert cold.requests - cold.retries == cold.misses == len(blocks_of(cache))
    asked = server.requests
    assert shown(stored) == shown(expected)
    assert server.requests == asked
    assert "not-to-be-shown" not in repr(stored.dataset.stores) + str(stored.describe())


def test_the_example_of_the_guide_runs(
    out: Path, cache: Path, on_s3: tuple[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks("python", GUIDES / "stores.md")
    for given, here in (("https://minio.example:9000", on_s3[1].url), ("/local/nvme/faces", str(cache))):
        assert given in block
        block = block.replace(given, here)
    exec(block.replace("cache_bytes=", "num_workers=0, cache_bytes="), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "store: 0 MB of s3://datasets/faces, a cache of 214,748 MB" in printed
    assert f"{len(blocks_of(cache))} requests, 0 MB fetched" in printed.splitlines()[-1]


def test_a_file_that_the_store_lacks_is_named_and_not_replaced(out: Path, cache: Path, on_s3: tuple[str, Any]) -> None:
    url, server = on_s3
    stored = loader_of(url, cache=cache, cache_bytes=1 << 30, storage_options=server.options)
    files = fsspec.filesystem("s3", skip_instance_cache=True, **server.options)
    files.rm("datasets/faces/faces", recursive=True)
    with pytest.raises(CorruptDataError, match=r"s3://datasets/faces/faces/train/.*: not in the store; run"):
        shown(stored)
    assert isinstance(stored.dataset, BatchDataset)
    assert len(Index(stored.dataset.out)) == 122
