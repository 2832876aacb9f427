"""From a clip of the recipe to its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .blend import blend_fake
from .encode import mark_turned, write_video
from .people import PEOPLE, empty_backdrop, pair_of, portrait_of
from .portraits import Image, Portrait
from .recipe import Clip
from .scene import Scene

KEPT_SHARE = 0.6
"""How much of a truncated file is left. Its index lies at the end, so what is left cannot be opened."""


def still_of(people: tuple[int, ...]) -> Portrait:
    """Make the picture that a clip of these people (indices into PEOPLE; none to two) is filmed from."""
    if not people:
        return empty_backdrop()
    if len(people) == 1:
        return portrait_of(PEOPLE[people[0]])
    first, second = people
    return pair_of(PEOPLE[first], PEOPLE[second])


def film_clip(clip: Clip, still: Portrait, folder: Path) -> None:
    """Film, encode and (where the recipe says so) spoil one clip; `still` is what `still_of` gives."""
    if clip.change is not None:
        still = blend_fake(still, clip.face_index, clip.change)
    path, (width, height) = folder / clip.name, clip.shot.size
    turned = clip.trait == "turned"
    size = (height, width) if turned else (width, height)
    write_video(path, _frames(clip, still, turned=turned), size, clip.coding)
    if turned:
        mark_turned(path)
    if clip.trait == "truncated":
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * KEPT_SHARE)])


def _frames(clip: Clip, still: Portrait, *, turned: bool) -> Iterator[Image]:
    scene = Scene(still, clip.shot, seed=clip.grain_seed)
    for index, pts in enumerate(clip.coding.pts):
        frame = scene.frame(index, float(pts * clip.coding.time_base))
        # Stored counter-clockwise, as a phone held upright does it.
        yield np.ascontiguousarray(np.rot90(frame)) if turned else frame
