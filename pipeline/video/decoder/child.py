"""Main loop of the decoder process: ``python -m facefeed.pipeline.video.decoder.child``, started by MediaReader.

It answers requests one at a time until standard input ends. An exception of a library becomes an `ERROR` message with
a reason; a crash of the process is detected by the parent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from ...errors import InputError
from ..frame import MediaInfo
from ..protocol import MessageKind, send_frame, send_json, send_times
from ..sampling import Sampling
from .sandbox import claim_protocol_descriptor, die_with_parent, limit_resources
from .seccomp import install_filter
from .sniffing import MediaFile, open_media_file

_HEARTBEAT_SECONDS = 1.0
_MAX_DETAIL_CHARS = 2000


class _RequestHandler:
    """Answers one request by messages to `pipe`. frames_wanted: the number of frames announced, 0 before that."""

    def __init__(self, pipe: int, request: dict[str, Any]) -> None:
        self._pipe = pipe
        self._request = request
        self._limits = request["limits"]
        self._last_heartbeat = time.monotonic()
        self.frames_wanted = 0

    def handle(self) -> None:
        file = open_media_file(self._request["path"])
        try:
            if self._request["operation"] == "probe":
                send_json(self._pipe, MessageKind.INFO, self._probe(file))
            elif self._request["operation"] == "times":
                send_times(self._pipe, *self._read_times(file))
            else:
                send_json(self._pipe, MessageKind.END, self._send_frames(file))
        finally:
            os.close(file.fd)

    def _send_frames(self, file: MediaFile) -> dict[str, Any]:
        if file.kind != "video":
            from .images import read_image  # noqa: PLC0415  # Pillow is not needed for videos

            self._send_plan(1)
            send_frame(self._pipe, 0, 0.0, read_image(file, self._limits["max_pixels"]))
            return {"frames_wanted": 1, "frames_decoded": 1, "damage": ""}
        sampling = Sampling.from_dict(self._request["sampling"])
        video, extra_indices = self._open_video(file), self._request["extra_indices"]
        frames = video.frames(
            sampling, self._limits["max_damaged_percent"], self._send_plan, extra_indices=extra_indices
        )
        for frame_index, pts_seconds, rgb in frames:
            send_frame(self._pipe, frame_index, pts_seconds, rgb)
        wanted, num_lost = len(video.damage.counted_indices), video.damage.num_lost
        return {
            "frames_wanted": wanted,
            "frames_decoded": wanted - num_lost,
            "damage": video.damage.summary()[:_MAX_DETAIL_CHARS],
        }

    def _read_times(self, file: MediaFile) -> tuple[list[float], list[int]]:
        if file.kind != "video":
            return [0.0], [0]
        times: tuple[list[float], list[int]] = self._open_video(file).times(
            Sampling.from_dict(self._request["sampling"])
        )
        return times

    def _probe(self, file: MediaFile) -> dict[str, Any]:
        if file.kind != "video":
            from .images import image_size  # noqa: PLC0415

            width, height = image_size(file, self._limits["max_pixels"])
            info = MediaInfo(width=width, height=height, num_frames=1, duration_seconds=0.0, is_image=True)
        else:
            info = self._open_video(file).probe()
        return info.as_dict()

    def _open_video(self, file: MediaFile) -> Any:
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
    fields = {"reason": reason, "detail": detail[:_MAX_DETAIL_CHARS], "frames_wanted": handler.frames_wanted}
    send_json(pipe, MessageKind.ERROR, fields)


def _import_decoder(pipe: int) -> None:
    """Import the decoder before the first request, so that a broken installation is not reported as a bad file."""
    try:
        import av.logging  # noqa: PLC0415  # only now, when standard output and error are redirected

        from . import video_file as video  # noqa: F401, PLC0415
    except Exception as error:
        detail = f"the decoder cannot start: {type(error).__name__}: {error}"
        send_json(
            pipe, MessageKind.ERROR, {"reason": "crashed", "detail": detail[:_MAX_DETAIL_CHARS], "frames_wanted": 0}
        )
        raise
    av.logging.set_level(None)


def main() -> None:
    """Answer requests until standard input ends or the pipe to the parent breaks."""
    die_with_parent()
    pipe = claim_protocol_descriptor()
    _import_decoder(pipe)
    try:
        if failure := install_filter():
            send_json(
                pipe,
                MessageKind.WARNING,
                {"text": f"decoders run without a filter of system calls: {failure}"},
            )
        for line in sys.stdin.buffer:
            _handle_request(pipe, json.loads(line))
    except BrokenPipeError:
        pass  # the parent is gone
    os._exit(0)  # skip the exit handlers of libraries


if __name__ == "__main__":
    main()
