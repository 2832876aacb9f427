"""Main loop of the decoder process: ``python -m facefeed.pipeline.video.decoder.child``, started by MediaReader.

It answers requests one at a time until standard input ends. An exception of a library becomes an `ERROR` message with
a reason; a crash of the process is detected by the parent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ..protocol import MessageKind, send_frame, send_json, send_times
from ..sampling import Sampling
from .sandbox.landlock import allow_reading_only
from .sandbox.process_setup import claim_protocol_descriptor, die_with_parent, limit_resources
from .sandbox.seccomp import install_filter
from .sniffing import MediaFile, open_media_file
from .wanted_frames import FrameRequest

if TYPE_CHECKING:
    from .stills.clip import ImageClip, StillImage
    from .video_file import VideoFile

    _Media = VideoFile | StillImage | ImageClip

_HEARTBEAT_SECONDS = 1.0
_MAX_DETAIL_CHARS = 2000


class _RequestHandler:
    """Answers one request by messages to `pipe`.

    frames_wanted: number of frames that the sampling selects, 0 before that is known. frames_decoded: how many of them
    were sent.
    """

    def __init__(self, pipe: int, request: dict[str, Any]) -> None:
        self._pipe = pipe
        self._request = request
        self._limits = request["limits"]
        self._last_heartbeat = time.monotonic()
        self.frames_wanted = self.frames_decoded = 0

    def handle(self) -> None:
        path = Path(self._request["path"])
        if path.is_dir():
            from .stills.clip import ImageClip  # noqa: PLC0415

            roots = [Path(root) for root in self._request["roots"]]
            self._answer(ImageClip.open(path, roots, self._limits["max_pixels"], self._heartbeat))
            return
        file = open_media_file(str(path))
        try:
            self._answer(self._open(file))
        finally:
            os.close(file.fd)

    def _answer(self, media: _Media) -> None:
        if self._request["operation"] == "probe":
            send_json(self._pipe, MessageKind.INFO, asdict(media.probe()))
        elif self._request["operation"] == "times":
            send_times(self._pipe, media.times(Sampling.from_dict(self._request["sampling"])))
        else:
            send_json(self._pipe, MessageKind.END, self._send_frames(media))

    def _send_frames(self, media: _Media) -> dict[str, Any]:
        request = FrameRequest(
            sampling=Sampling.from_dict(self._request["sampling"]),
            max_damaged_percent=self._limits["max_damaged_percent"],
            on_plan=self._send_plan,
            extra_indices=self._request["extra_indices"],
        )
        for frame in media.frames(request):
            send_frame(self._pipe, frame)
            self.frames_decoded += frame.frame_index in media.damage.counted_indices
        wanted, num_lost = len(media.damage.counted_indices), media.damage.num_lost
        return {
            "frames_wanted": wanted,
            "frames_decoded": wanted - num_lost,
            "damage": media.damage.summary()[:_MAX_DETAIL_CHARS],
        }

    def _open(self, file: MediaFile) -> _Media:
        if file.kind != "video":
            from .stills.clip import StillImage  # noqa: PLC0415  # Pillow is not needed for videos

            return StillImage(file, self._limits["max_pixels"])
        from .video_file import VideoFile  # noqa: PLC0415  # after `_import_decoder` has loaded it

        return VideoFile(file, self._limits["max_pixels"], self._limits["threads"], self._heartbeat)

    def _send_plan(self, frames_wanted: int) -> None:
        self.frames_wanted = frames_wanted
        send_json(self._pipe, MessageKind.PLAN, {"frames_wanted": frames_wanted})

    def _heartbeat(self) -> None:
        now = time.monotonic()
        if now - self._last_heartbeat >= _HEARTBEAT_SECONDS:
            self._last_heartbeat = now
            send_json(self._pipe, MessageKind.HEARTBEAT)


def _handle_request(pipe: int, request: dict[str, Any]) -> None:
    limits = request["limits"]
    limit_resources(memory_bytes=limits["memory_bytes"], cpu_seconds=limits["cpu_seconds"])
    handler = _RequestHandler(pipe, request)
    try:
        handler.handle()
        return
    except InputError as error:
        reason, detail = error.reason, error.detail
    except MemoryError:
        reason, detail = "too_large", "it needs more memory than the decoder may use"
    except BrokenPipeError:
        raise
    except Exception as error:  # an unexpected exception of a library counts as damage of the file
        reason, detail = "decode_error", f"{type(error).__name__}: {error}"
    _send_error(pipe, reason, detail, handler.frames_wanted, handler.frames_decoded)


def _send_error(pipe: int, reason: str, detail: str, frames_wanted: int = 0, frames_decoded: int = 0) -> None:
    counts = {"frames_wanted": frames_wanted, "frames_decoded": frames_decoded}
    send_json(pipe, MessageKind.ERROR, {"reason": reason, "detail": detail[:_MAX_DETAIL_CHARS], **counts})


def _import_decoder(pipe: int) -> None:
    """Import the decoder before the first request, so that a broken installation is not reported as a bad file."""
    try:
        import av.logging  # noqa: PLC0415  # only now, when standard output and error are redirected

        from . import video_file as video  # noqa: F401, PLC0415
    except Exception as error:
        _send_error(pipe, "crashed", f"the decoder cannot start: {type(error).__name__}: {error}")
        raise
    av.logging.set_level(None)


def _confine(pipe: int, roots: list[str]) -> None:
    """Close all files but those of the source; where the kernel cannot, the parent warns."""
    if failure := allow_reading_only(map(Path, roots)):
        text = f"decoders can read files outside the source: {failure}"
        send_json(pipe, MessageKind.WARNING, {"text": text})


def main() -> None:
    """Answer requests until standard input ends or the pipe to the parent breaks."""
    die_with_parent()
    pipe = claim_protocol_descriptor()
    _import_decoder(pipe)
    try:
        if failure := install_filter():
            text = f"decoders run without a filter of system calls: {failure}"
            send_json(pipe, MessageKind.WARNING, {"text": text})
        is_confined = False
        for line in sys.stdin.buffer:
            request = json.loads(line)
            if request["roots"] and not is_confined:  # all requests of a reader have the same
                _confine(pipe, request["roots"])
                is_confined = True
            _handle_request(pipe, request)
    except BrokenPipeError:
        pass  # the parent is gone
    os._exit(0)  # skip the exit handlers of libraries


if __name__ == "__main__":
    main()
