"""Transforms of whole batches whose random numbers are given to them, so that each image depends on its own alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from ...pipeline.errors import UsageError
from ..real_numbers import as_float


class BatchedTransform(Protocol):
    """A `device_transform` that is called once for the whole batch: any callable with an attribute `draws`.

    draws: random numbers for each image, at least 0.

    Implementers promise that an image of the output depends on the same image of the input and on its row of `numbers`
    alone: no generator is drawn from, nothing is computed over the batch. They may have `moves_pixels = False`, which
    states that landmarks and masks stay right.
    """

    @property
    def draws(self) -> int:
        """Random numbers for each image."""

    def __call__(self, images: torch.Tensor, numbers: torch.Tensor, /) -> torch.Tensor:
        """Transforms a batch.

        Args:
            images: RGB (N, 3, H, W), float32 in 0..1, or uint8 with `dtype="uint8"`.
            numbers: float32 (N, draws), uniform in [0, 1), on the images' device; the same for all images of a clip.

        Returns:
            (N, C, H', W'), on the same device.

        """


@dataclass(frozen=True, kw_only=True)
class BatchedFlip:
    """Mirrors each image left to right with probability `p`."""

    p: float = 0.5
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_share(self, "p")

    def __call__(self, images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See `BatchedTransform`."""
        return torch.where(_per_image(numbers[:, 0] < self.p), images.flip(-1), images)


@dataclass(frozen=True, kw_only=True)
class BatchedBrightnessContrast:
    """With probability `p`, multiplies values by 1 +- `contrast` and adds +- `brightness` of their range, at most."""

    brightness: float = 0.2
    contrast: float = 0.2
    p: float = 0.5
    draws: ClassVar[int] = 3
    moves_pixels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "p"):
            _check_share(self, name)

    def __call__(self, images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See `BatchedTransform`."""
        is_changed = numbers[:, 0] < self.p
        signed = 2 * numbers[:, 1:] - 1
        factor = torch.where(is_changed, 1 + self.contrast * signed[:, 0], 1)
        offset = torch.where(is_changed, self.brightness * signed[:, 1], 0)
        largest = 1.0 if images.is_floating_point() else 255.0
        changed = (images * _per_image(factor)).add_(_per_image(offset * largest)).clamp_(0, largest)
        return _like(images, changed)


@dataclass(frozen=True, kw_only=True)
class BatchedCrop:
    """Cuts a random part of each image and resizes it, bilinear, to the image's size.

    scale: least and largest side of the part, as a share of the image's; it keeps the image's proportions.
    """

    scale: tuple[float, float] = (0.8, 1.0)
    draws: ClassVar[int] = 3

    def __post_init__(self) -> None:
        is_pair = isinstance(self.scale, (tuple, list)) and len(self.scale) == 2
        if not is_pair or not 0 < as_float(self.scale[0]) <= as_float(self.scale[1]) <= 1:
            raise UsageError(
                f"BatchedCrop: scale={self.scale!r}: must be two shares of the side, 0 < least <= largest <= 1; try "
                "(0.8, 1.0)"
            )

    def __call__(self, images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """See `BatchedTransform`."""
        least, largest = self.scale
        side = least + (largest - least) * numbers[:, 0]
        # In the coordinates of `grid_sample`, -1 .. 1, the centre of the part may lie as far as 1 - side from 0.
        centres = (2 * numbers[:, 1:] - 1) * (1 - side)[:, None]
        count, _, height, width = images.shape
        # By elementwise arithmetic: the rounding of a matrix product may depend on the size of the batch.
        xs = _pixel_centres(width, images.device) * side[:, None] + centres[:, :1]
        ys = _pixel_centres(height, images.device) * side[:, None] + centres[:, 1:]
        grid = torch.stack(
            [xs[:, None, :].expand(count, height, width), ys[:, :, None].expand(count, height, width)], dim=-1
        )
        values = images if images.is_floating_point() else images.float()
        sampled = torch.nn.functional.grid_sample(
            values, grid.to(values.dtype), mode="bilinear", padding_mode="border", align_corners=False
        )
        return _like(images, sampled)


def _pixel_centres(length_px: int, device: torch.device) -> torch.Tensor:
    """Centres of the pixels of a line in the coordinates of `grid_sample`: float32 (length_px,), within -1 .. 1."""
    return (2 * torch.arange(length_px, dtype=torch.float32, device=device) + 1) / length_px - 1


def _per_image(values: torch.Tensor) -> torch.Tensor:
    return values.view(-1, 1, 1, 1)


def _like(images: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values in the images' own type: rounded where these are whole numbers."""
    return values if images.is_floating_point() else values.round_().to(images.dtype)


def _check_share(transform: object, name: str) -> None:
    value = getattr(transform, name)
    if not 0 <= as_float(value) <= 1:
        raise UsageError(f"{type(transform).__name__}: {name}={value!r}: must be a number from 0 to 1")
