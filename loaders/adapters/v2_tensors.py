"""A face's points and mask as tensors of torchvision v2 that stay on the pixels of their image.

torchvision's own functions for `KeyPoints` (0.29) do not agree on where 0 is: resizing, rotation and perspective count
from the first pixel's corner, as we do, flips from its centre. Rotation with `expand` is off by up to a pixel and a
half, a centre crop that is larger than the image by up to a pixel, elastic warps look up whole pixels in an inverse
that is approximate, and padding by a mirrored border is refused.
A `Mask` that is resized moves by up to half a pixel, and what is filled in gets the image's value. These functions are
registered anew for our subclasses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision import tv_tensors
from torchvision.transforms.v2 import InterpolationMode, functional

from ..augment.points import HALF_PX
from ..augment.sampling_map import invert_map


class CornerPoints(tv_tensors.KeyPoints):  # type: ignore[misc]  # torchvision has no types
    """Points (N, 2), px from the first pixel's corner; may be outside the frame."""


class CentredMask(tv_tensors.Mask):  # type: ignore[misc]  # torchvision has no types
    """A mask (H, W) of which each pixel, once resized, is the one whose centre is nearest; around the image it is 0."""


def _like(points: CornerPoints, moved: torch.Tensor, **changed: Any) -> CornerPoints:
    result: CornerPoints = tv_tensors.wrap(moved, like=points, **changed)
    return result


@functional.register_kernel(functional.horizontal_flip, CornerPoints)  # type: ignore[untyped-decorator]
def _flip_horizontally(points: CornerPoints) -> CornerPoints:
    x, y = points.as_subclass(torch.Tensor).unbind(-1)
    return _like(points, torch.stack([points.canvas_size[1] - x, y], dim=-1))


@functional.register_kernel(functional.vertical_flip, CornerPoints)  # type: ignore[untyped-decorator]
def _flip_vertically(points: CornerPoints) -> CornerPoints:
    x, y = points.as_subclass(torch.Tensor).unbind(-1)
    return _like(points, torch.stack([x, points.canvas_size[0] - y], dim=-1))


@functional.register_kernel(functional.rotate, CornerPoints)  # type: ignore[untyped-decorator]
def _rotate(points: CornerPoints, angle: float, *, expand: bool = False, center: Any = None, **_: Any) -> CornerPoints:
    """An image that is expanded keeps its centre in the centre. torchvision computes another size of it for points."""
    xy, size = points.as_subclass(torch.Tensor), points.canvas_size
    moved, _ = functional.rotate_keypoints(xy, size, angle, expand=False, center=center)
    no_channels = torch.empty((0, *size), device="meta")
    new_size = tuple(functional.rotate(no_channels, angle, expand=True, center=center).shape[1:]) if expand else size
    shift = torch.tensor([new_size[1] - size[1], new_size[0] - size[0]]) / 2
    return _like(points, moved + shift, canvas_size=new_size)


@functional.register_kernel(functional.pad, CornerPoints)  # type: ignore[untyped-decorator]
def _pad(points: CornerPoints, padding: Any, **_mode: Any) -> CornerPoints:
    """A mirrored border shows points again; the points themselves move as with any other."""
    moved, size = functional.pad_keypoints(points.as_subclass(torch.Tensor), points.canvas_size, padding)
    return _like(points, moved, canvas_size=size)


@functional.register_kernel(functional.center_crop, CornerPoints)  # type: ignore[untyped-decorator]
def _crop_centre(points: CornerPoints, output_size: Any) -> CornerPoints:
    """A larger crop pads the image by a half of the difference that is rounded down, a smaller one rounds to even."""
    size = points.canvas_size
    new_size = tuple(functional.center_crop(torch.empty((0, *size), device="meta"), output_size).shape[1:])
    differences = (new_size[1] - size[1], new_size[0] - size[0])
    shift = torch.tensor([each // 2 if each > 0 else round(each / 2) for each in differences])
    return _like(points, points.as_subclass(torch.Tensor) + shift, canvas_size=new_size)


@functional.register_kernel(functional.elastic, CornerPoints)  # type: ignore[untyped-decorator]
def _warp_elastically(points: CornerPoints, displacement: torch.Tensor, **_options: Any) -> CornerPoints:
    """`displacement` (1, H, W, 2) is where each pixel is sampled, in halves of the frame from its own place."""
    height, width = points.canvas_size
    shift = displacement[0] * torch.tensor([width / 2, height / 2])
    map_x = (shift[..., 0] + torch.arange(width)).numpy()
    map_y = (shift[..., 1] + torch.arange(height)[:, None]).numpy()
    moved = invert_map(points.as_subclass(torch.Tensor).numpy() - HALF_PX, map_x, map_y) + HALF_PX
    return _like(points, torch.from_numpy(moved))


@functional.register_kernel(functional.resize, CentredMask)  # type: ignore[untyped-decorator]
def _resize(mask: CentredMask, size: Any, max_size: int | None = None, **_options: Any) -> CentredMask:
    pixels = mask.as_subclass(torch.Tensor)[None]
    resized = functional.resize_image(pixels, size, InterpolationMode.NEAREST_EXACT, max_size)[0]
    return resized.as_subclass(CentredMask)  # type: ignore[no-any-return]


@functional.register_kernel(functional.resized_crop, CentredMask)  # type: ignore[untyped-decorator]
def _crop_and_resize(
    mask: CentredMask, *, top: int, left: int, height: int, width: int, size: Any, **_options: Any
) -> CentredMask:
    return _resize(functional.crop(mask, top, left, height, width), size)  # type: ignore[no-any-return]


def _filled_with_zeros(transform: Callable[..., torch.Tensor]) -> Callable[..., CentredMask]:
    """A function of torchvision for masks, to be called with the `fill` of their images."""

    def transform_mask(mask: CentredMask, **options: Any) -> CentredMask:
        options.pop("interpolation", None)
        return transform(mask.as_subclass(torch.Tensor), **{**options, "fill": 0}).as_subclass(CentredMask)

    return transform_mask


for _transform, _of_masks in (
    (functional.affine, functional.affine_mask),
    (functional.elastic, functional.elastic_mask),
    (functional.pad, functional.pad_mask),
    (functional.perspective, functional.perspective_mask),
    (functional.rotate, functional.rotate_mask),
):
    functional.register_kernel(_transform, CentredMask)(_filled_with_zeros(_of_masks))
