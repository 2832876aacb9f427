"""What each face-aware transform costs: CPU time for a face of 256 px, and images/s of one core for `SelfBlend`.

Also what flip and colour jitter of the same strength cost as a `transform` of Albumentations and of torchvision v2, of
the image alone, and of v2 with points and mask.

    .venv/bin/python tests/benchmarks/bench_augment.py --faces 200 --repeats 5

Every transform is applied to the same synthetic face, with probability 1, in turn within each repeat. CPU time of one
thread; prints JSON with every repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import albumentations as A  # noqa: N812
import cv2
import numpy as np
import torch
from facefeed.loaders import augment
from facefeed.loaders.adapters.by_kind import adapter_of
from facefeed.loaders.face import Face
from torchvision.transforms import v2

SIDE = 256


def a_face() -> dict[str, Any]:
    """A real face of smooth noise, with 68 points on an ellipse."""
    coarse = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    angles = np.linspace(0, 2 * np.pi, 68, endpoint=False)
    return {
        "image": cv2.resize(coarse, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC),
        "landmarks": np.float32([(100, 105), (156, 105), (128, 140), (105, 170), (151, 170)]),
        "hull": np.float32([(70, 50), (186, 50), (200, 130), (128, 215), (56, 130)]),
        "landmarks_68": np.float32(np.column_stack([128 + 60 * np.cos(angles), 130 + 80 * np.sin(angles)])),
        "regions": {}, "mask": None, "label": 0,
    }  # fmt: skip


def transforms() -> dict[str, Any]:
    """Each transform alone; a flip for comparison."""
    return {
        "HorizontalFlip": A.HorizontalFlip(p=1),
        "FaceCutout": augment.FaceCutout(p=1),
        "SelfBlend": augment.SelfBlend(p=1),
        "FaceXRay of SelfBlend": [augment.SelfBlend(p=1), augment.FaceXRay()],
        "LandmarkJitter": augment.LandmarkJitter(p=1),
        "MouthCrop": augment.MouthCrop(),
        "BackgroundRemoval": augment.BackgroundRemoval(),
        "BackgroundRemoval blur": augment.BackgroundRemoval(fill="blur"),
    }


def image_transforms() -> dict[str, Callable[[], Any]]:
    """Flip and colour jitter by each library, with hue and without, applied by the loader's own adapters."""
    face = Face(**{**a_face(), "mask": np.zeros((SIDE, SIDE), np.uint8)})
    strength, points = [(0.8, 1.2)] * 3, ("landmarks", "hull", "regions", "landmarks_68", "mask")
    by_albumentations, by_v2 = (
        A.Compose([A.HorizontalFlip(p=0.5), A.ColorJitter(*strength, hue=(-0.1, 0.1), p=1)]),
        v2.Compose([v2.RandomHorizontalFlip(0.5), v2.ColorJitter(*strength, hue=0.1)]),
    )
    kinds = {
        "Albumentations": (by_albumentations, ()), "torchvision v2": (by_v2, ()),
        "torchvision v2, with points and mask": (by_v2, points),
        "Albumentations, without hue": (
            A.Compose([A.HorizontalFlip(p=0.5), A.ColorJitter(*strength, hue=(0, 0), p=1)]), (),
        ),
        "torchvision v2, without hue": (v2.Compose([v2.RandomHorizontalFlip(0.5), v2.ColorJitter(*strength)]), ()),
    }  # fmt: skip
    return {name: partial(adapter_of(each), each, face, delivered) for name, (each, delivered) in kinds.items()}


def measure_image_transforms(faces: int, repeats: int) -> dict[str, list[float]]:
    """Microseconds of CPU time an image, by transform, of each repeat."""
    calls = image_transforms()
    microseconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, apply in calls.items():
            start_ns = time.process_time_ns()
            for _ in range(faces):
                apply()
            if repeat:  # the first one warms up
                microseconds[name].append((time.process_time_ns() - start_ns) / 1000 / faces)
    return microseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    face = a_face()
    pipelines = {
        name: augment.FaceCompose(each if isinstance(each, list) else [each], seed=0)
        for name, each in transforms().items()
    }
    microseconds: dict[str, list[float]] = {name: [] for name in pipelines}
    for repeat in range(arguments.repeats + 1):
        for name, pipeline in pipelines.items():
            start_ns = time.process_time_ns()
            for _ in range(arguments.faces):
                pipeline(**face)
            if repeat:  # the first one warms up
                microseconds[name].append((time.process_time_ns() - start_ns) / 1000 / arguments.faces)
    medians = {name: statistics.median(values) for name, values in microseconds.items()}
    flip_and_jitter = measure_image_transforms(arguments.faces, arguments.repeats)
    print(json.dumps({
        "side_px": SIDE, "faces": arguments.faces, "median_us": {name: round(each) for name, each in medians.items()},
        "self_blend_images_per_core_second": round(1e6 / medians["SelfBlend"]),
        "flip_and_jitter_images_per_core_second": {
            name: round(1e6 / statistics.median(values)) for name, values in flip_and_jitter.items()
        },
        "flip_and_jitter_repeats_us": {name: [*map(round, values)] for name, values in flip_and_jitter.items()},
        "repeats_us": {name: [round(each, 1) for each in values] for name, values in microseconds.items()},
    }))  # fmt: skip


if __name__ == "__main__":
    main()
