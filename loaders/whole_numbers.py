"""Checks of whole numbers; without numpy and torch, for options that are light to import."""

from __future__ import annotations

import operator
from typing import Any

from ..pipeline.errors import UsageError


def require_int(name: str, value: Any, *, minimum: int = 0, example: int) -> int:
    """Returns the value as an int; raises `UsageError` unless it is a Python or numpy integer of at least `minimum`."""
    try:
        number = None if _is_bool(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < minimum:
        kind = "a whole number of " if number is None else ""
        raise UsageError(f"{name}={value!r}: must be {kind}at least {minimum}; try {example}")
    return number


def optional_int(name: str, value: Any, *, minimum: int, example: int) -> int | None:
    """`require_int`, for a value that may also be None."""
    return None if value is None else require_int(name, value, minimum=minimum, example=example)


def _is_bool(value: Any) -> bool:
    """Whether a value is Python's or numpy's bool, which both pass for numbers."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", None) == "b"
