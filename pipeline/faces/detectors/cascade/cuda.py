"""The cascade on a torch device such as CUDA: facenet's own modules, run on all frames of one size at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from facenet_pytorch.models.mtcnn import ONet, PNet, RNet
from numpy.typing import NDArray

from ....errors import StoppedError
from .pyramid import PIXEL_MEAN, PIXEL_SCALE, pool_bins, window_bins
from .roi_cascade import detect_in_rois
from .rois import Rois, Tiles
from .stages import PNET_SCORE, Detections, PNetCells, run_cascade

Array = NDArray[Any]
Rgb = NDArray[np.uint8]
Tensor = torch.Tensor

_BATCH_FRAMES: Final = 32
_BATCH_PIXELS: Final = 16 << 20
"""Maximum number of pixels on the device at once; a larger frame is processed alone."""
_WINDOW_BATCH: Final = 512
_MIN_WINDOWS: Final = 8


def padded_count(count: int, limit: int, minimum: int = 1) -> int:
    """Return the number that `count` images are padded to, a power of two or `limit`.

    cuDNN plans each convolution anew for each number of images that it meets; on an H100 a plan takes 3 ms, where the
    convolution itself takes 0.02.

    >>> [padded_count(count, 20) for count in (1, 3, 9, 17)]
    [1, 4, 16, 20]
    """
    return min(max(minimum, 1 << (count - 1).bit_length()), limit)


def _frames_at_once(height: int, width: int) -> int:
    return max(1, _BATCH_PIXELS // (height * width))


@contextmanager
def _stop_where_memory_is_full() -> Iterator[None]:
    """Such an error is no input's fault, and would come again on another worker of the same device."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        why = str(error).partition(". ")[0]
        raise StoppedError(
            f"the GPU's memory is full ({why}); all finished units are kept: run the same command again with fewer "
            "--workers, or on the CPU (CUDA_VISIBLE_DEVICES=)"
        ) from error


