"""What a user notices of a table's own columns: those that are selected are stored, with a type; others are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_dataset import OPTIONS, Clip
from assets_in_process import in_process
from assets_rows import make_small, stored_rows
from facefeed.loaders import FaceDataLoader, FaceDataset, Quotas
from facefeed.pipeline.dataset.schema import face_schema, recorded_schema
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import Entry, Listing, list_source, listing_warnings, with_columns
from facefeed.pipeline.sources.layout import read_listing
from facefeed.pipeline.sources.metadata.own_columns import typed_values
from facefeed.pipeline.verify.check import verify
from PIL import Image

COLUMNS = {"age": "float", "views": "int", "camera": "string"}
TABLE = "path,label,age,views,camera,note\na.png,real,31.5,7,front,x\nb.png,fake,,8,rear,\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "list.csv").write_text(TABLE)
    return tmp_path / "list.csv"


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "-2", " 3 "], "int", [1, -2, 3]),
        (["1", ""], "float", [1.0, None]),
        (["1", "2.5"], "float", [1.0, 2.5]),
        (["1e3", "-.5"], "float", [1000.0, -0.5]),
        (["007", "8"], "string", ["007", "8"]),
        (["0", "0.5"], "float", [0.0, 0.5]),
        (["1", "one"], "string", ["1", "one"]),
        (["", ""], "string", [None, None]),
        (["inf", "1"], "string", ["inf", "1"]),
        ([], "string", []),
        ([1, 2], "int", [1, 2]),
        ([True, False], "int", [1, 0]),
        ([1.5, float("nan"), None], "float", [1.5, None, None]),
        ([2**63, 1], "string", [str(2**63), "1"]),
        (["183_253", "1_2"], "string", ["183_253", "1_2"]),
        (["1288927359837839361", ""], "string", ["1288927359837839361", None]),
        (["1288927359837839361", "2"], "int", [1288927359837839361, 2]),
        (["-007", "1"], "string", ["-007", "1"]),
        (["\u0661\u0662", "1"], "string", ["\u0661\u0662", "1"]),
        (["9" * 5000, "1"], "string", ["9" * 5000, "1"]),
        (["9" * 300, ""], "string", ["9" * 300, None]),
        (["12345678901234567890", "12345678901234567891"], "string", ["12345678901234567890", "12345678901234567891"]),
        (["+9007199254740993", "2"], "string", ["+9007199254740993", "2"]),
        (["+5", "9007199254740992"], "float", [5.0, 9007199254740992.0]),
    ],
)
def test_a_column_has_the_type_of_all_its_cells(cells: list[Any], kind: str, values: list[Any]) -> None:
    assert typed_values(cells) == (kind, values)


def test_the_selected_columns_come_in_their_order_and_the_others_are_named(table: Path) -> None:
    listing = with_columns(list_source(table), ["camera", "age"])
    assert listing.columns == {"camera": "string", "age": "float"}
    assert {entry.video_id: entry.values for entry in listing.entries} == {
        "a.png": ("front", 31.5), "b.png": ("rear", None),
    }  # fmt: skip
    assert any("ignored: 'views', 'note'; --columns stores" in warning for warning in listing_warnings(listing))


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    columns = {"path": ["a.png"], "label": ["real"], "score": [0.25], "glasses": [True], "codes": [[1, 2]]}
    pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    listing = list_source(tmp_path / "list.parquet")
    assert listing.columns == {"score": "float", "glasses": "int", "codes": "string"}
    assert listing.entries[0].values == (0.25, 1, "[1, 2]")


@pytest.mark.parametrize(
    ("name", "message"),
    [("agee", "--columns agee: is no column of the source's own; it has 'age', 'views', 'camera', 'note'"),
     ("label", "--columns label: is no column of the source's own")],
)  # fmt: skip
def test_a_name_that_the_table_lacks_is_refused_with_those_it_has(table: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_columns(list_source(table), [name])


@pytest.mark.parametrize(
    ("name", "message"), [("score", "is facefeed's own"), ("file", "is facefeed's own"),
                          ("valid", "is facefeed's own"), ("my age", "must be letters, digits and underscores")],
)  # fmt: skip
def test_a_name_that_cannot_be_a_column_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "list.csv").write_text(f"path,label,{name}\na.png,real,1\n")
    with pytest.raises(UsageError, match=f"--columns {name}: {message}"):
        with_columns(list_source(tmp_path / "list.csv"), [name])


def test_a_folder_has_no_columns_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.png").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"--columns age: .*; layout folder has none"):
        with_columns(list_source(tmp_path), ["age"])


@pytest.mark.parametrize(
    ("listing", "message"),
    [({"columns": {"age": "number"}}, "the kind 'number' must be one of string, int, float"),
     ({"columns": {"age": "int"}, "values": (1, 2)}, r"values=\(1, 2\): must be one for each of \['age'\]")],
)  # fmt: skip
def test_a_layout_that_breaks_the_rule_is_named(tmp_path: Path, listing: dict[str, Any], message: str) -> None:
    class Mine:
        name, needs = "mine", "anything"

        def fits(self, src: Path) -> bool:
            return True

        def read(self, src: Path, allowed: Any = ()) -> Listing:
            entry = Entry(video_id="a.png", values=listing.get("values", ()))
            return Listing(layout="mine", root=src, labels=("real",), entries=[entry], columns=listing["columns"])

    with pytest.raises(UsageError, match=message):
        read_listing(Mine(), tmp_path)


# ---- in a dataset


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset with three columns of the source's own; views differ by video."""
    with pytest.MonkeyPatch.context() as patch:
        entry_of = Clip.entry

        def entry(clip: Clip) -> Entry:
            age = None if clip.name.startswith("fake") else 31.5
            return replace(entry_of(clip), values=(age, clip.frames, f"camera of {clip.name}"))

        patch.setattr(Clip, "entry", entry)
        return make_small(tmp_path_factory.mktemp("columns") / "out", columns=COLUMNS)


