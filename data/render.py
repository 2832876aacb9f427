"""Renders a clip of the recipe to a video file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .blend import blend_fake
from .encode import write_rotation_tag, write_video
from .people import empty_backdrop, person, person_portrait, side_by_side
from .portraits import Image, Portrait
from .recipe import Clip
from .scene import Scene

TRUNCATED_FRACTION = 0.6
"""Fraction of a truncated file that is written. The index is at the end of the file, so it cannot be opened."""


def base_portrait(people: tuple[int, ...]) -> Portrait:
    """Returns the image that a clip of these people is rendered from: zero to two indices of `person`."""
    if not people:
        return empty_backdrop()
    if len(people) == 1:
        return person_portrait(person(people[0]))
    first, second = people
    return side_by_side(person(first), person(second))


def render_clip(clip: Clip, still: Portrait, folder: Path) -> None:
    """Renders and encodes a clip, and truncates its file if that is its trait; `still`: see `base_portrait`."""
    if clip.manipulation is not None:
        still = blend_fake(still, clip.face_index, clip.manipulation)
    path, (width, height) = folder / clip.name, clip.shot.size
    rotated = clip.trait == "rotated"
    size = (height, width) if rotated else (width, height)
    write_video(path, _frames(clip, still, rotated=rotated), size, clip.encoding)
    if rotated:
        write_rotation_tag(path)
    if clip.trait == "truncated":
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * TRUNCATED_FRACTION)])


def _frames(clip: Clip, still: Portrait, *, rotated: bool) -> Iterator[Image]:
    scene = Scene(still, clip.shot, seed=clip.grain_seed)
    for index, pts in enumerate(clip.encoding.pts):
        frame = scene.frame(index, float(pts * clip.encoding.time_base))
        # Stored rotated counter-clockwise, as a phone stores video in portrait orientation.
        yield np.ascontiguousarray(np.rot90(frame)) if rotated else frame