class DeviceEngine:
    """Processes consecutive frames of one size together, up to `_BATCH_PIXELS`."""

    def __init__(self, device: str) -> None:
        self.frames_at_once = _BATCH_FRAMES
        self._networks = DeviceNetworks(device)

    @_stop_where_memory_is_full()
    def detect(self, frames: Sequence[Rgb], min_face_px: int) -> list[Detections]:
        """Return the faces of each frame; raises `StoppedError` where the device's memory is full."""
        detections: list[Detections] = []
        for (height, width, _), same_size in groupby(frames, key=lambda rgb: rgb.shape):
            group = list(same_size)
            batch_size = _frames_at_once(height, width)
            for first in range(0, len(group), batch_size):
                batch = DeviceFrameBatch(group[first : first + batch_size], self._networks)
                detections += run_cascade(batch, min_face_px)
        return detections

    @_stop_where_memory_is_full()
    def detect_in_rois(self, frames: Sequence[Rgb], rois: Rois, min_face_px: int) -> list[Detections]:
        """Return the faces near `rois` for frames of one size; raises `StoppedError` likewise."""
        height, width, _ = frames[0].shape
        batch_size = _frames_at_once(height, width)
        detections: list[Detections] = []
        for first in range(0, len(frames), batch_size):
            batch = DeviceRoiBatch(list(frames[first : first + batch_size]), self._networks)
            detections += detect_in_rois(batch, rois.in_frames(first, first + batch_size), min_face_px)
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
    """`FrameBatch` on a device. It synchronises once per network, for the candidates."""

    def __init__(self, frames: list[Rgb], networks: DeviceNetworks) -> None:
        self.count, (self.height, self.width) = len(frames), frames[0].shape[:2]
        self._networks = networks
        with torch.inference_mode():
            count = padded_count(self.count, _frames_at_once(self.height, self.width))
            pixels = torch.zeros((count, self.height, self.width, 3), dtype=torch.uint8, device=networks.device)
            for frame, target in zip(frames, pixels, strict=False):
                target.copy_(torch.from_numpy(np.require(frame, requirements=["C", "W"])))
            # int32 may overflow; differences are correct nevertheless.
            integral_image = pixels.new_zeros((len(pixels), self.height + 1, self.width + 1, 3), dtype=torch.int32)
            torch.cumsum(pixels.cumsum(1, dtype=torch.int32), 2, out=integral_image[:, 1:, 1:])
            self._integral_image = integral_image

    @torch.inference_mode()
    def pnet(self, sizes: list[tuple[int, int]]) -> PNetCells:
        """Run PNet on each level; return the cells that pass `PNET_SCORE`."""
        offsets, scores, shapes = [], [], []
        for size in sizes:
            level_offsets, level_scores = self._networks(self._networks.pnet, self._level(size))
            level_scores = level_scores[: self.count, 1]
            shapes.append(tuple(level_scores.shape[1:]))
            scores.append(level_scores.reshape(-1))
            offsets.append(level_offsets[: self.count].permute(0, 2, 3, 1).reshape(-1, 4))
        all_scores = torch.cat(scores)
        (passed,) = (all_scores >= PNET_SCORE).nonzero(as_tuple=True)
        found = (passed, all_scores[passed], torch.cat(offsets)[passed])
        cells, passed_scores, passed_offsets = (array.cpu().numpy() for array in found)
        return PNetCells(*_cell_places(cells, self.count, shapes), passed_scores, passed_offsets)

    def _level(self, size: tuple[int, int]) -> Tensor:
        """Return the frames resized by area: (N, 3, h, w), 0..255, as facenet's `interpolate(mode="area")` does."""
        (tops, bottoms), (lefts, rights) = (
            _bins_on(self._networks.device, length, count)
            for length, count in zip((self.height, self.width), size, strict=True)
        )
        bands = self._integral_image.index_select(1, bottoms) - self._integral_image.index_select(1, tops)
        sums = bands.index_select(2, rights) - bands.index_select(2, lefts)
        areas = (bottoms - tops)[:, None] * (rights - lefts)
        return (sums / areas[:, :, None]).permute(0, 3, 1, 2)

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
        count = len(windows)
        rest = count % _WINDOW_BATCH
        frame_indices, windows = _padded(
            [frame_indices, windows], padded_count(rest, _WINDOW_BATCH, _MIN_WINDOWS) - rest if rest else 0
        )
        chunks = (slice(first, first + _WINDOW_BATCH) for first in range(0, len(windows), _WINDOW_BATCH))
        frames, on_device = self._networks.to_device(frame_indices, windows)
        edges = window_bins(on_device, torch.arange(side, device=on_device.device))
        outputs = [
            self._networks(network, self._resize_windows(frames[chunk], *(array[chunk] for array in edges)))
            for chunk in chunks
        ]
        return [torch.cat(array)[:count].cpu().numpy() for array in zip(*outputs, strict=True)]

    def _resize_windows(
        self, frame_indices: Tensor, tops: Tensor, bottoms: Tensor, lefts: Tensor, rights: Tensor
    ) -> Tensor:
        """Resize windows to h x w bins, whose edges are (M, h) and (M, w), in one gather: (M, 3, h, w), 0..255."""
        rows = frame_indices[:, None] * (self.height + 1)
        integral_image = self._integral_image.view(-1, 3)

        def lookup(row: Tensor, column: Tensor) -> Tensor:
            return integral_image[((rows + row) * (self.width + 1))[:, :, None] + column[:, None, :]]

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
        count = len(tiles.frame_indices)
        arrays = _padded([tiles.frame_indices, *edges], padded_count(count, 1 << 30, _MIN_WINDOWS) - count)
        pixels = self._resize_windows(*self._networks.to_device(*arrays))
        offsets, scores = self._networks(self._networks.pnet, pixels)
        # Log-probabilities serve as logits: only their difference matters.
        cells = torch.cat([scores.clamp(min=1e-12).log(), offsets], 1).permute(0, 2, 3, 1)
        on_host: Array = cells[:count].cpu().numpy()
        return on_host


@lru_cache(maxsize=1024)
def _bins_on(device: torch.device, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Return `pool_bins` on a device; kept, since each copy to it waits for the work that is queued there."""
    starts, ends = pool_bins(length, count)
    return torch.from_numpy(starts).to(device), torch.from_numpy(ends).to(device)


def _padded(arrays: list[Array], count: int) -> list[Array]:
    """Return arrays with their last row repeated `count` times more."""
    return [np.concatenate([array, array[-1:].repeat(count, 0)]) for array in arrays]


def _cell_places(cells: Array, count: int, shapes: list[tuple[int, ...]]) -> tuple[Array, Array, Array, Array]:
    """Return frames, levels, rows and columns of cells (M,) that are numbered level by level, then frame by frame."""
    ends = np.cumsum([count * rows * columns for rows, columns in shapes])
    levels = np.searchsorted(ends, cells, side="right")
    rows, columns = np.array(shapes, np.int64).T
    within = cells - np.concatenate([[0], ends])[levels]
    frames, within_frame = np.divmod(within, (rows * columns)[levels])
    return frames, levels, *np.divmod(within_frame, columns[levels])
