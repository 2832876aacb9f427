"""Transforms that set a part of the face to 0, so that a network cannot lean on that part alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .areas import Area, PolygonPart, blocks_of, eyes_of, halves_of, mouth_of, nose_of, remaining
from .base import FaceTransform, at_least, weights_of
from .points import FacePoints

Mask = NDArray[np.uint8] | None

PART_WEIGHTS: Final = {"eyes": 4.0, "mouth": 2.0, "nose": 1.0, "nothing": 1.0}
LEAST_VISIBLE_PX: Final = 20
_TRIES: Final = 5
_PARTS: Final[dict[str, Callable[[NDArray[np.float32]], Area]]] = {"eyes": eyes_of, "mouth": mouth_of, "nose": nose_of}


class Blackout(FaceTransform):
    """Base: sets the `area` that a subclass names to 0, in the image and in the mask; points stay where they are."""

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Albumentations' table of what is transformed by what."""
        return {"image": self.apply, "mask": self.apply}

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """The area for this image."""
        height, width = params["shape"][:2]
        return {"area": self.area(self.face(data), (height, width), data.get("mask"))}

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:
        """What is blacked out in an image of `size` (H, W); None: nothing."""
        raise NotImplementedError

    def apply(self, img: NDArray[np.uint8], area: Area | None = None, **params: Any) -> NDArray[np.uint8]:  # noqa: ARG002
        """A copy with the area blacked out."""
        if area is None:
            return img
        blacked = img.copy()
        area.blacken(blacked)
        return blacked


class LandmarkBlackout(Blackout):
    """Blacks out the eyes, the mouth or the nose.

    eyes: the line between the eyes' centres and all within d/4 of it, d the distance of the eyes; nose: the line from
    between the eyes to the tip, and all within d/4; mouth: the line between its corners, and all within a third of
    its length. `weights`: how often each of `eyes`, `mouth`, `nose` and `nothing` is drawn, as shares of their sum.

    Source: the landmark cutout of S. Seferbekov's entry that won DFDC (github.com/selimsef/dfdc_deepfake_challenge,
    2020). There the lines are dilated in steps along the image's axes, which makes a diamond that turns with the image
    but not with the head; here the area is round.
    """

    looks_at_mask = False

    def __init__(self, weights: Mapping[str, float] = PART_WEIGHTS, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.weights = weights_of(weights, PART_WEIGHTS, trial=PART_WEIGHTS)

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:  # noqa: ARG002
        """One part, by the weights."""
        return drawn_part(self.py_random, face, self.weights)


class HullHalfBlackout(Blackout):
    """Blacks out the top, bottom, left or right half of the face's hull, cut through its centroid.

    Each half is as likely. Source: the convex hull cutout of the same entry, which looks for a hull anew in every
    image (dlib), and does nothing, silently, where it finds none; here it is the row's own.
    """

    looks_at_mask = False

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:  # noqa: ARG002
        """One half."""
        return drawn_half(self.py_random, face)


class BlockMask(Blackout):
    """Blacks out half of the image: its top, bottom, left, right, or two opposite quarters. Each is as likely.

    A fake, that is an image whose mask holds manipulated pixels, must keep more than `min_visible_px` of them; a block
    that leaves fewer is drawn anew, up to five draws in all, after which the image is left alone. Without a mask, or
    with an empty one, the first block it is.

    Source: the bit mask cutout of the same entry. There it takes the width for the height, and counts every pixel of
    the difference that is not exactly 0, noise of compression included.
    """

    def __init__(self, min_visible_px: int = LEAST_VISIBLE_PX, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.min_visible_px = int(at_least(0, "min_visible_px", min_visible_px, trial=LEAST_VISIBLE_PX))

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:  # noqa: ARG002
        """One of the six, or nothing."""
        return drawn_block(self.py_random, size, mask, self.min_visible_px)


def drawn_part(rng: random.Random, face: FacePoints, weights: Mapping[str, float]) -> Area | None:
    """The eyes, the mouth, the nose, or nothing."""
    part = rng.choices([*weights], [*weights.values()])[0]
    return None if part == "nothing" else _PARTS[part](face.landmarks)


def drawn_half(rng: random.Random, face: FacePoints) -> PolygonPart | None:
    """A half of the hull; nothing where the hull has no area."""
    halves = halves_of(face.hull)
    return rng.choice(halves) if halves else None


def drawn_block(rng: random.Random, size: tuple[int, int], mask: Mask, min_visible_px: int) -> Area | None:
    """One of the six blocks that leaves enough of a fake to be seen; nothing where five draws find none."""
    blocks = blocks_of(*size)
    for _ in range(_TRIES):
        block = rng.choice(blocks)
        if leaves_enough(block, mask, min_visible_px):
            return block
    return None


def leaves_enough(area: Area, mask: Mask, min_visible_px: int) -> bool:
    """Whether more than `min_visible_px` manipulated pixels are seen beside an area; always so for a real face."""
    return mask is None or not mask.any() or remaining(mask, area) > min_visible_px
