"""Parsing of options as another facefeed command would."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from ...pipeline.errors import UsageError

_NOT_FOR_JOBS = {"-h", "--help", "--dry-run"}


def parse_command(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Returns a command's parameters by name, via entry points, since rooms do not import each other.

    Raises click's errors, and `UsageError` on options that a batch job cannot use, such as --help.
    """
    if unusable := _NOT_FOR_JOBS & {*arguments}:
        raise UsageError(f"{', '.join(sorted(unusable))}: is no option for a job; give it to `facefeed {name}` itself")
    command = entry_points(group="facefeed.commands")[name].load()
    parameters: dict[str, Any] = command.make_context(f"facefeed {name}", [*arguments]).params
    return parameters
