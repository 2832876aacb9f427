"""Applies transforms that are called with an image alone: Albumentations, and functions of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from ..face import Face


def apply_by_keyword(transform: Callable[..., Any], face: Face, delivered: Sequence[str]) -> Face:
    """Applies `transform(image=array)`, an image or a dict with one; see `Adapter`."""
    return _with_image(face, transform(image=face.image), delivered)


def apply_by_position(transform: Callable[..., Any], face: Face, delivered: Sequence[str]) -> Face:
    """Applies `transform(array)`, an image or a dict with one; see `Adapter`."""
    return _with_image(face, transform(face.image), delivered)


def _with_image(face: Face, output: Any, delivered: Sequence[str]) -> Face:
    image = output["image"] if isinstance(output, Mapping) and "image" in output else output
    image = validated_image("transform", image)
    if delivered and image.shape != face.image.shape:
        (height, width), (from_height, from_width) = image.shape[:2], face.image.shape[:2]
        raise UsageError(
            f"transform: makes an image of {width} x {height} px of one of {from_width} x {from_height}, and does not "
            f"say where {', '.join(delivered)} went; give what moves pixels to face_transform, or take a transform of "
            "torchvision.transforms.v2"
        )
    return replace(face, image=image)


def validated_image(option: str, image: Any) -> NDArray[np.uint8]:
    """The image that the transform given as `option` returned, uint8 (H, W, 3), contiguous; raises `UsageError` on any
    other.
    """
    is_array = isinstance(image, np.ndarray)
    if not is_array or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        if not hasattr(image, "shape"):
            kind = f"a dict of {', '.join(map(str, image))}" if isinstance(image, Mapping) else type(image).__name__
            raise UsageError(f"{option} returned {kind}: must return an image, uint8 (H, W, 3), or a dict with 'image'")
        is_grey = is_array and image.dtype == np.uint8 and image.size and image.ndim in (2, 3)
        remedy = (
            "keep three channels, ToGray too" if is_grey else "leave Normalize and ToTensor out, the loader does both"
        )
        kind = f"{type(image).__name__} {image.dtype} {tuple(image.shape)}"
        raise UsageError(f"{option} returned {kind}: must be a uint8 array (H, W, 3); {remedy}")
    return np.ascontiguousarray(image)
