"""What tests of the loader share: a small dataset, rows without images, and what batches show.

`RowsOnly` stands in for a `FaceDataset` where only the order matters, so that thousands of orders take no time.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import assets_dataset
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from assets_dataset import LABELS, Clip, make_dataset
from facefeed.loaders.sampling.balance import Unbalanced
from facefeed.loaders.sampling.epoch_sampler import EpochSampler
from facefeed.loaders.sampling.shuffling import Shuffling
from facefeed.pipeline.dataset.index import Index, RowRange, Selection
from facefeed.pipeline.planning.options import JobSpec, Options
from numpy.typing import NDArray
from PIL import Image

SIDE = 32
TRAIN = (
    Clip("real/anna.mp4", 40), Clip("fake/anna-swap.mp4", 25), Clip("real/bert.mp4", 12), Clip("fake/bert-talk.mp4", 30)
)  # fmt: skip
VAL = (Clip("real/dora.mp4", 9), Clip("fake/dora-swap.mp4", 6))
ROWS = {"train": 107, "val": 15, "test": 0}


def make_small(out: Path, **options: Any) -> Path:
    """Makes a dataset of 107 faces of four videos for training and 15 of two for validation, all crops different."""
    make_dataset(out, (("train", TRAIN), ("val", VAL)), **options)
    return out


def make_of_schema(version: int, out: Path) -> Path:
    """`make_small` by an older facefeed, whose schema had that version."""
    with pytest.MonkeyPatch.context() as patch:
        to_config = Options.to_config
        patch.setattr(Options, "to_config", lambda *given, **more: to_config(*given, **more, schema=version))
        patch.setattr(assets_dataset, "JobSpec", lambda **given: JobSpec(**given, schema=version))
        return make_small(out)


def stored_rows(out: Path) -> list[dict[str, Any]]:
    """Every row of the dataset as any Parquet reader sees it, in the index's order; and where its image lies."""
    places = Index(out).column("file").to_pylist()
    rows = [row for path in dict.fromkeys(places) for row in pq.read_table(out / path, partitioning=None).to_pylist()]
    return [{**row, "file": path} for row, path in zip(rows, places, strict=True)]


def stored_pixels(row: dict[str, Any]) -> NDArray[np.uint8]:
    """The crop of a row as another decoder reads it: uint8 (H, W, 3), RGB."""
    with Image.open(io.BytesIO(row["image"])) as stored:
        return np.asarray(stored.convert("RGB"))


def shown(batches: Iterable[Any]) -> list[bytes]:
    """Each image of an epoch by its bytes, in order."""
    return [image.numpy().tobytes() for batch in batches for image in images_of(batch)]


def images_of(batch: Any) -> torch.Tensor:
    """The images of a batch of either kind."""
    images: torch.Tensor = batch["image"] if isinstance(batch, dict) else batch[0]
    return images


def rows_seen(batches: Iterable[dict[str, Any]]) -> list[int]:
    """Which rows of the index came, in order; of batches with the field `row`."""
    return [row for batch in batches for row in batch["row"].tolist()]


def damage(out: Path, *rows: int, at: float = 0.5) -> None:
    """Changes one bit of each of these rows' images; `at`: how far into the image, 0 to 1."""
    index = Index(out)
    for row in rows:
        size = index.value("image_bytes", row)
        with (out / index.value("file", row)).open("r+b") as file:
            file.seek(index.value("image_offset", row) + min(int(size * at), size - 1))
            byte = file.read(1)[0]
            file.seek(-1, io.SEEK_CUR)
            file.write(bytes([byte ^ 0x10]))


@dataclass(frozen=True)
class Marker:
    """Leaves a file with the process's number, named after the worker; a `worker_init_fn`."""

    folder: Path

    def __call__(self, worker_id: int) -> None:
        (self.folder / str(worker_id)).write_text(str(os.getpid()))


@dataclass(frozen=True)
class SeedMarker:
    """Leaves a file with torch's seed in the worker, named after the worker; a `worker_init_fn`."""

    folder: Path

    def __call__(self, worker_id: int) -> None:
        (self.folder / str(worker_id)).write_text(str(torch.initial_seed()))


