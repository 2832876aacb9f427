"""Reads JSON that comes with a source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from ...errors import UsageError
from ...json_records import parse_json, refuse_deep

_CHUNK_CHARACTERS = 1 << 20
_DECODER = json.JSONDecoder()
_EMPTY_LIST = re.compile(r"\[\s*\]")


def read_json(path: Path, remedy: str) -> Any:
    """The contents of a JSON file; raises `UsageError`, which ends with `remedy`, where it cannot be read or parsed."""
    try:
        return parse_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}); {remedy}") from error


def read_records(path: Path, remedy: str) -> Iterator[Any]:
    """Yields the values of a JSON file that is a list, one by one: the lists of large sets have a million.

    Raises `UsageError`, which ends with `remedy`, where the file cannot be read, parsed or is no list.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from _values(file)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from error
    except (RecursionError, ValueError) as error:
        read_json(path, remedy)  # reports the position in the file, which is not known here
        raise UsageError(f"{path}: {error}; {remedy}") from error


def _values(file: TextIO) -> Iterator[Any]:
    """Yields the values of a list as they are read; raises ValueError where `file` is anything else."""
    text, position = file.read(_CHUNK_CHARACTERS).lstrip(), 0
    if not text.startswith("["):
        raise ValueError("must be a list")
    while text[position] != "]" and not _EMPTY_LIST.match(text):
        try:
            value, position = _next_value(text, position)
        except (IndexError, ValueError):
            rest = text[position:]
            more = file.read(max(_CHUNK_CHARACTERS, len(rest)))  # doubles, so that a huge value is not read too often
            if not more:
                raise ValueError("ends within the list") from None
            text, position = rest + more, 0
        else:
            refuse_deep(value)
            yield value
    if (text[position:].lstrip("[ \t\r\n") + file.read()).strip() != "]":
        raise ValueError("has trailing data after the list")


def _next_value(text: str, position: int) -> tuple[Any, int]:
    """The value behind the bracket or comma at `position`, and where the comma or bracket behind it is.

    Raises ValueError or IndexError where there is none, or `text` ends too early.
    """
    value, end = _DECODER.raw_decode(text, _skip_space(text, position + 1))
    end = _skip_space(text, end)
    if text[end] not in ",]":
        raise ValueError("must be followed by a comma or a bracket")
    return value, end


def _skip_space(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position


def is_json_list(path: Path) -> bool:
    """Whether a file is there and begins like a list in JSON; reads 64 bytes."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    except OSError:
        return False
