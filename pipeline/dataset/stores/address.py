"""`StoreAddress`: where a dataset lies in a store, and what it is called in messages."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from ...errors import UsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_USER = re.compile(r"(?<=://)[^/?#]*@")
_WITHOUT_USER = ("abfs", "abfss", "az", "github", "wasb", "wasbs")
"""Schemes of which what stands before the @ is no user, but a container or a repository."""
_SHOWN_OPTIONS = ("endpoint_url", "region_name", "anon", "protocol", "project")
_SHORTEST_SECRET = 4


def is_address(out: Any) -> bool:
    """Whether OUT is given as an address of a store, and not as a folder."""
    return isinstance(out, str) and _SCHEME.match(out) is not None


def as_out(out: str | Path) -> str | Path:
    """A path, or an address as it is."""
    return out if is_address(out) else Path(out)


def local_folder(out: str | Path) -> Path | None:
    """OUT where it is a folder of this machine, be it named by a path or by file://; None where it is in a store."""
    if not isinstance(out, str) or not is_address(out):
        return Path(out)
    scheme, _, path = out.partition("://")
    return Path(path) if scheme.lower() in ("file", "local") else None


def without_credentials(place: str | Path) -> str:
    """A folder or an address as text for people and files."""
    return _shown(place) if isinstance(place, str) and is_address(place) else str(place)


def name_of(out: str | Path) -> str:
    """The last part of a folder, or of an address."""
    if isinstance(out, str) and is_address(out):
        return _shown(out).rstrip("/").rpartition("/")[2]
    return Path(out).resolve().name


@dataclass(frozen=True)
class StoreAddress:
    """Where a dataset lies; `str()` is for messages, without credentials.

    url: of the folder. options: fsspec's for its file system; they may hold credentials, and are never shown.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.options, Mapping) or not all(isinstance(name, str) for name in self.options):
            raise UsageError(
                "storage_options: must be a dict of options of the store's fsspec file system, such as "
                "{'endpoint_url': 'https://minio.example'}"
            )
        object.__setattr__(self, "url", self.url.rstrip("/"))
        if self.url.endswith(":"):
            raise UsageError(f"dataset={self.url + '//'!r}: names no folder of the store; try 's3://bucket/faces'")

    def __repr__(self) -> str:
        return f"StoreAddress({str(self)!r})"

    def __str__(self) -> str:
        return _shown(self.url)

    @property
    def protocol(self) -> str:
        """The scheme: "s3", "gs" and the like."""
        return self.url.partition("://")[0].lower()

    @property
    def key(self) -> str:
        """Name of its folder in a cache: of the address and the endpoint alone, so that users share it."""
        client = self.options.get("client_kwargs")
        endpoints = [self.options.get("endpoint_url"), client.get("endpoint_url") if isinstance(client, dict) else None]
        text = json.dumps([str(self), *endpoints], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def redact(self, text: str) -> str:
        """A text of somebody else's error without the values of options that may be credentials."""
        secrets = filter(None, [*_secrets(self.options), _user_of(self.url)])
        for form in sorted({form for secret in secrets for form in _written(secret)}, key=len, reverse=True):
            text = text.replace(form, "***")
        return text


def _shown(url: str) -> str:
    return url.replace(_user_of(url), "", 1).partition("?")[0]


def _user_of(url: str) -> str:
    """The user and password before the host, with the @; empty without."""
    found = None if url.partition("://")[0].lower() in _WITHOUT_USER else _USER.search(url)
    return found[0] if found else ""


_SHORTEST_LINE = 16  # of a secret of several; a shorter one may be any word


def _written(secret: str) -> Iterator[str]:
    """A secret as it is, as in a URL, as in the `repr` of a string, and the lines of one, such as a key."""
    yield from (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1])
    yield from (line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE)


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, (list, tuple)):
            yield from _secrets({f"{name}[{index}]": each for index, each in enumerate(value)})
        elif isinstance(value, str) and name not in _SHOWN_OPTIONS and len(value) >= _SHORTEST_SECRET:
            yield value
