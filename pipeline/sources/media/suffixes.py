"""Videos and images by the suffixes of their names."""

from __future__ import annotations

from ...video.image_folder import IMAGE_SUFFIXES

VIDEO_SUFFIXES = frozenset([
    ".3g2", ".3gp", ".asf", ".avi", ".flv", ".gif", ".h264", ".hevc", ".m2ts", ".m4v", ".mjpeg", ".mkv", ".mov",
    ".mp4", ".mpeg", ".mpg", ".mts", ".ogv", ".ts", ".webm", ".wmv",
])  # fmt: skip
_MEDIA_SUFFIXES = VIDEO_SUFFIXES | IMAGE_SUFFIXES


def suffix_of(name: str) -> str:
    """In lower case, with its dot; empty where a name has none."""
    stem, _, end = name.rpartition(".")  # constructing a Path per file is slow
    return f".{end.lower()}" if stem and end else ""


def split_video_suffix(name: str) -> tuple[str, str]:
    """A name and its suffix of a video, which a folder of frames may be called with too; empty where it has none.

    >>> split_video_suffix("033_097.MP4"), split_video_suffix("033.v2")
    (('033_097', '.MP4'), ('033.v2', ''))
    """
    end = len(name) - len(suffix) if (suffix := suffix_of(name)) in VIDEO_SUFFIXES else len(name)
    return name[:end], name[end:]


def is_media(name: str) -> bool:
    """Whether a file is a video or an image by its suffix."""
    return suffix_of(name) in _MEDIA_SUFFIXES


def is_image(name: str) -> bool:
    """Whether a file is an image by its suffix."""
    return suffix_of(name) in IMAGE_SUFFIXES
