"""Frame batches on a torch device such as CUDA: facenet's own modules, run on all frames of one size at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from facenet_pytorch.models.mtcnn import ONet, PNet, RNet
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from .pyramid import PIXEL_MEAN, PIXEL_SCALE, window_bins
from .rois import Tiles
from .stages import PNET_SCORE, PNetCells

Tensor = torch.Tensor

_WINDOW_BATCH: Final = 512


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


class DeviceFrameBatch:
    """`FrameBatch` on a device. It synchronises once per level and network, for the number of candidates."""

    def __init__(self, frames: list[NDArray[np.uint8]], networks: DeviceNetworks) -> None:
        self.count, (self.height, self.width) = len(frames), frames[0].shape[:2]
        self._networks = networks
        pixels = torch.from_numpy(np.stack(frames)).to(networks.device)
        self._frames = pixels.permute(0, 3, 1, 2).float()
        # int32 may overflow; differences are correct nevertheless.
        sums = pixels.cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
        integral_image = sums.new_zeros(self.count, self.height + 1, self.width + 1, 3)
        integral_image[:, 1:, 1:] = sums
        self._integral_image = integral_image.view(-1, 3)

    def pnet(self, sizes: list[tuple[int, int]]) -> PNetCells:
        """Run PNet on each level; return the cells that pass `PNET_SCORE`."""
        outputs = [self._level(level, size) for level, size in enumerate(sizes)]
        return PNetCells(*(torch.cat(array) for array in zip(*outputs, strict=True)))

    def _level(self, level: int, size: tuple[int, int]) -> tuple[Tensor, ...]:
        offsets, scores = self._networks(self._networks.pnet, interpolate(self._frames, size=size, mode="area"))
        frame_indices, rows, columns = (scores[:, 1] >= PNET_SCORE).nonzero(as_tuple=True)
        outputs = scores[frame_indices, 1, rows, columns], offsets[frame_indices, :, rows, columns]
        return frame_indices, torch.full_like(frame_indices, level), rows, columns, *outputs

    def rnet(self, frame_indices: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Run RNet on windows (M, 4); return scores (M,) and offsets (M, 4)."""
        offsets, scores = self._run_batches(self._networks.rnet, frame_indices, windows, 24)
        return scores[:, 1], offsets

    def onet(self, frame_indices: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run ONet on windows (M, 4); return scores (M,), offsets (M, 4) and points (M, 10)."""
        offsets, points, scores = self._run_batches(self._networks.onet, frame_indices, windows, 48)
        return scores[:, 1], offsets, points

    def _run_batches(self, network: Any, frame_indices: Tensor, windows: Tensor, side: int) -> list[Tensor]:
        chunks = (slice(first, first + _WINDOW_BATCH) for first in range(0, len(windows), _WINDOW_BATCH))
        edges = window_bins(windows, torch.arange(side, device=windows.device))
        outputs = [
            self._networks(network, self._resize_windows(frame_indices[chunk], *(array[chunk] for array in edges)))
            for chunk in chunks
        ]
        return [torch.cat(array) for array in zip(*outputs, strict=True)]

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

    def pnet_on_tiles(self, tiles: Tiles) -> Tensor:
        """Run PNet on tiles; return its cells (T, rows, columns, 6): 2 logits, 4 offsets."""
        edges = [
            torch.from_numpy(array).to(self._networks.device) for array in tiles.bin_edges(self.height, self.width)
        ]
        frame_indices = torch.from_numpy(tiles.frame_indices).to(self._networks.device)
        offsets, scores = self._networks(self._networks.pnet, self._resize_windows(frame_indices, *edges))
        # Log-probabilities serve as logits: only their difference matters.
        return torch.cat([scores.clamp(min=1e-12).log(), offsets], 1).permute(0, 2, 3, 1).cpu()

    def rnet(self, frame_indices: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Run RNet on windows (M, 4); return scores (M,) and offsets (M, 4) on the CPU."""
        scores, offsets = super().rnet(frame_indices.to(self._networks.device), windows.to(self._networks.device))
        return scores.cpu(), offsets.cpu()

    def onet(self, frame_indices: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run ONet on windows (M, 4); return scores (M,), offsets (M, 4) and points (M, 10) on the CPU."""
        scores, offsets, points = super().onet(
            frame_indices.to(self._networks.device), windows.to(self._networks.device)
        )
        return scores.cpu(), offsets.cpu(), points.cpu()
