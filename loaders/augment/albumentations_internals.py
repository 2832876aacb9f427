"""Everything that relies on Albumentations' private attributes, checked against the one pinned version.

The public API does not suffice: `add_targets` gives no control over how points follow a transform, and nothing switches
off the processors that drop points. Another version may change any of this silently, so change the pin and `VERSION`
together, after reading its source and running the tests of augment/.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import albumentations
import cv2
from albumentations.augmentations.pixel.functional import noop
from albumentations.core.serialization import SERIALIZABLE_REGISTRY, shorten_class_name
from albumentations.core.type_definitions import Targets

VERSION: Final = "2.0.8"
"""The version this module was checked against; Albumentations is no longer maintained, so it is the last one."""

ALL_TARGETS: Final = (Targets.IMAGE, Targets.MASK, Targets.KEYPOINTS, Targets.BBOXES)
"""Value of a transform's `_targets` that allows all of these among the data. What its `targets` omit passes through."""

FRAME_ONLY_PARAMS: Final = ("generated_mesh", "tiles")
"""Names of parameters that only transforms have which cannot map points outside the frame."""

_REFLECTING_BORDERS: Final = (cv2.BORDER_REFLECT, cv2.BORDER_REFLECT_101)
_SCALING_TRANSFORMS: Final = (
    "Resize", "RandomScale", "MaxSizeTransform", "_BaseRandomSizedCrop", "RandomSizedBBoxSafeCrop", "CropAndPad",
)  # fmt: skip
_WHOLE_PX_SCALING: Final = ("RandomScale", "MaxSizeTransform")

_NEEDED_KEYS: Final = {
    "BBoxSafeRandomCrop": "bboxes", "RandomSizedBBoxSafeCrop": "bboxes", "CropNonEmptyMaskIfExists": "mask",
}  # fmt: skip
"""What transforms read from the data although their `targets_as_params` do not say so."""

_DUAL_IN_PLACE: Final = ("BaseDropout", "MaskDropout", "Morphological", "NoOp", "OverlayElements", "PixelDropout")


def needs_mask(transform: Any) -> bool:
    """Whether one of Albumentations' own transforms reads the mask or draws by it; others only transform it."""
    if type(transform).__name__ == "ConstrainedCoarseDropout":
        return transform.mask_indices is not None
    if type(transform).__name__ == "PixelDropout":  # it draws more where there is one
        return transform.mask_drop_value is not None
    return type(transform).__name__ in ("CropNonEmptyMaskIfExists", "Lambda", "MaskDropout")


def first_lacking(transform: Any, given: Collection[str]) -> tuple[Any, str] | None:
    """The first transform, at any depth, that cannot work with the data `given`, and the key that it lacks."""
    for part in applied(transform):
        for key in _needed_keys(part):
            if key not in given:
                return part, key
    return None


def _needed_keys(transform: Any) -> Sequence[str]:
    name = type(transform).__name__
    if any(cls.__name__ == "Transform3D" for cls in type(transform).__mro__):
        return ["volume"]
    if name == "ConstrainedCoarseDropout":  # without it, it would warn, and do nothing: where fakes alone have a mask
        return ["bboxes" if transform.mask_indices is None else "mask"]
    return [_NEEDED_KEYS[name]] if name in _NEEDED_KEYS else list(transform.targets_as_params)


def draws_no_map(transform: Any) -> bool:
    """Whether it is a `PiecewiseAffine` of scale 0: without a map, it makes an image of 2 x 1 px of any."""
    return type(transform).__name__ == "PiecewiseAffine" and not any(transform.scale)


def first_moving_pixels(transform: Any, image_size: int | None) -> str | None:
    """The name of the first transform, at any depth, that moves pixels and whatever marks them; None without one.

    `image_size`: side of all images that it gets, px; None where they are of several sizes.
    """
    return next((type(part).__name__ for part in applied(transform) if _moves_pixels(part, image_size)), None)


