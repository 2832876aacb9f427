"""`hf`: a Hugging Face dataset: Parquet with an Image feature, and a card, for `datasets.load_dataset(DEST)`.

    DEST/data/train-00000-of-00003.parquet    DEST/data/validation-00000-of-00001.parquet    ...    DEST/README.md

The features stand in the Parquet metadata, where `datasets` looks for them; those of lists are called `Sequence`, which
all versions of `datasets` read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from ...dataset.schema import face_schema, leaf_paths
from ..receipt import PartReceipt
from ..rows import Rows, StoredRows
from .form import OnRows, Part, PartRows, undamaged
from .shards import plan_shards

SPLIT_NAMES: Final = {"train": "train", "val": "validation", "test": "test"}
_ROW_GROUP_ROWS: Final = 256
_ROW_OVERHEAD_BYTES: Final = 512
_IMAGES: Final = ("image", "mask")
_IMAGE: Final = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
_SIZES: Final = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"),
                 (10_000_000, "1M<n<10M"), (100_000_000, "10M<n<100M"))  # fmt: skip


class HuggingFace:
    """One part for each shard."""

    def __init__(self, stored: StoredRows, rows: Rows, shard_bytes: int) -> None:
        self._stored = stored
        shards = plan_shards(stored, rows, shard_bytes, _ROW_OVERHEAD_BYTES)
        totals, numbers = Counter(split for split, _ in shards), Counter[str]()
        self.parts = []
        for split, part in shards:
            name = f"{SPLIT_NAMES[split]}-{numbers[split]:05d}-of-{totals[split]:05d}"
            self.parts.append(Part(name, part))
            numbers[split] += 1
        self._schema = self._with_features()

    def _with_features(self) -> pa.Schema:
        index = self._stored.index
        described = {name: {"description": face_schema(()).field(name).metadata[b"description"]} for name in _IMAGES}
        fields = [pa.field(name, _IMAGE, metadata=metadata) for name, metadata in described.items()]
        features: dict[str, Any] = {name: {"_type": "Image"} for name in _IMAGES}
        for name in self._stored.light_columns:
            field = index.schema.field(name)
            type_ = pa.int64() if name == "label" else _plain_type(field.type)
            fields.append(pa.field(name, type_, metadata=field.metadata))
            is_class = name == "label" and index.labels
            features[name] = {"names": [*index.labels], "_type": "ClassLabel"} if is_class else _feature(type_)
        return pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})

    def write(self, part: Part, folder: Path, on_rows: OnRows) -> PartRows:
        """See `Form.write`."""
        written = PartRows()
        path = folder / "data" / f"{part.name}.parquet"
        path.parent.mkdir()
        leaves = leaf_paths(self._schema)
        is_stored = {leaf: leaf in ("image.bytes", "mask.bytes") for leaf in leaves}
        options = {
            "compression": {leaf: "none" if is_stored[leaf] else "zstd" for leaf in leaves},
            "use_dictionary": [leaf for leaf in leaves if not is_stored[leaf]],
            "write_statistics": [leaf for leaf in leaves if not is_stored[leaf]],
        }
        with pq.ParquetWriter(path, self._schema, **options) as writer:
            for rows, batch in self._stored.batches(part.rows, _ROW_GROUP_ROWS):
                table = self._table(rows, batch, written)
                if table.num_rows:  # `datasets` cannot read a file whose first row group is empty
                    writer.write_table(table)
                on_rows(len(rows))
        return written

    def _table(self, rows: Rows, batch: pa.RecordBatch, written: PartRows) -> pa.Table:
        kept = [*undamaged(self._stored, rows, written)]
        position = {int(row): number for number, row in enumerate(rows)}
        light = batch.take(pa.array([position[row] for row, _, _ in kept], pa.int64()))
        frames, tracks = (light.column(name).to_pylist() for name in ("frame_index", "track_id"))
        names = [f"{frame:06d}_{track}" for frame, track in zip(frames, tracks, strict=True)]
        images, masks = [], []
        for (_, image, mask), name in zip(kept, names, strict=True):
            images.append({"bytes": image, "path": f"{name}{self._stored.suffix}"})
            masks.append(mask and {"bytes": mask, "path": f"{name}.png"})
        columns = {name: light.column(name).cast(self._schema.field(name).type) for name in self._stored.light_columns}
        arrays = {"image": pa.array(images, _IMAGE), "mask": pa.array(masks, _IMAGE), **columns}
        return pa.table([arrays[name] for name in self._schema.names], schema=self._schema)

    def write_closing(self, parts: Sequence[PartReceipt], folder: Path) -> None:
        """See `Form.write_closing`: the card, with the splits that have rows."""
        splits: dict[str, dict[str, Any]] = {}
        for part in (part for part in parts if part.rows):  # `datasets` refuses a split without any
            split = splits.setdefault(part.name.split("-")[0], {"num_bytes": 0, "num_examples": 0})
            split["num_bytes"] += part.size_bytes
            split["num_examples"] += part.rows
        size_bytes, rows = sum(part.size_bytes for part in parts), sum(part.rows for part in parts)
        head = {
            "task_categories": ["image-classification"],
            "size_categories": [next((name for limit, name in _SIZES if rows < limit), "n>100M")],
            "configs": [
                {
                    "config_name": "default",
                    "data_files": [{"split": split, "path": f"data/{split}-*.parquet"} for split in splits],
                }
            ],
            "dataset_info": {
                "splits": [{"name": split, **counts} for split, counts in splits.items()],
                "download_size": size_bytes,
                "dataset_size": size_bytes,
            },
        }
        text = yaml.safe_dump(head, sort_keys=False)
        (folder / "README.md").write_text(f"---\n{text}---\n\n{self._description()}", encoding="utf-8")

    def _description(self) -> str:
        lines = [
            "# Faces",
            "",
            "One row is one face in one frame of a video.",
            "",
            "| column | what it is |",
            "|---|---|",
        ]
        lines += [
            f"| `{field.name}` | {description.decode().replace('<', '&lt;')} |"
            for field in self._schema
            if (description := (field.metadata or {}).get(b"description"))
        ]
        return "\n".join(lines) + "\n"


def _plain_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _feature(type_: pa.DataType) -> Any:
    """The feature of an Arrow type as `datasets` writes it down."""
    if pa.types.is_struct(type_):
        return {field.name: _feature(field.type) for field in type_}
    if pa.types.is_fixed_size_list(type_):
        return {"feature": _feature(type_.value_type), "length": type_.list_size, "_type": "Sequence"}
    if pa.types.is_list(type_):
        return {"feature": _feature(type_.value_type), "_type": "Sequence"}
    return {"dtype": {"float": "float32", "double": "float64"}.get(str(type_), str(type_)), "_type": "Value"}
