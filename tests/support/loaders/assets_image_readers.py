"""Decoders of stored images, for `ReaderProcess`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from facefeed.loaders.dataset.decode import decode_rgb
from facefeed.pipeline.dataset.image_codec import decode_mask, decode_rgb_strictly
from facefeed.pipeline.errors import CorruptDataError

DECODERS: tuple[Callable[[bytes], Any], ...] = (
    decode_rgb, lambda data: decode_rgb(data, min_side_px=16), decode_rgb_strictly, decode_mask,
)  # fmt: skip


def decode_stored(folder: Path) -> None:
    """Every decoder on the file `image`; raises the first refusal where none decodes it."""
    data = (folder / "image").read_bytes()
    refusals = []
    for decode in DECODERS:
        try:
            decode(data)
        except CorruptDataError as error:
            refusals.append(error)
    if len(refusals) == len(DECODERS):
        raise refusals[0]