def test_every_row_has_them_in_any_reader(out: Path) -> None:
    rows = stored_rows(out)
    fake = next(row for row in rows if row["video_id"] == "fake/anna-swap.mp4")
    real = next(row for row in rows if row["video_id"] == "real/anna.mp4")
    assert [fake[name] for name in COLUMNS] == [None, 25, "camera of fake/anna-swap.mp4"]
    assert [real[name] for name in COLUMNS] == [31.5, 40, "camera of real/anna.mp4"]
    file = next((out / "faces").rglob("*.parquet"))
    assert pq.read_schema(file).equals(face_schema(("real", "fake"), columns=COLUMNS))


def test_the_loader_delivers_selects_and_balances_by_them(out: Path) -> None:
    fields = ("image", "age", "views", "camera")
    batch = next(iter(FaceDataLoader(out, 8, fields=fields, image_size=16, num_workers=0, shuffle=False)))
    assert batch["views"].dtype.is_floating_point is False
    assert {*batch["camera"]} <= {f"camera of {name}" for name in ("fake/anna-swap.mp4", "real/anna.mp4")}
    assert all(np.isnan(age) == camera.startswith("camera of fake") for age, camera in
               zip(batch["age"].tolist(), batch["camera"], strict=True))  # fmt: skip
    assert len(FaceDataset(out, filters=[("views", ">", 30)])) == 40
    quotas = Quotas({"camera of real/anna.mp4": 1, "camera of real/bert.mp4": 1}, column="camera")
    balanced = next(iter(FaceDataLoader(out, 8, balance=quotas, fields=fields, image_size=16, num_workers=0)))
    assert sorted(balanced["camera"]) == ["camera of real/anna.mp4"] * 4 + ["camera of real/bert.mp4"] * 4


def test_a_dataset_with_own_columns_is_verified_without_findings(out: Path) -> None:
    assert not verify(out).findings


def test_a_rebuilt_index_has_them_too(out: Path) -> None:
    assert set(COLUMNS) <= set(FaceDataset(out).info(0))


def test_other_columns_are_other_settings(table: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"options": OPTIONS, "detector": FixedBoxDetector()}
    _, listing, config = prepare_job(table, tmp_path / "out", columns=["age"], **given)
    _, _, without = prepare_job(table, tmp_path / "out", **given)
    assert config["columns"] == {"age": "float"} == listing.columns
    assert {name: value for name, value in config.items() if name != "columns"} == without


def test_the_same_columns_in_another_order_are_the_same_rows_and_nothing_is_to_do(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (128, 96)).save(tmp_path / name)
    table, out = tmp_path / "list.csv", tmp_path / "out"
    table.write_text(TABLE)
    given: dict[str, Any] = {"options": OPTIONS, "detector": FixedBoxDetector()}
    with in_process():
        precompute(table, out, columns=["age", "views"], **given)
        again = precompute(table, out, columns=["views", "age"], **given)
        Image.new("RGB", (128, 96), "red").save(tmp_path / "c.png")
        table.write_text(f"{TABLE}c.png,fake,40,9,front,\n")
        extended = precompute(table, out, columns=["views", "age"], **given)
    assert (again.changes.changed, extended.changes.changed) == ([], [])
    assert not verify(out).findings
    stored = {row["video_id"]: (row["age"], row["views"]) for row in stored_rows(out)}
    assert stored == {"a.png": (31.5, 7), "b.png": (None, 8), "c.png": (40.0, 9)}


def test_damaged_metadata_of_columns_is_named() -> None:
    schema = face_schema(("real",), columns=COLUMNS)
    assert recorded_schema(schema).equals(schema)
    for damage in (b"[", b"[1]", json.dumps({"age": "number"}).encode()):
        damaged = schema.with_metadata({**schema.metadata, b"facefeed.columns": damage})
        with pytest.raises(CorruptDataError, match=r"facefeed\.columns is damaged"):
            recorded_schema(damaged)
