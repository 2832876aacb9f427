"""Hugging Face Datasets, map-style: Arrow files, memory-mapped.

Recipe: "Image classification" and "Use with PyTorch" in its documentation: a column of type `Image`, `set_transform`
with Albumentations on batches of examples, the dataset handed to torch's DataLoader with workers. See `DECODER`:
`Image(decode=False)`, which gives the bytes, was faster with OpenCV than the decoded Pillow image.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from recipe import Order, OwnTransform, collate_of, from_bytes, rgb_by_cv2
from torch.utils.data import DataLoader, default_collate

DECODER = os.environ.get("BENCH_DECODER", "cv2")
"""`cv2`: `Image(decode=False)` and OpenCV. `pil`: decoded by the library, as its guide shows."""


def _rgb(image: Any) -> np.ndarray:
    return rgb_by_cv2(image["bytes"]) if DECODER == "cv2" else np.array(image)


def _own(transform: Any, image: Any) -> Any:
    return transform(_rgb(image))


def _bytes(transform: Any, image: Any) -> Any:
    return transform(image["bytes"])


def _transformed(transform: Any, examples: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {"image": [transform(image) for image in examples["image"]], "number": examples["number"]}


def _collate(collate: Any, samples: list[dict[str, Any]]) -> Any:
    return collate([(sample["image"], sample["number"]) for sample in samples])


def loader(order: Order) -> Any:
    of_bytes = from_bytes(order)
    data = datasets.load_from_disk(str(order.folder / "huggingface"))
    if DECODER == "cv2" or of_bytes:
        data = data.cast_column("image", datasets.Image(decode=False))
    transform = partial(_bytes, of_bytes) if of_bytes else partial(_own, OwnTransform(order))
    data.set_transform(partial(_transformed, transform))
    return DataLoader(
        data, batch_size=order.batch, shuffle=order.random,
        collate_fn=partial(_collate, collate_of(order) or default_collate), **order.loading(),
    )  # fmt: skip


def prepare(folder: Path) -> None:
    paths = sorted((folder / "files").iterdir())
    rows = {"image": [{"bytes": path.read_bytes(), "path": None} for path in paths], "number": list(range(len(paths)))}
    features = datasets.Features({"image": datasets.Image(), "number": datasets.Value("int64")})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder / "huggingface"))
