"""The Parquet contract: columns, units, frames of reference, and how a file's pages are laid out.

One row is one face in one frame. Image pages are PLAIN and uncompressed, so each image's bytes are contiguous in
the file: the index holds their byte range, and a loader reads only that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from ..errors import CorruptDataError
from ..json_records import brief, parse_json, record_of

SCHEMA_VERSION = 3
READABLE_VERSIONS = (2, 3)
"""Versions of the schema that can be read and continued: all rows of a dataset have the same."""

REAL_NAMES = frozenset(["real", "reals", "original", "originals", "pristine", "genuine", "authentic", "bonafide"])
"""What a class, or a folder of its media, is called that was not manipulated."""

ROW_GROUP_ROWS = 256
SPLITS = ("train", "val", "test")
WHOLE_FRAME_HULL = "whole_frame"
"""The `hull_method` of inputs that are cropped already: each frame is one face, and landmarks are typical ones."""
REGION_NAMES = ("left_eye", "right_eye", "nose", "mouth", "face")
DENSE_REGION_NAMES = (*REGION_NAMES, "left_brow", "right_brow")
"""Regions of datasets with dense landmarks."""
BINARY_COLUMNS = ("image", "mask")
"""Columns of encoded images."""
UNINDEXED_COLUMNS = (*BINARY_COLUMNS, "landmarks_dense", "landmarks_depth")
"""Columns that are too large for the index."""

_PAGE_BYTES = 1 << 20
_WRITE_BATCH_ROWS = 8  # pyarrow checks the page size once per batch; its default puts a whole row group on one page

_BOX = pa.list_(pa.float32(), 4)
_POINTS = pa.list_(pa.list_(pa.float32(), 2))
_SEGMENTS = pa.list_(pa.list_(pa.float64(), 2))
_REGIONS, _DENSE_REGIONS = (
    pa.struct([pa.field(name, _BOX, nullable=False) for name in names]) for names in (REGION_NAMES, DENSE_REGION_NAMES)
)


def _field(name: str, type_: pa.DataType, description: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, type_, nullable=nullable, metadata={"description": description})


_FIELDS = (
    _field("face_id", pa.string(), "unique: <video_id>/<frame_index>/<track_id>"),
    _field("video_id", pa.string(), "path of the video, image or folder of frames below SRC, or absolute outside it"),
    _field("source_id", pa.string(), "video_id of the real video a fake was made from", nullable=True),
    _field("identity", pa.string(), "who it shows", nullable=True),
    _field("dataset", pa.string(), "name of the dataset, e.g. dfdc", nullable=True),
    _field("method", pa.string(), "how a fake was made, e.g. Deepfakes", nullable=True),
    _field("compression", pa.string(), "the dataset's own grade of compression, e.g. c23", nullable=True),
    _field("split", pa.string(), "train, val or test"),
    _field("label", pa.int8(), "of this frame: index into the schema metadata's facefeed.labels; -1: unknown"),
    _field("fake_segments", _SEGMENTS, "seconds, [start, end): when the video is fake; null: all of it has one label",
           nullable=True),
    _field("frame_index", pa.int32(), "ordinal of the frame in presentation order, from 0"),
    _field("frame_number", pa.int64(), "of a folder of frames: number that the image's name ends in; -1: none"),
    _field("pts_seconds", pa.float64(), "seconds: true presentation time; of a folder of frames: see layouts"),
    _field("frame_width", pa.int32(), "px, of the upright frame"),
    _field("frame_height", pa.int32(), "px, of the upright frame"),
    _field("track_id", pa.int32(), "the same person through the video, from 0"),
    _field("box_xyxy", _BOX, "frame px: the detector's box"),
    _field("crop_xyxy", _BOX, "frame px: the square that was cut, before it was turned; beyond the border it is black"),
    _field("crop_degrees", pa.float32(), "degrees it was turned about its centre, clockwise as seen; 0 unless aligned"),
    _field("score", pa.float32(), "the detector's confidence, 0..1"),
    _field("landmarks", _POINTS, "crop px: left, right eye, nose, left, right mouth corner, as the viewer sees them"),
    _field("hull", _POINTS, "crop px: convex hull of the face"),
    _field("hull_method", pa.string(), "template5, the dense landmarker's name; whole_frame: it was cropped already"),
    _field("regions", _REGIONS, "crop px: xyxy boxes; left and right as the viewer sees them"),
    _field("landmark_score", pa.float32(), "the dense landmarker's confidence that this is a face, 0..1",
           nullable=True),
    _field("landmarks_68", _POINTS, "crop px: iBUG's 68 points; null: the landmarker's points do not fit this face",
           nullable=True),
    _field("landmarks_dense", _POINTS, "crop px: all points of the dense landmarker; null as landmarks_68",
           nullable=True),
    _field("landmarks_depth", pa.list_(pa.float32()), "crop px: depth of landmarks_dense, larger the further away",
           nullable=True),
    _field("pose", pa.list_(pa.float32(), 3), "degrees: yaw, pitch, roll; positive: nose to the image's right, up, "
           "head turned clockwise as seen; null as landmarks_68", nullable=True),
    _field("mouth_open", pa.float32(), "height of the mouth's opening / its width; null as landmarks_68",
           nullable=True),
    _field("sharpness", pa.float32(), "variance of the Laplacian of the crop in grey, 0..255"),
    _field("manipulated", pa.float32(), "share 0..1 of the crop's pixels that are in `mask`", nullable=True),
    _field("mask", pa.binary(), "crop px: the set's own, or what differs from its source; 1-bit PNG", nullable=True),
    _field("image", pa.binary(), "the encoded crop"),
    _field("image_crc32", pa.uint32(), "CRC-32 (zlib) of the bytes of `image`"),
    _field("height", pa.int16(), "px, of the encoded crop"),
    _field("width", pa.int16(), "px, of the encoded crop"),
)  # fmt: skip


_ADDED_IN = {"fake_segments": 3, "frame_number": 3}  # columns that older versions of the schema lack

DENSE_COLUMNS = (
    "landmark_score", "landmarks_68", "landmarks_dense", "landmarks_depth", "pose", "mouth_open",
)  # fmt: skip
"""Columns of datasets with dense landmarks alone."""


COLUMN_KINDS = {"string": pa.string(), "int": pa.int64(), "float": pa.float64()}
"""Types of a user's own columns, by kind."""

