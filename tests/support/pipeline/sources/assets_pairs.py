"""Originals and fakes of the sample, and the generator's own truth of what was changed in each frame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from facefeed.data.blend import hull_mask
from facefeed.data.portraits import Portrait
from facefeed.data.recipe import Clip, draw_clips
from facefeed.data.render import base_portrait, render_clip
from facefeed.data.scene import Scene
from facefeed.pipeline.sources import Entry
from numpy.typing import NDArray


def pairs_of_sample(seed: int = 0) -> list[tuple[Clip, Clip]]:
    """Every fake of the sample whose original is there and decodes, as (original, fake)."""
    clips = {clip.name: clip for clip in draw_clips(seed) if clip.present and clip.trait != "truncated"}
    return [(clips[clip.original], clip) for clip in clips.values() if clip.original in clips]


def film(folder: Path, *clips: Clip) -> None:
    """Makes the videos of clips."""
    folder.mkdir(parents=True, exist_ok=True)
    for clip in clips:
        render_clip(clip, base_portrait(clip.people), folder)


def entry_of(folder: Path, clip: Clip) -> Entry:
    """A clip as the layout dfdc would list it."""
    stat = (folder / clip.name).stat()
    return Entry(
        video_id=clip.name, size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns,
        label=int(clip.manipulation is not None), source_id=clip.original, dataset="sample",
    )  # fmt: skip


class Truth:
    """Where a fake of the sample may differ from its original: the hull of the changed face, filmed alike."""

    def __init__(self, fake: Clip) -> None:
        still = base_portrait(fake.people)
        hull = hull_mask(still.image.shape[:2], still.faces[fake.face_index])
        steady = replace(fake.shot, flicker=0.0, grain=0.0, blur_px=0.0)
        self._fake = fake
        self._scene = Scene(Portrait(image=np.dstack([hull] * 3), faces=still.faces), steady, seed=fake.grain_seed)

    def frame(self, index: int) -> NDArray[np.uint8]:
        """255 within the hull, (H, W, 3) uint8, of the frame with this index."""
        encoding = self._fake.encoding
        return self._scene.frame(index, float(encoding.pts[index] * encoding.time_base))
