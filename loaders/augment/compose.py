"""`FaceCompose`: `albumentations.Compose` for an image and the face that is in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import albumentations

from ...pipeline.errors import UsageError
from .albumentations_internals import (
    allow_keys,
    leaves,
    needs_mask,
    register_points_target,
    resize_masks_by_centres,
)
from .base import FaceTransform, StableClassName
from .mixup import AlignedMixup
from .point_transforms import transform_points
from .points import FACE_KEYS, INITIAL_POINTS, POINTS, FacePoints, InitialPoints
from .published.self_blend import SelfBlend
from .published.xray import FaceXRay
from .required_inputs import check_required_inputs

_GIVEN: Final = (*FACE_KEYS, "landmarks_68", "partner", "label", POINTS, INITIAL_POINTS)
"""What transforms find in the data of every face of a dataset, if only as None; not all faces have a mask."""


class FaceCompose(StableClassName, albumentations.Compose):  # type: ignore[misc]  # Albumentations has no types
    """Transforms an image together with its face: `FaceCompose([A.HorizontalFlip(), LandmarkBlackout()])`.

    Takes the arguments of `albumentations.Compose`, any of its transforms and ours; serialises, pickles and is seeded
    the same way. Called with keyword arguments, all in crop px:

    image: uint8 (H, W, 3), RGB. landmarks: float32 (5, 2). hull: float32 (M, 2). regions: name -> float32 (4,), xyxy.
    landmarks_68: optional, float32 (68, 2) or (0, 2). mask: uint8 (H, W) or None, 1 where a fake differs from its
    source. partner: the `Face` of a fake's real source frame, or None; used by `AlignedMixup`. label: optional, the
    position of its label, or None; `AlignedMixup` and `SelfBlend` change it. blend: optional, whether `SelfBlend` makes
    a fake of it, in place of its own probability.

    Returns a dict of the same; where `SelfBlend` made a fake, mask is float32 (H, W), 0..1; after a `FaceXRay` also
    `manipulated`, the share of pixels that were in the mask. Landmarks, hull, regions and mask follow every geometric
    transform; a region becomes the bounding box of its transformed corners. Points outside the frame keep their
    coordinates; no point is ever dropped. After a reflection left and right swap names: "left" is what the viewer sees
    left of an upright face. That also holds between the transforms of a pipeline, nested ones included. A mask marks
    what is still visible: our blackouts set it to 0.

    Input arrays are not written to; returned arrays may be the input arrays. Not thread-safe, like Albumentations' own.
    Raises `UsageError` where the face is missing, for `Mosaic`, for a `FaceXRay` before a `SelfBlend`, and for a
    transform that does not return one point for each.

    Where tiles are shuffled (`RandomGridShuffle`), left and right are undefined.
    """

    def __init__(self, transforms: Sequence[Any], **options: Any) -> None:
        super().__init__(transforms, **options)
        allow_keys(
            self,
            (*FACE_KEYS, "landmarks_68", "mask", "partner", "label", "blend", "manipulated", POINTS, INITIAL_POINTS),
        )
        for transform in leaves(self):
            if type(transform).__name__ == "Mosaic":
                raise UsageError(
                    "Mosaic: makes one image of several, so a face cannot follow it; give transform= a function of the "
                    f"image that calls it with {transform.metadata_key}=, and leave points and mask out of fields"
                )
            register_points_target(transform, POINTS, partial(transform_points, transform))
            resize_masks_by_centres(transform)
        _check_order([*leaves(self)])

    def __call__(self, *args: Any, force_apply: bool = False, **data: Any) -> dict[str, Any]:
        """Transforms one image and its face."""
        if args or POINTS in data:  # an error that Albumentations reports; or nested in another FaceCompose
            result: dict[str, Any] = super().__call__(*args, force_apply=force_apply, **data)
            return result
        try:
            _, landmarks, hull, regions = data["image"], data.pop("landmarks"), data.pop("hull"), data.pop("regions")
        except KeyError as error:
            raise UsageError(
                f"{error.args[0]} is missing: FaceCompose must be called with {', '.join(FACE_KEYS)}; "
                "for images without a face use albumentations.Compose"
            ) from None
        landmarks_68 = data.pop("landmarks_68", None)
        untransformed = {"landmarks": landmarks, "hull": hull, "regions": regions}
        if landmarks_68 is not None:
            untransformed["landmarks_68"] = landmarks_68
        if "mask" in data and data["mask"] is None:  # many transforms treat the mere key as a mask
            untransformed["mask"] = data.pop("mask")
        initial = InitialPoints(landmarks, hull, regions, landmarks_68)
        result = super().__call__(force_apply=force_apply, **data, **{POINTS: initial.points, INITIAL_POINTS: initial})
        points = result.pop(POINTS)
        del result[INITIAL_POINTS]
        if "mask" in result:  # also where there was none, and SelfBlend drew one
            untransformed.pop("mask", None)
        if points is initial.points:  # no geometric transform was applied
            return {**result, **untransformed}
        face = FacePoints(points, initial).in_crop()
        moved = {"landmarks": face.landmarks, "hull": face.hull, "regions": face.regions}
        if landmarks_68 is not None:
            moved["landmarks_68"] = face.landmarks_68
        return {**result, **untransformed, **moved}

    @property
    def mixes(self) -> bool:
        """Whether it contains an `AlignedMixup`, so that labels may become fractions."""
        return any(isinstance(transform, AlignedMixup) for transform in leaves(self))

    @property
    def self_blend(self) -> SelfBlend | None:
        """The `SelfBlend` that it contains, which makes fakes of real faces."""
        return next((transform for transform in leaves(self) if isinstance(transform, SelfBlend)), None)

    def check_dataset(self, labels: Sequence[str], *, without_landmarks_68: Sequence[str]) -> None:
        """Raises `UsageError` where a transform needs what a dataset of these labels has not, or misses some faces.

        `without_landmarks_68`: the folders, or addresses, of datasets, of a mixture of some, that have no
        `landmarks_68`.
        """
        check_required_inputs("face_transform", self, _GIVEN)
        for transform in leaves(self):
            if getattr(transform, "needs_landmarks_68", False) and without_landmarks_68:
                raise transform.missing_landmarks_68(without_landmarks_68[0])
            if isinstance(transform, SelfBlend):
                self._check_applied_to_all(transform)
            if isinstance(transform, (AlignedMixup, SelfBlend)):
                transform.check_labels(labels)

    def _check_applied_to_all(self, self_blend: SelfBlend) -> None:
        """Raises `UsageError` where it decides not about every face: fakes would be known by more than their blend."""
        if self.p < 1 or self_blend not in self.transforms:
            raise UsageError(
                "SelfBlend must be applied to every face: not within OneOf, Sequential or another transform, and by a "
                "FaceCompose whose own p is 1. Its own p is the share of real faces that become fakes; of those that "
                "stay real it changes the colours, which else would show which are fakes"
            )

    @property
    def wants_mask(self) -> bool:
        """Whether any transform may read the mask: most of Albumentations' only transform it with the image."""
        return any(_reads_mask(transform) for transform in leaves(self))

    def to_dict_private(self) -> dict[str, Any]:
        """The serialised form of Albumentations, and `mask_interpolation`, which it omits."""
        return {**super().to_dict_private(), "mask_interpolation": self.mask_interpolation}


