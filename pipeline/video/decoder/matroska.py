"""Check that a Matroska or WebM file is complete, by walking its elements from start to end.

FFmpeg skips what it cannot parse and resumes at the next cluster, so it reports neither a missing end nor a hole.
Documents: RFC 8794 (EBML), RFC 9559 (Matroska).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator

from ...errors import InputError
from .sniffing import MediaFile

EBML_MAGIC = b"\x1a\x45\xdf\xa3"
_EBML, _SEGMENT, _CLUSTER = 0x1A45DFA3, 0x18538067, 0x1F43B675
_TRACKS, _TRACK_ENTRY, _TRACK_NUMBER, _TRACK_TYPE = 0x1654AE6B, 0xAE, 0xD7, 0x83
_SIMPLE_BLOCK, _BLOCK_GROUP, _BLOCK = 0xA3, 0xA0, 0xA1
_VOID, _CRC = 0xEC, 0xBF
_MAX_HEADER_BYTES = 64
_MAX_TRACKS_BYTES = 1 << 22
_FILE_CHILDREN = frozenset((_EBML, _SEGMENT, _VOID, _CRC))
_SEGMENT_CHILDREN = frozenset(
    # SeekHead, Info, Tracks, Chapters, Attachments, Cues, Tags
    (0x114D9B74, 0x1549A966, _TRACKS, 0x1043A770, 0x1941A469, 0x1C53BB6B, 0x1254C367, _CLUSTER, _VOID, _CRC)
)
_CLUSTER_CHILDREN = frozenset(
    # Timestamp, SilentTracks, Position, PrevSize, SimpleBlock, BlockGroup, EncryptedBlock
    (0xE7, 0x5854, 0xA7, 0xAB, 0xA3, 0xA0, 0xAF, _VOID, _CRC)
)


def count_blocks(file: MediaFile, heartbeat: Callable[[], None]) -> list[int]:
    """Walk a file that begins with an EBML header; return the number of blocks of each video track.

    Reads 64 bytes per element, which takes some microseconds per block. Raises InputError: truncated if an element
    reaches past the end of the file, decode_error if an element is not allowed where it is.
    """
    walker = _ElementWalker(file)
    while walker.offset < file.size_bytes and walker.next_element():
        heartbeat()
    if not walker.segment_end:
        raise InputError("truncated", "there is nothing after its header")
    return [walker.num_blocks[track] for track in walker.video_tracks]


class _ElementWalker:
    """Position in the element tree: `offset`, and the ends of the enclosing segment and cluster (0: none so far)."""

    def __init__(self, file: MediaFile) -> None:
        self._file = file
        self.offset = 0
        self.segment_end = 0
        self.video_tracks: list[int] = []
        self.num_blocks: Counter[int] = Counter()
        self._segment_has_size = False
        self._cluster_end = 0
        self._cluster_is_unsized = False  # it ends where the next element of the segment begins

    def next_element(self) -> bool:
        """Advance by one element; return False at unknown data behind the segment."""
        header = os.pread(self._file.fd, _MAX_HEADER_BYTES, self.offset)
        element_id, size, header_bytes = _element_header(header)
        if self.segment_end and self.offset >= self.segment_end and element_id not in _FILE_CHILDREN:
            return False
        body = self.offset + header_bytes
        end = self._file.size_bytes if size is None else body + size
        if not header_bytes or end > self._file.size_bytes:
            raise self._overrun_error(end)
        if element_id not in self._allowed_ids() or (self._in_cluster() and end > self._cluster_end):
            raise InputError("decode_error", f"the element at byte {self.offset} is damaged ({element_id:#x})")
        if element_id == _SEGMENT:
            self.segment_end, self._cluster_end = end, 0
            self._segment_has_size = size is not None
        elif element_id == _CLUSTER:
            self._cluster_end, self._cluster_is_unsized = end, size is None
        elif element_id == _TRACKS:
            self.video_tracks = _video_track_numbers(os.pread(self._file.fd, min(end - body, _MAX_TRACKS_BYTES), body))
        elif element_id in (_SIMPLE_BLOCK, _BLOCK_GROUP):
            self.num_blocks[_block_track_number(element_id, header[header_bytes:])] += 1
        self.offset = body if element_id in (_SEGMENT, _CLUSTER) else end
        return True

    def _in_cluster(self) -> bool:
        return self.offset < self._cluster_end

    def _allowed_ids(self) -> frozenset[int]:
        if self._in_cluster():
            return _CLUSTER_CHILDREN | _SEGMENT_CHILDREN if self._cluster_is_unsized else _CLUSTER_CHILDREN
        return _SEGMENT_CHILDREN if self.offset < self.segment_end else _FILE_CHILDREN

    def _overrun_error(self, end: int) -> InputError:
        size_bytes = self._file.size_bytes
        detail = f"the element at byte {self.offset} ends at byte {end}, the file at byte {size_bytes}"
        # A segment that states its size and fits into the file was not cut off: the element's size is damaged.
        return InputError("decode_error" if self._segment_has_size else "truncated", detail)


def _block_track_number(element_id: int, body: bytes) -> int:
    """Return the track number of a SimpleBlock, or of the Block in a BlockGroup; 0 if there is none."""
    while element_id == _BLOCK_GROUP:
        child, size, header_bytes = _element_header(body)
        if not header_bytes or size is None:
            return 0
        body = body[header_bytes:] if child == _BLOCK else body[header_bytes + size :]
        element_id = child if child == _BLOCK else element_id
    length = 9 - body[0].bit_length() if body else 9
    return int.from_bytes(body[:length], "big") & ((1 << 7 * length) - 1) if len(body) >= length else 0


def _video_track_numbers(body: bytes) -> list[int]:
    """Return the numbers of the video tracks in a Tracks element, in file order, which is that of FFmpeg's streams."""
    numbers = []
    for element_id, entry in _child_elements(body):
        fields = dict(_child_elements(entry)) if element_id == _TRACK_ENTRY else {}
        if fields.get(_TRACK_TYPE) == b"\x01":
            numbers.append(int.from_bytes(fields.get(_TRACK_NUMBER, b""), "big"))
    return numbers


def _child_elements(body: bytes) -> Iterator[tuple[int, bytes]]:
    while body:
        element_id, size, header_bytes = _element_header(body)
        if not header_bytes or size is None:
            return
        yield element_id, body[header_bytes : header_bytes + size]
        body = body[header_bytes + size :]


def _element_header(header: bytes) -> tuple[int, int | None, int]:
    """Parse an EBML element's header: (id, size or None if unknown, header length; 0 if the header is cut off)."""
    id_bytes = 9 - header[0].bit_length() if header else 9
    if id_bytes > 4 or len(header) <= id_bytes:
        return 0, 0, 0
    size_bytes = 9 - header[id_bytes].bit_length()
    if size_bytes > 8 or len(header) < id_bytes + size_bytes:
        return 0, 0, 0
    mask = (1 << 7 * size_bytes) - 1
    size = int.from_bytes(header[id_bytes : id_bytes + size_bytes], "big") & mask
    return int.from_bytes(header[:id_bytes], "big"), None if size == mask else size, id_bytes + size_bytes
