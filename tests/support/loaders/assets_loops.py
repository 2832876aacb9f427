"""Runs the examples of training loops on two ranks, and reads what these got: `assets_loop_ranks` is what they run."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from assets_paths import SUPPORT
from assets_processes import in_processes
from facefeed.loaders import FaceDataLoader

RANKS, SIDE_PX = 2, 32
"""Of each run, and of its images."""


def run_loop(script: str, folder: Path, *, kill_at: int | None = None) -> None:
    """Runs a script in `folder`, on two ranks; with `kill_at` they are killed at this batch and started again."""
    folder.mkdir()
    (folder / "train.py").write_text(script, encoding="utf-8")
    arguments = {"folder": str(folder), "kill_at": kill_at}
    codes = in_processes({"run": f"{SUPPORT}/loaders/assets_loop_ranks.py:launch", "ranks": 1, "arguments": arguments})
    assert codes == [[0]]


def steps_of(folder: Path, rank: int, start: int, names: dict[int, str]) -> list[list[str]]:
    """The faces of each batch that a rank got after its first start (0), or its second (1)."""
    lines = (folder / f"rank {rank}, start {start}").read_text().splitlines()
    return [[names[checksum] for checksum in json.loads(line)] for line in lines]


def weights_of(folder: Path, rank: int) -> dict[str, torch.Tensor]:
    """A rank's weights, or its shards of them, at the end of a run."""
    weights: dict[str, torch.Tensor] = torch.load(folder / f"weights of {rank}")
    return weights


def names_by_checksum(out: Path) -> dict[int, str]:
    """The `face_id` of each image of the training split, by `checksums_of` of `SIDE_PX`."""
    loader = FaceDataLoader(out, image_size=SIDE_PX, fields=("image", "face_id"), num_workers=0)
    return {
        number: name for batch in loader for number, name in zip(checksums_of(batch), batch["face_id"], strict=True)
    }


def checksums_of(batch: Any) -> list[int]:
    """One for each image of a batch of either kind."""
    images = batch["image"] if isinstance(batch, dict) else batch[0]
    return [zlib.crc32(image.contiguous().numpy()) for image in images]
