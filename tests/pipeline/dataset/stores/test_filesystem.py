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
from facefeed.pipeline.errors import FacefeedError, StoppedError, UsageError
from fsspec.config import conf


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


class DefaultCredentialsError(Exception):
    """Named as google.auth's."""


SECRET = "ya29.a0/b+c"


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (DefaultCredentialsError("none found\nSee ..."), UsageError, r"\(DefaultCredentialsError: none found\);"),
        (KeyError("refresh_token"), UsageError, r"\(KeyError: 'refresh_token'\); check .* credentials and storage_opt"),
        (FileNotFoundError(2, "No such file", SECRET), UsageError, r"\(FileNotFoundError: .*'\*\*\*'\)"),
        (ValueError(), UsageError, r"\(ValueError\)"),
        (ValueError(f"no token: {SECRET}"), UsageError, r"\(no token: \*\*\*\)"),
        (
            ConnectionError("url: /info?access_token=ya29.a0%2Fb%2Bc (reset)"),
            StoppedError,
            r"\(ConnectionError: url: /info\?\*\*\* \(reset\)\);",
        ),
        (ConnectionError("token ya29.a0%2Fb%2Bc"), StoppedError, r"\(ConnectionError: token \*\*\*\); check the store"),
        (TimeoutError(), StoppedError, r"\(TimeoutError\); check the store, the network"),
        (OSError(24, "Too many open files"), StoppedError, r"\(OSError: .*Too many open files\); fix that, then run"),
        (MemoryError(), StoppedError, r"\(MemoryError\); fix that, then run"),
        (RuntimeError("can't start new thread"), StoppedError, r"\(RuntimeError: can't start .*\); fix that, then run"),
    ],
)
def test_a_library_that_does_not_open_is_reported_without_credentials(
    google: type[PlainGoogle],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    expected: type[FacefeedError],
    message: str,
) -> None:
    def raise_error(self: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(google, "__init__", raise_error)
    with pytest.raises(expected, match=rf"gs://bucket/faces: cannot be opened {message}") as raised:
        open_filesystem(StoreAddress("gs://bucket/faces", {"token": SECRET}))
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert "ya29" not in str(raised.value)


def test_no_line_of_a_key_is_shown() -> None:
    key = {"private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END PRIVATE KEY-----\n"}
    address = StoreAddress("gs://bucket/faces", {"token": key})
    assert address.redact("cannot parse 'MIIEvQIBADANBgkqhkiG'") == "cannot parse '***'"


def test_a_token_of_fsspecs_configuration_is_not_shown(
    google: type[PlainGoogle], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error(self: Any, **options: Any) -> None:
        raise RuntimeError(f"bad {SECRET}")

    monkeypatch.setattr(google, "__init__", raise_error)
    monkeypatch.setitem(conf, "gs", {"token": SECRET})
    with pytest.raises(UsageError, match=r"RuntimeError: bad \*\*\*"):
        open_filesystem(StoreAddress("gs://bucket/faces"))