_NO_COLUMNS: Mapping[str, str] = MappingProxyType({})


def face_schema(
    labels: Sequence[str],
    version: int = SCHEMA_VERSION,
    columns: Mapping[str, str] = _NO_COLUMNS,
    *,
    has_dense_landmarks: bool = False,
) -> pa.Schema:
    """Schema of every file below ``OUT/faces``.

    Args:
        labels: `labels[i]` is the name of label `i`.
        version: of the schema.
        columns: the user's own, kind by name; see `COLUMN_KINDS`.
        has_dense_landmarks: whether there are `DENSE_COLUMNS` and `DENSE_REGION_NAMES`.

    """
    fields = [column for column in _FIELDS if _ADDED_IN.get(column.name, 0) <= version]
    if has_dense_landmarks:
        fields = [column.with_type(_DENSE_REGIONS) if column.name == "regions" else column for column in fields]
    else:
        fields = [column for column in fields if column.name not in DENSE_COLUMNS]
    fields += [_field(name, COLUMN_KINDS[kind], "of the source's own", nullable=True) for name, kind in columns.items()]
    metadata = {"facefeed.schema": str(version), "facefeed.labels": json.dumps(list(labels))}
    if columns:
        metadata["facefeed.columns"] = json.dumps(dict(columns))
    if has_dense_landmarks:
        metadata["facefeed.dense_landmarks"] = "1"
    return pa.schema(fields, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class _ReadSettings:
    """The settings of a config that readers of a dataset use."""

    labels: list[str] = field(default_factory=list)
    schema: int = SCHEMA_VERSION
    columns: dict[str, str] = field(default_factory=dict)
    dense_landmarks: bool = False
    format: str = "jpeg"
    sampling: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := {*self.columns.values()}.difference(COLUMN_KINDS):
            raise ValueError(f"columns: unknown kind {brief(unknown.pop())}")


def check_config(config: dict[str, Any]) -> None:
    """Raises `ValueError` where a setting that readers of a dataset use is not of its type."""
    names = {each.name for each in fields(_ReadSettings)}
    record_of(_ReadSettings, {name: value for name, value in config.items() if name in names})


def recorded_schema(schema: pa.Schema) -> pa.Schema:
    """The `face_schema` that the metadata of a file or an index describes; raises `CorruptDataError` on damage."""
    try:
        columns = parse_json((schema.metadata or {}).get(b"facefeed.columns", b"{}"))
        has_dense_landmarks = b"facefeed.dense_landmarks" in (schema.metadata or {})
        return face_schema(labels_of(schema), version_of(schema), columns, has_dense_landmarks=has_dense_landmarks)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"schema metadata: facefeed.columns is damaged ({error})") from error


