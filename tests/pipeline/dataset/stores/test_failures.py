"""How errors of stores' libraries are classified and reported."""

from __future__ import annotations

from typing import cast

import pytest
from aiohttp import ClientResponseError, RequestInfo
from aiohttp.http_exceptions import BadHttpMessage
from facefeed.pipeline.dataset.stores import remote_files
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.failures import kind_of_failure
from facefeed.pipeline.dataset.stores.remote_files import RefusedByStoreError, RemoteFiles


class Forbidding:
    """A file system that raises what gcsfs does from a 403."""

    def cat_file(self, path: str, **limits: int) -> bytes:
        raise OSError(f"Forbidden: https://storage.example/{path}\nreader has no storage.objects.get access: key-1234")


def test_a_403_of_google_cloud_is_refused_at_once_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "open_filesystem", lambda address: (Forbidding(), "bucket/faces"))
    counter = StoreCounter()
    files = RemoteFiles(StoreAddress("gs://bucket/faces", {"token": "key-1234"}), counter)
    with pytest.raises(
        RefusedByStoreError, match=r"index\.arrow: reader has no storage\.objects\.get access"
    ) as raised:
        files.read("index.arrow", 0, 10)
    assert "key-1234" not in str(raised.value)
    assert counter.take().requests == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError("Forbidden: b/faces\nno access"), "refused"),
        (OSError("read failed"), "transient"),
        (ConnectionError("Forbidden: by a proxy"), "transient"),
    ],
)
def test_only_gcsfs_own_error_counts_as_a_403(error: OSError, kind: str) -> None:
    assert kind_of_failure(error) == kind


def test_a_response_that_is_no_http_is_asked_for_again() -> None:
    """As one that a proxy has cut: its code is 400, which a store would not change its mind about."""
    error = ClientResponseError(cast("RequestInfo", None), (), status=400, message="Data after `Connection: close`")
    assert kind_of_failure(error) == "unusable"
    error.__cause__ = BadHttpMessage("Data after `Connection: close`")
    assert kind_of_failure(error) == "transient"
