"""The options of another of facefeed's commands, read as that command would."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from ...pipeline.errors import UsageError

_AT_ONCE = {"-h", "--help", "--dry-run"}


def parsed(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The command's parameters by name; reached by name, since rooms stay apart. Raises click's errors, and
    `UsageError` on options that are answered at once.
    """
    if never := _AT_ONCE & {*arguments}:
        raise UsageError(f"{', '.join(sorted(never))}: is no option for a job; give it to `facefeed {name}` itself")
    command = entry_points(group="facefeed.commands")[name].load()
    given: dict[str, Any] = command.make_context(f"facefeed {name}", [*arguments]).params
    return given
