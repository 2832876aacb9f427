"""Engines: run the cascade on batches of frames, on the CPU by threads or on a torch device."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .cpu import CpuFrameBatch, CpuRoiBatch
from .cuda import DeviceFrameBatch, DeviceNetworks, DeviceRoiBatch
from .networks import OpenVinoNetworks
from .roi_cascade import detect_in_rois
from .rois import Rois
from .stages import Detections, detect_faces

Rgb = NDArray[np.uint8]

_DEVICE_BATCH_FRAMES: Final = 32
_DEVICE_BATCH_PIXELS: Final = 16 << 20
"""Maximum number of pixels on the device at once; a larger frame is processed alone."""


class Engine(Protocol):
    """The cascade on a device. frames_at_once: the preferred number of frames per call."""

    frames_at_once: int

    def detect(self, frames: Sequence[Rgb], min_face_px: int) -> list[Detections]:
        """Return the faces of each frame; every frame must have at least one pyramid level."""
        ...

    def detect_in_rois(self, frames: Sequence[Rgb], rois: Rois, min_face_px: int) -> list[Detections]:
        """Return the faces near `rois` for frames of one size, each of which has at least one ROI."""
        ...


def engine_for(device: str) -> Engine:
    """Return this process's engine for `device`, by torch's name; a forked process creates its own."""
    return _engine(os.getpid(), device, torch.get_num_threads())


@cache
def _engine(pid: int, device: str, threads: int) -> Engine:  # noqa: ARG001
    # Never released: in a forked process OpenVINO would wait for threads that do not exist there.
    return CpuEngine(threads) if torch.device(device).type == "cpu" else DeviceEngine(device)


class CpuEngine:
    """Processes frames in parallel, one per thread."""

    def __init__(self, threads: int) -> None:
        self.frames_at_once = threads
        self._executor = ThreadPoolExecutor(threads, "facefeed-mtcnn")
        # A pool rather than thread-local networks, which would be released when a thread ends.
        self._idle_networks: SimpleQueue[OpenVinoNetworks] = SimpleQueue()
        self._idle_networks.put(OpenVinoNetworks())  # a broken installation fails at once

    def detect(self, frames: Sequence[Rgb], min_face_px: int) -> list[Detections]:
        """Return the faces of each frame."""
        if len(frames) == 1:
            return [self._detect_frame(frames[0], min_face_px)]
        return list(self._executor.map(lambda rgb: self._detect_frame(rgb, min_face_px), frames))

    def detect_in_rois(self, frames: Sequence[Rgb], rois: Rois, min_face_px: int) -> list[Detections]:
        """Return the faces near `rois`; each thread gets a contiguous share of the frames."""
        shares = np.array_split(np.arange(len(frames)), self.frames_at_once)
        results = self._executor.map(lambda share: self._detect_share(frames, rois, share, min_face_px), shares)
        return [detections for group in results for detections in group]

    def _detect_share(
        self, frames: Sequence[Rgb], rois: Rois, share: NDArray[np.int64], min_face_px: int
    ) -> list[Detections]:
        if not len(share):
            return []
        own_rois = rois[(rois.frame_indices >= share[0]) & (rois.frame_indices <= share[-1])]
        own_rois = replace(own_rois, frame_indices=own_rois.frame_indices - share[0])
        with torch.inference_mode(), self._borrow_networks() as networks:
            return detect_in_rois(
                CpuRoiBatch([frames[index] for index in share], own_rois, networks), own_rois, min_face_px
            )

    def _detect_frame(self, rgb: Rgb, min_face_px: int) -> Detections:
        with torch.inference_mode(), self._borrow_networks() as networks:
            (detections,) = detect_faces(CpuFrameBatch(rgb, networks), min_face_px)
        return detections

    @contextmanager
    def _borrow_networks(self) -> Iterator[OpenVinoNetworks]:
        try:
            networks = self._idle_networks.get_nowait()
        except Empty:
            networks = OpenVinoNetworks()
        try:
            yield networks
        finally:
            self._idle_networks.put(networks)


class DeviceEngine:
    """Processes consecutive frames of one size together, up to `_DEVICE_BATCH_PIXELS`."""

    def __init__(self, device: str) -> None:
        self.frames_at_once = _DEVICE_BATCH_FRAMES
        self._networks = DeviceNetworks(device)

    def detect(self, frames: Sequence[Rgb], min_face_px: int) -> list[Detections]:
        """Return the faces of each frame."""
        detections: list[Detections] = []
        for (height, width, _), same_size in groupby(frames, key=lambda rgb: rgb.shape):
            group = list(same_size)
            batch_size = max(1, _DEVICE_BATCH_PIXELS // (height * width))
            for first in range(0, len(group), batch_size):
                with torch.inference_mode():
                    batch = DeviceFrameBatch(group[first : first + batch_size], self._networks)
                    detections += detect_faces(batch, min_face_px)
        return detections

    def detect_in_rois(self, frames: Sequence[Rgb], rois: Rois, min_face_px: int) -> list[Detections]:
        """Return the faces near `rois` for frames of one size."""
        height, width, _ = frames[0].shape
        batch_size = max(1, _DEVICE_BATCH_PIXELS // (height * width))
        detections: list[Detections] = []
        for first in range(0, len(frames), batch_size):
            own_rois = rois[(rois.frame_indices >= first) & (rois.frame_indices < first + batch_size)]
            with torch.inference_mode():
                batch = DeviceRoiBatch(list(frames[first : first + batch_size]), self._networks)
                detections += detect_in_rois(
                    batch, replace(own_rois, frame_indices=own_rois.frame_indices - first), min_face_px
                )
        return detections
