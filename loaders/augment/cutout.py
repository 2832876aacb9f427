"""`FaceCutout`: the chain of blackouts that won DFDC."""

from __future__ import annotations

from typing import Final

from .areas import Area
from .base import at_least, share
from .blackout import LEAST_VISIBLE_PX, PART_WEIGHTS, Blackout, Mask, drawn_block, drawn_half, drawn_part, leaves_enough
from .points import FacePoints

_LANDMARK: Final = 0.7
_HULL: Final = 0.2
_BLOCK: Final = 0.1


class FaceCutout(Blackout):
    """The first that fires of: landmark blackout, half of the hull, block mask.

    `landmark`, `hull`, `block`: the chance of each once those before it did not fire; as given, 70%, 6% and 2.4% of
    images (and an eighth of the 70% draws nothing). `min_visible_px`: a fake keeps more than so many of its
    manipulated pixels, or is left alone. The parts are `LandmarkBlackout`'s, `HullHalfBlackout`'s and `BlockMask`'s.

    Source: the training set of S. Seferbekov's entry that won the Deepfake Detection Challenge
    (github.com/selimsef/dfdc_deepfake_challenge, `classifier_dataset.py`, 2020). Mended here:

    - Landmarks and hull are the row's own. There landmarks are those of the fake's source video, and the hull is
      detected anew in each image: at a price, and never for faces in profile; every error is passed over.
    - Only the block mask looked at what stays visible. A fake whose traces all lay under another blackout was still
      taught as fake; here no blackout hides the last of them.
    - A fake without a mask never got a block, a real face did: a half in black spoke for real. Here it gets one.
    - What counts as manipulated is the row's mask, not every pixel that compression changed.
    - Blocks are cut at half the height, not at half the width; areas are round, not diamonds.
    - It runs before or after any geometric transform, does not write to its input, and is repeated by its seed.
    """

    def __init__(
        self,
        landmark: float = _LANDMARK,
        hull: float = _HULL,
        block: float = _BLOCK,
        min_visible_px: int = LEAST_VISIBLE_PX,
        p: float = 1.0,
    ) -> None:
        super().__init__(p=p)
        self.landmark, self.hull, self.block = share("landmark", landmark), share("hull", hull), share("block", block)
        self.min_visible_px = int(at_least(0, "min_visible_px", min_visible_px, trial=LEAST_VISIBLE_PX))

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:
        """What the chain draws."""
        rng = self.py_random
        area: Area | None
        if rng.random() < self.landmark:
            area = drawn_part(rng, face, PART_WEIGHTS)
        elif rng.random() < self.hull:
            area = drawn_half(rng, face)
        elif rng.random() < self.block:
            return drawn_block(rng, size, mask, self.min_visible_px)
        else:
            return None
        return area if area is not None and leaves_enough(area, mask, self.min_visible_px) else None
