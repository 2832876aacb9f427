"""Datasets to export: with names of published sets, several faces in a frame, and odd names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assets_dataset import Clip
from click.testing import CliRunner, Result
from facefeed.pipeline.cli import main
from facefeed.pipeline.export.destination import SUMS
from facefeed.pipeline.sources import Entry

TWO_FACES = ((0.05, 0.3, 0.35, 0.7), (0.4, 0.2, 0.9, 0.8))
"""Boxes of a smaller and a larger face, as shares of the frame."""


@dataclass(frozen=True)
class NamedClip(Clip):
    """A clip whose entry has other fields than `Clip` gives it."""

    fields: tuple[tuple[str, Any], ...] = ()

    def entry(self) -> Entry:
        return replace(super().entry(), **dict(self.fields))


def named(name: str, frames: int = 2, **fields: Any) -> NamedClip:
    """A clip of `frames` frames; `fields` of its entry."""
    return NamedClip(name, frames, fields=tuple(fields.items()))


def run_export(out: Path | str, dest: Path | str, form: str, *arguments: str | int) -> Result:
    """Runs the command in this process."""
    return CliRunner().invoke(main, ["export", str(out), str(dest), "--as", form, *map(str, arguments)])


def exported(out: Path, dest: Path, form: str, *arguments: str | int, exit_code: int = 0) -> dict[str, Any]:
    """Runs the command, checks its exit code, and returns what it says with `--json`."""
    result = run_export(out, dest, form, *arguments, "--json")
    assert result.exit_code == exit_code, result.output
    figures: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return figures


def listed(dest: Path) -> dict[str, str]:
    """Hex SHA-256 of each file of an export, by its path."""
    lines = (dest / SUMS).read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, _, path in (line.partition("  ") for line in lines)}


def files_below(folder: Path) -> set[str]:
    """Paths of all files below a folder, relative to it."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def without(paths: Iterable[str], *names: str) -> set[str]:
    """Paths but some."""
    return set(paths) - set(names)
