"""What a caller gets where a store's library is opened, with stand-ins for libraries that are not installed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.filesystem import open_filesystem


def repeating(request: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(request)
    def repeated(self: Any, *arguments: Any) -> Any:
        try:
            return request(self, *arguments)
        except ConnectionError:
            return request(self, *arguments)

    return repeated


class PlainGoogle:
    """Stands in for `gcsfs.core.GCSFileSystem`."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.requests: list[str] = []

    @repeating
    def _request(self, path: str) -> None:
        self.requests.append(path)
        raise ConnectionError

    @classmethod
    def _strip_protocol(cls, url: str) -> str:
        return url.partition("://")[2]

    @classmethod
    def _get_kwargs_from_urls(cls, url: str) -> dict[str, Any]:
        return {}


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> type[PlainGoogle]:
    """The class that gcsfs's core has while a test runs; its package registers none."""
    package, core = ModuleType("gcsfs"), ModuleType("gcsfs.core")
    core.GCSFileSystem = type("GCSFileSystem", (PlainGoogle,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gcsfs", package)
    monkeypatch.setitem(sys.modules, "gcsfs.core", core)
    return core.GCSFileSystem  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("protocol", ["gs", "gcs"])
def test_google_cloud_is_read_without_grpc(google: type[PlainGoogle], protocol: str) -> None:
    files, path = open_filesystem(StoreAddress(f"{protocol}://bucket/faces", {"token": "anon"}))
    assert type(files) is google
    assert path == "bucket/faces"
    assert files.options == {"skip_instance_cache": True, "use_listings_cache": False, "token": "anon"}


@pytest.mark.parametrize(("repeats_requests", "requests"), [(False, 1), (True, 2)])
def test_gcsfs_repeats_only_the_requests_of_listings(
    google: type[PlainGoogle], repeats_requests: bool, requests: int
) -> None:
    files, _ = open_filesystem(StoreAddress("gs://bucket/faces"), repeats_requests=repeats_requests)
    with pytest.raises(ConnectionError):
        files._request("bucket/faces/index.arrow")
    assert len(files.requests) == requests
