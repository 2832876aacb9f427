"""Applies transforms of `torchvision.transforms.v2`: points and mask of a face move with its image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import shorten
from typing import Any

import numpy as np
import torch
import torchvision
from numpy.typing import NDArray
from torchvision import tv_tensors
from torchvision.transforms import v2

from ...pipeline.errors import UsageError
from ..augment.points import HALF_PX, FacePoints, InitialPoints
from ..face import Face
from .v2_tensors import CentredMask, CornerPoints


def check_lambdas(transform: Any, delivered: Sequence[str]) -> None:
    """Raises `UsageError` where a `Lambda` in a transform would change what is delivered as it changes the image."""
    if any(object in part.types for part in _parts(transform) if isinstance(part, v2.Lambda)):
        raise UsageError(
            f"transform: Lambda would be called with {', '.join(delivered)} as with the image; give it the "
            "types that its function is for, Lambda(function, tv_tensors.Image)"
        )


def apply_v2(transform: Any, face: Face, delivered: Sequence[str]) -> Face:
    """Applies a transform of v2 to an `Image` (3, H, W), or a dict of it and what is delivered; see `Adapter`.

    The dict has `image`; `points`, all points of the face as one `KeyPoints`, from the first pixel's corner, in which
    regions are the corners of their boxes; and `mask`, a `Mask` (H, W).
    """
    image = tv_tensors.Image(torch.from_numpy(face.image).permute(2, 0, 1))
    moving = _moving(face, delivered)
    if not moving:  # also for modules that take an image and nothing else
        return replace(face, image=_pixels(_called(transform, image)))
    try:
        output = transform({"image": image, **moving})
    except (TypeError, ValueError, AttributeError, LookupError) as error:  # the latter of functions, which get a dict
        _called(transform, image)  # whose error is another where the image alone is refused
        raise UsageError(
            f"transform: {type(transform).__name__} does not take {' and '.join(moving)} beside an image "
            f"({type(error).__name__}: {_short(error)}); leave {', '.join(delivered)} out of fields, or such a "
            "transform out; give a function of the image as v2.Lambda(function, tv_tensors.Image)"
        ) from error
    if not isinstance(output, Mapping) or (missing := [name for name in ("image", *moving) if name not in output]):
        kind = type(output).__name__ if not isinstance(output, Mapping) else f"no {', '.join(missing)}"
        raise UsageError(f"transform returned {kind}: must return a dict of all that it was given")
    face = replace(face, image=_pixels(output["image"]))
    if "points" in moving:
        face = _with_points(face, output["points"])
    if "mask" in moving:
        mask = output["mask"].as_subclass(torch.Tensor).numpy()
        if mask.shape != face.image.shape[:2]:
            raise UsageError(f"transform returned a mask {mask.shape}: must be of its image, {face.image.shape[:2]}")
        face = replace(face, mask=np.ascontiguousarray(mask))
    return face


def _called(transform: Any, image: tv_tensors.Image) -> Any:
    """The output of a transform of an image alone; raises `UsageError` where it takes none."""
    try:
        return transform(image)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"transform: {type(transform).__name__} does not take an image of v2, uint8 (3, H, W): {_short(error)}; "
            "leave Normalize out, the loader normalises, and what mixes a batch, such as CutMix, to the training loop"
        ) from error


def _parts(transform: Any) -> Iterator[Any]:
    """The transform and those that it is composed of."""
    yield transform
    modules = transform.children() if isinstance(transform, torch.nn.Module) else ()
    listed = getattr(transform, "transforms", ())  # as of Compose, whose parts are no modules of it
    for part in (*modules, *(listed if isinstance(listed, (list, tuple)) else ())):
        yield from _parts(part)


def _short(error: Exception) -> str:
    """Its text, which may hold a whole image, on one line."""
    return shorten(str(error), 200, placeholder="...")


def _moving(face: Face, delivered: Sequence[str]) -> dict[str, Any]:
    """What of the face has to move with its image, as tensors of v2."""
    moving: dict[str, Any] = {}
    if names := [name for name in delivered if name != "mask"]:
        xy = torch.from_numpy(_initial(face).points[:, :2] + HALF_PX)
        moving["points"] = CornerPoints(xy, canvas_size=face.image.shape[:2])
        if type(tv_tensors.wrap(xy, like=moving["points"])) is not CornerPoints:  # so its own functions move them
            raise UsageError(
                f"transform: torchvision {torchvision.__version__} moves points off the pixels; install 0.26 or later, "
                f"or leave {', '.join(names)} out of fields"
            )
    if "mask" in delivered and face.mask is not None:
        moving["mask"] = CentredMask(torch.from_numpy(np.ascontiguousarray(face.mask)))
    return moving


def _initial(face: Face) -> InitialPoints:
    return InitialPoints(face.landmarks, face.hull, face.regions, face.landmarks_68)


def _with_points(face: Face, moved: torch.Tensor) -> Face:
    """The face with its points moved; raises `UsageError` where there is not one for each."""
    initial = _initial(face)
    if moved.shape != initial.points[:, :2].shape:
        raise UsageError(
            f"transform: makes {len(moved)} points of {len(initial.points)}, so a face cannot follow it; leave "
            "SanitizeKeyPoints out, no point is lost outside the frame"
        )
    points = initial.points.copy()
    points[:, :2] = moved.as_subclass(torch.Tensor).numpy() - HALF_PX
    after = FacePoints(points, initial).in_crop()
    return replace(
        face, landmarks=after.landmarks, hull=after.hull, regions=after.regions, landmarks_68=after.landmarks_68
    )


def _pixels(image: Any) -> NDArray[np.uint8]:
    """The image of v2 as an array (H, W, 3); raises `UsageError` where it is none of uint8 and three channels."""
    is_tensor = isinstance(image, torch.Tensor)
    if not is_tensor or image.dtype != torch.uint8 or image.ndim != 3 or len(image) != 3 or not image.numel():
        dtype_and_shape = f" {image.dtype} {tuple(image.shape)}" if is_tensor else ""
        raise UsageError(
            f"transform returned {type(image).__name__}{dtype_and_shape}: must be an image of v2, uint8 (3, H, W); "
            "leave ToDtype, Normalize and ToPILImage out, the loader normalises, and take Grayscale(3)"
        )
    return np.ascontiguousarray(image.as_subclass(torch.Tensor).permute(1, 2, 0).numpy())
