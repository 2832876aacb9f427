"""Errors of the operating system while a file is read are distinguished from errors in the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from assets_video import numbered, write_video
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.video.decoder import demuxer
from facefeed.pipeline.video.decoder.demuxer import open_video
from facefeed.pipeline.video.decoder.sniffing import MediaFile, open_media_file
from facefeed.pipeline.video.decoder.stills.images import read_image
from facefeed.pipeline.video.decoder.timeline import read_packets

MAX_PIXELS = 1 << 20


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("video") / "numbered.mp4", [numbered(index) for index in range(9)])


def test_a_system_error_on_a_video_is_unreadable_not_not_video(tmp_path: Path) -> None:
    """Reading the descriptor of a folder is EISDIR."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(InputError) as caught, open_video(MediaFile(descriptor, 99, b"", "video"), MAX_PIXELS):
            pass
    finally:
        os.close(descriptor)
    assert (caught.value.reason, "EISDIR" in caught.value.detail) == ("unreadable", True)


def test_a_system_error_on_a_picture_is_unreadable_not_damaged() -> None:
    """The first page of a process's memory is never mapped: reading it is EIO."""
    descriptor = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        with pytest.raises(InputError) as caught:
            read_image(MediaFile(descriptor, 99, b"\xff\xd8\xff", "jpeg"), MAX_PIXELS)
    finally:
        os.close(descriptor)
    assert (caught.value.reason, "EIO" in caught.value.detail) == ("unreadable", True)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
@pytest.mark.parametrize("first_bad_byte", [0, 4096])
def test_a_disk_that_fails_while_reading_is_unreadable(
    monkeypatch: pytest.MonkeyPatch, video: Path, number: int, first_bad_byte: int
) -> None:
    def pread(descriptor: int, size: int, offset: int) -> bytes:
        if offset + size > first_bad_byte:
            raise OSError(number, os.strerror(number))
        return os.pread(descriptor, size, offset)

    content = open_media_file(str(video))
    monkeypatch.setattr(demuxer, "os", SimpleNamespace(pread=pread))
    try:
        with pytest.raises(InputError) as caught, open_video(content, MAX_PIXELS) as container:
            read_packets(container, container.streams.video[0], lambda: None)
    finally:
        os.close(content.fd)
    assert (caught.value.reason, errno.errorcode[number] in caught.value.detail) == ("unreadable", True)
