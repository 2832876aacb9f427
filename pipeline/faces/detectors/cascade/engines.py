"""Engines: run the cascade on batches of frames, on the CPU by threads or on a torch device."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from queue import Empty, SimpleQueue
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ....errors import UsageError
from ....machine import has_gpu_driver, usable_cores
from .cpu import CpuFrameBatch, CpuRoiBatch
from .networks import OpenVinoNetworks
from .roi_cascade import detect_in_rois
from .rois import Rois
from .stages import Detections, run_cascade

Rgb = NDArray[np.uint8]


class Engine(Protocol):
    """The cascade on a device. frames_at_once: the preferred number of frames per call."""

    frames_at_once: int

    def detect(self, frames: Sequence[Rgb], min_face_px: int) -> list[Detections]:
        """Return the faces of each frame; every frame must have at least one pyramid level."""
        ...

    def detect_in_rois(self, frames: Sequence[Rgb], rois: Rois, min_face_px: int) -> list[Detections]:
        """Return the faces near `rois` for frames of one size, each of which has at least one ROI."""
        ...


def engine_for(device: str | None) -> Engine:
    """Return this process's engine for `device`, by torch's name; a forked process creates its own.

    None: CUDA if torch finds a GPU, else the CPU. Imports torch for another device than the CPU only. Raises
    `UsageError` for a device that torch cannot use.
    """
    device = device or ("cuda" if _finds_gpu() else "cpu")
    return _engine(os.getpid(), device, _num_threads())


@cache
def _engine(pid: int, device: str, threads: int) -> Engine:  # noqa: ARG001
    # Never released: in a forked process OpenVINO would wait for threads that do not exist there.
    if device.partition(":")[0] == "cpu":
        return CpuEngine(threads)
    from .cuda import DeviceEngine  # noqa: PLC0415 (torch and torchvision load for seconds)

    try:
        return DeviceEngine(device)
    except (RuntimeError, AssertionError) as error:  # torch has no error type of its own for this
        why = str(error).splitlines()[0]
        raise UsageError(f"device={device!r}: must be a device that torch can use; {why}; try cpu") from error


@cache
def _finds_gpu() -> bool:
    """Return whether torch finds a GPU; it is not imported where the driver that it needs for one is absent."""
    if not has_gpu_driver():
        return False
    import torch  # noqa: PLC0415 (more than a second, and 300 MB)

    return torch.cuda.is_available()


def _num_threads() -> int:
    """Return the number of threads to compute with: torch's where it is imported, else `OMP_NUM_THREADS` or all cores.

    So a worker of torch's DataLoader computes with one.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(limit) if limit.isdigit() and int(limit) else _num_cores()


_num_cores: Final = cache(usable_cores)  # which reads some files


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
        first, end = share[0], share[-1] + 1
        own_rois = rois.in_frames(first, end)
        with self._borrow_networks() as networks:
            return detect_in_rois(CpuRoiBatch(frames[first:end], own_rois, networks), own_rois, min_face_px)

    def _detect_frame(self, rgb: Rgb, min_face_px: int) -> Detections:
        with self._borrow_networks() as networks:
            (detections,) = run_cascade(CpuFrameBatch(rgb, networks), min_face_px)
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
