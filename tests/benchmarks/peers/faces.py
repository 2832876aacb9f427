"""The same JPEG bytes for everyone: crops of one finished OUT, as often as needed, as a new OUT and as single files."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from facefeed.data.sample import make_sample
from facefeed.pipeline.dataset.image_codec import ImageEncoder, decode_rgb_strictly
from facefeed.pipeline.dataset.index import index_schema
from facefeed.pipeline.dataset.index_builder import IndexBuilder
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.schema import ROW_GROUP_ROWS, face_schema, parquet_writer_options

FILES = 4
ENOUGH = 64
MEDIA = Path(__file__).resolve().parents[4] / "shared" / "media"


def finished_out(folder: Path) -> Path:
    """An OUT of our own, from `shared/media` beside the checkout, else from the built-in sample."""
    out, source = folder / "out", MEDIA
    if (out / "manifest.json").is_file():
        return out
    if not source.is_dir():
        source = folder / "sample"
        make_sample(source)
    command = [sys.executable, "-m", "facefeed.pipeline", "precompute", str(source), str(out)]
    subprocess.run([*command, "--max-failed", "100%", "--allow-unlabelled"], check=True, stdout=sys.stderr)
    return out


def crops(out: Path, side_px: int, quality: int) -> tuple[pa.Table, bool]:
    """The rows of an OUT whose crops have that size, and whether their bytes are the stored ones.

    Where there are too few, all crops, resized and encoded anew.
    """
    table = pa.concat_tables(pq.read_table(path) for path in sorted(OutPaths(out).faces.rglob("*.parquet")))
    sizes = np.array([table["height"].to_numpy(), table["width"].to_numpy()])
    exact = table.filter(pa.array((sizes == side_px).all(axis=0)))
    return (exact, True) if len(exact) >= ENOUGH else (resized(table, side_px, quality), False)


def resized(table: pa.Table, side_px: int, quality: int) -> pa.Table:
    """The same crops at another size; boxes and points stay as they are: no lane looks at them."""
    encode, size = ImageEncoder(quality=quality), (side_px, side_px)
    data = []
    for image in table["image"].to_pylist():
        pixels = decode_rgb_strictly(image)
        how = cv2.INTER_AREA if pixels.shape[0] > side_px else cv2.INTER_CUBIC
        data.append(encode(cv2.resize(pixels, size, interpolation=how)))
    sides = [side_px] * len(data)
    for name, values in {
        "image": data,
        "image_crc32": list(map(zlib.crc32, data)),
        "height": sides,
        "width": sides,
    }.items():
        table = _with(table, name, values)
    return table


def write(table: pa.Table, images: int, folder: Path) -> dict[str, Any]:
    """`folder/facefeed`, an OUT of all those rows again and again, and `folder/files`; what was written.

    Image number `i` is row `i` of the index and the i-th file.
    """
    times = max(-(-images // len(table)), 1)
    rows = np.tile(np.arange(len(table)), times)[: max(images, 1)]
    rows_table = table.take(pa.array(rows))
    names = [f"{name}/{number}" for number, name in enumerate(rows_table["face_id"].to_pylist())]
    rows_table = _with(_with(rows_table, "face_id", names), "split", ["train"] * len(rows_table))
    labels = [str(label) for label in range(max(rows_table["label"].to_pylist()) + 1)] or ["real"]
    paths, schema = OutPaths(folder / "facefeed"), face_schema(labels)
    fingerprint = f"benchmark-{len(rows_table)}"
    (paths.faces / "train").mkdir(parents=True)
    tables = []
    for number in range(FILES):
        first, after = (len(rows_table) * end // FILES for end in (number, number + 1))
        path = paths.unit_file("train", f"benchmark{number}")
        with pq.ParquetWriter(path, schema, **parquet_writer_options(schema)) as writer:
            writer.write_table(rows_table.slice(first, after - first).cast(schema), row_group_size=ROW_GROUP_ROWS)
        tables.append((path, path.relative_to(paths.root).as_posix()))
    IndexBuilder(index_schema(schema, fingerprint), tables).write(paths.index)
    manifest = Manifest(
        fingerprint=fingerprint, config={}, labels=labels, splits={"train": {"rows": len(rows_table)}}, units=FILES,
        rows=len(rows_table), bytes=sum(path.stat().st_size for path, _ in tables),
        inputs={"total": FILES, "ok": FILES, "no_faces": 0, "failed": {}, "missing": 0},
    )  # fmt: skip
    paths.manifest.write_text(manifest.to_json())
    files = folder / "files"
    files.mkdir()
    for number, data in enumerate(rows_table["image"].to_pylist()):
        (files / f"{number:08d}.jpg").write_bytes(data)
    each = [len(data) for data in table["image"].to_pylist()]
    return {"images": len(rows_table), "distinct": len(table), "mean_bytes": round(float(np.mean(each)))}


def _with(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    column = table.schema.get_field_index(name)
    return table.set_column(column, table.schema.field(name), pa.array(values, table.schema.field(name).type))