def check_image_transform(transform: Any) -> None:
    """Raises `UsageError` where a transform of Albumentations, which is to get an image alone, needs more."""
    for part in _with_compositions(transform):
        if isinstance(part, (FaceCompose, FaceTransform)):
            raise UsageError(
                f"transform: {type(part).__name__} is for faces, and gets an image alone; give it to face_transform, "
                "a list of transforms; in a file, name FaceCompose in place of the outermost Compose"
            )
    check_required_inputs("transform", transform, ("image",))


def _with_compositions(transform: Any) -> Iterator[Any]:
    """Yields a transform and all that it is made of, without what has the probability 0."""
    if transform.p:
        yield transform
        for part in transform.transforms if isinstance(transform, albumentations.BaseCompose) else ():
            yield from _with_compositions(part)


def _check_order(transforms: Sequence[Any]) -> None:
    """Raises `UsageError` where a later transform draws the mask that an earlier one is to turn into an X-ray."""
    xrays = [number for number, transform in enumerate(transforms) if isinstance(transform, FaceXRay)]
    if xrays and any(isinstance(transform, SelfBlend) for transform in transforms[xrays[0] :]):
        raise UsageError(
            "FaceXRay before SelfBlend: the mask that SelfBlend draws would stay a plain one; put FaceXRay last"
        )


def _reads_mask(transform: Any) -> bool:
    is_albumentations = type(transform).__module__.partition(".")[0] == "albumentations"
    reads: bool = getattr(transform, "reads_mask", needs_mask(transform) if is_albumentations else True)
    return reads
