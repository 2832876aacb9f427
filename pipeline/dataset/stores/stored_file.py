"""`StoredFile`: a file in a store, from what its fsspec file system says of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self

_VERSION_KEYS = (
    "ETag", "etag", "generation", "md5Hash", "content_md5", "blob_id", "LastModified", "last_modified", "updated",
    "mtime", "created", "size",
)  # fmt: skip
"""Of these, in their order, the names of folders in caches are made: another key would have them fetched again."""

_TIME_KEYS = ("LastModified", "Last-Modified", "last_modified", "updated", "mtime", "created")
_CONTENT_KEYS = ("md5Hash", "blob_id", "ETag", "etag")
"""Hashes first: some ETags change where only what is said of a file does."""

_LAST_SECOND = (1 << 31) - 1
"""Latest time that every file system stores; some store whole seconds alone."""


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file in a store. `name`: its path below the address. `version`: a hash that changes with its content.

    `modified_ns`: when it was last modified, in nanoseconds; 0 where the store has no times. `mtime_ns`: the mtime that
    it has as an input, and that its copies get. It follows from a hash of the content, or else from the ETag, which
    changes with the content, and on some web servers where a file is only touched; without either it is `modified_ns`.
    Files that differ in `modified_ns` alone are equal.
    """

    name: str
    size_bytes: int
    mtime_ns: int
    modified_ns: int = field(compare=False)
    version: str

    @classmethod
    def of(cls, name: str, info: Mapping[str, Any]) -> Self:
        """The file that fsspec describes."""
        version = repr([info.get(key) for key in _VERSION_KEYS])
        modified_ns = _modified_ns(info)
        return cls(
            name=name, size_bytes=info["size"], mtime_ns=_content_ns(info) or modified_ns, modified_ns=modified_ns,
            version=hashlib.sha256(version.encode()).hexdigest(),
        )  # fmt: skip


def _content_ns(info: Mapping[str, Any]) -> int:
    """A time that follows from a hash of the content or the ETag, in nanoseconds; 0 without either."""
    content = next((info[key] for key in _CONTENT_KEYS if info.get(key)), None)
    if content is None:
        return 0
    # A listing may lack the quotes that it has where the same file is asked for.
    digest = hashlib.sha256(str(content).strip('"').encode()).digest()
    return (1 + int.from_bytes(digest[:8]) % _LAST_SECOND) * 1_000_000_000


def _modified_ns(info: Mapping[str, Any]) -> int:
    found = next((info[key] for key in _TIME_KEYS if info.get(key) is not None), None)
    if isinstance(found, str):
        found = _parse_time(found)
    if isinstance(found, datetime):
        found = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    # Whole seconds: a listing may have milliseconds where the same file, asked for, has none.
    return int(found) * 1_000_000_000 if isinstance(found, (int, float)) else 0


def _parse_time(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):  # as in JSON, and in the header of a response
        with suppress(ValueError):
            return parse(text)
    return None
