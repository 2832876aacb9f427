"""Folders of extracted frames for tests: each image shows its number, as the frames of `assets_video` do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from assets_video import numbered
from PIL import Image


def write_image(path: Path, number: int, width: int = 160, height: int = 120) -> Path:
    """An image that shows `number`; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numbered(number, width, height)).save(path)
    return path


def write_clip(folder: Path, numbers: Iterable[int] = range(6), name: str = "frame_{}.png") -> Path:
    """A folder of images, each called by the number that it shows."""
    for number in numbers:
        write_image(folder / name.format(number), number)
    return folder


def truncate(path: Path) -> None:
    """Cuts an image off, so that it cannot be decoded."""
    path.write_bytes(path.read_bytes()[:60])
