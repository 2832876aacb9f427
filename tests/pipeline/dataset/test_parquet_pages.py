"""What a reader of byte ranges notices: each range is exactly one image, and a file laid out otherwise is refused."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_random import examples
from facefeed.pipeline.dataset.parquet_pages import byte_ranges
from facefeed.pipeline.dataset.schema import ROW_GROUP_ROWS, leaf_paths, parquet_writer_options
from facefeed.pipeline.errors import CorruptDataError
from hypothesis import example, given
from hypothesis import strategies as st

SCHEMA = pa.schema(
    [
        pa.field("face_id", pa.string(), nullable=False),
        pa.field("method", pa.string()),
        pa.field("landmarks", pa.list_(pa.list_(pa.float32(), 2)), nullable=False),
        pa.field("mask", pa.binary()),
        pa.field("image", pa.binary(), nullable=False),
        pa.field("width", pa.int16(), nullable=False),
    ]
)
KB = 1024


def write(
    path: Path, images: list[bytes], *, schema: pa.Schema = SCHEMA, rows: int = ROW_GROUP_ROWS, **other: Any
) -> Path:
    """A file as `precompute` lays it out; `other` replaces writer options."""
    table = pa.table(
        {
            "face_id": [f"clip/{number}/0" for number in range(len(images))],
            "method": [None if number % 3 else "swap" for number in range(len(images))],
            "landmarks": [[[1.0, 2.0], [3.0, 4.0]] for _ in images],
            "mask": [image[:9] if number % 2 else None for number, image in enumerate(images)],
            "image": images,
            "width": [7 for _ in images],
        },
        schema=SCHEMA,
    ).cast(schema)
    with pq.ParquetWriter(path, schema, **{**parquet_writer_options(schema), **other}) as writer:
        for start in range(0, len(table), rows):
            writer.write_table(table.slice(start, rows), row_group_size=rows)
    return path


def read_by_ranges(path: Path) -> list[bytes]:
    offsets, sizes = byte_ranges(path, "image")[0]
    assert (offsets.dtype, sizes.dtype) == (np.int64, np.int32)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [
            os.pread(descriptor, size, offset) for size, offset in zip(sizes.tolist(), offsets.tolist(), strict=True)
        ]
    finally:
        os.close(descriptor)


def column(path: Path) -> list[bytes]:
    return pq.read_table(path, columns=["image"]).column(0).to_pylist()


def noise(*sizes: int) -> list[bytes]:
    return [random.Random(number).randbytes(size) for number, size in enumerate(sizes)]


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A file of three row groups; its images span several pages."""
    return write(tmp_path / "file.parquet", noise(*[300 * KB] * 9, *range(600)))


def test_every_range_is_its_image_over_row_groups_and_pages(bench: Path) -> None:
    footer = pq.read_metadata(bench)
    assert footer.num_row_groups == 3
    # 9 images of 300 kB do not fit on pages of 1 MB: else this test would not walk from page to page.
    assert footer.row_group(0).column(footer.schema.names.index("image")).total_compressed_size > 2 << 20
    assert read_by_ranges(bench) == column(bench) == noise(*[300 * KB] * 9, *range(600))


def test_every_range_is_its_image_in_many_row_groups_of_one_row(tmp_path: Path) -> None:
    path = write(tmp_path / "file.parquet", noise(5, 0, 70 * KB, 1), rows=1)
    assert read_by_ranges(path) == noise(5, 0, 70 * KB, 1)


def test_a_file_without_rows_has_no_ranges(tmp_path: Path) -> None:
    assert read_by_ranges(write(tmp_path / "file.parquet", [])) == []


sizes = st.one_of(st.integers(0, 40), st.sampled_from([127, 128, 16_383, 16_384, 300 * KB]), st.integers(0, 40 * KB))


@examples(25, same_fixtures=True)
@given(images=st.lists(sizes, max_size=40).map(lambda given: noise(*given)), rows=st.integers(1, 17))
def test_every_range_is_its_image_whatever_the_sizes(tmp_path: Path, images: list[bytes], rows: int) -> None:
    assert read_by_ranges(write(tmp_path / "file.parquet", images, rows=rows)) == images


def masks_by_ranges(path: Path) -> list[bytes | None]:
    offsets, sizes = byte_ranges(path, "mask")[0]
    data = path.read_bytes()
    return [
        data[offset : offset + size] if offset else None
        for size, offset in zip(sizes.tolist(), offsets.tolist(), strict=True)
    ]


def test_every_mask_is_found_and_none_where_there_is_none(bench: Path) -> None:
    expected = pq.read_table(bench, columns=["mask"]).column(0).to_pylist()
    assert None in expected
    assert masks_by_ranges(bench) == expected


