"""Whether a Matroska or WebM file is whole: its elements are walked from end to end.

FFmpeg skips what it cannot read and goes on at the next cluster, so neither a missing end nor a hole would show.
Documents: RFC 8794 (EBML), RFC 9559 (Matroska).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator

from ...errors import InputError
from .sniffing import Content

EBML_MAGIC = b"\x1a\x45\xdf\xa3"
_EBML, _SEGMENT, _CLUSTER = 0x1A45DFA3, 0x18538067, 0x1F43B675
_TRACKS, _TRACK_ENTRY, _TRACK_NUMBER, _TRACK_TYPE = 0x1654AE6B, 0xAE, 0xD7, 0x83
_SIMPLE_BLOCK, _BLOCK_GROUP, _BLOCK = 0xA3, 0xA0, 0xA1
_VOID, _CRC = 0xEC, 0xBF
_HEAD_BYTES = 64
_MAX_TRACKS_BYTES = 1 << 22
_IN_FILE = frozenset((_EBML, _SEGMENT, _VOID, _CRC))
_IN_SEGMENT = frozenset(
    # SeekHead, Info, Tracks, Chapters, Attachments, Cues, Tags
    (0x114D9B74, 0x1549A966, _TRACKS, 0x1043A770, 0x1941A469, 0x1C53BB6B, 0x1254C367, _CLUSTER, _VOID, _CRC)
)
_IN_CLUSTER = frozenset(
    # Timestamp, SilentTracks, Position, PrevSize, SimpleBlock, BlockGroup, EncryptedBlock
    (0xE7, 0x5854, 0xA7, 0xAB, 0xA3, 0xA0, 0xAF, _VOID, _CRC)
)


def count_blocks(content: Content, beat: Callable[[], None]) -> list[int]:
    """Walk a file that begins with an EBML header; return the number of blocks of each of its video tracks.

    Reads 64 bytes an element, so some microseconds a block. Raises InputError: truncated where an element goes on
    behind the end of the file, decode_error where an element cannot stand where it is.
    """
    walk = _Walk(content)
    while walk.offset < content.size_bytes and walk.step():
        beat()
    if not walk.segment_end:
        raise InputError("truncated", "there is nothing after its header")
    return [walk.num_blocks[track] for track in walk.video_tracks]


class _Walk:
    """Where the walk is, and where the segment and the cluster around it end (0: not yet met)."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self.offset = 0
        self.segment_end = 0
        self.video_tracks: list[int] = []
        self.num_blocks: Counter[int] = Counter()
        self._states_its_size = False
        self._cluster_end = 0
        self._live_cluster = False  # of unknown size: it ends where the next element of the segment begins

    def step(self) -> bool:
        """Go on by one element; false at junk behind the segment."""
        raw = os.pread(self._content.fd, _HEAD_BYTES, self.offset)
        identity, size, head_bytes = _element(raw)
        if self.segment_end and self.offset >= self.segment_end and identity not in _IN_FILE:
            return False
        body = self.offset + head_bytes
        end = self._content.size_bytes if size is None else body + size
        if not head_bytes or end > self._content.size_bytes:
            raise self._cut(end)
        if identity not in self._allowed() or (self._in_cluster() and end > self._cluster_end):
            raise InputError("decode_error", f"the element at byte {self.offset} is damaged ({identity:#x})")
        if identity == _SEGMENT:
            self.segment_end, self._cluster_end = end, 0
            self._states_its_size = size is not None
        elif identity == _CLUSTER:
            self._cluster_end, self._live_cluster = end, size is None
        elif identity == _TRACKS:
            self.video_tracks = _video_tracks(os.pread(self._content.fd, min(end - body, _MAX_TRACKS_BYTES), body))
        elif identity in (_SIMPLE_BLOCK, _BLOCK_GROUP):
            self.num_blocks[_track_of(identity, raw[head_bytes:])] += 1
        self.offset = body if identity in (_SEGMENT, _CLUSTER) else end
        return True

    def _in_cluster(self) -> bool:
        return self.offset < self._cluster_end

    def _allowed(self) -> frozenset[int]:
        if self._in_cluster():
            return _IN_CLUSTER | _IN_SEGMENT if self._live_cluster else _IN_CLUSTER
        return _IN_SEGMENT if self.offset < self.segment_end else _IN_FILE

    def _cut(self, end: int) -> InputError:
        size_bytes = self._content.size_bytes
        detail = f"the element at byte {self.offset} ends at byte {end}, the file at byte {size_bytes}"
        # A segment that states its size and fits was not cut: the element's own size is damaged.
        return InputError("decode_error" if self._states_its_size else "truncated", detail)


def _track_of(identity: int, body: bytes) -> int:
    """Number of the track that a SimpleBlock belongs to, or the Block in a BlockGroup; 0 if it is not found."""
    while identity == _BLOCK_GROUP:
        child, size, head_bytes = _element(body)
        if not head_bytes or size is None:
            return 0
        body = body[head_bytes:] if child == _BLOCK else body[head_bytes + size :]
        identity = child if child == _BLOCK else identity
    length = 9 - body[0].bit_length() if body else 9
    return int.from_bytes(body[:length], "big") & ((1 << 7 * length) - 1) if len(body) >= length else 0


def _video_tracks(body: bytes) -> list[int]:
    """Numbers of the video tracks in a Tracks element, in their order, which is that of FFmpeg's streams."""
    found = []
    for identity, entry in _children(body):
        fields = dict(_children(entry)) if identity == _TRACK_ENTRY else {}
        if fields.get(_TRACK_TYPE) == b"\x01":
            found.append(int.from_bytes(fields.get(_TRACK_NUMBER, b""), "big"))
    return found


def _children(body: bytes) -> Iterator[tuple[int, bytes]]:
    while body:
        identity, size, head_bytes = _element(body)
        if not head_bytes or size is None:
            return
        yield identity, body[head_bytes : head_bytes + size]
        body = body[head_bytes + size :]


def _element(raw: bytes) -> tuple[int, int | None, int]:
    """Identity, size (None: unknown) and length of both of an EBML element; length 0 if they are cut."""
    id_bytes = 9 - raw[0].bit_length() if raw else 9
    if id_bytes > 4 or len(raw) <= id_bytes:
        return 0, 0, 0
    size_bytes = 9 - raw[id_bytes].bit_length()
    if size_bytes > 8 or len(raw) < id_bytes + size_bytes:
        return 0, 0, 0
    mask = (1 << 7 * size_bytes) - 1
    size = int.from_bytes(raw[id_bytes : id_bytes + size_bytes], "big") & mask
    return int.from_bytes(raw[:id_bytes], "big"), None if size == mask else size, id_bytes + size_bytes
