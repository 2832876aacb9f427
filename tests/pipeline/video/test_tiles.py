"""A photo that is stored as a grid of tiles (HEIC) is refused: no tile of it counts as the photo."""

from __future__ import annotations

import struct
from pathlib import Path

import av
import pytest
from assets_video import numbered, write_video
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.video import MediaReader, Sampling

SIDE = 64
GRID, TILE, THUMBNAIL = 1, 2, 6
"""Ids of items: the photo, the first of four tiles, and a thumbnail."""


def box(kind: bytes, *content: bytes) -> bytes:
    """A box of ISO/IEC 14496-12."""
    data = b"".join(content)
    return struct.pack(">I4s", len(data) + 8, kind) + data


def full_box(kind: bytes, version: int, *content: bytes) -> bytes:
    return box(kind, struct.pack(">I", version << 24), *content)


def write_heic(path: Path, *, has_thumbnail: bool) -> Path:
    """A grid of 2 x 2 equal tiles (ISO/IEC 23008-12, 6.6.2.3), and perhaps a small picture of it."""
    options = {"x265-params": "log-level=none:keyint=1"}
    tile = write_video(path.with_suffix(".mp4"), [numbered(7, SIDE, SIDE)], codec="libx265", options=options)
    with av.open(str(tile)) as container:
        picture = next(bytes(packet) for packet in container.demux(video=0) if packet.size)
    data = tile.read_bytes()
    start = data.index(b"hvcC") - 4
    codec = data[start : start + int.from_bytes(data[start : start + 4], "big")]
    coded = [*range(TILE, TILE + 4), *([THUMBNAIL] if has_thumbnail else [])]
    grid = struct.pack(">BBBBHH", 0, 0, 1, 1, 2 * SIDE, 2 * SIDE)
    sizes = [full_box(b"ispe", 0, struct.pack(">II", side, side)) for side in (SIDE, 2 * SIDE)]
    kinds = [(GRID, b"grid"), *((item, b"hvc1") for item in coded)]
    entries = [full_box(b"infe", 2, struct.pack(">HH4s", item, 0, kind), b"\0") for item, kind in kinds]
    references = [box(b"dimg", struct.pack(">HH4H", GRID, 4, *coded[:4]))]
    references += [box(b"thmb", struct.pack(">HHH", THUMBNAIL, 1, GRID))] if has_thumbnail else []
    properties = [struct.pack(">HBB", GRID, 1, 3), *(struct.pack(">HBBB", item, 2, 0x81, 2) for item in coded)]
    counted = [struct.pack(">I", len(properties)), *properties]

    def meta(offset: int) -> bytes:
        places = [struct.pack(">HHHHII", GRID, 1, 0, 1, 0, len(grid))]
        places += [struct.pack(">HHHHII", item, 0, 0, 1, offset, len(picture)) for item in coded]
        return full_box(
            b"meta", 0,
            full_box(b"hdlr", 0, struct.pack(">I4s12x", 0, b"pict"), b"\0"),
            full_box(b"pitm", 0, struct.pack(">H", GRID)),
            full_box(b"iloc", 1, struct.pack(">BBH", 0x44, 0, len(places)), *places),
            full_box(b"iinf", 0, struct.pack(">H", len(entries)), *entries),
            full_box(b"iref", 0, *references),
            box(b"iprp", box(b"ipco", codec, *sizes), full_box(b"ipma", 0, *counted)),
            box(b"idat", grid),
        )  # fmt: skip

    head = box(b"ftyp", b"heic", bytes(4), b"mif1heic")
    path.write_bytes(head + meta(len(head) + len(meta(0)) + 8) + box(b"mdat", picture))
    return path


@pytest.mark.parametrize("has_thumbnail", [False, True], ids=["tiles", "tiles and thumbnail"])
def test_no_tile_and_no_thumbnail_is_read_as_the_photo(tmp_path: Path, *, has_thumbnail: bool) -> None:
    path = write_heic(tmp_path / "photo.heic", has_thumbnail=has_thumbnail)
    with av.open(str(path)) as container:
        assert len(container.streams.video) == 4 + has_thumbnail
    with MediaReader() as reader, pytest.raises(InputError) as caught:
        list(reader.frames(path, Sampling(every=1)))
    assert (caught.value.reason, "picture in tiles" in caught.value.detail) == ("unsupported", True)
