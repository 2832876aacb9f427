"""MosaicML Streaming: MDS shards, here on the local disk.

Recipe: its quick start and user guide: `MDSWriter`, a subclass of `StreamingDataset` whose `__getitem__` transforms,
`batch_size` given to both the dataset and torch's DataLoader. See `DECODER`: of the encodings `bytes` and `jpeg` the
one that was faster is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from recipe import Order, OwnTransform, collate_of, from_bytes, rgb_by_cv2
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader

DECODER = os.environ.get("BENCH_DECODER", "cv2")
"""`cv2`: encoding `bytes`, decoded by OpenCV in `__getitem__`. `pil`: encoding `jpeg`, which gives a Pillow image."""
_ENCODINGS = {"cv2": "bytes", "pil": "jpeg"}


class Faces(StreamingDataset):
    """Image and number of each sample."""

    def __init__(self, order: Order) -> None:
        of_bytes = from_bytes(order)
        self.own = of_bytes is None
        self.transform: Any = of_bytes or OwnTransform(order)
        self.decoder = DECODER if self.own else "cv2"
        super().__init__(
            local=str(order.folder / f"mosaicml-{self.decoder}"), shuffle=order.random, batch_size=order.batch,
            num_canonical_nodes=1,
        )  # fmt: skip

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        image = sample["image"]
        if self.own:
            image = rgb_by_cv2(image) if self.decoder == "cv2" else np.array(image.convert("RGB"))
        return self.transform(image), sample["number"]


def loader(order: Order) -> Any:
    return DataLoader(Faces(order), batch_size=order.batch, collate_fn=collate_of(order), **order.loading())


def prepare(folder: Path) -> None:
    for name, encoding in _ENCODINGS.items():
        columns = {"image": encoding, "number": "int"}
        with MDSWriter(out=str(folder / f"mosaicml-{name}"), columns=columns, size_limit=1 << 23) as writer:
            for number, path in enumerate(sorted((folder / "files").iterdir())):
                # Of an image with a file behind it the file's bytes are taken as they are.
                image = Image.open(path) if encoding == "jpeg" else path.read_bytes()
                writer.write({"image": image, "number": number})
