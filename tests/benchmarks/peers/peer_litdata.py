"""LitData: optimised chunks of 64 MB or less.

Recipe: its README ("Speed up model training", "Transform datasets while streaming", "Optimize images as JPEG"):
`optimize` with the JPEG's bytes, `StreamingDataset(shuffle=True, transform=)`, `StreamingDataLoader`. See
`DECODER`: both of its documented ways to an image were measured, and the faster one is used.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import litdata as ld
from litdata.streaming import downloader
from recipe import Order, OwnTransform, collate_of, from_bytes, rgb_by_cv2
from torch.utils.data import default_collate

DECODER = os.environ.get("BENCH_DECODER", "cv2")
"""`cv2`: bytes are stored, and decoded in the transform. `own`: `ld.Jpeg`, which torchvision decodes to (3, H, W)."""


def _bytes_sample(numbered: tuple[int, str]) -> dict[str, Any]:
    number, path = numbered
    return {"image": Path(path).read_bytes(), "number": number}


def _jpeg_sample(numbered: tuple[int, str]) -> dict[str, Any]:
    number, path = numbered
    return {"image": ld.Jpeg(path=path), "number": number}


def _own(transform: Any, image: Any) -> Any:
    return transform(rgb_by_cv2(image) if DECODER == "cv2" else image.permute(1, 2, 0).contiguous().numpy())


def _transformed(transform: Any, sample: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    return transform(sample["image"]), sample["number"]


def loader(order: Order) -> Any:
    of_bytes = from_bytes(order)
    transform = of_bytes or partial(_own, OwnTransform(order))
    name, stored = f"litdata-{'cv2' if of_bytes else DECODER}", dict[str, Any]()
    if order.store:
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # it takes https alone, as real stores have it
        stored = {"cache_dir": str(order.store.cache), "max_cache_size": order.store.CACHE_BYTES,
                  "storage_options": {"endpoint_url": order.store.endpoint_url}}  # fmt: skip
    data = ld.StreamingDataset(
        f"s3://{order.store.BUCKET}/{name}" if order.store else str(order.folder / name), shuffle=order.random,
        transform=[partial(_transformed, transform)], **stored,
    )  # fmt: skip
    return ld.StreamingDataLoader(
        data, batch_size=order.batch, collate_fn=collate_of(order) or default_collate, **order.loading()
    )


def prepare(folder: Path) -> None:
    numbered = [(number, str(path)) for number, path in enumerate(sorted((folder / "files").iterdir()))]
    for name, fn in (("cv2", _bytes_sample), ("own", _jpeg_sample)):
        ld.optimize(
            fn=fn, inputs=numbered, output_dir=str(folder / f"litdata-{name}"), num_workers=1, chunk_bytes="8MB",
            start_method="fork",
        )  # fmt: skip