class OwnNumber(A.ImageOnlyTransform):
    """Writes a number that it draws into the first pixel."""

    def apply(self, img: NDArray[np.uint8], **params: Any) -> NDArray[np.uint8]:
        img = img.copy()
        img[0, 0] = self.random_generator.integers(0, 256, 3)
        return img


def draws_of_collate(items: list[tuple[torch.Tensor, int]]) -> tuple[float, ...]:
    """What a CutMix in a collate_fn might draw; a `collate_fn`."""
    return random.random(), float(np.random.random()), float(torch.rand(())), _OF_COLLATE.py_random.random()


_OF_COLLATE = A.Compose([A.HorizontalFlip()])
PIPELINE = A.Compose([A.GaussNoise(p=1.0)])


class ColumnsOnly:
    """As much of an `Index` as orders ask for: columns that were never written.

    Faces without columns of their own for it are all at one place of the frame, and frames last 40 ms.
    """

    labels = LABELS

    def __init__(self, columns: dict[str, Sequence[Any]], fingerprint: str = "one state") -> None:
        self._columns, self.fingerprint = columns, fingerprint
        self._places = {"box_xyxy": (10, 10, 30, 40), "frame_width": 100, "frame_height": 100}
        texts = [name for name, values in columns.items() if any(isinstance(value, str) for value in values)]
        self._names = {
            name: list(dict.fromkeys(value for value in columns[name] if value is not None)) for name in texts
        }

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.null()) for name in self._columns])

    @property
    def categorical_columns(self) -> list[str]:
        return list(self._names)

    def numbers(self, name: str, rows: Any) -> NDArray[Any]:
        if name in self._places and name not in self._columns:
            return np.array([self._places[name]] * len(self))[rows]
        if name == "pts_seconds" and name not in self._columns:
            return 0.04 * self.numbers("frame_index", rows)
        return np.asarray(self._columns[name])[rows]

    def boxes(self, name: str, rows: Any) -> NDArray[np.float32]:
        return self.numbers(name, rows).astype(np.float32)

    def text(self, name: str, row: int) -> Any:
        return self._columns[name][row]

    def categories(self, name: str) -> list[str]:
        return self._names.get(name, [])

    def codes(self, name: str, rows: Any) -> NDArray[np.int32]:
        code = {value: number for number, value in enumerate(self.categories(name))}
        return np.array([code.get(value, -1) for value in self._columns[name]], np.int32)[rows]


class LongVideos(ColumnsOnly):
    """Rows of videos of a hundred frames each, which take no memory."""

    def __init__(self, count: int) -> None:
        super().__init__({"label": range(count)})

    def numbers(self, name: str, rows: Any) -> NDArray[np.uint32]:
        return np.asarray(rows, np.uint32) % np.uint32(100)

    def codes(self, name: str, rows: Any) -> NDArray[np.int32]:
        return (np.asarray(rows, np.uint32) // np.uint32(100)).astype(np.int32)


class RowsOnly:
    """As much of a `FaceDataset` as orders ask for."""

    split, filters, frames_per_video = "train", None, None

    def __init__(self, columns: dict[str, Sequence[Any]] | int, fingerprint: str = "one state") -> None:
        columns = {"label": [0] * columns} if isinstance(columns, int) else columns
        self.index = ColumnsOnly(columns, fingerprint)
        self.selection: Selection = RowRange(0, len(self.index))

    @property
    def rows(self) -> NDArray[np.uint32]:
        return np.asarray(self.selection)

    def __len__(self) -> int:
        return len(self.selection)


def order_of(
    rows: RowsOnly | int, batch_size: int = 8, shuffle: Any = True, window_images: int = 16_384, **options: Any
) -> EpochSampler:
    """The order that a loader with these settings would follow."""
    settings = {
        "balance": Unbalanced(), "max_per_video": None, "seed": 0, "drop_last": False, "rank": None,
        "num_replicas": None,
    }  # fmt: skip
    data: Any = RowsOnly(rows) if isinstance(rows, int) else rows
    shuffling = Shuffling.from_argument(shuffle, window_images)
    return EpochSampler(data, batch_size=batch_size, shuffling=shuffling, **{**settings, **options})


def batches_of(order: EpochSampler) -> list[list[int]]:
    """The rows of each batch of the epoch that is due."""
    return [request.rows.tolist() for request in order]
