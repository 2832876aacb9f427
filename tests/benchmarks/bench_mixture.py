"""A mixture of three datasets beside one dataset of the same faces: images/s, and what the order of an epoch costs.

    python tests/benchmarks/bench_mixture.py [--images 3000] [--repeats 6]

The crops are made up, 224 px, JPEG of quality 90. Both lanes flip, change brightness and contrast, normalise to
float32, use two workers and batches of 64; epochs take turns. The mixture draws by a temperature of 2, so its small
datasets are repeated. Prints one JSON object with every repeat, and the medians of the repeats' ratios; a table goes to
stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from assets_paths import support_folders

sys.path[1:1] = support_folders()

import albumentations as A  # noqa: E402, N812 (as its own documentation writes it)
from assets_dataset import LONG, make_dataset  # noqa: E402
from facefeed.loaders import FaceDataLoader  # noqa: E402
from facefeed.loaders.mixture.shares import interleave, share_numbers  # noqa: E402
from peers import faces  # noqa: E402

PARTS = {"large": 0.6, "medium": 0.3, "small": 0.1}
ORDER_IMAGES = 10_000_000


def write_outs(folder: Path, images: int) -> tuple[str, dict[str, str]]:
    """One dataset of all images, and three that have as many together."""
    make_dataset(folder / "made", (("train", LONG),), size_px=224)
    table, _ = faces.crops(folder / "made", 224, 90)
    outs = {}
    for name, share in {"one": 1.0, **PARTS}.items():
        (folder / name).mkdir()
        faces.write(table, round(images * share), folder / name)
        outs[name] = str(folder / name / "facefeed")
    return outs.pop("one"), outs


def lane(dataset: Any, **options: Any) -> FaceDataLoader:
    transform = A.Compose([A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.5)])
    return FaceDataLoader(dataset, 64, transform=transform, num_workers=2, **options)


def images_per_second(loader: FaceDataLoader) -> float:
    started = time.perf_counter()
    count = sum(len(labels) for _, labels in loader)
    return count / (time.perf_counter() - started)


def seconds_of_order() -> float:
    """Interleaving ten million images of three datasets."""
    started = time.perf_counter()
    interleave(share_numbers([6, 3, 1], temperature=2), ORDER_IMAGES)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=3000, help="of an epoch")
    parser.add_argument("--repeats", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one, three = write_outs(Path(folder), arguments.images)
        lanes = {"one dataset": lane(one), "mixture of three": lane(three, temperature=2)}
        for loader in lanes.values():
            images_per_second(loader)
        repeats = []
        for number in range(arguments.repeats):
            order = list(lanes.items())[:: 1 if number % 2 else -1]  # neither lane always comes first
            repeats.append({name: images_per_second(loader) for name, loader in order})
    ratio = statistics.median(repeat["mixture of three"] / repeat["one dataset"] for repeat in repeats)
    interleaving = [seconds_of_order() for _ in range(3)]
    for name in lanes:
        print(f"{name:17} {statistics.median(repeat[name] for repeat in repeats):,.0f} images/s", file=sys.stderr)
    print(f"{ORDER_IMAGES:,} images interleaved in {min(interleaving):.2f} s", file=sys.stderr)
    result = {"images_per_second": repeats, "mixture / one": ratio, "interleaving_seconds": interleaving}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