def _moves_pixels(transform: Any, image_size: int | None) -> bool:
    """Not all of Albumentations' `DualTransform`s do: some change pixels where they are, and what `Lambda` does is not
    known. Nor does a `Resize` to the size that the images have.
    """
    kinds = {cls.__name__ for cls in type(transform).__mro__}
    if type(transform).__name__ == "Resize" and (transform.height, transform.width) == (image_size, image_size):
        return False
    return "DualTransform" in kinds and kinds.isdisjoint(_DUAL_IN_PLACE)


def first_changing_mask(transform: Any) -> tuple[str, str] | None:
    """The name of the first transform, at any depth, that moves nothing but changes a mask, and the argument that says
    so; None without one.
    """
    for part in applied(transform):
        for argument in ("fill_mask", "mask_drop_value"):
            if getattr(part, argument, None) is not None:
                return type(part).__name__, argument
        if getattr(part, "custom_apply_fns", {}).get("mask", noop) is not noop:
            return type(part).__name__, "mask"
    return None


def applied(transform: Any) -> Iterator[Any]:
    """Yields a transform, or those that a composition is made of at any depth, without what has the probability 0."""
    if not transform.p:
        return
    if isinstance(transform, albumentations.BaseCompose):
        for part in transform.transforms:
            yield from applied(part)
    else:
        yield transform


def leaves(compose: Any) -> Iterator[Any]:
    """Yields every transform below a `Compose`, at any depth, without the compositions themselves."""
    for transform in compose.transforms:
        if isinstance(transform, albumentations.BaseCompose):
            yield from leaves(transform)
        else:
            yield transform


def registered_class(name: str) -> Any:
    """The transform that a stored pipeline calls by that name; raises `KeyError` where there is none."""
    return SERIALIZABLE_REGISTRY[shorten_class_name(name)]


def allow_keys(compose: Any, keys: Iterable[str]) -> None:
    """Makes a `Compose` accept these additional keyword arguments."""
    compose._available_keys |= {*keys}  # noqa: SLF001


def register_points_target(transform: Any, key: str, function: Callable[..., Any]) -> None:
    """Applies `function` to the data under `key` if the transform moves keypoints; other transforms pass it through."""
    function_by_key = transform._key2func  # noqa: SLF001
    if "keypoints" in function_by_key:
        function_by_key[key] = function


def preserving_all_points(transform: Any) -> Any:
    """Returns the transform, or a copy without the settings by which it would remove or multiply points."""
    reflects = getattr(transform, "border_mode", None) in _REFLECTING_BORDERS
    if not reflects and not transform.processors:
        return transform
    transform = copy.copy(transform)
    transform.processors = {}
    if reflects:
        transform.border_mode = cv2.BORDER_CONSTANT
    return transform


def resize_masks_by_centres(transform: Any) -> None:
    """Makes a transform that resizes take the nearest pixels of masks from their centres, as it does of images."""
    if scales_about_corner(transform) and getattr(transform, "mask_interpolation", None) == cv2.INTER_NEAREST:
        transform.mask_interpolation = cv2.INTER_NEAREST_EXACT


def size_correction(transform: Any, params: Mapping[str, Any]) -> tuple[float, float]:
    """What an image's sides (width, height) are scaled by, relative to the scale of its points; 1 for most transforms.

    `RandomScale` cuts the sides to whole px, `LongestMaxSize` and `SmallestMaxSize` round them.
    """
    kinds = {cls.__name__ for cls in type(transform).__mro__}
    if kinds.isdisjoint(_WHOLE_PX_SCALING):
        return 1.0, 1.0
    whole_px = int if "RandomScale" in kinds else round
    height, width = (side * params["scale"] for side in params["shape"][:2])
    return max(1, whole_px(width)) / width, max(1, whole_px(height)) / height


def scales_about_corner(transform: Any) -> bool:
    """Whether it multiplies points by the scale alone: correct only for coordinates from the first pixel's corner."""
    return any(cls.__name__ in _SCALING_TRANSFORMS for cls in type(transform).__mro__)
