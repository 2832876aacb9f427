"""Frames of one size on a torch device, CUDA above all: facenet's own modules, and no work frame by frame."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from facenet_pytorch.models.mtcnn import ONet, PNet, RNet
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from .pyramid import PIXEL_MEAN, PIXEL_SCALE, window_bins
from .rois import Tiles
from .stages import PNET_SCORE, Cells

Tensor = torch.Tensor

_WINDOWS_AT_ONCE: Final = 512


class DeviceNetworks:
    """PNet, RNet and ONet on `device`, in the precision that torch is set to, as facenet's are."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        modules = (kind().eval().requires_grad_(False) for kind in (PNet, RNet, ONet))
        self.pnet, self.rnet, self.onet = (one.to(self.device, memory_format=torch.channels_last) for one in modules)

    def __call__(self, net: Any, pixels: Tensor) -> Any:
        """What a network says of pixels 0..255, (M, 3, h, w)."""
        return net((pixels - PIXEL_MEAN) * PIXEL_SCALE)


class DevicePixels:
    """As `Pixels` has it. The host waits once for each level and network, to learn how much was found."""

    def __init__(self, frames: list[NDArray[np.uint8]], nets: DeviceNetworks) -> None:
        self.count, (self.height, self.width) = len(frames), frames[0].shape[:2]
        self._nets = nets
        pixels = torch.from_numpy(np.stack(frames)).to(nets.device)
        self._frames = pixels.permute(0, 3, 1, 2).float()
        # int32 may overflow, and differences are right all the same.
        sums = pixels.cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
        table = sums.new_zeros(self.count, self.height + 1, self.width + 1, 3)
        table[:, 1:, 1:] = sums
        self._table = table.view(-1, 3)

    def pnet(self, sizes: list[tuple[int, int]]) -> Cells:
        """As `Pixels` has it."""
        found = [self._level(level, size) for level, size in enumerate(sizes)]
        return Cells(*(torch.cat(one) for one in zip(*found, strict=True)))

    def _level(self, level: int, size: tuple[int, int]) -> tuple[Tensor, ...]:
        offsets, scores = self._nets(self._nets.pnet, interpolate(self._frames, size=size, mode="area"))
        frames, rows, columns = (scores[:, 1] >= PNET_SCORE).nonzero(as_tuple=True)
        found = scores[frames, 1, rows, columns], offsets[frames, :, rows, columns]
        return frames, torch.full_like(frames, level), rows, columns, *found

    def rnet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
        """As `Pixels` has it."""
        offsets, scores = self._looked_at(self._nets.rnet, frames, windows, 24)
        return scores[:, 1], offsets

    def onet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `Pixels` has it."""
        offsets, points, scores = self._looked_at(self._nets.onet, frames, windows, 48)
        return scores[:, 1], offsets, points

    def _looked_at(self, net: Any, frames: Tensor, windows: Tensor, side: int) -> list[Tensor]:
        parts = (slice(first, first + _WINDOWS_AT_ONCE) for first in range(0, len(windows), _WINDOWS_AT_ONCE))
        edges = window_bins(windows, torch.arange(side, device=windows.device))
        found = [self._nets(net, self._cut(frames[part], *(one[part] for one in edges))) for part in parts]
        return [torch.cat(one) for one in zip(*found, strict=True)]

    def _cut(self, frames: Tensor, tops: Tensor, bottoms: Tensor, lefts: Tensor, rights: Tensor) -> Tensor:
        """Windows of h x w bins, whose edges are (M, h) or (M, w), all in one gather: (M, 3, h, w), 0..255."""
        rows = frames[:, None] * (self.height + 1)

        def at(row: Tensor, column: Tensor) -> Tensor:
            return self._table[((rows + row) * (self.width + 1))[:, :, None] + column[:, None, :]]

        sums = at(bottoms, rights) - at(tops, rights) - at(bottoms, lefts) + at(tops, lefts)
        areas = (bottoms - tops)[:, :, None] * (rights - lefts)[:, None, :]
        means: Tensor = sums / areas[..., None]
        return means.permute(0, 3, 1, 2)


class DeviceNear(DevicePixels):
    """As `NearPixels` has it. The host waits once for each network."""

    def pnet_tiles(self, tiles: Tiles) -> Tensor:
        """As `NearPixels` has it."""
        edges = [torch.from_numpy(one).to(self._nets.device) for one in tiles.edges(self.height, self.width)]
        frames = torch.from_numpy(tiles.frames).to(self._nets.device)
        offsets, scores = self._nets(self._nets.pnet, self._cut(frames, *edges))
        # Of logits only the difference counts.
        return torch.cat([scores.clamp(min=1e-12).log(), offsets], 1).permute(0, 2, 3, 1).cpu()

    def rnet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
        """As `NearPixels` has it."""
        scores, offsets = super().rnet(frames.to(self._nets.device), windows.to(self._nets.device))
        return scores.cpu(), offsets.cpu()

    def onet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `NearPixels` has it."""
        scores, offsets, points = super().onet(frames.to(self._nets.device), windows.to(self._nets.device))
        return scores.cpu(), offsets.cpu(), points.cpu()
