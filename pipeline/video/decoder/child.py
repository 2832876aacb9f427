"""The decoder's process: ``python -m facefeed.pipeline.video.decoder.child``, started by MediaReader alone.

It answers one request after the other until standard input ends. What a library throws becomes a reason; what
takes the process itself down is told by the parent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from ...errors import InputError
from ..frame import MediaInfo
from ..protocol import Kind, send_frame, send_json, send_times
from ..sampling import Sampling
from .sandbox import die_with_parent, limit_resources, take_protocol_descriptor
from .seccomp import deny_calls
from .sniffing import Content, open_content

_BEAT_SECONDS = 1.0
_MAX_DETAIL = 2000


class _Job:
    """One request: what was asked, how far it came, and the pipe to tell it through."""

    def __init__(self, pipe: int, request: dict[str, Any]) -> None:
        self._pipe = pipe
        self._request = request
        self._limits = request["limits"]
        self._last_beat = time.monotonic()
        self.frames_wanted = 0

    def run(self) -> None:
        content = open_content(self._request["path"])
        try:
            if self._request["operation"] == "probe":
                send_json(self._pipe, Kind.INFO, self._probe(content))
            elif self._request["operation"] == "times":
                send_times(self._pipe, *self._times(content))
            else:
                send_json(self._pipe, Kind.END, self._frames(content))
        finally:
            os.close(content.fd)

    def _frames(self, content: Content) -> dict[str, Any]:
        if content.kind != "video":
            from .images import read_image  # noqa: PLC0415  # Pillow is not needed for videos

            self._plan(1)
            send_frame(self._pipe, 0, 0.0, read_image(content, self._limits["max_pixels"]))
            return {"frames_wanted": 1, "frames_decoded": 1, "damage": ""}
        sampling = Sampling.from_dict(self._request["sampling"])
        video, also = self._video(content), self._request["also"]
        frames = video.frames(sampling, self._limits["max_damaged_percent"], self._plan, also=also)
        for frame_index, pts_seconds, rgb in frames:
            send_frame(self._pipe, frame_index, pts_seconds, rgb)
        wanted, lost = len(video.losses.counting), video.losses.num_lost
        return {
            "frames_wanted": wanted,
            "frames_decoded": wanted - lost,
            "damage": video.losses.in_words()[:_MAX_DETAIL],
        }

    def _times(self, content: Content) -> tuple[list[float], list[int]]:
        if content.kind != "video":
            return [0.0], [0]
        times: tuple[list[float], list[int]] = self._video(content).times(Sampling.from_dict(self._request["sampling"]))
        return times

    def _probe(self, content: Content) -> dict[str, Any]:
        if content.kind != "video":
            from .images import image_size  # noqa: PLC0415

            width, height = image_size(content, self._limits["max_pixels"])
            info = MediaInfo(width=width, height=height, num_frames=1, duration_seconds=0.0, is_image=True)
        else:
            info = self._video(content).probe()
        return info.as_dict()

    def _video(self, content: Content) -> Any:
        from .video_file import VideoFile  # noqa: PLC0415

        return VideoFile(content, self._limits["max_pixels"], self._limits["threads"], self._beat)

    def _plan(self, frames_wanted: int) -> None:
        self.frames_wanted = frames_wanted
        send_json(self._pipe, Kind.PLAN, {"frames_wanted": frames_wanted})

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._last_beat >= _BEAT_SECONDS:
            self._last_beat = now
            send_json(self._pipe, Kind.BEAT)


def _answer(pipe: int, request: dict[str, Any]) -> None:
    limits = request["limits"]
    limit_resources(memory_bytes=limits["memory_bytes"], cpu_seconds=limits["cpu_seconds"])
    job = _Job(pipe, request)
    try:
        job.run()
        return
    except InputError as error:
        reason, detail = error.reason, error.detail
    except MemoryError:
        reason, detail = "too_large", "it needs more memory than the decoder may use"
    except BrokenPipeError:
        raise
    except Exception as error:  # a library's surprise is a fact about the file
        reason, detail = "decode_error", f"{type(error).__name__}: {error}"
    fields = {"reason": reason, "detail": detail[:_MAX_DETAIL], "frames_wanted": job.frames_wanted}
    send_json(pipe, Kind.ERROR, fields)


def _load(pipe: int) -> None:
    """Import the decoder before the first file, so that a broken installation is not laid on a file."""
    try:
        import av.logging  # noqa: PLC0415  # only now: what its import might print goes nowhere

        from . import video_file as video  # noqa: F401, PLC0415
    except Exception as error:
        detail = f"the decoder cannot start: {type(error).__name__}: {error}"
        send_json(pipe, Kind.ERROR, {"reason": "crashed", "detail": detail[:_MAX_DETAIL], "frames_wanted": 0})
        raise
    av.logging.set_level(None)


def main() -> None:
    """Serve until standard input ends, or the pipe to the parent does."""
    die_with_parent()
    pipe = take_protocol_descriptor()
    _load(pipe)
    try:
        if why := deny_calls():
            send_json(pipe, Kind.WARNING, {"text": f"decoders run without a filter of system calls: {why}"})
        for line in sys.stdin.buffer:
            _answer(pipe, json.loads(line))
    except BrokenPipeError:
        pass  # nobody listens any more
    os._exit(0)  # no time for libraries' farewells


if __name__ == "__main__":
    main()
