"""The loader with a crop protocol beside the loader that resizes the whole stored crop to the same size.

    python tests/benchmarks/bench_crops.py [--out OUT] [--repeats 5] [--crops deepfakebench ffpp sbi] [--images 2000]

OUT is in the archive form, `facefeed precompute SRC OUT --margin 0.8 --size 512`; without one it is made of real
talking heads beside the checkout, or of the sample. Both lanes flip, change brightness and contrast, normalise to
float32 and use two workers; epochs take turns. Prints one JSON object with every repeat in images/s, and the median of
the pairs' ratios; a table goes to stderr.

"resized, decoded whole" is the loader without a crop where JPEG's own reduced scale is not used: what remains of the
difference is the warp and the maps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import albumentations as A  # noqa: N812 (as its own documentation writes it)
from facefeed.data.sample import make_sample
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.dataset.decode import decode_rgb
from peers.faces import MEDIA


class DecodedWhole:
    """Decodes every image at its full size."""

    def __call__(self, data: bytes, **options: Any) -> Any:
        return decode_rgb(data, into=options.get("into"))


def archive(folder: Path) -> Path:
    """The archive form of real talking heads beside the checkout, else of the sample."""
    source = MEDIA / "LivePortrait/assets/examples/driving"
    if not source.is_dir():
        source = folder / "videos"
        make_sample(source)
    command = [sys.executable, "-m", "facefeed.pipeline", "precompute", str(source), str(folder / "out")]
    subprocess.run(
        [*command, "--margin", "0.8", "--size", "512", "--every", "2", "--allow-unlabelled"],
        check=True,
        stdout=sys.stderr,
    )
    return folder / "out"


def loader(dataset: FaceDataset, batch_size: int = 64) -> FaceDataLoader:
    return FaceDataLoader(dataset, batch_size, num_workers=2, shuffle=True)


def dataset(out: Path, **options: Any) -> FaceDataset:
    transform = A.Compose([A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.5)])
    return FaceDataset(out, split=None, transform=transform, **options)


def images_per_second(lane: FaceDataLoader, images: int) -> float:
    """Whole epochs until that many images have come."""
    count, started = 0, time.perf_counter()
    while count < images:
        for batch, _ in lane:
            count += len(batch)
    return count / (time.perf_counter() - started)


def compare(out: Path, crop: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All lanes of one protocol, in turn."""
    cut = dataset(out, crop=crop)
    assert cut.image_size is not None
    resized = dataset(out, image_size=cut.image_size)
    uncut = dataset(out, image_size=cut.image_size)
    uncut._decode = DecodedWhole()
    lanes = {"crop": loader(cut), "resized": loader(resized), "resized, decoded whole": loader(uncut)}
    for lane in lanes.values():
        images_per_second(lane, 1)
    repeats = [
        {name: images_per_second(lane, arguments.images) for name, lane in lanes.items()}
        for _ in range(arguments.repeats)
    ]
    result: dict[str, Any] = {"side_px": cut.image_size, "repeats": repeats}
    for other in ("resized", "resized, decoded whole"):
        result[f"crop / {other}"] = statistics.median(repeat["crop"] / repeat[other] for repeat in repeats)
    print(f"{crop:14} {cut.image_size} px  " + "  ".join(
        f"{name}: {statistics.median(repeat[name] for repeat in repeats):,.0f}/s" for name in lanes
    ) + f"  crop / resized {result['crop / resized']:.2f}, / decoded whole "
        f"{result['crop / resized, decoded whole']:.2f}", file=sys.stderr)  # fmt: skip
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--images", type=int, default=2000, help="of a repeat")
    parser.add_argument("--crops", nargs="+", default=["deepfakebench", "ffpp", "sbi"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or archive(Path(folder))
        print(json.dumps({crop: compare(out, crop, arguments) for crop in arguments.crops}))


if __name__ == "__main__":
    main()
