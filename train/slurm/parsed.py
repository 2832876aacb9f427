"""The options of another of facefeed's commands, read as that command would."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any


def parsed(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The command's parameters by name; reached by name, since rooms stay apart. Raises click's errors."""
    command = entry_points(group="facefeed.commands")[name].load()
    given: dict[str, Any] = command.make_context(f"facefeed {name}", [*arguments]).params
    return given