@examples(25, same_fixtures=True)
@given(
    masks=st.lists(st.one_of(st.none(), st.binary(max_size=40), st.just(b"x" * 300 * KB)), max_size=60),
    rows=st.integers(1, 70),
)
@example(masks=[None] * 60, rows=70)
@example(masks=[b"m"] * 60, rows=70)
@example(masks=[None] * 30 + [b"m"] * 30, rows=70)
def test_every_mask_is_found_however_they_are_strewn(tmp_path: Path, masks: list[bytes | None], rows: int) -> None:
    schema = pa.schema([pa.field("mask", pa.binary())])
    path = tmp_path / "masks.parquet"
    with pq.ParquetWriter(path, schema, **{**parquet_writer_options(schema), "column_encoding": None}) as writer:
        for start in range(0, len(masks), rows):
            writer.write_table(pa.table({"mask": masks[start : start + rows]}, schema=schema))
    assert masks_by_ranges(path) == masks


def test_masks_that_may_not_be_null_are_another_layout(tmp_path: Path) -> None:
    schema = SCHEMA.set(SCHEMA.get_field_index("mask"), pa.field("mask", pa.binary(), nullable=False))
    path = write(tmp_path / "file.parquet", noise(5), schema=SCHEMA)
    pq.write_table(pq.read_table(path).set_column(3, schema.field("mask"), pa.array([b"m"])), path)
    with pytest.raises(CorruptDataError, match="column mask: is not there"):
        byte_ranges(path, "mask")


def nullable(schema: pa.Schema) -> pa.Schema:
    return schema.set(schema.get_field_index("image"), pa.field("image", pa.binary()))


def all_leaves(value: str) -> dict[str, str]:
    return dict.fromkeys(leaf_paths(SCHEMA), value)


OTHER_LAYOUTS: dict[str, dict[str, Any]] = {
    "dictionary-encoded": {"use_dictionary": ["image"], "column_encoding": None},
    "compressed with zstd": {"compression": all_leaves("zstd")},
    "compressed with snappy": {"compression": all_leaves("snappy")},
    "pages of version 2": {"data_page_version": "2.0"},
    "delta lengths": {"column_encoding": {"image": "DELTA_LENGTH_BYTE_ARRAY"}},
    "delta bytes": {"column_encoding": {"image": "DELTA_BYTE_ARRAY"}},
    "images that may be null": {"schema": nullable(SCHEMA)},
}


@pytest.mark.parametrize("layout", OTHER_LAYOUTS)
@pytest.mark.parametrize("images", [noise(900, 900, 30), [b"x" * 5000] * 20, [b""]], ids=["noise", "same", "empty"])
def test_a_file_laid_out_otherwise_is_refused(tmp_path: Path, layout: str, images: list[bytes]) -> None:
    path = write(tmp_path / "file.parquet", images, **OTHER_LAYOUTS[layout])
    with pytest.raises(CorruptDataError, match=r"^file\.parquet: column image: "):
        byte_ranges(path, "image")


def test_a_file_without_images_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"width": [1, 2]}), tmp_path / "file.parquet")
    with pytest.raises(CorruptDataError, match=r"file\.parquet: column image: is not there"):
        byte_ranges(tmp_path / "file.parquet", "image")


@pytest.mark.parametrize("name", ["missing.parquet", "empty.parquet", "text.parquet"])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "text.parquet").write_text("face_id,image\n" * 50)
    with pytest.raises(CorruptDataError, match=name):
        byte_ranges(tmp_path / name, "image")


