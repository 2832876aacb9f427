"""What a store says of a file, in one form or another, shows whether it is the same file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from facefeed.pipeline.dataset.stores.stored_file import StoredFile

MODIFIED_NS = 1_600_000_000_000_000_000


def stored(**info: Any) -> StoredFile:
    return StoredFile.of("a.mp4", {"size": 7, **info})


@pytest.mark.parametrize(
    "time",
    [
        {"LastModified": datetime.fromtimestamp(MODIFIED_NS / 1e9, UTC)},
        {"LastModified": datetime.fromtimestamp(MODIFIED_NS / 1e9 + 0.25, UTC)},
        {"last_modified": "2020-09-13T12:26:40+00:00"},
        {"updated": "2020-09-13T12:26:40.250Z"},
        {"Last-Modified": "Sun, 13 Sep 2020 12:26:40 GMT"},
        {"mtime": MODIFIED_NS / 1e9},
    ],
)
def test_a_time_is_the_same_in_whatever_form_a_store_has_it(time: dict[str, Any]) -> None:
    assert (stored(**time).modified_ns, stored(**time).mtime_ns) == (MODIFIED_NS, MODIFIED_NS)


@pytest.mark.parametrize("time", [{}, {"LastModified": ""}, {"Last-Modified": "yesterday"}])
def test_a_time_that_is_none_is_unknown(time: dict[str, Any]) -> None:
    assert stored(**time).mtime_ns == 0


@pytest.mark.parametrize("hashed", [{"md5Hash": "5d41402a"}, {"blob_id": "5d41402a"}])
def test_a_hash_of_the_content_counts_and_not_the_etag_that_another_label_changes(hashed: dict[str, str]) -> None:
    assert stored(**hashed, etag="one").mtime_ns == stored(**hashed, etag="two").mtime_ns != 0


def test_a_file_that_a_server_gives_another_time_whenever_it_is_asked_is_the_same_by_its_etag() -> None:
    first, second = (stored(ETag="5d41402a", **{"Last-Modified": f"Sun, 13 Sep 2020 12:26:{s} GMT"}) for s in (40, 41))
    assert first == second
    assert stored(mtime=40) != stored(mtime=41)


def test_the_mtime_follows_from_the_etag_and_can_be_stored_anywhere() -> None:
    listed, asked = stored(ETag="5d41402a", LastModified="2020-09-13"), stored(ETag='"5d41402a"', mtime=5)
    assert listed.mtime_ns == asked.mtime_ns
    assert listed.mtime_ns != stored(etag="5d41402b").mtime_ns
    assert listed.modified_ns != asked.modified_ns
    times = [stored(ETag=f"{number:x}").mtime_ns for number in range(1000)]
    assert len({*times}) == len(times)
    assert all(0 < time < 2**31 * 10**9 and time % 10**9 == 0 for time in times)
