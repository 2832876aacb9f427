"""Exports of a dataset whose added columns change, or lack rows."""

from __future__ import annotations

import csv
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_columns import FILE, Returning
from assets_dataset import DenseStandIn, copy_dataset, make_dataset
from assets_export import exported, files_below, run_export
from facefeed.pipeline.added_columns import run as run_module
from facefeed.pipeline.added_columns.landmarks import LandmarkColumns
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.errors import StoppedError
from facefeed.pipeline.export.destination import WORK, Destination
from facefeed.pipeline.export.receipt import PartReceipt
from facefeed.pipeline.verify.rebuild import rebuild_index_file

WITH_COLUMNS = ("folders", "webdataset", "hf")

every_form_with_columns = pytest.mark.parametrize("form", WITH_COLUMNS)


def with_value(number: float, fingerprint: str = "1", column: str = "value") -> Returning:
    """A maker of the set "returning", whose column has one value in every row."""
    columns = pa.schema([(column, pa.float32())])
    return Returning(lambda faces: {column: np.full(len(faces), number)}, columns, fingerprint=fingerprint)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset without added columns, and beside it its exports of all forms, by name."""
    folder = tmp_path_factory.mktemp("plain")
    make_dataset(folder / "out")
    for form in (*WITH_COLUMNS, "deepfakebench"):
        exported(folder / "out", folder / form, form)
    return folder / "out"


@pytest.fixture(scope="module")
def coloured(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset with the added columns `colour`, and beside it exports in the forms that have columns."""
    folder = tmp_path_factory.mktemp("coloured")
    out = copy_dataset(plain, folder / "out")
    add_columns(out, f"{FILE}:Colour", workers=1)
    for form in WITH_COLUMNS:
        exported(out, folder / form, form)
    return out


@pytest.fixture
def out(plain: Path, tmp_path: Path) -> Path:
    return copy_dataset(plain, tmp_path / "out")


@pytest.fixture
def copy(coloured: Path, tmp_path: Path) -> Path:
    return copy_dataset(coloured, tmp_path / "out")


def check_refused(out: Path, dest: Path, form: str, reason: str) -> None:
    """Exit 2 with the reason, and DEST is as before."""
    before = files_below(dest)
    result = run_export(out, dest, form)
    assert result.exit_code == 2, result.output
    assert f"holds another export ({reason}); nothing was written" in " ".join(result.stderr.split())
    assert files_below(dest) == before


# ---- columns that come and go


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda out: remove_columns(out, "colour"), "it has the added columns 'colour', which OUT lacks"),
        (lambda out: add_columns(out, with_value(0), workers=1),
         "it records no added columns 'returning', which OUT has"),
    ],
    ids=["removed", "added"],
)  # fmt: skip
@every_form_with_columns
def test_an_export_that_was_begun_with_other_columns_is_not_resumed(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str,
    change: Callable[[Path], object], reason: str,
) -> None:  # fmt: skip
    original = Destination.publish

    def publish(self: Destination, name: str, *arguments: Any) -> PartReceipt:
        if len([*(self.root / WORK / "parts").glob("*.json")]) == 2:
            raise OSError(28, "No space left on device")
        return original(self, name, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Destination, "publish", publish)
        assert run_export(copy, tmp_path / "dest", form).exit_code == 75
    change(copy)
    check_refused(copy, tmp_path / "dest", form, reason)


@every_form_with_columns
def test_a_finished_export_is_not_that_of_a_dataset_whose_columns_have_changed(
    plain: Path, coloured: Path, out: Path, form: str
) -> None:
    check_refused(coloured, plain.parent / form, form, "it records no added columns 'colour', which OUT has")
    check_refused(plain, coloured.parent / form, form, "it has the added columns 'colour', which OUT lacks")
    assert exported(coloured, coloured.parent / form, form)["was_finished"]
    assert exported(plain, plain.parent / form, form)["was_finished"]


@pytest.mark.parametrize("other", [with_value(1, "2"), with_value(1, column="other")], ids=["values", "names"])
def test_columns_of_another_maker_under_the_same_name_are_others(out: Path, tmp_path: Path, other: Returning) -> None:
    add_columns(out, with_value(0), workers=1)
    exported(out, tmp_path / "dest", "hf")
    remove_columns(out, "returning")
    add_columns(out, other, workers=1)
    check_refused(out, tmp_path / "dest", "hf", "its added columns 'returning' are others than those of OUT")


def test_a_form_without_columns_is_complete_whatever_is_added(plain: Path, coloured: Path) -> None:
    figures = exported(coloured, plain.parent / "deepfakebench", "deepfakebench")
    assert (figures["was_finished"], figures["findings"], figures["added_columns"]) == (True, [], {})


