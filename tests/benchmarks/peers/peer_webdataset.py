"""WebDataset: tar shards.

Recipe: the library's README and its `train-resnet50-wds` example: `WebDataset(shards, shardshuffle=)`, `.shuffle`,
`.decode`, `.to_tuple`, `.map_tuple`, and `WebLoader` with workers. Of the documented ways the fastest: a decoder of
one's own by `handle_extension` (OpenCV; its own `rgb8` is Pillow); batches made by the loader in the workers, by
torch's collating, which writes right to shared memory (`.batched(64)` makes one more copy); and no second mixing in
the main process (`.unbatched().shuffle().batched()`), which would copy every batch once more.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import webdataset as wds
from recipe import Order, OwnTransform, collate_of, from_bytes, rgb_by_cv2

SHARDS = 16
SHARD_NAMES = [f"faces-{shard:06d}.tar" for shard in range(SHARDS)]


def _apply(transform: Any, data: Any) -> Any:
    return transform(data)


def loader(order: Order) -> Any:
    shards, stored = [str(order.folder / "webdataset" / name) for name in SHARD_NAMES], dict[str, Any]()
    if order.store:
        shards = [f"{order.store.endpoint_url}/{order.store.BUCKET}/webdataset/{name}" for name in SHARD_NAMES]
        order.store.cache.mkdir(exist_ok=True)
        stored = {"cache_dir": str(order.store.cache), "cache_size": order.store.CACHE_BYTES}
    of_bytes = from_bytes(order)
    data = wds.WebDataset(shards, shardshuffle=SHARDS if order.random else False, **stored)
    if order.random:
        data = data.shuffle(1000)
    decoder = wds.handle_extension("jpg", bytes if of_bytes else rgb_by_cv2)
    transform = of_bytes or OwnTransform(order)
    data = data.decode(decoder).to_tuple("jpg", "cls").map_tuple(partial(_apply, transform), int)
    return wds.WebLoader(data, batch_size=order.batch, collate_fn=collate_of(order), **order.loading())


def prepare(folder: Path) -> None:
    paths = sorted((folder / "files").iterdir())
    (folder / "webdataset").mkdir()
    for shard, name in enumerate(SHARD_NAMES):
        with wds.TarWriter(str(folder / "webdataset" / name)) as writer:
            first, last = (len(paths) * end // SHARDS for end in (shard, shard + 1))
            for number in range(first, last):
                writer.write({"__key__": f"{number:08d}", "jpg": paths[number].read_bytes(), "cls": number})
