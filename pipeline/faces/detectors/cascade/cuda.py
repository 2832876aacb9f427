"""The cascade on a torch device such as CUDA: facenet's own modules, run on all frames of one size at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from facenet_pytorch.models.mtcnn import ONet, PNet, RNet
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from .pyramid import PIXEL_MEAN, PIXEL_SCALE, window_bins
from .roi_cascade import detect_in_rois
from .rois import Rois, Tiles
from .stages import PNET_SCORE, Detections, PNetCells, detect_faces

Array = NDArray[Any]
Rgb = NDArray[np.uint8]
Tensor = torch.Tensor

_BATCH_FRAMES: Final = 32
_BATCH_PIXELS: Final = 16 << 20
"""Maximum number of pixels on the device at once; a larger frame is processed alone."""
_WINDOW_BATCH: Final = 512


class DeviceEngine:
    """Processes consecutive frames of one size together, up to `_BATCH_PIXELS`."""

    def __init__(self, device: str) -> None:
        self.frames_at_once = _BATCH_FRAMES
        self._networks = DeviceNetworks(device)

    def detect(self, frames: Sequence[Rgb], min_face_px: int) -> list[Detections]:
        """Return the faces of each frame."""
        detections: list[Detections] = []
        for (height, width, _), same_size in groupby(frames, key=lambda rgb: rgb.shape):
            group = list(same_size)
            batch_size = max(1, _BATCH_PIXELS // (height * width))
            for first in range(0, len(group), batch_size):
                batch = DeviceFrameBatch(group[first : first + batch_size], self._networks)
                detections += detect_faces(batch, min_face_px)
        return detections

    def detect_in_rois(self, frames: Sequence[Rgb], rois: Rois, min_face_px: int) -> list[Detections]:
        """Return the faces near `rois` for frames of one size."""
        height, width, _ = frames[0].shape
        batch_size = max(1, _BATCH_PIXELS // (height * width))
        detections: list[Detections] = []
        for first in range(0, len(frames), batch_size):
            own_rois = rois[(rois.frame_indices >= first) & (rois.frame_indices < first + batch_size)]
            own_rois = replace(own_rois, frame_indices=own_rois.frame_indices - first)
            batch = DeviceRoiBatch(list(frames[first : first + batch_size]), self._networks)
            detections += detect_in_rois(batch, own_rois, min_face_px)
        return detections


class DeviceNetworks:
    """facenet's PNet, RNet and ONet on `device`, in torch's current precision settings."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        modules = (kind().eval().requires_grad_(False) for kind in (PNet, RNet, ONet))
        self.pnet, self.rnet, self.onet = (
            module.to(self.device, memory_format=torch.channels_last) for module in modules
        )

    def __call__(self, network: Any, pixels: Tensor) -> Any:
        """Normalise pixels 0..255, (M, 3, h, w), and run a network on them."""
        return network((pixels - PIXEL_MEAN) * PIXEL_SCALE)

    def to_device(self, *arrays: Array) -> list[Tensor]:
        """Copy the host's arrays to the device."""
        return [torch.from_numpy(array).to(self.device) for array in arrays]


class DeviceFrameBatch:
    """`FrameBatch` on a device. It synchronises once per level and network, for the candidates."""

    def __init__(self, frames: list[Rgb], networks: DeviceNetworks) -> None:
        self.count, (self.height, self.width) = len(frames), frames[0].shape[:2]
        self._networks = networks
        with torch.inference_mode():
            (pixels,) = networks.to_device(np.stack(frames))
            self._frames = pixels.permute(0, 3, 1, 2).float()
            # int32 may overflow; differences are correct nevertheless.
            sums = pixels.cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
            integral_image = sums.new_zeros(self.count, self.height + 1, self.width + 1, 3)
            integral_image[:, 1:, 1:] = sums
            self._integral_image = integral_image.view(-1, 3)

    @torch.inference_mode()
    def pnet(self, sizes: list[tuple[int, int]]) -> PNetCells:
        """Run PNet on each level; return the cells that pass `PNET_SCORE`."""
        outputs = [self._level(level, size) for level, size in enumerate(sizes)]
        return PNetCells(*(torch.cat(array).cpu().numpy() for array in zip(*outputs, strict=True)))

    def _level(self, level: int, size: tuple[int, int]) -> tuple[Tensor, ...]:
        offsets, scores = self._networks(self._networks.pnet, interpolate(self._frames, size=size, mode="area"))
        frame_indices, rows, columns = (scores[:, 1] >= PNET_SCORE).nonzero(as_tuple=True)
        outputs = scores[frame_indices, 1, rows, columns], offsets[frame_indices, :, rows, columns]
        return frame_indices, torch.full_like(frame_indices, level), rows, columns, *outputs

    def rnet(self, frame_indices: Array, windows: Array) -> tuple[Array, Array]:
        """Run RNet on windows (M, 4); return scores (M,) and offsets (M, 4)."""
        offsets, scores = self._run_batches(self._networks.rnet, frame_indices, windows, 24)
        return scores[:, 1], offsets

    def onet(self, frame_indices: Array, windows: Array) -> tuple[Array, Array, Array]:
        """Run ONet on windows (M, 4); return scores (M,), offsets (M, 4) and points (M, 10)."""
        offsets, points, scores = self._run_batches(self._networks.onet, frame_indices, windows, 48)
        return scores[:, 1], offsets, points

    @torch.inference_mode()
    def _run_batches(self, network: Any, frame_indices: Array, windows: Array, side: int) -> list[Array]:
        chunks = (slice(first, first + _WINDOW_BATCH) for first in range(0, len(windows), _WINDOW_BATCH))
        frames, on_device = self._networks.to_device(frame_indices, windows)
        edges = window_bins(on_device, torch.arange(side, device=on_device.device))
        outputs = [
            self._networks(network, self._resize_windows(frames[chunk], *(array[chunk] for array in edges)))
            for chunk in chunks
        ]
        return [torch.cat(array).cpu().numpy() for array in zip(*outputs, strict=True)]

    def _resize_windows(
        self, frame_indices: Tensor, tops: Tensor, bottoms: Tensor, lefts: Tensor, rights: Tensor
    ) -> Tensor:
        """Resize windows to h x w bins, whose edges are (M, h) and (M, w), in one gather: (M, 3, h, w), 0..255."""
        rows = frame_indices[:, None] * (self.height + 1)

        def lookup(row: Tensor, column: Tensor) -> Tensor:
            return self._integral_image[((rows + row) * (self.width + 1))[:, :, None] + column[:, None, :]]

        sums = lookup(bottoms, rights) - lookup(tops, rights) - lookup(bottoms, lefts) + lookup(tops, lefts)
        areas = (bottoms - tops)[:, :, None] * (rights - lefts)[:, None, :]
        means: Tensor = sums / areas[..., None]
        return means.permute(0, 3, 1, 2)


class DeviceRoiBatch(DeviceFrameBatch):
    """`RoiBatch` on a device. It synchronises once per network."""

    @torch.inference_mode()
    def pnet_on_tiles(self, tiles: Tiles) -> Array:
        """Run PNet on tiles; return its cells (T, rows, columns, 6): 2 logits, 4 offsets."""
        edges = tiles.bin_edges(self.height, self.width)
        pixels = self._resize_windows(*self._networks.to_device(tiles.frame_indices, *edges))
        offsets, scores = self._networks(self._networks.pnet, pixels)
        # Log-probabilities serve as logits: only their difference matters.
        cells: Array = torch.cat([scores.clamp(min=1e-12).log(), offsets], 1).permute(0, 2, 3, 1).cpu().numpy()
        return cells
