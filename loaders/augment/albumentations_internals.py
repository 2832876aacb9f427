"""All that reaches into Albumentations: checked against the source of the one version that is pinned.

Its public ways would not do: `add_targets` leaves no say in how points follow, and there is none to switch off what
loses them. Another version may differ in any of it without a word, so the pin and `VERSION` are changed together, after
reading its source and running the tests of augment/.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import albumentations
import cv2
from albumentations.core.type_definitions import Targets

VERSION: Final = "2.0.8"
"""The version that this was checked against: the last one, as it is no longer maintained."""

EVERY_TARGET: Final = (Targets.IMAGE, Targets.MASK, Targets.KEYPOINTS, Targets.BBOXES)
"""A transform's `_targets`: what may be among the data. What is not in its `targets` passes through."""

WITHIN_FRAME: Final = ("generated_mesh", "tiles")
"""Parameters of transforms that know no point outside the frame."""

_REFLECTING: Final = (cv2.BORDER_REFLECT, cv2.BORDER_REFLECT_101)
_SCALING: Final = (
    "Resize", "RandomScale", "MaxSizeTransform", "_BaseRandomSizedCrop", "RandomSizedBBoxSafeCrop", "CropAndPad",
)  # fmt: skip


def leaves(compose: Any) -> Iterator[Any]:
    """Every transform below a `Compose`, however deep."""
    for one in compose.transforms:
        if isinstance(one, albumentations.BaseCompose):
            yield from leaves(one)
        else:
            yield one


def allow_keys(compose: Any, keys: Iterable[str]) -> None:
    """Lets a `Compose` be called with these names as well."""
    compose._available_keys |= {*keys}  # noqa: SLF001


def carry(transform: Any, key: str, by: Callable[..., Any]) -> None:
    """Has `by` called for the data under `key` wherever a transform moves points; others pass it on."""
    table = transform._key2func  # noqa: SLF001
    if "keypoints" in table:
        table[key] = by


def without_losses(transform: Any) -> Any:
    """The transform, or a copy of it with what would remove or multiply points switched off."""
    reflects = getattr(transform, "border_mode", None) in _REFLECTING
    if not reflects and not transform.processors:
        return transform
    transform = copy.copy(transform)
    transform.processors = {}
    if reflects:
        transform.border_mode = cv2.BORDER_CONSTANT
    return transform


def scales_about_corner(transform: Any) -> bool:
    """Whether it multiplies points by the scale alone: right only for points counted from the first pixel's corner."""
    return any(kind.__name__ in _SCALING for kind in type(transform).__mro__)
