"""Opening a video file so that it can reach nothing but itself, and choosing its stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import av
import av.container
import av.error
import av.video

from ...errors import InputError
from .sniffing import Content, unreadable

# Demuxers of single self-contained files. Not among them: playlists and scripts that name other files or hosts
# (hls, dash, concat, sdp, rtsp, imf, mpjpeg), file-name patterns (image2), and text that is drawn (tty).
# Audio formats stand here so that audio alone is told from no media at all.
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,flv,live_flv,kux,mpegts,mpegtsraw,mpeg,mpegvideo,m4v,h261,h263,"
    "h264,hevc,vvc,evc,av1,obu,ivf,vc1,vc1test,dirac,cavsvideo,mjpeg,mjpeg_2000,gif,asf,asf_o,ogg,rm,nut,mxf,dv,"
    "yuv4mpegpipe,gxf,wtv,nsv,nuv,roq,bink,smk,swf,"
    "mp3,aac,ac3,eac3,flac,wav,w64,aiff,au,caf,amr,ape,wv,tta,dts,truehd,tak,mpc,mpc8,loas,opus"
)

_DOLBY_VISION = ("dvh1", "dvhe")


@contextmanager
def open_video(content: Content, max_pixels: int) -> Iterator[av.container.InputContainer]:
    """Open the file that `content` holds; raises InputError: not_video, unreadable or too_large.

    It is read through its descriptor alone: FFmpeg never sees the name, which it would read protocols, patterns and
    format hints from, and what was judged by its first bytes is what is read. The InputError of a failing disk also
    comes out of whatever reads from the container later.
    """
    options = {
        "protocol_whitelist": "file",
        "format_whitelist": _FORMATS,
        "max_pixels": str(max_pixels),
    }
    try:
        container = av.open(_File(content), mode="r", options=options)
    except (av.error.MemoryError, MemoryError):
        raise InputError("too_large", "its header asks for more memory than the decoder may use") from None
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise InputError("not_video", f"no known video or picture format ({words(error)})") from None
    try:
        yield container
    finally:
        container.close()


class _File:
    """What PyAV reads a file through: so an error of the system is told from one that FFmpeg makes up."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._offset = 0

    def read(self, size: int) -> bytes:
        try:
            data = os.pread(self._content.fd, size, self._offset)
        except OSError as error:
            raise unreadable(error) from None
        self._offset += len(data)
        return data

    def seek(self, offset: int, whence: int) -> int:
        self._offset = offset + (0, self._offset, self._content.size_bytes)[whence]
        return self._offset

    def tell(self) -> int:
        return self._offset


def words(error: Exception) -> str:
    """Return what FFmpeg says of an error, without the path."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def choose_stream(container: av.container.InputContainer) -> av.video.VideoStream:
    """Take the stream that FFmpeg calls best, never a cover picture.

    Raises InputError: audio_only, no_frames, unsupported.

    Best means: the default one, then the most frames probed, the highest bit rate. Attached pictures count as
    no video, so that a song with a cover is audio.
    """
    moving = [
        stream
        for stream in container.streams.video
        if not stream.disposition & (av.stream.Disposition.attached_pic | av.stream.Disposition.timed_thumbnails)
    ]
    if not moving:
        if container.streams.audio:
            raise InputError("audio_only", f"{len(container.streams.audio)} audio stream(s) and no video")
        raise InputError("not_video", f"a {container.format.name} file without a video stream")
    best = container.streams.best("video")
    stream = next((stream for stream in moving if best is not None and stream.index == best.index), moving[0])
    if stream.codec_context is None:
        raise InputError("no_frames", "no decoder for its video stream is known")
    context = stream.codec_context
    if context.codec_tag in _DOLBY_VISION and context.color_trc in (0, 2):  # of other profiles a transfer is known
        raise InputError("unsupported", "its colours are Dolby Vision's own (profile 5)")
    return stream


def check_size(stream: av.video.VideoStream, max_pixels: int) -> None:
    """Refuse a stream whose frames are too large, before any is decoded; raises InputError: too_large."""
    context = stream.codec_context
    width = max(context.width, context.coded_width)
    height = max(context.height, context.coded_height)
    if width * height > max_pixels:
        raise InputError("too_large", f"{width} x {height} pixels: more than the {max_pixels} that are allowed")
