"""`FaceCompose`: `albumentations.Compose` for an image and the face that is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import albumentations

from ...pipeline.errors import UsageError
from .albumentations_internals import allow_keys, carry, leaves
from .base import Named
from .mixup import AlignedMixup
from .point_transforms import Follower
from .points import FACE_KEYS, POINTS, START, FacePoints, Start


class FaceCompose(Named, albumentations.Compose):  # type: ignore[misc]  # Albumentations has no types
    """Transforms of an image that take its face along: `FaceCompose([A.HorizontalFlip(), LandmarkBlackout()])`.

    Takes what `albumentations.Compose` takes, holds any of its transforms and ours, serialises, pickles and is
    seeded as it does. Called with named arguments, all in crop px:

    image: uint8 (H, W, 3), RGB. landmarks: float32 (5, 2). hull: float32 (M, 2). regions: name -> float32 (4,), xyxy.
    mask: uint8 (H, W) or None, 1 where a fake differs from its source. partner: the `Face` of a fake's real source
    frame, or None; `AlignedMixup` wants it.

    Returns a dict of the same, and `mix`: float, the share of the image that is not its partner's; 1.0 where nothing
    was mixed. Landmarks, hull, regions and mask follow every geometric transform; a region becomes the box that
    holds its turned corners. What leaves the frame keeps its place outside of it; no point is ever lost. After a
    reflection left and right change names: "left" is what the viewer sees left of an upright face. That holds
    between the transforms of a pipeline too, nested ones included. A mask shows what can still be seen: where our
    blackouts fall it becomes 0.

    Arrays given are not written to; arrays returned may be those given. Not for two threads at a time, as
    Albumentations' own. Raises `UsageError` where the face is missing, for `Mosaic`, and for a transform that does not
    give one point for each. Where tiles are shuffled (`RandomGridShuffle`) there is no left and right to keep.
    """

    def __init__(self, transforms: Sequence[Any], **options: Any) -> None:
        super().__init__(transforms, **options)
        allow_keys(self, (*FACE_KEYS, "mask", "partner", "mix", POINTS, START))
        for transform in leaves(self):
            if type(transform).__name__ == "Mosaic":
                raise UsageError(
                    "Mosaic: makes one image of several, so a face cannot follow it; use albumentations.Compose"
                )
            carry(transform, POINTS, Follower(transform))

    def __call__(self, *args: Any, force_apply: bool = False, **data: Any) -> dict[str, Any]:
        """One face, transformed."""
        if args or POINTS in data:  # wrong, as Albumentations will say; or within another FaceCompose
            result: dict[str, Any] = super().__call__(*args, force_apply=force_apply, **data)
            return result
        try:
            _, landmarks, hull, regions = data["image"], data.pop("landmarks"), data.pop("hull"), data.pop("regions")
        except KeyError as error:
            raise UsageError(
                f"{error.args[0]} is missing: FaceCompose must be called with {', '.join(FACE_KEYS)}; "
                "for images without a face use albumentations.Compose"
            ) from None
        given = {"landmarks": landmarks, "hull": hull, "regions": regions}
        if "mask" in data and data["mask"] is None:  # many a transform takes the mere key for a mask
            given["mask"] = data.pop("mask")
        start = Start(landmarks, hull, regions)
        data["mix"] = 1.0
        result = super().__call__(force_apply=force_apply, **data, **{POINTS: start.points, START: start})
        points = result.pop(POINTS)
        del result[START]
        if points is start.points:  # no geometric transform fired
            return {**result, **given}
        face = FacePoints(points, start).in_crop()
        return {**result, **given, "landmarks": face.landmarks, "hull": face.hull, "regions": face.regions}

    @property
    def mixes(self) -> bool:
        """Whether an `AlignedMixup` is in it, so that labels may become fractions."""
        return any(isinstance(one, AlignedMixup) for one in leaves(self))

    @property
    def wants_mask(self) -> bool:
        """Whether anything in it may look at the mask: the transforms of Albumentations only move it along."""
        return any(_looks_at_mask(one) for one in leaves(self))

    def to_dict_private(self) -> dict[str, Any]:
        """What Albumentations serialises, and `mask_interpolation`, which it forgets."""
        return {**super().to_dict_private(), "mask_interpolation": self.mask_interpolation}


def _looks_at_mask(transform: Any) -> bool:
    theirs = type(transform).__module__.partition(".")[0] == "albumentations" and type(transform).__name__ != "Lambda"
    looks: bool = getattr(transform, "looks_at_mask", not theirs)
    return looks
