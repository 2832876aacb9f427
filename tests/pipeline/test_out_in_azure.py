"""OUT and SRC in Azure's store, against Azurite, its emulator; skipped where that or adlfs is not installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from assets_in_process import in_process, new_folder
from assets_stores import opened, without_delays
from assets_tiny_source import TinySource
from facefeed.pipeline.commit.store_lock import StoreLocks
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.remote_files import RefusedByStoreError
from facefeed.pipeline.dataset.stores.writing import WritableFiles
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

pytestmark = [
    pytest.mark.processes,
    # azure.core closes its connections where they are collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's own, the same everywhere."""
OUT = "az://faces/set"
SETTINGS: dict[str, Any] = {
    "options": Options(sampling=Sampling(every=1), keep=FaceFilter(min_face_px=16), size_px=32),
    "detector": FixedBoxDetector(), "max_failed": FailureLimit.parse("2"),
}  # fmt: skip


@dataclass
class Store:
    """Azurite with the containers `videos` and `faces`."""

    service: Any

    def __init__(self, url: str) -> None:
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 (an optional package)

        parts = {"AccountName": ACCOUNT, "AccountKey": KEY, "BlobEndpoint": f"{url}/{ACCOUNT}"}
        connection = "DefaultEndpointsProtocol=http;" + ";".join(f"{name}={part}" for name, part in parts.items())
        self.options = {"connection_string": connection}
        self.service = BlobServiceClient.from_connection_string(connection)

    def put(self, container: str, name: str, content: bytes) -> None:
        self.service.get_blob_client(container, name).upload_blob(content, overwrite=True)

    def precompute(self, source: str | Path, out: str = OUT) -> Summary:
        with in_process():
            return precompute(source, out, storage_options=self.options, **SETTINGS)

    def files(self, url: str = OUT) -> WritableFiles:
        return WritableFiles(StoreAddress(url, self.options), StoreCounter())


@contextmanager
def azurite() -> Iterator[str]:
    """The address of a server that keeps everything in memory."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed (npm install azurite)")
    command = [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--blobPort", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = (re.search(r"successfully listens on (http://\S+)", line) for line in process.stdout)
            yield next(found[1] for found in lines if found)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    pytest.importorskip("adlfs", reason="adlfs is not installed")
    with azurite() as url:
        yield Store(url)


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    without_delays(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(new_folder()))
    for container in ("videos", "faces"):
        server.service.create_container(container)
    yield server
    for container in ("videos", "faces"):
        server.service.delete_container(container)


@pytest.fixture
def source() -> TinySource:
    source = TinySource(new_folder() / "deepfakes")
    for name, content in {"real/a.mp4": "one", "fake/a.mp4": "two", "real/d.mp4": "long", "real/c.mp4": "cut"}.items():
        source.put(name, content)
    return source


def test_the_dataset_in_azure_is_that_of_a_folder_from_videos_in_azure_too(
    store: Store, source: TinySource, tmp_path: Path
) -> None:
    with in_process():
        local = precompute(source.folder, tmp_path / "out", **SETTINGS).manifest
    assert store.precompute(source.folder).manifest == local
    assert verify(OUT, storage_options=store.options).findings == []
    for path in source.folder.rglob("*"):
        if path.is_file():
            store.put("videos", path.relative_to(source.folder).as_posix(), path.read_bytes())
    store.precompute("az://videos", "az://faces/another")
    assert verify("az://faces/another", storage_options=store.options).findings == []
    for url in (OUT, f"abfss://faces@{ACCOUNT}.dfs.core.windows.net/another"):
        assert len(opened(url, tmp_path / "cache", storage_options=store.options).index) == local.rows > 0


def test_a_video_without_a_byte_is_a_failed_input(store: Store, source: TinySource) -> None:
    store.put("videos", "real/empty.mp4", b"")
    store.put("videos", "real/a.mp4", source.bytes_of("real/a.mp4", "one"))
    assert store.precompute("az://videos").manifest.inputs["failed"] == {"empty": 1}


@pytest.mark.parametrize("marker", ["plan/", "faces/train/"])
def test_blobs_that_mark_folders_are_no_files(store: Store, source: TinySource, marker: str) -> None:
    store.precompute(source.folder)
    store.put("faces", f"set/{marker}", b"")
    store.precompute(source.folder)
    assert verify(OUT, storage_options=store.options).findings == []


def test_a_second_run_is_refused(store: Store, source: TinySource) -> None:
    with StoreLocks(store.files()).hold("driver.lease", work="facefeed precompute"), pytest.raises(RefusedError):
        store.precompute(source.folder)


def test_what_is_there_is_not_created_again_also_in_blocks(store: Store, tmp_path: Path) -> None:
    """Azure's library sends what is larger than 64 MiB block by block."""
    (tmp_path / "large").write_bytes(bytes(65 << 20))
    for content in (b"first", tmp_path / "large"):
        store.files().create("unit", content)
        with pytest.raises(FileExistsError):
            store.files().create("unit", content)
        store.files().remove("unit")


def test_a_container_that_does_not_exist_is_named(store: Store, source: TinySource) -> None:
    with pytest.raises(UsageError, match=r"there is no such bucket \(ContainerNotFound"):
        store.precompute(source.folder, "az://nowhere/set")


def test_an_archived_file_is_refused_as_itself(store: Store) -> None:
    store.put("videos", "real/a.mp4", b"video")
    store.service.get_blob_client("videos", "real/a.mp4").set_standard_blob_tier("Archive")
    with pytest.raises(RefusedByStoreError, match="BlobArchived") as raised:
        store.files("az://videos").read("real/a.mp4", 0, 5)
    assert not raised.value.by_credentials