SMALL = noise(40, 0, 200, 9, 65)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of five images in two row groups, to damage copies of."""
    return write(tmp_path_factory.mktemp("small") / "file.parquet", SMALL, rows=3)


def test_a_truncated_file_is_refused_wherever_it_ends(small: Path, tmp_path: Path) -> None:
    content = small.read_bytes()
    path = tmp_path / "cut.parquet"
    for length in [
        0,
        1,
        3,
        4,
        7,
        8,
        12,
        *range(13, len(content), 97),
        len(content) - 8,
        len(content) - 4,
        len(content) - 1,
    ]:
        path.write_bytes(content[:length])
        with pytest.raises(CorruptDataError, match=r"cut\.parquet"):
            byte_ranges(path, "image")


def page_bytes(path: Path) -> range:
    """Where the image pages of the first row group lie: headers, lengths and values."""
    footer = pq.read_metadata(path)
    chunk = footer.row_group(0).column(4)
    assert chunk.path_in_schema == "image"
    return range(chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size)


def test_a_wrong_length_is_refused_be_it_longer_or_shorter(small: Path, tmp_path: Path) -> None:
    content = small.read_bytes()
    offsets, _ = byte_ranges(small, "image")[0]
    path = tmp_path / "bad.parquet"
    for offset in offsets.tolist():
        for position in range(offset - 4, offset):
            for bit in range(8):
                damaged_content = bytearray(content)
                damaged_content[position] ^= 1 << bit
                path.write_bytes(damaged_content)
                with pytest.raises(CorruptDataError, match=r"bad\.parquet: column image: page at byte"):
                    byte_ranges(path, "image")


def inside(path: Path, damaged: Callable[[bytearray], None]) -> bool:
    """Damages the file in place; True if the ranges are still right, False if it is refused; fails on all else."""
    content = bytearray(path.read_bytes())
    damaged(content)
    path.write_bytes(content)
    return has_right_ranges(path)


def has_right_ranges(path: Path) -> bool:
    """True if the ranges of a damaged file are right, False if it is refused; fails on all else."""
    try:
        offsets, lengths = byte_ranges(path, "image")[0]
    except CorruptDataError:
        return False
    assert (offsets >= 0).all()
    assert (offsets + lengths <= path.stat().st_size).all()
    return lengths.tolist() == [len(image) for image in SMALL]


@examples(150, same_fixtures=True)
@given(data=st.data(), byte=st.integers(1, 255))
def test_damage_in_an_image_page_never_gives_other_lengths(small: Path, tmp_path: Path, data: Any, byte: int) -> None:
    position = data.draw(st.sampled_from(page_bytes(small)))
    copy = tmp_path / "bad.parquet"
    copy.write_bytes(small.read_bytes())

    def damaged(content: bytearray) -> None:
        content[position] ^= byte

    offsets, lengths = byte_ranges(small, "image")[0]
    in_a_value = any(offset <= position < offset + size for offset, size in zip(offsets, lengths, strict=True))
    right = inside(copy, damaged)
    # Values and the page's checksum (which `verify` reads) are not looked at here; all else must be noticed.
    assert right or not in_a_value
    if right:
        copy_offsets, _ = byte_ranges(copy, "image")[0]
        assert (copy_offsets == offsets).all()


@examples(150, same_fixtures=True)
@given(data=st.data(), byte=st.integers(1, 255))
def test_damage_in_the_footer_is_refused_or_harmless_but_never_a_crash(
    small: Path, tmp_path: Path, data: Any, byte: int
) -> None:
    content = small.read_bytes()
    footer_bytes = int.from_bytes(content[-8:-4], "little") + 8
    position = data.draw(st.integers(len(content) - footer_bytes, len(content) - 1))
    copy = tmp_path / "bad.parquet"
    copy.write_bytes(content)

    def damaged(bad: bytearray) -> None:
        bad[position] ^= byte

    inside(copy, damaged)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.chaos)])
def test_no_flipped_bit_of_the_footer_ends_the_process(small: Path, tmp_path: Path, every: int) -> None:
    # pyarrow aborts where a column chunk's statistics contradict its type, which some of these bits make them do.
    content = small.read_bytes()
    footer_bytes = int.from_bytes(content[-8:-4], "little") + 8
    copy = tmp_path / "bad.parquet"
    copy.write_bytes(content)
    refused = 0
    with copy.open("r+b", buffering=0) as file:
        for position in range(len(content) - footer_bytes, len(content), every):
            for damaged in (content[position] ^ 1 << bit for bit in range(8)):
                file.seek(position)
                file.write(bytes([damaged]))
                refused += not has_right_ranges(copy)
            file.seek(position)
            file.write(content[position : position + 1])
    assert refused > footer_bytes / every


@examples(80, same_fixtures=True)
@given(header=st.binary(min_size=1, max_size=64), repeats=st.integers(1, 40))
@example(header=b"\x1c", repeats=40)  # structs in structs
@example(header=b"\x15\xff", repeats=40)
@example(header=b"\xff", repeats=40)  # one endless number
@example(header=b"\x11", repeats=40)  # endlessly many fields
@example(header=b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x7f", repeats=1)  # a text longer than any file
def test_a_page_header_of_any_bytes_is_refused_and_never_hangs(
    small: Path, tmp_path: Path, header: bytes, repeats: int
) -> None:
    page_range = page_bytes(small)
    copy = tmp_path / "bad.parquet"
    copy.write_bytes(small.read_bytes())

    def damaged(content: bytearray) -> None:
        junk = (header * repeats)[: len(page_range)]
        content[page_range.start : page_range.start + len(junk)] = junk

    inside(copy, damaged)


@pytest.mark.parametrize("byte", [b"\x1c", b"\xff", b"\x11", b"\x05\x01"], ids=["nested", "number", "fields", "ids"])
def test_megabytes_of_junk_for_a_header_are_refused_at_once(tmp_path: Path, byte: bytes) -> None:
    # A recursion or a number as long as the page would be a crash or minutes of arithmetic.
    path = write(tmp_path / "file.parquet", [byte * (2 << 20)])
    start = page_bytes(path).start
    content = bytearray(path.read_bytes())
    content[start : start + 200] = (byte * 200)[:200]
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"file\.parquet: column image: page at byte"):
        byte_ranges(path, "image")
