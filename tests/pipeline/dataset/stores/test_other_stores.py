"""What a user notices of Azure and Google Cloud, with stand-ins that answer as adlfs and gcsfs do."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from assets_stores import without_delays
from facefeed.pipeline.dataset.stores import remote_files
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.failures import is_of_credentials, kind_of_failure
from facefeed.pipeline.dataset.stores.filesystem import open_filesystem
from facefeed.pipeline.dataset.stores.writing import WritableFiles
from facefeed.pipeline.errors import UsageError
from fsspec.implementations.local import LocalFileSystem

_REGISTRY = sys.modules["fsspec.registry"]._registry


class Azure(LocalFileSystem):  # type: ignore[misc]
    """Stands in for adlfs: its library repeats requests by a policy that adlfs has no option for."""

    protocol = ("abfs", "az")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        policy = SimpleNamespace(total_retries=3)
        self.service_client = SimpleNamespace(_config=SimpleNamespace(retry_policy=policy))


@pytest.mark.parametrize("protocol", ["az", "abfs", "abfss"])
def test_azures_library_repeats_only_the_requests_of_listings(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    """Each of its own repetitions waits for 15 s and more, so that one busy answer would hold up a batch."""
    for name in Azure.protocol:
        monkeypatch.setitem(_REGISTRY, name, Azure)
    for repeats_requests, retries in ((False, 0), (True, 3)):
        address = StoreAddress(f"{protocol}://faces/set")
        files, _ = open_filesystem(address, repeats_requests=repeats_requests)
        assert files.service_client._config.retry_policy.total_retries == retries


@pytest.mark.parametrize(
    ("protocol", "package"),
    [("az", r"'facefeed\[azure\]'"), ("abfss", r"'facefeed\[azure\]'"), ("gs", r"'facefeed\[gcs\]'")],
)
def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, protocol: str, package: str) -> None:
    for module in ("adlfs", "gcsfs", "gcsfs.core"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in Azure.protocol:
        monkeypatch.delitem(_REGISTRY, name, raising=False)
    with pytest.raises(UsageError, match=rf"{protocol}:// needs a package .* run `pip install {package}`"):
        open_filesystem(StoreAddress(f"{protocol}://faces/set"))


class AzureError(Exception):
    """Has what azure.core's `HttpResponseError` has."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.response = SimpleNamespace(status_code=status)
        self.error_code = Enum("StorageErrorCode", {"code": code}).code  # type: ignore[attr-defined]


class ClientAuthenticationError(Exception):
    """Named as azure.core's, raised where no credentials are found, without a response."""


@pytest.mark.parametrize(
    ("error", "kind", "of_credentials"),
    [
        (AzureError(409, "BlobArchived"), "refused", False),
        (AzureError(409, "PublicAccessNotPermitted"), "refused", False),
        (AzureError(403, "AuthorizationPermissionMismatch"), "refused", False),
        (AzureError(403, "AuthenticationFailed"), "refused", True),
        (ClientAuthenticationError("no token"), "refused", True),
        (AzureError(404, "BlobNotFound"), "missing", False),
        (AzureError(409, "PendingCopyOperation"), "transient", False),
        (AzureError(503, "ServerBusy"), "transient", False),
    ],
)
def test_an_error_of_azure_is_what_its_code_says(error: Exception, kind: str, of_credentials: bool) -> None:
    assert (kind_of_failure(error), is_of_credentials(error)) == (kind, of_credentials)


class Store(LocalFileSystem):  # type: ignore[misc]
    """A folder as a store whose first folders are its buckets."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.errors: list[Exception] = []

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **limit: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        super().pipe_file(path, value)

    def find(self, path: str, detail: bool = False, **options: Any) -> Any:
        return [path] if self.isfile(path) else super().find(path, detail=detail, **options)  # as adlfs


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Its bucket "faces" is the working directory's."""
    (tmp_path / "faces/set").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalFileSystem, "_strip_protocol", classmethod(lambda cls, path: path))
    store = Store(skip_instance_cache=True)
    monkeypatch.setattr(remote_files, "open_filesystem", lambda address, **_: (store, address.url.split("//")[1]))
    without_delays(monkeypatch)
    return store


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError("https://storage.example/b/nowhere/o"), ""),  # of gcsfs
        (AzureError(404, "ContainerNotFound"), r" \(ContainerNotFound\)"),
    ],
)
def test_a_bucket_that_does_not_exist_is_named_at_once(store: Store, error: Exception, reason: str) -> None:
    store.errors = [error]
    files = WritableFiles(StoreAddress("gs://nowhere/set"), StoreCounter())
    with pytest.raises(UsageError, match=rf"gs://nowhere/set: there is no such bucket{reason}; check the address"):
        files.create("manifest.json", b"{}")
    assert files.counter.take().requests == 1


def test_an_upload_that_the_store_forgot_is_begun_again(store: Store) -> None:
    store.errors = [FileNotFoundError("https://storage.example/b/faces/o?upload_id=1")]
    WritableFiles(StoreAddress("gs://faces/set"), StoreCounter()).create("manifest.json", b"{}")
    assert Path("faces/set/manifest.json").read_bytes() == b"{}"


def test_a_file_in_the_place_of_a_folder_has_nothing_below_it(store: Store) -> None:
    """As a video without a byte, which might mark the folder of a clip."""
    Path("faces/set/a.mp4").touch()
    assert [*WritableFiles(StoreAddress("az://faces/set"), StoreCounter()).list("a.mp4")] == []


def test_a_copy_is_waited_for_that_azure_makes_after_its_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the original is removed before it was copied."""
    Path("faces/set/index.next.arrow").write_bytes(b"rows")
    asked = []

    def copy_later(path: str, target: str, timeout: float | None = None) -> None:
        Path(target).write_bytes(b"rows" if asked else b"")
        asked.append(target)

    monkeypatch.setattr(store, "cp_file", copy_later)
    files = WritableFiles(StoreAddress("az://faces/set"), StoreCounter())
    files.copy("index.next.arrow", "index.arrow", 4)
    assert len(asked) == 2
    assert Path("faces/set/index.arrow").read_bytes() == b"rows"
