"""`MediaReader`, the parent's side of the decoder: frames of a file, or one reason why it cannot be read."""

from __future__ import annotations

import json
import warnings
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import REASONS, InputError
from .child_process import DecoderProcess
from .frame import DecodeSummary, Frame, FrameTimes, MediaInfo
from .limits import DecoderLimits
from .protocol import (
    FRAME_HEADER,
    HEADER,
    MAX_JSON_BYTES,
    MAX_TIMES_BYTES,
    MessageKind,
    pack_request,
    unpack_times,
)
from .sampling import Sampling


class MediaReader:
    """Reads videos, images and clips of images in one long-lived child process, started on first use.

    A folder is a clip: the images that `image_folder.list_frames` names are its frames. `roots`: real paths of the
    folders that hold all files to read, also those that links in a clip lead to. Where the kernel has Landlock, the
    child can read nothing else but installed software. Without `roots` it can read what its user can.

    After a timeout or a crash of the child, and after an iterator that was abandoned half-way, the child is killed and
    the next file gets a new one (0.3 s). Not thread-safe. Use as a context manager.

    >>> from facefeed.pipeline.video import MediaReader, Sampling
    >>> with MediaReader() as reader:
    ...     for frame in reader.frames(Path("talk.mp4"), Sampling(every=10)):  # doctest: +SKIP
    ...         print(frame)
    Frame(frame_index=0, pts_seconds=0.000000, rgb=uint8 (1080, 1920, 3))
    """

    def __init__(self, limits: DecoderLimits | None = None, roots: Sequence[Path] = ()) -> None:
        self.limits = limits or DecoderLimits()
        self._roots = tuple(roots)
        self._summary = DecodeSummary()  # of the request in progress
        self._child: DecoderProcess | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._request_number = 0  # an iterator compares it, to notice that another request has begun
        self._is_reading = False  # whether the child's answer is incomplete

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def child_pid(self) -> int | None:
        """Process id of the running child, or None."""
        return self._child.pid if self._child is not None else None

    def frames(
        self,
        path: Path,
        sampling: Sampling,
        extra_indices: Sequence[int] = (),
        summary: DecodeSummary | None = None,
    ) -> Iterator[Frame]:
        """Yield the sampled frames of a video in presentation order as they are decoded; an image is one frame.

        extra_indices: indices of further frames to yield. Those that are damaged or that the video does not have are
            skipped. They count in the summary's `frames_decoded` while the iterator runs, but not once it has ended.
        summary: a new one, to be filled.

        The child decodes ahead by what the pipe holds (1 MiB).

        Raises InputError with its reason and both counts, after the frames that could be decoded; if the file is to
        count as failed, the caller must discard those. Raises RuntimeError if another file was begun meanwhile.
        """
        summary = summary or DecodeSummary()
        self._send_request("frames", path, summary, sampling=sampling.as_dict(), extra_indices=list(extra_indices))
        request_number = self._request_number
        try:
            while self._is_reading:
                kind, payload = self._next_message()
                if isinstance(payload, Frame):
                    summary.frames_decoded += 1
                    yield payload
                    if request_number != self._request_number:
                        raise RuntimeError(f"{path}: the reader has gone on to another file or was closed")
                    continue
                if kind is MessageKind.PLAN:
                    summary.frames_wanted = int(payload["frames_wanted"])
                elif kind is MessageKind.END:
                    summary.frames_wanted = int(payload["frames_wanted"])
                    summary.frames_decoded = int(payload["frames_decoded"])
                    summary.damage = str(payload["damage"])
        finally:
            if request_number == self._request_number and self._is_reading:  # abandoned half-way
                self._kill_child()

    def probe(self, path: Path) -> MediaInfo:
        """Read the metadata of a file from its header and first frame; raises InputError.

        Cheap, and no proof that the frames after the first can be decoded.
        """
        self._send_request("probe", path)
        return MediaInfo(**self._answer(MessageKind.INFO))

    def times(self, path: Path, sampling: Sampling) -> FrameTimes:
        """Read the presentation times of a video's frames and which of them are sampled; an image is one frame at 0 s.

        Reads packets without decoding, except in formats whose frames can be counted only by decoding. Raises
        InputError where `frames` would, except for errors that only decoding can find.
        """
        self._send_request("times", path, sampling=sampling.as_dict())
        times: FrameTimes = self._answer(MessageKind.TIMES)
        return times

    def close(self) -> None:
        """Kill the child; the reader may be used again."""
        self._request_number += 1
        self._kill_child()

    def _send_request(self, operation: str, path: Path, summary: DecodeSummary | None = None, **fields: Any) -> None:
        if self._is_reading:  # an iterator was abandoned half-way and not yet collected
            self._kill_child()
        self._request_number += 1
        self._summary = summary or DecodeSummary()
        fields |= {"limits": self.limits.for_child(), "roots": [*map(str, self._roots)]}
        request = pack_request(operation, Path(path).absolute(), **fields)
        try:
            self._ensure_child().send_request(request)
        except OSError:  # it died while idle, for instance with the thread that started it
            self._kill_child()
            self._retry_request(request)
        self._is_reading = True

    def _retry_request(self, request: bytes) -> None:
        try:
            self._ensure_child().send_request(request)
        except OSError as error:
            self._kill_child()
            raise InputError("crashed", f"the decoder ends as soon as it is started ({error.strerror})") from None

    def _ensure_child(self) -> DecoderProcess:
        if self._child is not None and not self._child.is_alive():
            self._kill_child()
        if self._child is None:
            self._child = DecoderProcess(self.limits)
            self._finalizer = weakref.finalize(self, self._child.kill)
        return self._child

    def _kill_child(self) -> None:
        self._is_reading = False
        self._child = None
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None

    def _answer(self, kind: MessageKind) -> Any:
        """The payload of the next message of a kind."""
        while True:
            received, payload = self._next_message()
            if received is kind:
                return payload

    def _next_message(self) -> tuple[MessageKind, Any]:
        try:
            kind, payload = self._read_message()
        except InputError as error:  # the child hangs, is dead or violates the protocol
            self._kill_child()
            raise self._with_frame_counts(error) from None
        if kind in (MessageKind.END, MessageKind.INFO, MessageKind.TIMES, MessageKind.ERROR):
            self._is_reading = False
        if kind is MessageKind.WARNING:
            warnings.warn(str(payload["text"]), RuntimeWarning, stacklevel=1)
        if kind is MessageKind.ERROR:
            self._summary.frames_wanted = int(payload["frames_wanted"])
            self._summary.frames_decoded = int(payload["frames_decoded"])
            raise self._with_frame_counts(InputError(payload["reason"], payload["detail"]))
        return kind, payload

    def _with_frame_counts(self, error: InputError) -> InputError:
        return InputError(
            error.reason,
            error.detail,
            frames_wanted=self._summary.frames_wanted,
            frames_decoded=min(self._summary.frames_decoded, self._summary.frames_wanted),  # extra ones of a dead child
        )

    def _read_message(self) -> tuple[MessageKind, Any]:
        """Kind and payload of a message: a `Frame`, `FrameTimes`, or the fields of the others by name."""
        kind_number, num_bytes = HEADER.unpack(self._read(HEADER.size))
        if kind_number not in MessageKind.__members__.values():
            raise _protocol_error(f"message kind {kind_number}")
        if kind_number == MessageKind.FRAME:
            return MessageKind.FRAME, self._read_frame(num_bytes)
        if kind_number == MessageKind.TIMES:
            return MessageKind.TIMES, self._read_times(num_bytes)
        if num_bytes > MAX_JSON_BYTES:
            raise _protocol_error(f"a message of {num_bytes} bytes")
        payload = self._read(num_bytes)
        try:
            fields = json.loads(payload) if payload else {}
        except ValueError:
            raise _protocol_error("a message that is not JSON") from None
        if not isinstance(fields, dict):
            raise _protocol_error("a message without fields")
        if kind_number == MessageKind.ERROR and fields.get("reason") not in REASONS:
            raise _protocol_error(f"the reason {fields.get('reason')!r}")
        return MessageKind(kind_number), fields

    def _read_frame(self, num_bytes: int) -> Frame:
        fields = FRAME_HEADER.unpack(self._read(FRAME_HEADER.size))
        frame_index, frame_number, pts_seconds, start_seconds, height, width = fields
        is_valid_size = 0 < height * width <= self.limits.max_pixels
        if not is_valid_size or num_bytes != FRAME_HEADER.size + height * width * 3:
            raise _protocol_error(f"a frame of {height} x {width} in {num_bytes} bytes")
        rgb = np.empty((height, width, 3), np.uint8)
        self._read_into(rgb.data.cast("B"))
        try:
            return Frame(frame_index, pts_seconds, rgb, frame_number, start_seconds)
        except ValueError as error:
            raise _protocol_error(f"a frame that is none ({error})") from None

    def _read_times(self, num_bytes: int) -> FrameTimes:
        if num_bytes > MAX_TIMES_BYTES:
            raise _protocol_error(f"times in {num_bytes} bytes")
        try:
            return unpack_times(self._read(num_bytes))
        except ValueError as error:
            raise _protocol_error(f"times that are none ({error})") from None

    def _read(self, num_bytes: int) -> bytearray:
        payload = bytearray(num_bytes)
        self._read_into(memoryview(payload))
        return payload

    def _read_into(self, view: memoryview) -> None:
        assert self._child is not None
        self._child.read_into(view)


def _protocol_error(what: str) -> InputError:
    return InputError("crashed", f"the decoder sent {what}: its memory or its pipe is damaged")
