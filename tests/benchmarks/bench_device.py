"""What leaving work to the device saves workers, and what device transforms cost on the CPU.

    python tests/benchmarks/bench_device.py [--out OUT] [--repeats 5] [--images 6400]

"workers": images a second of two workers that hand JPEGs over, against two that decode them to uint8 or to normalised
float32, without any augmentation. Decoding on the device is left out: it would be the CPU's here. Lanes take turns.
"transforms": milliseconds for a batch of 64 float32 images of 224 px, normalised afterwards, on one thread of the CPU:
batched transforms, others image by image as the loader applies them, and others once for the batch, which the loader
does not do. "operations": of torch in the same, which on a GPU the training thread launches one by one. Prints one JSON
object with every repeat; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import numpy as np
import torch
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.device import BatchedBrightnessContrast, BatchedCrop, BatchedFlip
from facefeed.loaders.device.seeded_transform import SeededTransform
from facefeed.loaders.transfer.jpeg_decoder import JpegDecoder
from peers import faces
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms import v2

BATCH, SIDE = 64, 224
CPU = torch.device("cpu")


def images_per_second(loader: FaceDataLoader, images: int) -> float:
    """Whole epochs until that many images have come; batches of JPEGs are not decoded."""
    decoded = torch.zeros((BATCH, SIDE, SIDE, 3), dtype=torch.uint8)

    def no_images(decoder: JpegDecoder, batch: Any) -> torch.Tensor:
        decoder.pool.borrow(batch.slot, (batch.jpegs.size_bytes,))
        return decoded[: batch.count]

    count, started = 0, time.perf_counter()
    with mock.patch.object(JpegDecoder, "_decode", no_images):
        while count < images:
            for _, labels in loader:
                count += len(labels)
    return count / (time.perf_counter() - started)


def worker_lanes(out: Path) -> dict[str, FaceDataLoader]:
    options: dict[str, Any] = {"batch_size": BATCH, "image_size": SIDE, "num_workers": 2, "split": "train"}
    return {
        "JPEGs": FaceDataLoader(out, decode="device", dtype="uint8", **options),
        "decoded, uint8": FaceDataLoader(out, dtype="uint8", **options),
        "decoded, float32": FaceDataLoader(out, **options),
    }


def transform_lanes() -> dict[str, Callable[[], Any]]:
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (BATCH, SIDE, SIDE, 3), np.uint8))
    floats, seeds = pixels.movedim(-1, 1) / 255, np.arange(BATCH, dtype=np.uint64)
    torchvision = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.2, 0.2)])
    batched = [BatchedFlip(), BatchedBrightnessContrast(p=1)]
    seeded = {
        "no transform": [],
        "batched flip, brightness, contrast": batched,
        "the same and a batched crop": [*batched, BatchedCrop()],
        "v2 flip, brightness, contrast; each image": [torchvision],
    }
    once: dict[str, Callable[[torch.Tensor], Any]] = {"v2, once": torchvision}
    try:
        import kornia.augmentation as kornia  # noqa: PLC0415

        module = torch.nn.Sequential(kornia.RandomHorizontalFlip(), kornia.ColorJiggle(0.2, 0.2))
        seeded["Kornia flip, brightness, contrast; each image"] = [module]
        once["Kornia, once"] = module
        shape = torch.Size((1, 3, SIDE, SIDE))
        once["Kornia, draws alone, each image"] = lambda images: [
            [part.forward_parameters(shape) for part in module]
            for _ in images  # type: ignore[operator]
        ]
    except ImportError:
        sys.stderr.write("Kornia is not installed: its lanes are left out\n")
    lanes = {name: _on(SeededTransform(steps, CPU, "float32"), pixels, seeds, 1) for name, steps in seeded.items()}
    return lanes | {name: _on(step, floats) for name, step in once.items()}


def _on(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)


def milliseconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3


class _Counter(TorchDispatchMode):
    """Counts operations of torch."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations(run: Callable[[], Any]) -> int:
    with _Counter() as counter:
        run()
    return counter.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--images", type=int, default=6400, help="of an epoch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or faces.finished_out(Path(folder))
        table, _ = faces.crops(out, SIDE, 90)
        data = faces.write(table, arguments.images, Path(folder) / "written")
        workers = worker_lanes(Path(folder) / "written/facefeed")
        for lane in workers.values():
            images_per_second(lane, 1)
        load = os.getloadavg()[0]
        images = [
            {name: images_per_second(lane, arguments.images) for name, lane in workers.items()}
            for _ in range(arguments.repeats)
        ]
        transforms = transform_lanes()
        counts = {name: operations(run) for name, run in transforms.items()}
        times = [{name: milliseconds(run) for name, run in transforms.items()} for _ in range(arguments.repeats)]
    for name in workers:
        print(f"{name:46} {statistics.median(each[name] for each in images):9,.0f} images/s", file=sys.stderr)
    for name in transforms:
        median = statistics.median(each[name] for each in times)
        print(f"{name:46} {median:9.1f} ms {counts[name]:7,} operations", file=sys.stderr)
    ratios = {
        name: statistics.median(each["JPEGs"] / each[name] for each in images) for name in workers if name != "JPEGs"
    }
    result = {"benchmark": "device", "data": data, "load_before": load, "JPEGs / decoded": ratios}
    print(json.dumps({**result, "images_per_second": images, "milliseconds": times, "operations": counts}))


if __name__ == "__main__":
    main()
