"""`DatasetArgument`: OUT on the command line, a folder or an address of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .address import is_address


class DatasetArgument(click.Path):
    """A path, or an address as it was given: as a path it would lose one of its slashes."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns a `Path`, or the address."""
        return value if is_address(value) else super().convert(value, param, ctx)
