"""Refuses transforms of Albumentations that need more than an image and its face: boxes, a mask, a volume, metadata."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ...pipeline.errors import UsageError
from .albumentations_internals import applied, draws_no_map, first_lacking

_CROP: Final = "take RegionCrop in face_transform, which crops to a part of the face, or A.RandomResizedCrop"
_DROPOUT: Final = "take RegionDropout in face_transform, which blacks out a part of the face, or A.CoarseDropout"


def check_required_inputs(option: str, transform: Any, given: Collection[str]) -> None:
    """Raises `UsageError` where a transform at any depth needs data other than `given`, with what to take instead, and
    on one that leaves nothing of an image.

    `option`: the argument that the transform is given to.
    """
    if any(map(draws_no_map, applied(transform))):
        raise UsageError(f"{option}: PiecewiseAffine(scale=0) makes an image of 2 x 1 px; give a scale above 0")
    if (lacking := first_lacking(transform, given)) is not None:
        part, key = lacking
        name = type(part).__name__
        raise UsageError(f"{option}: {name} needs {_described(key)}; {_remedy(name, key)}")


def _described(key: str) -> str:
    if key == "mask":
        return "a mask, which real faces and some fakes have not"
    if key in {"bboxes", "volume"}:
        return f"{key}, which a face has not"
    return f"{key}=, which is not given"


def _remedy(name: str, key: str) -> str:
    if key == "volume":
        return f"take a transform of images, such as {'CoarseDropout' if 'Dropout' in name else 'CenterCrop'}"
    if "Dropout" in name:
        return _DROPOUT
    if "Crop" in name:
        return _CROP
    return f"give transform= a function of the image that calls it with {key}=, or leave it out"
