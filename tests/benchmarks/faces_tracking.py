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
    told = {}
    for name, every in SAMPLINGS.items():
        with MediaReader() as reader:
            shown = [frame.rgb for frame in islice(reader.frames(path, Sampling(every=every)), frames)]
        engines = {one: make_engine(one, min_face_px=min_face_px, device=device) for one in NAMES}
        for engine in engines.values():
            engine.warm_up(shown)
        seconds, found = in_turn(engines, shown, repeats)
        told[name] = {
            "frames": len(shown),
            "seconds": seconds,
            "agreement": {one: agree(found["facenet"], found[one]) for one in NAMES[1:]},
            "unconfirmed": {one: unconfirmed(found["facenet"], found[one], every) for one in NAMES[1:]},
        }
    return told


def jitter(*, min_face_px: int, device: str) -> dict[str, float]:
    """Standard deviation, in px, of where the crop of a head lies that keeps still before a noisy camera."""
    frames = still()
    spread = {}
    for name in NAMES[1:]:
        _, found = make_engine(name, min_face_px=min_face_px, device=device).timed(frames)
        squares = [CropSquare.around(faces.boxes_xyxy[0], 0.3, 0.0) for faces in found]
        middles = np.array([(one.x0 + one.side / 2, one.y0 + one.side / 2) for one in squares])
        spread[name] = float(middles.std(axis=0).mean())
    return spread


def still() -> list[NDArray[np.uint8]]:
    """(512, 512, 3) uint8 each: one portrait, and in each frame other noise."""
    portrait = load_portrait("astronaut").image[..., ::-1].astype(np.float32)
    generator = np.random.default_rng(0)
    noisy = (portrait + generator.normal(0, _NOISE, portrait.shape) for _ in range(_STILL_FRAMES))
    return [np.ascontiguousarray(one.round().clip(0, 255).astype(np.uint8)) for one in noisy]
