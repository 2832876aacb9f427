"""Detect truncated video files by comparing the sizes that the container states with the file's size.

A truncated file still opens and plays up to the cut, so this is checked before decoding. Formats that state no sizes
(MPEG-PS, raw streams) are left to the demuxer; those that state only the sizes of their parts (fragmented MP4, live
Matroska, MPEG-TS, FLV) look complete if the cut is exactly between two parts.
Documents: ISO/IEC 14496-12 (boxes), Microsoft RIFF, GIF89a, Adobe FLV 10.1
(E.3), Microsoft ASF 01.20.06 (3.2), ISO/IEC 13818-1 (2.4.3).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

from ...errors import InputError
from .matroska import EBML_MAGIC, count_blocks
from .sniffing import MediaFile

_BOXES = frozenset(b"ftyp moov mdat moof mfra free skip wide uuid meta sidx ssix styp emsg pdin prft udta pnot".split())
_CUT_HEADER = b"cut "
_TS_PACKET_BYTES = 188
_ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
_ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")


def check_not_truncated(file: MediaFile, heartbeat: Callable[[], None]) -> list[int]:
    """Raise InputError: truncated if the end of a video file is missing, decode_error if a Matroska file has a hole.

    Returns the number of packets that each video track must have, for Matroska; an empty list for other formats.
    """
    if file.head.startswith(EBML_MAGIC):
        return count_blocks(file, heartbeat)
    missing = _missing_end(file)
    if missing:
        raise InputError("truncated", missing)
    return []


def _missing_end(file: MediaFile) -> str | None:
    """Describe what is missing at the end of a video file, or return None if nothing is."""
    head = file.head
    if head[4:8] in _BOXES:
        return _missing_box(file)
    if head[:4] == b"RIFF":
        return _missing_chunk(file)
    for magic, check in (
        (b"GIF", _missing_trailer),
        (b"FLV", _missing_tag),
        (_ASF, _missing_asf_bytes),
        (b"G", _missing_ts_packet),
    ):
        if head.startswith(magic):
            return check(file)
    return None


def _size_mismatch(file: MediaFile, what: str, end: int) -> str:
    return f"{what} ends at byte {end}, the file at byte {file.size_bytes}"


def _missing_box(file: MediaFile) -> str | None:
    names = set[bytes]()
    for name, start, end in _boxes(file):
        # Behind the media of a file without fragments, less than the header of a box is junk too.
        if name == _CUT_HEADER and names >= {b"moov", b"mdat"} and b"moof" not in names:
            return None
        if end > file.size_bytes:
            return _size_mismatch(file, f"the box '{name.decode('latin-1')}' at byte {start}", end)
        names.add(name)
    has_index = not names.isdisjoint((b"moov", b"moof", b"meta"))
    return None if has_index else "there is no index (no 'moov' box): the recording or the copy was broken off"


def _boxes(file: MediaFile) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, end) of the top-level boxes, also unknown ones, up to the first data that is no box.

    Junk after the last box is common: an unknown box that does not fit into the file counts as junk.
    """
    offset = 0
    while offset < file.size_bytes:
        raw = os.pread(file.fd, 16, offset)
        if len(raw) < 8:
            yield _CUT_HEADER, offset, offset + 8
            return
        size, name = struct.unpack(">I4s", raw[:8])
        if size == 1 and len(raw) == 16:
            (size,) = struct.unpack(">Q", raw[8:])
        is_known = name in _BOXES
        if size == 0 and is_known:  # up to the end of the file
            size = file.size_bytes - offset
        if size < 8 or (not is_known and offset + size > file.size_bytes):
            return
        yield name, offset, offset + size
        offset += size


def _missing_chunk(file: MediaFile) -> str | None:
    offset = 0
    while offset + 8 <= file.size_bytes:
        name, size = struct.unpack("<4sI", os.pread(file.fd, 8, offset))
        if name != b"RIFF" or size in (0, 0xFFFFFFFF):  # junk, or a recording that was never closed
            return None
        end = offset + 8 + size
        if end > file.size_bytes:
            return _size_mismatch(file, f"the RIFF chunk at byte {offset}", end)
        offset = end + size % 2
    return None if offset else "it ends inside its header"


def _missing_trailer(file: MediaFile) -> str | None:
    """A GIF ends with 0x3B, perhaps followed by zeros."""
    tail = os.pread(file.fd, 4096, max(0, file.size_bytes - 4096)).rstrip(b"\0")
    return None if tail.endswith(b"\x3b") else "there is no trailer at the end of the GIF"


def _missing_tag(file: MediaFile) -> str | None:
    """An FLV ends with the size of its last tag."""
    last = os.pread(file.fd, 4, file.size_bytes - 4)
    tag_bytes = int.from_bytes(last, "big")
    tag = os.pread(file.fd, 4, max(0, file.size_bytes - 4 - tag_bytes))
    is_complete = len(tag) == 4 and tag[0] & 0x1F in (8, 9, 18) and int.from_bytes(tag[1:], "big") + 11 == tag_bytes
    return None if is_complete else "its last tag is not whole"


def _missing_asf_bytes(file: MediaFile) -> str | None:
    """An ASF (WMV) header states the size of the file, which is 0 or too small in a live recording."""
    header = os.pread(file.fd, 1 << 16, 0)
    start = header.find(_ASF_FILE_PROPERTIES)
    size_bytes = int.from_bytes(header[start + 40 : start + 48], "little") if start >= 0 else 0
    return _size_mismatch(file, "the file by its header", size_bytes) if size_bytes > file.size_bytes else None


def _missing_ts_packet(file: MediaFile) -> str | None:
    """MPEG-TS is packets of 188 bytes that begin with 0x47."""
    sync_bytes = [os.pread(file.fd, 1, i * _TS_PACKET_BYTES) for i in range(4)]
    remainder_bytes = file.size_bytes % _TS_PACKET_BYTES
    return (
        f"its last packet has {remainder_bytes} of 188 bytes"
        if set(sync_bytes) <= {b"G", b""} and remainder_bytes
        else None
    )
