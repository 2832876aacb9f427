"""Frames in, faces out, on the CPU or on another device."""

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

from .cpu import CpuNear, CpuPixels
from .cuda import DeviceNear, DeviceNetworks, DevicePixels
from .networks import Networks
from .roi_cascade import find_near
from .rois import Places
from .stages import Found, find_faces

Rgb = NDArray[np.uint8]

_DEVICE_FRAMES: Final = 32
_DEVICE_PIXELS: Final = 16 << 20


class Engine(Protocol):
    """The cascade on some device."""

    frames_at_once: int

    def find(self, frames: Sequence[Rgb], min_face_px: int) -> list[Found]:
        """The faces of each frame; every frame has at least one level."""
        ...

    def find_near(self, frames: Sequence[Rgb], places: Places, min_face_px: int) -> list[Found]:
        """Of frames of one size, each with at least one place, the faces near the places."""
        ...


def engine_on(device: str) -> Engine:
    """The one of this process for `device`, torch's name of one; a process that was forked makes its own."""
    return _engine(os.getpid(), device, torch.get_num_threads())


@cache
def _engine(pid: int, device: str, threads: int) -> Engine:  # noqa: ARG001
    # Never let go: in a forked process OpenVINO would wait for threads that are gone.
    return CpuEngine(threads) if torch.device(device).type == "cpu" else DeviceEngine(device)


class CpuEngine:
    """Frames side by side, one to a thread: no thread waits for another within a frame."""

    def __init__(self, threads: int) -> None:
        self.frames_at_once = threads
        self._threads = ThreadPoolExecutor(threads, "facefeed-mtcnn")
        # Not the threads' own: they would be let go with the threads.
        self._idle: SimpleQueue[Networks] = SimpleQueue()
        self._idle.put(Networks())  # a broken installation fails at once

    def find(self, frames: Sequence[Rgb], min_face_px: int) -> list[Found]:
        """As `Engine` has it."""
        if len(frames) == 1:
            return [self._in_frame(frames[0], min_face_px)]
        return list(self._threads.map(lambda rgb: self._in_frame(rgb, min_face_px), frames))

    def find_near(self, frames: Sequence[Rgb], places: Places, min_face_px: int) -> list[Found]:
        """As `Engine` has it: frames are dealt out to the threads, those of one together."""
        shares = np.array_split(np.arange(len(frames)), self.frames_at_once)
        found = self._threads.map(lambda share: self._near(frames, places, share, min_face_px), shares)
        return [one for few in found for one in few]

    def _near(self, frames: Sequence[Rgb], places: Places, share: NDArray[np.int64], min_face_px: int) -> list[Found]:
        if not len(share):
            return []
        own = places[(places.frames >= share[0]) & (places.frames <= share[-1])]
        own = replace(own, frames=own.frames - share[0])
        with torch.inference_mode(), self._networks() as networks:
            return find_near(CpuNear([frames[number] for number in share], own, networks), own, min_face_px)

    def _in_frame(self, rgb: Rgb, min_face_px: int) -> Found:
        with torch.inference_mode(), self._networks() as networks:
            (found,) = find_faces(CpuPixels(rgb, networks), min_face_px)
        return found

    @contextmanager
    def _networks(self) -> Iterator[Networks]:
        try:
            networks = self._idle.get_nowait()
        except Empty:
            networks = Networks()
        try:
            yield networks
        finally:
            self._idle.put(networks)


class DeviceEngine:
    """Frames of one size together, as many as a stated number of pixels allows."""

    def __init__(self, device: str) -> None:
        self.frames_at_once = _DEVICE_FRAMES
        self._networks = DeviceNetworks(device)

    def find(self, frames: Sequence[Rgb], min_face_px: int) -> list[Found]:
        """As `Engine` has it."""
        found: list[Found] = []
        for (height, width, _), alike in groupby(frames, key=lambda rgb: rgb.shape):
            few = list(alike)
            at_once = max(1, _DEVICE_PIXELS // (height * width))
            for first in range(0, len(few), at_once):
                with torch.inference_mode():
                    pixels = DevicePixels(few[first : first + at_once], self._networks)
                    found += find_faces(pixels, min_face_px)
        return found

    def find_near(self, frames: Sequence[Rgb], places: Places, min_face_px: int) -> list[Found]:
        """As `Engine` has it."""
        height, width, _ = frames[0].shape
        at_once = max(1, _DEVICE_PIXELS // (height * width))
        found: list[Found] = []
        for first in range(0, len(frames), at_once):
            own = places[(places.frames >= first) & (places.frames < first + at_once)]
            with torch.inference_mode():
                pixels = DeviceNear(list(frames[first : first + at_once]), self._networks)
                found += find_near(pixels, replace(own, frames=own.frames - first), min_face_px)
        return found
