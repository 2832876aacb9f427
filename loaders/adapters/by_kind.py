"""Selects the adapter of a transform by its kind, without importing a library that the user has not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ...pipeline.errors import UsageError
from ..face import Face
from ..validation import binding_error
from .functions import apply_by_keyword, apply_by_position

_CALLS = "is called with an image, uint8 (H, W, 3), and must return one"


class Adapter(Protocol):
    """Applies one kind of transform to a face; must be picklable.

    All randomness comes from the generators that `Reseeder` seeds, and is the same whatever `delivered` is: which
    columns a batch has changes no image.
    """

    def __call__(self, transform: Any, face: Face, delivered: Sequence[str]) -> Face:
        """The face with its image transformed, uint8 (H, W, 3).

        `delivered` names the fields among landmarks, hull, regions, landmarks_68 and mask that must be right for the
        new image; others may be returned as they are. Raises `UsageError` where the transform returns no image, or a
        delivered field cannot follow it.
        """
        ...


def adapter_of(transform: Any) -> Adapter:
    """The adapter of a transform; raises `UsageError` where it cannot be called with an image."""
    if isinstance(transform, (list, tuple)):
        raise UsageError(f"transform={transform!r}: must be one transform; try A.Compose([...]) or v2.Compose([...])")
    if not callable(transform) or isinstance(transform, type):
        raise UsageError(
            f"transform={transform!r}: must be callable; try an Albumentations pipeline, A.Compose([...]), or "
            "torchvision's, v2.Compose([...])"
        )
    if (old := next((part for part in _parts(transform) if _is_of_old_torchvision(part)), None)) is not None:
        raise UsageError(
            f"transform: {type(old).__name__} of torchvision.transforms takes PIL images and moves no points; "
            "take that of torchvision.transforms.v2"
        )
    if is_v2(transform):
        torchvision = sys.modules["torchvision"]
        if not hasattr(torchvision.tv_tensors, "KeyPoints"):
            raise UsageError(
                f"transform: torchvision {torchvision.__version__} has no KeyPoints; install 0.23 or later"
            )
        from .torchvision_v2 import apply_v2  # noqa: PLC0415 (torchvision, a second that others need not spend)

        return apply_v2
    if is_albumentations(transform):
        from ..augment.compose import check_image_transform  # noqa: PLC0415 (half a second)

        check_image_transform(transform)
    return _adapter_of_function(transform)


def is_albumentations(transform: Any) -> bool:
    """Whether it is a transform of Albumentations, or a composition of some."""
    library = sys.modules.get("albumentations")  # only who has imported it can pass one
    return library is not None and isinstance(transform, (library.BasicTransform, library.BaseCompose))


def is_v2(transform: Any) -> bool:
    """Whether it is a transform of torchvision v2, or an `nn.Sequential` with one."""
    library = sys.modules.get("torchvision.transforms.v2")  # only who has imported it can pass one
    return library is not None and any(isinstance(part, library.Transform) for part in _parts(transform))


def _is_of_old_torchvision(transform: Any) -> bool:
    module = type(transform).__module__
    return module.startswith("torchvision.transforms.") and not module.startswith("torchvision.transforms.v2.")


def _parts(transform: Any) -> list[Any]:
    """The transform, or those of an `nn.Sequential`, at any depth."""
    if isinstance(transform, torch.nn.Sequential):
        return [part for child in transform for part in _parts(child)]
    return [transform]


def _adapter_of_function(function: Any) -> Adapter:
    """By keyword where the function takes `image=`, as Albumentations do, else by position."""
    for adapter, arguments, keywords in ((apply_by_keyword, (), {"image": None}), (apply_by_position, (None,), {})):
        if (problem := binding_error(function, *arguments, **keywords)) is None:
            return adapter
    raise UsageError(f"transform: {_CALLS}: {problem}; wrap it in a function that does") from problem