def version_of(schema: pa.Schema) -> int:
    """Version of a file's or an index's schema; raises `CorruptDataError` where it cannot be read."""
    stored = (schema.metadata or {}).get(b"facefeed.schema", b"").decode(errors="replace")
    if stored not in map(str, READABLE_VERSIONS):
        versions = " and ".join(map(str, READABLE_VERSIONS))
        raise CorruptDataError(f"schema metadata: facefeed.schema is {stored!r}; this facefeed reads {versions}")
    return int(stored)


def unlabelled_name(labels: Sequence[str]) -> str:
    """Name for label -1 beside the classes `labels`: "unknown", unless one of them has that name.

    >>> unlabelled_name(["real", "fake"]), unlabelled_name(["real", "Unknown"])
    ('unknown', 'no label')
    """
    used = {name.lower() for name in labels}
    name = "unknown" if "unknown" not in used else "no label"
    while name in used:
        name += " (-1)"
    return name


def labels_of(schema: pa.Schema) -> tuple[str, ...]:
    """Label names in a file's or an index's schema; raises `CorruptDataError` where there are none."""
    try:
        labels = parse_json(schema.metadata[b"facefeed.labels"])
        if not isinstance(labels, list) or not all(isinstance(name, str) for name in labels):
            raise ValueError(f"{brief(labels)} is no list of names")
        return tuple(labels)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"schema metadata: facefeed.labels is missing or damaged ({error})") from error


def real_class(names: Sequence[str]) -> int | None:
    """Position of the class called real, in any case, else of the only one called alike; None where there is none.

    >>> real_class(["fake", "Real"]), real_class(["Pristine", "swap"]), real_class(["original", "genuine"])
    (1, 0, None)
    """
    lower = [name.lower() for name in names]
    alike = [number for number, name in enumerate(lower) if name in REAL_NAMES]
    return lower.index("real") if "real" in lower else alike[0] if len(alike) == 1 else None


def leaf_paths(schema: pa.Schema) -> list[str]:
    """Parquet's leaf column paths, as the writer options expect them.

    >>> leaf_paths(pa.schema([("a", pa.int8()), ("b", pa.list_(pa.list_(pa.float32(), 2)))]))
    ['a', 'b.list.element.list.element']
    """
    return [path for field in schema for path in _leaves(field)]


def _leaves(field: pa.Field) -> Iterator[str]:
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from (f"{field.name}.{path}" for path in _leaves(child))
    elif pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type):
        yield from (f"{field.name}.list.{path}" for path in _leaves(field.type.value_field.with_name("element")))
    else:
        yield field.name


def parquet_writer_options(schema: pa.Schema) -> dict[str, Any]:
    """Keyword arguments for `pyarrow.parquet.ParquetWriter`: the page layout that the index relies on."""
    leaves = leaf_paths(schema)
    small = [leaf for leaf in leaves if leaf not in BINARY_COLUMNS]
    dense = [leaf for leaf in leaves if leaf.startswith(("landmarks_dense.", "landmarks_depth."))]
    strings = [field.name for field in schema if pa.types.is_string(field.type) and field.name != "face_id"]
    return {
        "compression": {leaf: "zstd" if leaf in small else "none" for leaf in leaves},
        "use_dictionary": strings,
        "write_statistics": small,
        # Thousands of coordinates a row: byte by byte they compress to half.
        "column_encoding": {"image": "PLAIN", **dict.fromkeys(dense, "BYTE_STREAM_SPLIT")},
        "data_page_version": "1.0",
        "data_page_size": _PAGE_BYTES,
        "write_batch_size": _WRITE_BATCH_ROWS,
        "write_page_checksum": True,
    }
