"""Open a video so that FFmpeg reads no other file or host, and choose its video stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import av
import av.container
import av.error
import av.video
from av.stream import Disposition

from ...errors import InputError
from .sniffing import MediaFile, unreadable_error

# Demuxers of single self-contained files. Not among them: playlists and scripts that name other files or hosts
# (hls, dash, concat, sdp, rtsp, imf, mpjpeg), file-name patterns (image2), and text that is drawn (tty).
# Audio formats are listed so that audio without video is reported as such.
_DEMUXERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,flv,live_flv,kux,mpegts,mpegtsraw,mpeg,mpegvideo,m4v,h261,h263,"
    "h264,hevc,vvc,evc,av1,obu,ivf,vc1,vc1test,dirac,cavsvideo,mjpeg,mjpeg_2000,gif,asf,asf_o,ogg,rm,nut,mxf,dv,"
    "yuv4mpegpipe,gxf,wtv,nsv,nuv,roq,bink,smk,swf,"
    "mp3,aac,ac3,eac3,flac,wav,w64,aiff,au,caf,amr,ape,wv,tta,dts,truehd,tak,mpc,mpc8,loas,opus"
)

_DOLBY_VISION = ("dvh1", "dvhe")


@contextmanager
def open_video(file: MediaFile, max_pixels: int) -> Iterator[av.container.InputContainer]:
    """Open `file` as a container; raises InputError: not_video, unreadable or too_large.

    FFmpeg reads from the descriptor and never sees the file's name, which it would search for protocols, patterns and
    format hints; so it reads the very file whose first bytes were checked. If the disk fails later, the call that
    reads from the container raises that InputError.
    """
    options = {
        "protocol_whitelist": "file",
        "format_whitelist": _DEMUXERS,
        "max_pixels": str(max_pixels),
    }
    try:
        # Titles and tags, which nothing here reads, may be in any encoding.
        container = av.open(_DescriptorReader(file), mode="r", options=options, metadata_errors="ignore")
    except (av.error.MemoryError, MemoryError):
        raise InputError("too_large", "its header asks for more memory than the decoder may use") from None
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise InputError("not_video", f"no known video or picture format ({error_text(error)})") from None
    try:
        yield container
    finally:
        container.close()


class _DescriptorReader:
    """File object for PyAV over a descriptor; raises the operating system's errors as InputError, not as FFmpeg's."""

    def __init__(self, file: MediaFile) -> None:
        self._file = file
        self._offset = 0

    def read(self, size: int) -> bytes:
        try:
            data = os.pread(self._file.fd, size, self._offset)
        except OSError as error:
            raise unreadable_error(error) from None
        self._offset += len(data)
        return data

    def seek(self, offset: int, whence: int) -> int:
        self._offset = offset + (0, self._offset, self._file.size_bytes)[whence]
        return self._offset

    def tell(self) -> int:
        return self._offset


def error_text(error: Exception) -> str:
    """Return FFmpeg's message for an error, without the path."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def choose_stream(container: av.container.InputContainer) -> av.video.VideoStream:
    """Return the video stream that FFmpeg ranks best, never a cover picture.

    The ranking: default flag, then most frames probed, then highest bit rate. Attached pictures do not count as video,
    so a song with a cover is audio; nor do parts of a picture, such as the tiles of a photo in HEIC.

    Raises InputError: audio_only, not_video, no_frames, unsupported.
    """
    streams = [
        stream
        for stream in container.streams.video
        if not stream.disposition & (Disposition.attached_pic | Disposition.timed_thumbnails)
    ]
    if not streams:
        if container.streams.audio:
            raise InputError("audio_only", f"{len(container.streams.audio)} audio stream(s) and no video")
        raise InputError("not_video", f"a {container.format.name} file without a video stream")
    is_mov = "mov" in container.format.name.split(",")  # in others dependent streams enhance a whole one
    if is_mov and any(stream.disposition & Disposition.dependent for stream in streams):
        # Beside tiles, a stream that is not the default is their thumbnail.
        complete = Disposition.default | Disposition.dependent
        streams = [stream for stream in streams if stream.disposition & complete == Disposition.default]
        if not streams:
            raise InputError("unsupported", "it is a picture in tiles, as photos in HEIC; convert it to JPEG or PNG")
    best = container.streams.best("video")
    stream = next((stream for stream in streams if best is not None and stream.index == best.index), streams[0])
    if stream.codec_context is None:
        raise InputError("no_frames", "no decoder for its video stream is known")
    context = stream.codec_context
    if context.codec_tag in _DOLBY_VISION and context.color_trc in (0, 2):  # other profiles state their transfer
        raise InputError("unsupported", "its colours are Dolby Vision's own (profile 5)")
    return stream


def check_size(stream: av.video.VideoStream, max_pixels: int) -> None:
    """Raise InputError: too_large if the stream's frames exceed `max_pixels`; nothing is decoded."""
    context = stream.codec_context
    width = max(context.width, context.coded_width)
    height = max(context.height, context.coded_height)
    if width * height > max_pixels:
        raise InputError("too_large", f"{width} x {height} pixels: more than the {max_pixels} that are allowed")
