"""A job that parts share, and what is on disk of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.pipeline.precompute import Summary
from facefeed.pipeline.verify.check import verify

VIDEOS = [f"real/{name}.mp4" for name in "abcdef"]
"""Each makes a unit of its own: as many as two parts share with one to spare, or three evenly."""

MakeSource = Callable[..., Path]
Run = Callable[..., Summary]
"""`precompute` of these videos, or of a part of them."""


def rows(out: Path) -> pa.Table:
    return pads.dataset(out / "faces").to_table().sort_by("face_id")


def receipts(out: Path) -> dict[str, int]:
    """When each unit was finished: a unit that was done twice has another time."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "receipts").iterdir()}


def is_finished(out: Path) -> bool:
    try:
        Manifest.read(out)
    except (CorruptDataError, UsageError):
        return False
    return verify(out).findings == []


def leases(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("part-*.lease"))
