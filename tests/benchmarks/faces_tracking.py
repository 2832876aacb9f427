"""Following faces beside facenet's search of every frame: frames that come one after the other, as in a job."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.video import MediaReader, Sampling
from faces_agreement import agree, unconfirmed
from faces_engines import Engine, Frames, make_engine
from numpy.typing import NDArray

NAMES = ("facenet", "ours", "track")
SAMPLINGS = {"every_1": 1, "every_10": 10}
_STILL_FRAMES, _NOISE = 64, 4.0

InTurn = Callable[[dict[str, Engine], Frames, int], tuple[dict[str, list[float]], dict[str, list[Faces]]]]


def follow(
    path: Path, in_turn: InTurn, *, min_face_px: int, device: str, frames: int, repeats: int
) -> dict[str, dict[str, Any]]:
    """For each sampling: seconds of every repeat of each engine, and how far it agrees with facenet."""
    by_sampling = {}
    for name, every in SAMPLINGS.items():
        with MediaReader() as reader:
            rgb_frames = [frame.rgb for frame in islice(reader.frames(path, Sampling(every=every)), frames)]
        engines = {
            engine_name: make_engine(engine_name, min_face_px=min_face_px, device=device) for engine_name in NAMES
        }
        for engine in engines.values():
            engine.warm_up(rgb_frames)
        seconds, detections = in_turn(engines, rgb_frames, repeats)
        by_sampling[name] = {
            "frames": len(rgb_frames),
            "seconds": seconds,
            "agreement": {
                engine_name: agree(detections["facenet"], detections[engine_name]) for engine_name in NAMES[1:]
            },
            "unconfirmed": {
                engine_name: unconfirmed(detections["facenet"], detections[engine_name], every)
                for engine_name in NAMES[1:]
            },
        }
    return by_sampling


def jitter(*, min_face_px: int, device: str) -> dict[str, float]:
    """Standard deviation, in px, of where the crop of a head lies that keeps still before a noisy camera."""
    frames = still()
    spread = {}
    for name in NAMES[1:]:
        _, detections = make_engine(name, min_face_px=min_face_px, device=device).timed(frames)
        squares = [CropSquare.around(faces.boxes_xyxy[0], 0.3, 0.0) for faces in detections]
        middles = np.array([(square.x0 + square.side / 2, square.y0 + square.side / 2) for square in squares])
        spread[name] = float(middles.std(axis=0).mean())
    return spread


def still() -> list[NDArray[np.uint8]]:
    """(512, 512, 3) uint8 each: one portrait, and in each frame other noise."""
    portrait = load_portrait("astronaut").image[..., ::-1].astype(np.float32)
    generator = np.random.default_rng(0)
    noisy = (portrait + generator.normal(0, _NOISE, portrait.shape) for _ in range(_STILL_FRAMES))
    return [np.ascontiguousarray(image.round().clip(0, 255).astype(np.uint8)) for image in noisy]
