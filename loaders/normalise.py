"""Normalises uint8 pixels by ImageNet's mean and standard deviation, to float32 in channels-last memory."""

from __future__ import annotations

from functools import cache

import torch

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_CPU = torch.device("cpu")


@cache
def _factors(width_px: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Factor and offset for each value of one row of pixels, two float32 (3 width,), so that nothing is broadcast."""
    std = torch.tensor(IMAGENET_STD, dtype=torch.float64, device=_CPU)
    mean = torch.tensor(IMAGENET_MEAN, dtype=torch.float64, device=_CPU)
    factor, offset = 1 / (255 * std), -mean / std
    return tuple(values.float().repeat(width_px).to(device) for values in (factor, offset))  # type: ignore[return-value]


def normalise_into(out: torch.Tensor, image: torch.Tensor) -> None:
    """Normalises one RGB uint8 image (H, W, 3) into `out`, float32 (H, W, 3), on the CPU."""
    height, width, _ = image.shape
    factor, offset = _factors(width, _CPU)
    target = out.view(height, width * 3)
    torch.addcmul(offset, target.copy_(image.reshape(height, width * 3)), factor, out=target)


def normalise(images: torch.Tensor) -> torch.Tensor:
    """Normalises RGB uint8 (..., H, W, 3) to float32 (..., 3, H, W) in channels-last memory, on the images' device.

    `(pixel / 255 - mean) / std`. On the CPU image by image, while each is in the processor's cache.
    """
    height, width, _ = images.shape[-3:]
    out = torch.empty(images.shape, dtype=torch.float32, device=images.device)
    if images.device.type == "cpu":
        pairs = zip(images.reshape(-1, height, width, 3), out.view(-1, height, width, 3), strict=True)
        for image, target in pairs:
            normalise_into(target, image)
    else:
        factor, offset = _factors(width, images.device)
        rows = images.reshape(-1, width * 3).to(torch.float32)
        torch.addcmul(offset, rows, factor, out=out.view(-1, width * 3))
    return out.movedim(-1, -3)


def normalise_unit(images: torch.Tensor) -> torch.Tensor:
    """Normalises RGB (..., 3, H, W), floats in 0..1: `(value - mean) / std`, in new memory."""
    mean, std = _statistics(images.device)
    return (images.to(torch.float32) - mean).div_(std)


@cache
def _statistics(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation, two float32 (3, 1, 1)."""
    mean, std = (torch.tensor(values, dtype=torch.float32, device=device) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return mean.view(3, 1, 1), std.view(3, 1, 1)
