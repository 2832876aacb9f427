"""Images of one size from decoded crops, on their device: the whole crop resized, or the image of a crop protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import grid_sample, interpolate

from ...pipeline.dataset.crops.geometry import inverse


def resize_all(crops: Sequence[torch.Tensor], side_px: int) -> torch.Tensor:
    """Resizes crops, each uint8 (3, H, W), to uint8 (N, side_px, side_px, 3), those of one size at once.

    Bilinear, as the workers do; where it shrinks to less than half, averaging over what a pixel covers.
    """

    def resize(batch: torch.Tensor, _positions: list[int]) -> torch.Tensor:
        height, width = batch.shape[-2:]
        return batch if (height, width) == (side_px, side_px) else _interpolate(batch, side_px, side_px)

    return _by_size(crops, side_px, resize)


def cut_all(crops: Sequence[torch.Tensor], to_images: NDArray[np.float64], side_px: int) -> torch.Tensor:
    """Cuts the images of a crop protocol from crops, each uint8 (3, H, W), to uint8 (N, side_px, side_px, 3).

    `to_images`: (N, 2, 3), maps px of each crop to px of its image; see `ProtocolCrop`, which does the same on the CPU.
    Bilinear; a crop that shrinks to less than half is resized first; what lies beyond it is black.
    """
    scales = np.sqrt(np.abs(np.linalg.det(to_images[:, :, :2])))
    shrunk, maps = list(crops), to_images.copy()
    for position, scale in enumerate(scales.tolist()):
        if scale < 0.5:
            height, width = crops[position].shape[1:]
            lines, columns = max(1, round(height * scale)), max(1, round(width * scale))
            shrunk[position] = _interpolate(crops[position][None], lines, columns)[0]
            maps[position, :, :2] *= [width / columns, height / lines]
    from_images = inverse(maps)

    def cut(batch: torch.Tensor, positions: list[int]) -> torch.Tensor:
        return grid_sample(batch.float(), _grid(batch, from_images[positions], side_px), align_corners=False)

    return _by_size(shrunk, side_px, cut)


def _by_size(
    crops: Sequence[torch.Tensor], side_px: int, convert: Callable[[torch.Tensor, list[int]], torch.Tensor]
) -> torch.Tensor:
    """`convert(crops of one size, their positions)` for each size; its images in the order of the crops."""
    images = torch.empty((len(crops), side_px, side_px, 3), dtype=torch.uint8, device=crops[0].device)
    positions_by_size: dict[tuple[int, ...], list[int]] = {}
    for position, crop in enumerate(crops):
        positions_by_size.setdefault(tuple(crop.shape[1:]), []).append(position)
    for positions in positions_by_size.values():
        converted = convert(torch.stack([crops[position] for position in positions]), positions).movedim(1, -1)
        if converted.is_floating_point():
            converted = converted.round()
        images[torch.tensor(positions, device=images.device)] = converted.to(torch.uint8)
    return images


def _interpolate(batch: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """A batch (N, 3, H, W) resized, float32."""
    return interpolate(
        batch.float(), (height, width), mode="bilinear", align_corners=False, antialias=batch.shape[-2] > 2 * height
    )


def _grid(batch: torch.Tensor, from_images: NDArray[np.float64], side_px: int) -> torch.Tensor:
    """Where each px of the images lies in its crop, as `grid_sample` counts: float32 (n, side_px, side_px, 2)."""
    height, width = batch.shape[-2:]
    to_unit = np.array([[2 / width], [2 / height]]) * from_images
    to_unit[:, :, 2] -= 1
    a, b, c = torch.from_numpy(to_unit).float().to(batch.device).unbind(dim=2)  # each (n, 2)
    centres = torch.arange(side_px, dtype=torch.float32, device=batch.device) + 0.5
    # By elementwise arithmetic: the rounding of a matrix product may depend on the size of the batch.
    across = a[:, None, None, :] * centres[None, None, :, None]
    return across + b[:, None, None, :] * centres[None, :, None, None] + c[:, None, None, :]
