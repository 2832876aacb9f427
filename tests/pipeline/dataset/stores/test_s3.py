"""What a reader notices of a real S3 server that misbehaves: nothing but retries, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from assets_dataset import make_dataset
from assets_stores import MisbehavingServer, opened, s3_server, small_blocks, uploaded, without_delays
from facefeed.pipeline.dataset.byte_ranges import MissingFileError
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.errors import StoppedError, UsageError

URL = "s3://datasets/faces"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("s3") / "out"
    make_dataset(out)
    return out


@pytest.fixture(scope="module")
def running(out: Path) -> Iterator[MisbehavingServer]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as server:
        files = fsspec.filesystem("s3", skip_instance_cache=True, **server.options)
        files.mkdir("datasets")
        uploaded(out, files, "datasets/faces")
        yield server


@pytest.fixture
def server(running: MisbehavingServer, monkeypatch: pytest.MonkeyPatch) -> MisbehavingServer:
    small_blocks(monkeypatch)
    without_delays(monkeypatch)
    running.faults, running.requests = (lambda number: None), 0
    return running


def read_all(out: Path, server: MisbehavingServer, cache: Path) -> StoredImages:
    """Reads every image, by batches, and compares it with the local one; returns the reader."""
    store, local = opened(URL, cache, storage_options=server.options), StoredImages(Index(out))
    images = StoredImages(store.index, store.reader)
    for first in range(0, len(store.index), 8):
        batch = range(first, min(first + 8, len(store.index)))
        images.prefetch(batch, masks=False)
        assert [images.image(row) for row in batch] == [local.image(row) for row in batch]
    return images


def test_every_request_is_counted_and_a_warm_cache_needs_none(
    out: Path, server: MisbehavingServer, tmp_path: Path
) -> None:
    cold = read_all(out, server, tmp_path).ranges.counter.take()
    assert cold.requests == cold.misses == server.requests > 1
    assert cold.retries == 0
    warm = read_all(out, server, tmp_path).ranges.counter.take()
    assert (warm.requests, warm.misses, server.requests) == (0, 0, cold.requests)


@pytest.mark.parametrize("fault", ["slow_down", "cut", "stall"])
def test_requests_that_fail_in_passing_are_repeated(
    out: Path, server: MisbehavingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "stall":
        without_delays(monkeypatch, timeout_seconds=1.5)
    server.faults = lambda number: fault if number % 16 == 3 else None
    counts = read_all(out, server, tmp_path).ranges.counter.take()
    assert counts.retries >= 2
    assert counts.requests == counts.misses + counts.retries >= server.requests  # some meet a connection that was cut


def test_a_store_that_never_answers_stops_the_run_with_what_to_do(
    out: Path, server: MisbehavingServer, tmp_path: Path
) -> None:
    server.faults = lambda number: "slow_down"
    with pytest.raises(
        StoppedError, match=r"s3://datasets/faces/faces/.*SlowDown.* also after 5 further .* then resume"
    ):
        read_all(out, server, tmp_path)
    assert server.requests % 6 == 0


def test_an_endpoint_where_nobody_listens_is_named(tmp_path: Path, server: MisbehavingServer) -> None:
    options = {**server.options, "endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(StoppedError, match=r"s3://datasets/faces/manifest.json: .*127.0.0.1:9.* check the store"):
        opened(URL, tmp_path, storage_options=options)


def test_a_bucket_that_is_not_there_is_named(tmp_path: Path, server: MisbehavingServer) -> None:
    with pytest.raises(UsageError, match=r"s3://no-such-bucket/faces: there is no such bucket .*does not exist"):
        opened("s3://no-such-bucket/faces", tmp_path, storage_options=server.options)
    with pytest.raises(UsageError, match=r"s3://datasets/other: no manifest.json, so no finished dataset"):
        opened("s3://datasets/other", tmp_path, storage_options=server.options)


def test_a_store_that_refuses_is_asked_once_and_no_secret_is_shown(
    tmp_path: Path, server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(environ: object, start_response: object) -> list[bytes]:
        nonlocal asked
        asked += 1
        body = b"<Error><Code>AccessDenied</Code><Message>Not for not-to-be-shown</Message></Error>"
        start_response("403 Forbidden", [("Content-Type", "application/xml")])  # type: ignore[operator]
        return [body]

    asked = 0
    monkeypatch.setattr(server, "_app", refuse)
    with pytest.raises(
        UsageError, match=r"the store refuses to read it \(AccessDenied: .*\*\*\*.*credentials"
    ) as raised:
        opened(URL, tmp_path, storage_options=server.options)
    assert asked == 1
    chain = [raised.value, raised.value.__cause__]
    assert "not-to-be-shown" not in " ".join(map(str, chain))


def test_a_file_that_the_copy_lacks_is_named(out: Path, server: MisbehavingServer, tmp_path: Path) -> None:
    store = opened(URL, tmp_path, storage_options=server.options)
    with pytest.raises(MissingFileError, match=r"s3://datasets/faces/faces/train/x.parquet: not in the store; run"):
        store.reader.read("faces/train/x.parquet", 0, 10)
