"""Whether a painted change in a face is found though all colours of the fake differ from its source, and what it costs.

    python tests/benchmarks/bench_masks.py [--media FOLDER] [--repeats 5]

Photos with one to six faces of 64 px and more, by the real detector, at most 1280 px long. In each face of the fake an
ellipse is painted 15 to 25 levels off; then the colours of all of the fake are shifted, and both are stored as JPEG.
found: faces whose `manipulated` is above 0.01; unknown: those without a mask; false: the same faces unpainted, above
0.01. `without`: the same while no colour map is fitted. ms: CPU time of a frame's colour map and of a face's mask.
Prints one JSON object; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np
from facefeed.pipeline.dataset.image_codec import ImageEncoder, decode_rgb_strictly
from facefeed.pipeline.errors import FacefeedError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.manipulation import mask
from faces_media import MEDIA, photo
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]
MIN_FACE_PX, MAX_FACES, LONGEST_PX, SIZE_PX, CHANGED = 64, 6, 1280, 256, 0.01
QUALITIES = {"95/95": (95, 95), "60/90": (60, 90), "90/40": (90, 40)}  # JPEG, of the fake and of its source


def yuv(red: float, blue: float) -> NDArray[np.float64]:
    """The matrix from RGB to YUV of these weights of luma."""
    luma = np.array([red, 1 - red - blue, blue])
    return np.vstack(
        [luma, (np.array([0, 0, 1]) - luma) / (2 - 2 * blue), (np.array([1, 0, 0]) - luma) / (2 - 2 * red)]
    )


def linear(matrix: NDArray[np.float64], offset: float = 0.0) -> Callable[[Rgb], Rgb]:
    return lambda rgb: np.rint(rgb @ matrix.T + offset).clip(0, 255).astype(np.uint8)


def gamma(exponent: float) -> Callable[[Rgb], Rgb]:
    return lambda rgb: np.rint(255 * (rgb / 255) ** exponent).astype(np.uint8)


def saturation(factor: float) -> Callable[[Rgb], Rgb]:
    return linear(factor * np.eye(3) + (1 - factor) * np.tile(BT601[0], (3, 1)))


BT601, BT709 = yuv(0.299, 0.114), yuv(0.2126, 0.0722)
SHIFTS: dict[str, Callable[[Rgb], Rgb]] = {
    "none": lambda rgb: rgb,
    "BT.601 decoded as BT.709": linear(np.linalg.inv(BT709) @ BT601),
    "BT.709 decoded as BT.601": linear(np.linalg.inv(BT601) @ BT709),
    "20 levels brighter": linear(np.eye(3), 20),
    "contrast 1.2": linear(1.2 * np.eye(3), -0.2 * 128),
    "contrast 0.8": linear(0.8 * np.eye(3), 0.2 * 128),
    "red 1.1, blue 0.9": linear(np.diag([1.1, 1.0, 0.9])),
    "saturation 1.3": saturation(1.3),
    "saturation 0.7": saturation(0.7),
    "limited range shown as full": linear(219 / 255 * np.eye(3), 16),
    "gamma 1.25": gamma(1.25),
    "gamma 0.8": gamma(0.8),
}


@dataclass(frozen=True, slots=True, eq=False)
class Photo:
    """A picture, the boxes of its faces, and the same with an ellipse painted in each."""

    source: Rgb
    boxes_xyxy: NDArray[np.float32]
    painted: Rgb


def photos(media: Path) -> Iterator[Photo]:
    """Those with faces, in the order of their paths."""
    detector, keep = MTCNNDetector(min_face_px=MIN_FACE_PX), FaceFilter(min_face_px=MIN_FACE_PX)
    random = np.random.default_rng(0)
    for path in sorted(path for path in media.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".png"}):
        try:
            rgb = photo(path)
        except FacefeedError:
            continue  # broken on purpose
        scale = min(1.0, LONGEST_PX / max(rgb.shape[:2]))
        rgb = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA).astype(np.uint8)
        boxes = keep(detector.detect([rgb])[0]).boxes_xyxy
        if 1 <= len(boxes) <= MAX_FACES:
            yield Photo(rgb, boxes, painted(rgb, boxes, random))


def painted(rgb: Rgb, boxes_xyxy: NDArray[np.float32], random: np.random.Generator) -> Rgb:
    """An ellipse in the middle of each face, half as wide and high, with each channel 15 to 25 levels up or down."""
    levels = rgb.astype(np.int16)
    for left, top, right, bottom in boxes_xyxy.astype(float):
        inside = np.zeros(rgb.shape[:2], np.uint8)
        center, axes = ((left + right) / 2, (top + bottom) / 2), ((right - left) / 2, (bottom - top) / 2)
        cv2.ellipse(inside, (center, axes, 0), 1, -1)
        levels[inside > 0] += (random.uniform(15, 25, 3) * random.choice([-1, 1], 3)).astype(np.int16)
    return levels.clip(0, 255).astype(np.uint8)


def stored(rgb: Rgb, quality: int) -> Rgb:
    return decode_rgb_strictly(ImageEncoder(quality=quality)(rgb))


def fractions(fake: Rgb, source: Rgb, boxes_xyxy: NDArray[np.float32]) -> list[float | None]:
    """`changed_fraction` of each face; None without a mask."""
    comparison = mask.FrameComparison(fake, source, boxes_xyxy)
    found = [comparison.mask(CropSquare.around(box, 0.3), box_xyxy=box, size_px=SIZE_PX) for box in boxes_xyxy]
    return [result.changed_fraction if result is not None else None for result in found]


def counts(pictures: list[Photo], shift: Callable[[Rgb], Rgb], qualities: tuple[int, int]) -> dict[str, int]:
    of_fake, of_source = qualities
    changed: list[float | None] = []
    unchanged: list[float | None] = []
    for picture in pictures:
        source = stored(picture.source, of_source)
        changed += fractions(stored(shift(picture.painted), of_fake), source, picture.boxes_xyxy)
        unchanged += fractions(stored(shift(picture.source), of_fake), source, picture.boxes_xyxy)
    return {
        "found": sum((fraction or 0) > CHANGED for fraction in changed),
        "unknown": changed.count(None),
        "false": sum((fraction or 0) > CHANGED for fraction in unchanged),
    }


def cpu_ms(pictures: list[Photo], shift: Callable[[Rgb], Rgb]) -> dict[str, float]:
    """Medians over the photos: of one frame's colour map, and of one face's mask."""
    of_maps, of_masks = [], []
    for picture in pictures:
        fake = shift(picture.painted)
        began = time.process_time()
        comparison = mask.FrameComparison(fake, picture.source, picture.boxes_xyxy)
        fitted = time.process_time()
        for box in picture.boxes_xyxy:
            comparison.mask(CropSquare.around(box, 0.3), box_xyxy=box, size_px=SIZE_PX)
        of_maps.append(1000 * (fitted - began))
        of_masks.append(1000 * (time.process_time() - fitted) / len(picture.boxes_xyxy))
    return {"colour_map_ms_per_frame": statistics.median(of_maps), "mask_ms_per_face": statistics.median(of_masks)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--media", type=Path, default=MEDIA)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    cv2.setNumThreads(1)
    pictures = list(photos(args.media))
    if not pictures:
        sys.exit(f"{args.media}: no photos of faces there; name a folder with --media")
    faces = sum(len(picture.boxes_xyxy) for picture in pictures)
    result: dict[str, Any] = {"photos": len(pictures), "faces": faces, "shifts": {}}
    print(f"{faces} faces of {len(pictures)} photos: found (false), JPEG qualities of fake/source", file=sys.stderr)
    for name, shift in SHIFTS.items():
        of_shift = {label: counts(pictures, shift, qualities) for label, qualities in QUALITIES.items()}
        with patch.object(mask, "fit_colour_map", lambda *_: None):
            of_shift["without, 95/95"] = counts(pictures, shift, QUALITIES["95/95"])
        result["shifts"][name] = of_shift
        cells = "  ".join(f"{label}: {count['found']:3} ({count['false']})" for label, count in of_shift.items())
        print(f"{name:28} {cells}", file=sys.stderr, flush=True)
    result["cpu"] = {
        name: [cpu_ms(pictures, SHIFTS[name]) for _ in range(args.repeats)] for name in ("none", "20 levels brighter")
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
