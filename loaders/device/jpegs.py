"""Decodes a batch of JPEGs on its device, and resizes or cuts the images."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ...pipeline.errors import CorruptDataError, UsageError
from ..dataset.decode import decode_rgb
from .resize import cut_all, resize_all


def decode_jpegs(
    jpegs: Sequence[torch.Tensor], device: torch.device, side_px: int, to_images: NDArray[np.float64] | None = None
) -> torch.Tensor:
    """Decodes JPEGs, each uint8 (size,) on the CPU, to RGB images uint8 (N, side_px, side_px, 3) on the device.

    On CUDA by nvJPEG, on the CPU by the decoder of the workers. Without `to_images` they are resized, else cut by it;
    see `cut_all`. Raises `CorruptDataError` where one of them cannot be decoded.
    """
    if device.type == "cuda":
        # nvJPEG writes on a stream of its own to memory that kernels of this stream may still read; see torchvision's
        # decode_jpegs_cuda.cpp. It returns when the images are decoded.
        torch.cuda.current_stream(device).synchronize()
        images = decode_by_torchvision(jpegs, device)
    else:
        images = [torch.from_numpy(decode_rgb(jpeg.numpy().tobytes())).movedim(-1, 0) for jpeg in jpegs]
    return resize_all(images, side_px) if to_images is None else cut_all(images, to_images, side_px)


def check_can_decode(device: torch.device) -> None:
    """Raises `UsageError` where torchvision cannot decode on this device."""
    if device.type == "cuda":
        try:
            from torchvision.io import decode_jpeg  # noqa: F401, PLC0415
        except ImportError as error:
            raise UsageError(
                "decode='device': this torchvision has no decode_jpeg; take decode='workers', or another version"
            ) from error


def decode_by_torchvision(jpegs: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Decodes JPEGs to RGB images, each uint8 (3, H, W); see `decode_jpegs`."""
    from torchvision.io import ImageReadMode, decode_jpeg  # noqa: PLC0415 (only those need it who decode there)

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The image decoding", DeprecationWarning)  # in favour of TorchCodec
            return decode_jpeg(list(jpegs), mode=ImageReadMode.RGB, device=device)  # type: ignore[no-any-return]
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise CorruptDataError(f"a batch of {len(jpegs)} JPEGs cannot be decoded on {device}: {error}") from error
