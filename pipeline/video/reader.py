"""The parent's side: frames of any file, or one reason why not."""

from __future__ import annotations

import json
import warnings
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ..errors import REASONS, InputError
from .child_process import DecoderProcess
from .frame import Frame, FrameTimes, MediaInfo
from .limits import DecoderLimits
from .protocol import FRAME_HEAD, HEADER, MAX_JSON_BYTES, MAX_TIMES_BYTES, TIMES_HEAD, Kind, pack_request
from .sampling import Sampling


class MediaReader:
    """Reads videos and images in one long-lived child process, started when first needed.

    After any failure, and after an iterator that was given up half-way, the child is ended and the next file gets
    a fresh one (a third of a second). For one thread at a time. Use as a context manager.

    >>> from facefeed.pipeline.video import MediaReader, Sampling
    >>> with MediaReader() as reader:
    ...     for frame in reader.frames(Path("talk.mp4"), Sampling(every=10)):  # doctest: +SKIP
    ...         print(frame)
    Frame(frame_index=0, pts_seconds=0.000000, rgb=uint8 (1080, 1920, 3))
    """

    def __init__(self, limits: DecoderLimits | None = None) -> None:
        self.limits = limits or DecoderLimits()
        self.last_frames_wanted = 0
        self.last_frames_decoded = 0
        self.last_damage = ""
        self._child: DecoderProcess | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._turn = 0  # counts files, so that an old iterator notices that it lost the child
        self._busy = False  # the child is in the middle of a file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def child_pid(self) -> int | None:
        """Process id of the running child, or None."""
        return self._child.pid if self._child is not None else None

    def frames(self, path: Path, sampling: Sampling, also: Sequence[int] = ()) -> Iterator[Frame]:
        """The wanted frames of a video, in order, as they are decoded; an image is one frame.

        `also`: indices of further frames, which the sampling does not want; those that are damaged or that the video
        does not have are left out. They are counted while frames come, but not in the end.

        The child runs ahead by what the pipe holds (1 MiB). Afterwards `last_frames_wanted` and
        `last_frames_decoded` say how many frames the sampling asked for and how many came, and `last_damage` why
        there are fewer: some are damaged, but no more than `limits.max_damaged_percent`. Empty if all came.

        Raises InputError with its reason and both counts, after the frames that were sound; what came before
        a failure must not be kept if the file counts as failed.
        """
        self._begin("frames", path, sampling.as_dict(), also)
        turn = self._turn
        try:
            while self._busy:
                kind, payload = self._message()
                if isinstance(payload, Frame):
                    self.last_frames_decoded += 1
                    yield payload
                    if turn != self._turn:
                        raise RuntimeError(f"{path}: the reader has gone on to another file or was closed")
                    continue
                assert isinstance(payload, dict)
                if kind is Kind.PLAN:
                    self.last_frames_wanted = int(payload["frames_wanted"])
                elif kind is Kind.END:
                    self.last_frames_wanted = int(payload["frames_wanted"])
                    self.last_frames_decoded = int(payload["frames_decoded"])
                    self.last_damage = str(payload["damage"])
        finally:
            if turn == self._turn and self._busy:
                self._drop_child()

    def probe(self, path: Path) -> MediaInfo:
        """What the file is, from its header and first frame; raises InputError.

        Cheap, so it says nothing of the frames that follow.
        """
        self._begin("probe", path, {})
        while True:
            kind, payload = self._message()
            if kind is Kind.INFO:
                assert isinstance(payload, dict)
                return MediaInfo(**payload)

    def times(self, path: Path, sampling: Sampling) -> FrameTimes:
        """When the frames of a video are shown, and which are wanted; an image is one frame, at 0.

        Reads packets and decodes nothing, but for formats whose frames only decoding can count. Raises InputError
        where reading its frames would, except for what only decoding meets.
        """
        self._begin("times", path, sampling.as_dict())
        while True:
            _, payload = self._message()
            if isinstance(payload, FrameTimes):
                return payload

    def close(self) -> None:
        """End the child; the reader may be used again."""
        self._turn += 1
        self._drop_child()

    def _begin(self, operation: str, path: Path, sampling: dict[str, Any], also: Sequence[int] = ()) -> None:
        if self._busy:  # an iterator was given up half-way and not yet collected
            self._drop_child()
        self._turn += 1
        self.last_frames_wanted = self.last_frames_decoded = 0
        self.last_damage = ""
        request = pack_request(operation, Path(path).absolute(), sampling, self.limits.for_child(), also)
        try:
            self._running_child().begin(request)
        except OSError:  # it died while idle, for instance with the thread that had started it
            self._drop_child()
            self._begin_anew(request)
        self._busy = True

    def _begin_anew(self, request: bytes) -> None:
        child = self._running_child()
        try:
            child.begin(request)
        except OSError as error:
            self._drop_child()
            raise InputError("crashed", f"the decoder ends as soon as it is started ({error.strerror})") from None

    def _running_child(self) -> DecoderProcess:
        if self._child is not None and not self._child.is_alive():
            self._drop_child()
        if self._child is None:
            self._child = DecoderProcess(self.limits)
            self._finalizer = weakref.finalize(self, self._child.kill)
        return self._child

    def _drop_child(self) -> None:
        self._busy = False
        self._child = None
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None

    def _message(self) -> tuple[Kind, Frame | FrameTimes | dict[str, Any]]:
        try:
            kind, payload = self._read_message()
        except InputError as error:  # the child hangs, is dead or talks nonsense
            self._drop_child()
            raise self._counted(error) from None
        if kind in (Kind.END, Kind.INFO, Kind.TIMES, Kind.ERROR):
            self._busy = False
        if kind is Kind.WARNING:
            assert isinstance(payload, dict)
            warnings.warn(str(payload["text"]), RuntimeWarning, stacklevel=1)
        if kind is Kind.ERROR:
            assert isinstance(payload, dict)
            self.last_frames_wanted = int(payload["frames_wanted"])
            raise self._counted(InputError(payload["reason"], payload["detail"]))
        return kind, payload

    def _counted(self, error: InputError) -> InputError:
        return InputError(
            error.reason,
            error.detail,
            frames_wanted=self.last_frames_wanted,
            frames_decoded=self.last_frames_decoded,
        )

    def _read_message(self) -> tuple[Kind, Frame | FrameTimes | dict[str, Any]]:
        assert self._child is not None
        header = bytearray(HEADER.size)
        self._child.read_into(memoryview(header))
        number, num_bytes = HEADER.unpack(header)
        if number not in Kind.__members__.values():
            raise _nonsense(f"message kind {number}")
        if number == Kind.FRAME:
            return Kind.FRAME, self._read_frame(num_bytes)
        if number == Kind.TIMES:
            return Kind.TIMES, self._read_times(num_bytes)
        if num_bytes > MAX_JSON_BYTES:
            raise _nonsense(f"a message of {num_bytes} bytes")
        payload = bytearray(num_bytes)
        self._child.read_into(memoryview(payload))
        try:
            fields = json.loads(payload) if payload else {}
        except ValueError:
            raise _nonsense("a message that is not JSON") from None
        if not isinstance(fields, dict):
            raise _nonsense("a message without fields")
        if number == Kind.ERROR and fields.get("reason") not in REASONS:
            raise _nonsense(f"the reason {fields.get('reason')!r}")
        return Kind(number), fields

    def _read_frame(self, num_bytes: int) -> Frame:
        assert self._child is not None
        head = bytearray(FRAME_HEAD.size)
        self._child.read_into(memoryview(head))
        frame_index, pts_seconds, height, width = FRAME_HEAD.unpack(head)
        sound = 0 < height * width <= self.limits.max_pixels
        if not sound or num_bytes != FRAME_HEAD.size + height * width * 3:
            raise _nonsense(f"a frame of {height} x {width} in {num_bytes} bytes")
        rgb = np.empty((height, width, 3), np.uint8)
        self._child.read_into(rgb.data.cast("B"))
        try:
            return Frame(frame_index, pts_seconds, rgb)
        except ValueError as error:
            raise _nonsense(f"a frame that is none ({error})") from None

    def _read_times(self, num_bytes: int) -> FrameTimes:
        assert self._child is not None
        head = bytearray(TIMES_HEAD.size)
        self._child.read_into(memoryview(head))
        frames, wanted = TIMES_HEAD.unpack(head)
        if num_bytes > MAX_TIMES_BYTES or num_bytes != TIMES_HEAD.size + 8 * (frames + wanted) or not frames:
            raise _nonsense(f"the times of {frames} frames in {num_bytes} bytes")
        payload = bytearray(8 * (frames + wanted))
        self._child.read_into(memoryview(payload))
        times = FrameTimes(np.frombuffer(payload, "<f8", frames), np.frombuffer(payload, "<i8", wanted, 8 * frames))
        if not np.isfinite(times.pts_seconds).all() or ((times.wanted < 0) | (times.wanted >= frames)).any():
            raise _nonsense("times that are none")
        return times


def _nonsense(what: str) -> InputError:
    return InputError("crashed", f"the decoder sent {what}: its memory or its pipe is damaged")
