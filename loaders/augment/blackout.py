"""Transforms that set a part of the face to 0, so that a network cannot rely on that part alone."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .areas import Area, PolygonPart, count_uncovered, eyes_area, half_image_blocks, hull_halves, mouth_area, nose_area
from .base import FaceTransform, require_at_least, require_weights
from .points import FacePoints

Mask = NDArray[np.uint8] | None

PART_WEIGHTS: Final = {"eyes": 4.0, "mouth": 2.0, "nose": 1.0, "nothing": 1.0}
MIN_VISIBLE_PX: Final = 20
_MAX_DRAWS: Final = 5
_PART_AREAS: Final[dict[str, Callable[[NDArray[np.float32]], Area]]] = {
    "eyes": eyes_area,
    "mouth": mouth_area,
    "nose": nose_area,
}


class Blackout(FaceTransform):
    """Base class: sets the `area` that a subclass returns to 0, in image and mask; points stay where they are."""

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Maps each target to the method that transforms it, as Albumentations requires."""
        return {"image": self.apply, "mask": self.apply}

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """`area`: what is blacked out in this image."""
        height, width = params["shape"][:2]
        return {"area": self.area(self.face(data), (height, width), data.get("mask"))}

    @abstractmethod
    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:
        """The area to black out in an image of `size` (H, W); None: nothing."""

    def apply(self, img: NDArray[np.uint8], area: Area | None = None, **params: Any) -> NDArray[np.uint8]:  # noqa: ARG002
        """Returns a copy with the area set to 0; the image itself where there is none."""
        if area is None:
            return img
        result = img.copy()
        area.blacken(result)
        return result


class LandmarkBlackout(Blackout):
    """Blacks out the eyes, the mouth or the nose.

    eyes: the line between the eyes' centres and all within d/4 of it, d the distance of the eyes; nose: the line from
    the midpoint of the eyes to the tip, and all within d/4; mouth: the line between its corners, and all within a third
    of its length. `weights`: relative frequencies of `eyes`, `mouth`, `nose` and `nothing`.

    Source: the landmark cutout of S. Seferbekov's winning entry to DFDC (github.com/selimsef/dfdc_deepfake_challenge,
    2020). There the lines are dilated in steps along the image's axes, which makes a diamond that turns with the image
    but not with the head; here the area is round.
    """

    reads_mask = False
    allowed_in_clips = True

    def __init__(self, weights: Mapping[str, float] = PART_WEIGHTS, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.weights = require_weights(weights, PART_WEIGHTS, suggestion=PART_WEIGHTS)

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:  # noqa: ARG002
        """One part, drawn by weight."""
        return draw_part(self.py_random, face, self.weights)


class HullHalfBlackout(Blackout):
    """Blacks out the top, bottom, left or right half of the face's hull, cut through its centroid.

    Each half is equally likely. Source: the convex hull cutout of the same entry, which detects a hull in every image
    (dlib), and silently does nothing where it finds none; here the stored hull of the row is used.
    """

    reads_mask = False
    allowed_in_clips = True

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:  # noqa: ARG002
        """One half of the hull."""
        return draw_half(self.py_random, face)


class BlockMask(Blackout):
    """Blacks out half of the image: top, bottom, left, right, or two opposite quarters. Each is equally likely.

    A fake, that is an image whose mask holds manipulated pixels, must keep more than `min_visible_px` of them; a block
    that leaves fewer is drawn again, at most five times in all, then the image is left unchanged. Without a mask, or
    with an empty one, the first block is used.

    Source: the bit mask cutout of the same entry. That code confuses width and height, and counts every pixel of the
    difference that is not exactly 0, compression noise included.
    """

    def __init__(self, min_visible_px: int = MIN_VISIBLE_PX, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.min_visible_px = int(require_at_least(0, "min_visible_px", min_visible_px, suggestion=MIN_VISIBLE_PX))

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:  # noqa: ARG002
        """One of the six blocks, or nothing."""
        return draw_block(self.py_random, size, mask, self.min_visible_px)


def draw_part(rng: random.Random, face: FacePoints, weights: Mapping[str, float]) -> Area | None:
    """The eyes, the mouth, the nose, or nothing."""
    parts = sorted(weights)  # a saved pipeline has them in another order
    part = rng.choices(parts, [weights[part] for part in parts])[0]
    return None if part == "nothing" else _PART_AREAS[part](face.landmarks)


def draw_half(rng: random.Random, face: FacePoints) -> PolygonPart | None:
    """A half of the hull; nothing where the hull has no area."""
    halves = hull_halves(face.hull)
    return rng.choice(halves) if halves else None


def draw_block(rng: random.Random, size: tuple[int, int], mask: Mask, min_visible_px: int) -> Area | None:
    """One of the six blocks that keeps enough of a fake visible; nothing where five draws find none."""
    # All draws at once: the mask, which an original does not have, must not decide what the next transform draws.
    blocks = rng.choices(half_image_blocks(*size), k=_MAX_DRAWS)
    return next((block for block in blocks if keeps_enough_visible(block, mask, min_visible_px)), None)


def keeps_enough_visible(area: Area, mask: Mask, min_visible_px: int) -> bool:
    """Whether more than `min_visible_px` manipulated pixels lie outside the area; always true for a real face."""
    return mask is None or not mask.any() or count_uncovered(mask, area) > min_visible_px