def test_an_export_names_the_added_columns_that_it_has(coloured: Path) -> None:
    figures = exported(coloured, coloured.parent / "folders", "folders")
    assert figures["added_columns"] == {
        "colour": {
            "fingerprint": "colour-1",
            "columns": {
                "brightness": "float",
                "side": "int32",
                "tone": "string",
                "mean_rgb": "fixed_size_list<item: float>[3]",
            },
        }
    }
    with (coloured.parent / "folders/metadata.csv").open(newline="") as file:
        assert {"brightness", "side", "tone", "mean_rgb"} <= {*next(csv.reader(file))}


def test_the_json_of_tar_shards_has_no_number_that_json_has_not(out: Path, tmp_path: Path) -> None:
    vector = pa.list_(pa.float32(), 3)
    columns = pa.schema([("number", pa.float32()), ("text", vector), pa.field("list", vector, nullable=False)])
    vectors = np.array([[np.nan, 1, np.inf], [1, 2, 3]], np.float32)

    def compute(faces: Any) -> dict[str, Any]:
        is_odd = np.arange(len(faces)) % 2
        return {"number": np.where(is_odd, 0.5, np.nan), "text": vectors[is_odd], "list": vectors[is_odd]}

    add_columns(out, Returning(compute, columns), workers=1)
    exported(out, tmp_path / "dest", "webdataset", "--split", "val")
    seen = set()
    with tarfile.open(tmp_path / "dest/val-000000.tar") as tar:
        for content in (tar.extractfile(name) for name in tar.getnames() if name.endswith(".json")):
            assert content is not None
            sample = json.loads(content.read(), parse_constant=pytest.fail)
            seen.add((sample["number"], sample["text"], tuple(sample["list"])))
    assert seen == {(-1.0, "[null, 1.0, null]", (None, 1.0, None)), (0.5, "[1.0, 2.0, 3.0]", (1.0, 2.0, 3.0))}


def test_an_export_from_before_added_columns_were_recorded_opens_where_there_are_none(
    plain: Path, coloured: Path, tmp_path: Path
) -> None:
    dest = copy_dataset(plain.parent / "hf", tmp_path / "dest")
    receipt = json.loads((dest / "export.json").read_bytes())
    del receipt["added_columns"]
    (dest / "export.json").write_text(json.dumps(receipt))
    assert exported(plain, dest, "hf")["was_finished"]
    check_refused(coloured, dest, "hf", "it records no added columns 'colour', which OUT has")


# ---- columns that lack rows


def test_an_export_without_the_columns_that_lack_rows_says_so(copy: Path, tmp_path: Path) -> None:
    path = max((copy / "columns/colour").glob("*.parquet"), key=lambda path: path.stat().st_size)
    rows = pq.read_metadata(path).num_rows
    path.unlink()
    assert rebuild_index_file(copy)
    line = f"added columns 'colour': {rows} rows lack them; run `facefeed add {copy} {FILE}:Colour`"
    for form in WITH_COLUMNS:
        for _ in ("new", "finished"):
            result = run_export(copy, tmp_path / form, form, "--json")
            assert result.exit_code == 0
            assert line.replace(" ", "") in "".join(result.stderr.split())
            figures = json.loads(result.stdout.splitlines()[-1])
            assert (figures["incomplete_columns"], figures["added_columns"]) == ([line], {})
    assert exported(copy, tmp_path / "deepfakebench", "deepfakebench")["incomplete_columns"] == []


def test_an_export_says_so_of_columns_that_were_never_finished(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoppedError):
        add_columns(out, Returning(), workers=1)
    lines = exported(out, tmp_path / "first", "hf")["incomplete_columns"]
    assert lines == ["added columns 'returning': 391 rows lack them; run `add_columns(OUT, Returning(...))`"]

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "_renew_index", kill)
        with pytest.raises(KeyboardInterrupt):
            add_columns(out, with_value(0), workers=1)
    lines = exported(out, tmp_path / "second", "hf")["incomplete_columns"]
    assert lines == ["added columns 'returning': not in the index yet; run `add_columns(OUT, Returning(...))`"]
    add_columns(out, with_value(0), workers=1)
    assert exported(out, tmp_path / "third", "hf")["incomplete_columns"] == []


def test_columns_that_are_too_large_for_the_index_are_in_no_export(out: Path, tmp_path: Path) -> None:
    add_columns(out, LandmarkColumns(DenseStandIn()), workers=1)
    exported(out, tmp_path / "dest", "hf")
    names = set(pq.read_schema(tmp_path / "dest/data/test-00000-of-00001.parquet").names)
    assert {"landmarks_68", "pose", "mouth_open", "landmark_score"} <= names
    assert names.isdisjoint({"landmarks_dense", "landmarks_depth"})
