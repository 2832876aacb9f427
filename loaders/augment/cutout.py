"""`FaceCutout`: the sequence of blackouts from the winning entry to DFDC."""

from __future__ import annotations

from typing import Final

from .areas import Area
from .base import require_at_least, require_fraction
from .blackout import (
    MIN_VISIBLE_PX,
    PART_WEIGHTS,
    Blackout,
    Mask,
    draw_block,
    draw_half,
    draw_part,
    keeps_enough_visible,
)
from .points import FacePoints

_LANDMARK_P: Final = 0.7
_HULL_P: Final = 0.2
_BLOCK_P: Final = 0.1


class FaceCutout(Blackout):
    """At most one of: landmark blackout, half of the hull, block mask; tried in this order.

    The areas are those of `LandmarkBlackout`, `HullHalfBlackout` and `BlockMask`. The default probabilities give 70%,
    6% and 2.4% of images (and an eighth of the 70% draws `nothing`).

    Source: the training set of S. Seferbekov's winning entry to the Deepfake Detection Challenge
    (github.com/selimsef/dfdc_deepfake_challenge, `classifier_dataset.py`, 2020). What differs here:

    - Landmarks and hull are stored with the row. There the landmarks are those of the fake's source video, and the
      hull is detected in each image, which is slow, fails for faces in profile, and ignores every error.
    - There only the block mask checks what stays visible, so a fake whose artifacts are all covered is still labelled
      fake. Here no blackout covers all of them.
    - There a fake without a mask never gets a block but a real face does, so a black half indicates real. Here it
      gets one.
    - What counts as manipulated is the row's mask, not every pixel that compression changed.
    - Blocks are cut at half the height, not at half the width; areas are round, not diamonds.
    - It works before or after any geometric transform, does not write to its input, and is reproducible by seed.

    Args:
        landmark: Probability of a landmark blackout.
        hull: Probability of half of the hull, where that was not applied.
        block: Probability of a block mask, where neither was.
        min_visible_px: A fake keeps more than this many of its manipulated pixels, or stays unchanged.
        p: Probability that any is tried.

    """

    def __init__(
        self,
        landmark: float = _LANDMARK_P,
        hull: float = _HULL_P,
        block: float = _BLOCK_P,
        min_visible_px: int = MIN_VISIBLE_PX,
        p: float = 1.0,
    ) -> None:
        super().__init__(p=p)
        self.landmark = require_fraction("landmark", landmark)
        self.hull = require_fraction("hull", hull)
        self.block = require_fraction("block", block)
        self.min_visible_px = int(require_at_least(0, "min_visible_px", min_visible_px, suggestion=MIN_VISIBLE_PX))

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:
        """The area of the first blackout that is applied; None where none is."""
        rng = self.py_random
        area: Area | None
        if rng.random() < self.landmark:
            area = draw_part(rng, face, PART_WEIGHTS)
        elif rng.random() < self.hull:
            area = draw_half(rng, face)
        elif rng.random() < self.block:
            return draw_block(rng, size, mask, self.min_visible_px)
        else:
            return None
        return area if area is not None and keeps_enough_visible(area, mask, self.min_visible_px) else None
