"""`StillImage` and `ImageClip`: one picture, and a folder of them, with the operations of `VideoFile`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from ....errors import InputError
from ...frame import Frame, FrameTimes, MediaInfo
from ...image_folder import frame_numbers, list_frames
from ...sampling import Sampling
from ..sniffing import MediaFile, open_media_file, unreadable_error
from ..wanted_frames import DamageBudget, FrameRequest
from .images import Rgb, image_size, read_image


@dataclass(slots=True)
class StillImage:
    """One open picture: one frame at 0 s, whatever is sampled.

    Raises InputError: too_large, truncated, decode_error, unreadable.
    """

    file: MediaFile
    max_pixels: int
    damage: DamageBudget = field(default_factory=lambda: DamageBudget(frozenset(), 0))

    def frames(self, request: FrameRequest) -> Iterator[Frame]:
        """Yield the picture as frame 0."""
        _, self.damage = request.plan([0], 1)
        yield Frame(0, 0.0, read_image(self.file, self.max_pixels))

    def times(self, sampling: Sampling) -> FrameTimes:  # noqa: ARG002 (as all media)
        """Return the one frame; when it was in the video that it is from is unknown."""
        return FrameTimes(np.zeros(1), np.zeros(1, np.int64), is_timed=False)

    def probe(self) -> MediaInfo:
        """Return the picture's size from its header."""
        width, height = image_size(self.file, self.max_pixels)
        return MediaInfo(width=width, height=height, num_frames=1, duration_seconds=0.0, is_image=True)


@dataclass(slots=True)
class ImageClip:
    """A folder of images as a clip: frames are numbered in the order of `list_frames`, and may differ in size.

    names: of the images. heartbeat: called before each one. damage: after `frames`, how many wanted frames are missing
    and why: an image that cannot be decoded is a damaged frame.

    Raises InputError: decode_error with too many of these, unreadable if the disk fails or an image may not be read.
    """

    folder: Path
    names: Sequence[str]
    max_pixels: int
    heartbeat: Callable[[], None]
    damage: DamageBudget = field(default_factory=lambda: DamageBudget(frozenset(), 0))

    @classmethod
    def open(cls, folder: Path, roots: Sequence[Path], max_pixels: int, heartbeat: Callable[[], None]) -> Self:
        """List the images of a folder; raises InputError: unreadable where there are none.

        roots: real paths of further folders that links among the images may lead into.
        """
        try:
            names = list_frames(folder, roots)
        except OSError as error:
            raise unreadable_error(error) from None
        if not names:
            raise InputError("unreadable", "it is a directory, and no image is in it")
        return cls(folder, names, max_pixels, heartbeat)

    def frames(self, request: FrameRequest) -> Iterator[Frame]:
        """Yield the wanted images in their order."""
        count, numbers = len(self.names), frame_numbers(self.names)
        times = request.sampling.image_times(count, numbers)
        wanted, self.damage = request.plan(request.sampling.select_images(count, numbers), count)
        for index in wanted:
            self.heartbeat()
            try:
                rgb = self._read(self.names[index])
            except InputError as error:
                if error.reason == "unreadable":  # as where the disk is gone: that is no damage
                    raise InputError("unreadable", f"{self.names[index]}: {error.detail}") from None
                self.damage.lose(index, f"{self.names[index]} ({error})")
                continue
            yield Frame(index, times[index], rgb, -1 if numbers is None else numbers[index])

    def times(self, sampling: Sampling) -> FrameTimes:
        """Return the times of all frames, the indices of the sampled ones, and the numbers that names end in."""
        count, numbers = len(self.names), frame_numbers(self.names)
        return FrameTimes(
            np.array(sampling.image_times(count, numbers), np.float64),
            np.array(sampling.select_images(count, numbers), np.int64),
            None if numbers is None else np.array(numbers, np.int64),
            is_timed=sampling.fps_of_images is not None,
        )

    def probe(self) -> MediaInfo:
        """Return the size of the first image that can be opened; the frame rate is unknown, and so is the duration."""
        failure: InputError | None = None
        for name in self.names:
            self.heartbeat()
            try:
                file = self._open(name)
                try:
                    width, height = image_size(file, self.max_pixels)
                finally:
                    os.close(file.fd)
            except InputError as error:
                failure = failure or InputError(error.reason, f"{name}: {error.detail}")
                continue
            return MediaInfo(
                width=width, height=height, num_frames=len(self.names), duration_seconds=0.0, is_image=False
            )
        assert failure is not None
        raise failure

    def _read(self, name: str) -> Rgb:
        file = self._open(name)
        try:
            return read_image(file, self.max_pixels)
        finally:
            os.close(file.fd)

    def _open(self, name: str) -> MediaFile:
        file = open_media_file(str(self.folder / name))
        if file.kind == "video":
            os.close(file.fd)
            raise InputError("not_video", "is no picture in a known format")
        return file
