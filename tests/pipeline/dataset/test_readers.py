"""Readers that know nothing of facefeed open OUT/faces as it lies there: rows, splits, points and pictures."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from assets_dataset import LABELS, ROWS, make_dataset
from PIL import Image

TOTAL = sum(ROWS.values())
SIDE = 32


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("readers") / "out"
    make_dataset(out)
    return out / "faces"


def check_face(row: dict[str, Any]) -> None:
    """One row as Python values, of whatever reader."""
    landmarks = np.array([list(point) for point in row["landmarks"]], np.float64)
    assert landmarks.shape == (5, 2)
    left_eye, right_eye, _, left_mouth, right_mouth = landmarks
    assert left_eye[0] < right_eye[0]
    assert left_mouth[1] > left_eye[1]
    assert right_mouth[0] < row["width"]
    assert [len(row["regions"][part]) for part in ("left_eye", "face")] == [4, 4]
    with Image.open(io.BytesIO(row["image"])) as image:
        assert image.size == (row["width"], row["height"]) == (SIDE, SIDE)
        assert np.asarray(image.convert("RGB")).std() > 10  # noise, not a grey square


def by_split(values: Any) -> dict[str, int]:
    names, counts = np.unique(np.asarray(values), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def test_pyarrow_reads_the_folder(faces: Path) -> None:
    dataset = ds.dataset(faces, format="parquet")
    assert dataset.count_rows() == TOTAL
    assert by_split(dataset.to_table(columns=["split"])["split"]) == ROWS
    assert dataset.count_rows(filter=(ds.field("split") == "val") & (ds.field("label") == 1)) == 11
    check_face(dataset.head(1).to_pylist()[0])
    assert dataset.schema.field("landmarks").metadata[b"description"].startswith(b"crop px")


def test_pyarrow_reads_one_split_by_its_folder(faces: Path) -> None:
    table = pq.read_table(faces / "test")
    assert by_split(table["split"]) == {"test": ROWS["test"]}


def test_pandas_reads_the_folder(faces: Path) -> None:
    frame = pd.read_parquet(faces)
    assert by_split(frame["split"]) == ROWS
    assert frame["face_id"].is_unique
    check_face(frame.iloc[-1].to_dict())


def test_duckdb_reads_the_folder(faces: Path) -> None:
    with duckdb.connect() as connection:
        source = f"read_parquet('{faces}/*/*.parquet')"
        counts = connection.sql(f"select split, count(*) from {source} group by split").fetchall()
        assert dict(counts) == ROWS
        relation = connection.sql(f"select * from {source} where method = 'talk' order by face_id limit 1")
        row = dict(zip(relation.columns, relation.fetchall()[0], strict=True))
    assert row["face_id"] == "fake/emil-talk.mp4/0/0"
    check_face(row)


def test_polars_reads_the_folder(faces: Path) -> None:
    frame = pl.scan_parquet(faces / "**" / "*.parquet").collect()
    assert by_split(frame["split"].to_numpy()) == ROWS
    check_face(frame.row(0, named=True))


HUGGING_FACE = """
import json, sys
import datasets
datasets.disable_progress_bars()
loaded = datasets.load_dataset(sys.argv[1], cache_dir=sys.argv[2])
counts = {split: (len(part), sorted(set(part["split"]))) for split, part in loaded.items()}
row = loaded["validation"][0]
print(json.dumps({"counts": counts, "row": {**row, "image": row["image"].hex()}}))
"""


def test_hugging_face_reads_the_folder_and_its_three_splits(faces: Path, tmp_path: Path) -> None:
    # In a process of its own, cut off from the network: `datasets` reads its settings when it is imported.
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "HF_DATASETS_OFFLINE": "1", "PATH": ""}
    command = [sys.executable, "-c", HUGGING_FACE, str(faces), str(tmp_path / "cache")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    output = json.loads(result.stdout.splitlines()[-1])
    assert output["counts"] == {
        "train": [ROWS["train"], ["train"]],
        "validation": [ROWS["val"], ["val"]],
        "test": [ROWS["test"], ["test"]],
    }
    check_face({**output["row"], "image": bytes.fromhex(output["row"]["image"])})


def test_labels_are_named_in_the_files_themselves(faces: Path) -> None:
    for path in faces.rglob("*.parquet"):
        assert json.loads(pq.read_schema(path).metadata[b"facefeed.labels"]) == list(LABELS)
