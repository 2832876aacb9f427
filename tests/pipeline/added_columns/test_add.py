"""`facefeed add` and `facefeed remove`: what they write, what they refuse, and what readers see of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from assets_columns import DEED, FILE, POISON, Colour, Large, Poisoned, Returning
from assets_dataset import DenseStandIn, copy_dataset, make_dataset
from assets_docs import REFERENCE
from click.testing import CliRunner, Result
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline.added_columns.landmarks import LandmarkColumns
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.added_columns.values import WrongValuesError, as_batch
from facefeed.pipeline.cli import main
from facefeed.pipeline.commit.lease import hold_lease
from facefeed.pipeline.dataset.image_codec import decode_rgb_strictly
from facefeed.pipeline.dataset.index import Index, layout
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import CorruptDataError, RefusedError, StoppedError, UsageError
from facefeed.pipeline.lock import hold_lock
from facefeed.pipeline.row_progress import RowProgress
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("add") / "out"
    make_dataset(out)
    return out


@pytest.fixture(scope="module")
def coloured(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = copy_dataset(dataset, tmp_path_factory.mktemp("coloured") / "out")
    add_columns(out, f"{FILE}:Colour", workers=1)
    return out


@pytest.fixture
def out(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


@pytest.fixture
def copy(coloured: Path, tmp_path: Path) -> Path:
    return copy_dataset(coloured, tmp_path / "out")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.mark.parametrize("command", [("add", f"{FILE}:Colour"), ("remove", "colour")], ids=lambda each: each[0])
@pytest.mark.parametrize("folder", ["", "columns"])
def test_a_dataset_that_may_not_be_written_to_is_refused_and_not_for_a_later_time(
    coloured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, str], folder: str
) -> None:
    out, access = copy_dataset(coloured, tmp_path / "out"), os.access
    locked, before = out / folder, bytes_of(out)

    def read_only(path: Any, mode: int) -> bool:
        return not (mode & os.W_OK and Path(path) == locked) and access(path, mode)

    monkeypatch.setattr(os, "access", read_only)  # root may write to a folder whatever its mode
    result = run(command[0], out, command[1])
    assert result.exit_code == 2
    assert f"{str(locked)!r} may not be written to by this user, or is on a read-only file system" in result.stderr
    assert bytes_of(out) == before


def test_columns_whose_files_are_gone_are_not_lost_to_other_ones_without_a_word(copy: Path) -> None:
    add_columns(copy, Large(), workers=1)
    shutil.rmtree(copy / "columns/colour")
    next((copy / "columns/large").rglob("*.parquet")).unlink()  # is added again
    for change in (lambda: add_columns(copy, Large(), workers=1), lambda: remove_columns(copy, "large")):
        with pytest.raises(
            RefusedError, match=r"'colour', but columns/colour is not there, .* run `facefeed remove .* colour`$"
        ):
            change()
        assert {*Index(copy).added} == {"colour", "large"}
    add_columns(copy, Colour(), workers=1)
    add_columns(copy, Large(), workers=1)
    assert {*Index(copy).added} == {"colour", "large"}
    shutil.rmtree(copy / "columns/colour")
    assert remove_columns(copy, "colour") == 0
    assert {*Index(copy).added} == {"large"}


def bytes_of(out: Path) -> dict[str, bytes]:
    """Every file that a reader or the next run uses."""
    files = [path for path in out.rglob("*") if path.is_file() and path.parent.name != "_tmp"]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files if path.name != "driver.lease"}


def stored(out: Path, name: str) -> list[dict[str, Any]]:
    """Rows with those of an added set, as another reader joins them."""
    faces, added = (pads.dataset(out / folder).to_table().to_pylist() for folder in ("faces", f"columns/{name}"))
    columns = {row["face_id"]: row for row in added}
    return [{**row, **columns[row["face_id"]]} for row in faces]


def test_columns_are_those_of_the_stored_crops_and_lie_in_plain_parquet(coloured: Path) -> None:
    rows = stored(coloured, "colour")
    assert len(rows) == 391
    for row in rows[::40]:
        mean = decode_rgb_strictly(row["image"]).mean(axis=(0, 1))
        np.testing.assert_allclose(row["mean_rgb"], mean, rtol=1e-5)
        assert row["brightness"] == pytest.approx(mean.mean(), rel=1e-5)
        assert row["side"] == row["width"]
    for path in (coloured / "faces").rglob("*.parquet"):
        added = pq.read_table(coloured / "columns/colour" / path.name, columns=["face_id"])
        assert added.equals(pq.read_table(path, columns=["face_id"], partitioning=None))


def test_other_readers_read_a_set_as_the_guide_says(coloured: Path) -> None:
    folder = coloured / "columns/colour"
    tables = [pads.dataset(folder).to_table(), pd.read_parquet(folder), pl.read_parquet(f"{folder}/*.parquet")]
    assert [len(table) for table in tables] == [391, 391, 391]


HUGGING_FACE = """
import sys, datasets
datasets.disable_progress_bars()
loaded = datasets.load_dataset("parquet", data_files=sys.argv[1] + "/*.parquet", cache_dir=sys.argv[2])
print(len(loaded["train"]), *loaded["train"].column_names)
"""


def test_hugging_face_reads_the_files_of_a_set(coloured: Path, tmp_path: Path) -> None:
    # In a process of its own, cut off from the network: `datasets` reads its settings when it is imported.
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "HF_DATASETS_OFFLINE": "1", "PATH": ""}
    command = [sys.executable, "-c", HUGGING_FACE, str(coloured / "columns/colour"), str(tmp_path / "cache")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["391", "face_id", "brightness", "side", "tone", "mean_rgb"]


def test_the_index_has_them_and_nothing_else_has_changed(dataset: Path, coloured: Path) -> None:
    index, before = Index(coloured), Index(dataset)
    rows = {row["face_id"]: row for row in stored(coloured, "colour")}
    for number in range(0, len(index), 7):
        row = rows[index.value("face_id", number)]
        assert index.number("brightness", number) == np.float32(row["brightness"])
        assert index.text("tone", number) == row["tone"]
        np.testing.assert_array_equal(index.vectors("mean_rgb", [number])[0], np.array(row["mean_rgb"], np.float32))
    assert all(index.column(name).equals(before.column(name)) for name in before.schema.names)
    assert index.fingerprint == before.fingerprint
    assert index.added == {"colour": "colour-1"}
    unchanged = bytes_of(dataset)
    assert {name for name, data in unchanged.items() if bytes_of(coloured)[name] != data} == {"index.arrow"}
    assert verify(coloured).findings == []


def test_a_loader_delivers_them_and_selects_by_them(coloured: Path) -> None:
    fields = ("image", "row", "brightness", "side", "tone", "mean_rgb")
    loader = FaceDataLoader(coloured, batch_size=32, fields=fields, filters=[("tone", "==", "light")], num_workers=0)
    index = Index(coloured)
    batch = next(iter(loader))
    rows = batch["row"].numpy()
    assert set(batch["tone"]) == {"light"}
    np.testing.assert_array_equal(batch["mean_rgb"].numpy(), index.vectors("mean_rgb", rows))
    np.testing.assert_array_equal(batch["brightness"].numpy(), index.numbers("brightness", rows))
    assert len(loader.dataset) == sum(
        split == "train" and tone == "light"
        for split, tone in zip(index.column("split").to_pylist(), index.column("tone").to_pylist(), strict=True)
    )


def test_removed_they_leave_the_dataset_as_it_was(dataset: Path, copy: Path) -> None:
    result = run("remove", copy, "colour", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"name": "colour", "files": 5, "exit": 0}
    assert bytes_of(copy) == bytes_of(dataset)
    assert not list((copy / "_tmp").iterdir())
    assert not (copy / "columns").exists()


def test_removing_one_of_two_sets_leaves_the_other(copy: Path) -> None:
    before = bytes_of(copy)
    add_columns(copy, Large(), workers=1)
    remove_columns(copy, "large")
    assert bytes_of(copy) == before
    assert [path.name for path in (copy / "columns").iterdir()] == ["colour"]


@pytest.mark.parametrize("moment", ["marked", "index", "renamed"])
def test_a_removal_that_was_killed_leaves_a_valid_dataset_and_is_completed(
    dataset: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    from facefeed.pipeline.added_columns import run as module  # noqa: PLC0415

    class Killed(BaseException): ...

    def kill(*_: object, **__: object) -> Any:
        raise Killed

    victims = {
        "marked": (module, "write_index_or_quarantine"),
        "index": (Path, "rename"),
        "renamed": (shutil, "rmtree"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*victims[moment], kill)
        with pytest.raises(Killed):
            remove_columns(copy, "colour")
    assert verify(copy).findings == []
    assert ("colour" in Index(copy).added) == (moment == "marked")
    if moment == "renamed":
        with pytest.raises(UsageError, match="has no added columns 'colour'; it has none"):
            remove_columns(copy, "colour")
    else:
        with pytest.raises(RefusedError, match=r"'colour' is half removed; run `facefeed remove .* colour` first"):
            add_columns(copy, Colour(), workers=1)
        remove_columns(copy, "colour")
    assert bytes_of(copy) == bytes_of(dataset)
    assert not list((copy / "_tmp").iterdir())


def test_a_second_run_has_nothing_to_do_and_says_so(copy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*.*")}
    result = run("add", copy, f"{FILE}:Colour", "--workers", "1", "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["rows"], figures["rows_before"], figures["units_before"]) == (0, 391, 5)
    assert figures["columns"] == figures["indexed"] == ["brightness", "side", "tone", "mean_rgb"]
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*.*") if path.name != "driver.lease"}.items() <= (
        before.items()
    )


def test_the_reference_documents_every_key_of_the_figures(copy: Path) -> None:
    text = (REFERENCE / "json.md").read_text(encoding="utf-8").split("## Adding columns\n")[1].split("\n## ")[0]
    documented = {*re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)}
    added = run("add", copy, f"{FILE}:Colour", "--workers", "1", "--json")
    assert json.loads(added.stdout.splitlines()[-1]).keys() == documented
    of_remove = re.findall(r"`([^`]+)`", text.split("`facefeed remove --json` has ")[1].split(".")[0])
    assert json.loads(run("remove", copy, "colour", "--json").stdout).keys() == {*of_remove}


def test_two_processes_write_the_bytes_of_one(coloured: Path, out: Path) -> None:
    add_columns(out, f"{FILE}:Colour", workers=2)
    assert bytes_of(out) == bytes_of(coloured)


def test_a_thread_that_the_system_refuses_leaves_no_worker_behind(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `ulimit -u`: the workers have started by then, and would wait for units for ever."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if type(thread).__name__ == "_ExecutorManagerThread":
            raise RuntimeError("can't start new thread")
        start(thread)

    before = {*multiprocessing.active_children()}  # such as another test's cluster
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        add_columns(out, f"{FILE}:Colour", workers=2)
    assert {*multiprocessing.active_children()} <= before


def test_columns_of_more_than_512_values_stay_out_of_the_index(out: Path) -> None:
    summary = add_columns(out, Large(), workers=1)
    assert summary.indexed == ["vector_512"]
    index = Index(out)
    assert "vector_513" not in index.schema.names
    assert index.vectors("vector_512", [3, 5]).shape == (2, 512)
    assert len(pads.dataset(out / "columns/large").to_table()["vector_513"][0]) == 513
    assert verify(out).findings == []
    refused = rf"'vector_513' is no column; vector_513 is too large for the index.* read it .* from {out}/columns/large"
    with pytest.raises(UsageError, match=refused):
        FaceDataLoader(out, batch_size=4, fields=("image", "vector_513"), num_workers=0)


def test_numbers_of_64_bits_without_sign_come_as_they_are_and_can_be_selected_by(out: Path) -> None:
    schema = pa.schema([pa.field("hash", pa.uint64(), nullable=False)])

    def hashes(faces: Any) -> dict[str, Any]:
        return {"hash": np.arange(len(faces), dtype=np.uint64) + np.uint64(2**64 - 1000)}

    add_columns(out, Returning(hashes, schema), workers=1)
    batch = next(iter(FaceDataLoader(out, batch_size=8, fields=("image", "hash"), num_workers=0)))
    assert all(2**64 - 1000 <= number < 2**64 for number in batch["hash"].tolist())
    selected = [("hash", ">", pa.scalar(2**64 - 1000, pa.uint64()))]
    assert 0 < len(FaceDataset(out, filters=selected)) < len(FaceDataset(out))
    for limit in (2**62, 2**63):
        with pytest.raises(
            UsageError, match=r"give a number for a column of uint64 as pyarrow\.scalar\(2\*\*63, 'uint64'\)"
        ):
            FaceDataset(out, filters=[("hash", ">", limit)])


def test_null_lists_and_integers_of_a_batch_are_nan_and_zero(out: Path) -> None:
    schema = pa.schema([("list", pa.list_(pa.int16(), 2)), ("number", pa.int16())])
    nulls = {"list": lambda n: [None, *[[1, 2]] * (n - 1)], "number": lambda n: [None, *[7] * (n - 1)]}
    maker = Returning(lambda faces: {name: of(len(faces)) for name, of in nulls.items()}, schema)
    add_columns(out, maker, workers=1)
    index = Index(out)
    first = index.column("list").null_count
    assert first >= 5
    row = int(np.flatnonzero(np.asarray(index.column("list").is_null()))[0])
    vectors = index.vectors("list", [row, row + 1])
    assert np.isnan(vectors[0]).all()
    np.testing.assert_array_equal(vectors[1], [1, 2])
    assert index.numbers("number", [row, row + 1]).tolist() == [0, 7]


def test_lists_of_integers_are_of_one_type_in_all_batches_of_the_index(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("list", pa.list_(pa.int32(), 2))])
    add_columns(out, Returning(lambda faces: {"list": [None, *[[1, 2]] * (len(faces) - 1)]}, schema), workers=1)
    monkeypatch.setattr(layout, "BATCH_ROWS", 7)
    assert rebuild_index_file(out)
    index = Index(out)
    assert np.flatnonzero(np.asarray(index.column("list").is_null()))[:2].tolist() == [0, 19]
    assert index.vectors("list", [10, 11]).dtype == index.vectors("list", []).dtype == np.float64
    np.testing.assert_array_equal(index.vectors("list", [10, 19, 1]), [[1, 2], [np.nan, np.nan], [1, 2]])


# ---- what makers must be


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1.0], "returned list: must be a dict of columns"),
        ({"other": [1.0]}, r"returned columns \['other'\]: must be \['value'\]"),
        ({"value": np.zeros(3)}, "value: has 3 values: must be one for each of 64 faces"),
        ({"value": np.zeros((64, 2))}, r"value: has shape \(64, 2\): must be \(faces,\)"),
        ({"value": np.array(["a"] * 64)}, "value: is no column of float"),
        ({"value": np.zeros(64, complex)}, "value: is no column of float"),
        ({"value": pa.array([1] * 64)}, "value: is int64: must be float"),
        ({"value": ["a"] * 64}, "value: is no column of float"),
    ],
)
def test_values_that_are_not_those_declared_are_refused_by_class_column_and_faces(
    out: Path, value: Any, problem: str
) -> None:
    with pytest.raises(StoppedError, match=f"Returning: {problem}") as raised:
        add_columns(out, Returning(value), workers=1)
    assert "given the 64 faces from fake/anna-swap.mp4/" in str(raised.value) or "real/anna.mp4/0/0" in str(
        raised.value
    )
    assert not list((out / "_tmp").iterdir())


def test_whole_numbers_that_do_not_fit_their_column_are_refused(out: Path) -> None:
    schema = pa.schema([pa.field("value", pa.int8(), nullable=False)])
    with pytest.raises(StoppedError, match="value: does not fit int8"):
        add_columns(out, Returning(lambda faces: {"value": np.full(len(faces), 300)}, schema), workers=1)
    with pytest.raises(StoppedError, match="value: is float64: must be int8"):
        add_columns(out, Returning(lambda faces: {"value": np.zeros(len(faces))}, schema), workers=1)
    with pytest.raises(StoppedError, match="value: has 64 nulls: the column is declared without nulls"):
        add_columns(out, Returning(lambda faces: {"value": [None] * len(faces)}, schema), workers=1)
    assert (
        add_columns(out, Returning(lambda faces: {"value": np.ones(len(faces))[:] > 0}, schema), workers=1).rows == 391
    )


@pytest.mark.parametrize(
    ("kind", "value", "given"),
    [
        (pa.int32(), 0.93, "double"),
        (pa.int32(), 1.0, "double"),
        (pa.list_(pa.uint8(), 2), [0.7, 254.9], r"list<item: double>"),
        (pa.list_(pa.uint8(), 2), np.array([3, 0.5], np.float32), r"list<item: float>"),
    ],
    ids=["share", "whole", "lists", "arrays"],
)
def test_fractions_in_a_list_are_refused_for_whole_numbers_as_those_of_an_array(
    out: Path, kind: pa.DataType, value: Any, given: str
) -> None:
    maker = Returning(lambda faces: {"value": [value] * len(faces)}, pa.schema([("value", kind)]))
    with pytest.raises(StoppedError, match=f"value: is {given}: must be {kind}".replace("[", r"\[")):
        add_columns(out, maker, workers=1)


@pytest.mark.parametrize("whole", [7, 2**63 - 1, None])
def test_whole_numbers_in_a_list_are_kept_as_they_are(whole: int | None) -> None:
    (column,) = as_batch({"value": [whole, 0]}, pa.schema([("value", pa.int64())]), 2)
    assert column.to_pylist() == [whole, 0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pa.float32(), [0.5, -999.0]), (pa.int32(), [7, -999]), (pa.string(), ["a", "?"])],
    ids=str,
)  # fmt: skip
def test_what_an_array_masks_is_null_or_refused_where_the_column_is_declared_without_nulls(
    kind: pa.DataType, values: list[Any]
) -> None:
    masked = np.ma.masked_array(values, mask=[False, True])
    (column,) = as_batch({"value": masked}, pa.schema([("value", kind)]), 2)
    assert column.to_pylist() == [values[0], None]
    with pytest.raises(WrongValuesError, match="value: has 1 nulls: the column is declared without nulls"):
        as_batch({"value": masked}, pa.schema([pa.field("value", kind, nullable=False)]), 2)


def test_masked_values_in_lists_are_refused() -> None:
    masked = np.ma.masked_array(np.ones((2, 2)), mask=[[False, True], [False, False]])
    with pytest.raises(WrongValuesError, match="value: has masked values in lists: must be a full list or None"):
        as_batch({"value": masked}, pa.schema([("value", pa.list_(pa.float32(), 2))]), 2)


@pytest.mark.parametrize("kind", [pa.float32(), pa.list_(pa.float32(), 2)], ids=str)
@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist], ids=["array", "list"])
def test_numbers_that_would_become_infinite_are_refused(out: Path, kind: pa.DataType, form: Any) -> None:
    def values(faces: Any) -> dict[str, Any]:
        numbers = np.full((len(faces), 2), np.inf)  # what is infinite already may stay so
        numbers[-1] = 1e300
        return {"value": form(numbers if pa.types.is_nested(kind) else numbers[:, 0])}

    with pytest.raises(StoppedError, match=r"value: does not fit .*float.* \(1e\+300 is too large\)"):
        add_columns(out, Returning(values, pa.schema([("value", kind)])), workers=1)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_a_maker_that_raises_is_named_with_the_face(out: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setenv(POISON, "real/anna.mp4/100/0")
    monkeypatch.setenv(DEED, "raise")
    with pytest.raises(StoppedError, match="Poisoned: raised ZeroDivisionError: a bug in the maker in line") as raised:
        add_columns(out, f"{FILE}:Poisoned", workers=workers)
    assert "assets_columns.py, given face real/anna.mp4/100/0; files of finished units are kept" in str(raised.value)
    assert verify(out).findings[0].detail.startswith("not finished, ")
    monkeypatch.delenv(POISON)
    add_columns(out, f"{FILE}:Poisoned", workers=workers)
    assert verify(out).findings == []


MAKER = """
import json
import pyarrow as pa
from facefeed.loaders import FaceDataset  # an import of a user's own

class {name}:
    name, fingerprint, columns = "mine", "1", pa.schema([("value", pa.float32())])
    def compute(self, faces):
        return score(faces)

def score(faces):
    return json.loads("{{")
"""


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_the_line_is_that_of_the_users_own_file(out: Path, tmp_path: Path, workers: int) -> None:
    (tmp_path / "mine.py").write_text(MAKER.format(name="Mine"))
    with pytest.raises(StoppedError, match=r"Mine: raised JSONDecodeError: .* in line 12 of mine\.py, given face "):
        add_columns(out, f"{tmp_path}/mine.py:Mine", workers=workers)


def test_of_a_class_that_inherits_the_line_is_that_of_its_base(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Child(Poisoned): ...

    monkeypatch.setenv(POISON, "real/anna.mp4/100/0")
    monkeypatch.setenv(DEED, "raise")
    with pytest.raises(StoppedError, match=r"Child: raised ZeroDivisionError: .* in line \d+ of assets_columns\.py"):
        add_columns(out, Child(), workers=1)


BLOCKING = """
import signal
import pyarrow as pa

class Blocking:
    name, fingerprint, columns = "blocking", "1", pa.schema([("blocked", pa.int8())])
    def compute(self, faces):
        return {"blocked": [int(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))] * len(faces)}
"""


def test_ctrl_c_is_blocked_in_workers_from_their_start_since_each_would_print_a_traceback(
    out: Path, tmp_path: Path
) -> None:
    (tmp_path / "blocking.py").write_text(BLOCKING)
    add_columns(out, f"{tmp_path}/blocking.py:Blocking", workers=2)
    blocked = pads.dataset(out / "columns/blocking", format="parquet").to_table()["blocked"]
    assert blocked.unique().to_pylist() == [1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_maker_that_swallows_the_interrupt_ends_after_its_unit(
    out: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    stopping = threading.Event()
    announce = RowProgress.on_stopping

    def on_stopping(progress: RowProgress) -> None:
        announce(progress)
        stopping.set()

    def compute(maker: Poisoned, faces: Any) -> Any:
        if not stopping.is_set():  # a second one would end the process
            try:
                signal.raise_signal(number)
            except BaseException:
                assert stopping.wait(60)
        return {"poisoned": np.zeros(len(faces), np.int8)}

    with monkeypatch.context() as patch:
        patch.setattr(RowProgress, "on_stopping", on_stopping)
        monkeypatch.setattr("facefeed.pipeline.added_columns.run.load_column_maker", lambda _: maker)
        maker = type("Swallowing", (Poisoned,), {"compute": compute})()
        result = run("add", out, f"{FILE}:Poisoned", "--workers", "1", "--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout.splitlines()[-1])["error"] == "interrupted; run the same command again to resume"
    assert len(list((out / "columns/poisoned/_receipts").iterdir())) == 1
    assert add_columns(out, Poisoned(), workers=1).units_before == 1


def test_a_worker_that_dies_stops_the_run_which_then_resumes(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POISON, "real/emil.mp4/1/0")
    monkeypatch.setenv(DEED, "kill")
    result = run("add", out, f"{FILE}:Poisoned", "--workers", "2")
    assert result.exit_code == 75
    assert "a worker process ended unexpectedly" in result.stderr
    monkeypatch.delenv(POISON)
    add_columns(out, Poisoned(), workers=1)
    assert verify(out).findings == []
    assert not list((out / "_tmp").iterdir())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "../up"}, "name='../up': must be letters, digits and underscores"),
        ({"fingerprint": None}, "fingerprint=None: must be a text"),
        ({"columns": {"a": 1}}, "columns={'a': 1}: must be a pyarrow schema"),
        ({"columns": pa.schema([("score", pa.float32())])}, "column 'score' is in this dataset already"),
        ({"columns": pa.schema([("landmarks_68", pa.float32())])}, "column 'landmarks_68' is facefeed's own"),
        ({"columns": pa.schema([("row", pa.int64())])}, "column 'row' is facefeed's own"),
        ({"columns": pa.schema([("valid", pa.int8())])}, "column 'valid' is facefeed's own"),
        ({"columns": pa.schema([("labels_per_frame", pa.int8())])}, "column 'labels_per_frame' is facefeed's own"),
        ({"columns": pa.schema([("dataset_index", pa.int8())])}, "column 'dataset_index' is facefeed's own"),
        ({"name": "landmarks"}, "name='landmarks': is facefeed's own; give it another name"),
        ({"columns": pa.schema([("tone", pa.string())])}, "column 'tone' is of the added columns 'colour'"),
        ({"columns": pa.schema([("a b", pa.string())])}, "column 'a b': must be letters"),
        ({"columns": pa.schema([("a", pa.list_(pa.float32()))])}, "column 'a' is list<.*: must be a number"),
        (
            {"columns": pa.schema([("a", pa.list_(pa.float32(), 0))])},
            r"column 'a' is fixed_size_list.*: must be a number",
        ),
        ({"columns": pa.schema([("a", pa.bool_())])}, "column 'a' is bool: must be a number"),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused_before_anything_is_written(
    copy: Path, given: dict[str, Any], problem: str
) -> None:
    before = bytes_of(copy)
    with pytest.raises(UsageError, match=f"Returning: {problem}"):
        add_columns(copy, Returning(**given), workers=1)
    assert bytes_of(copy) == before


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("mesh", "must be landmarks or FILE.py:Class"),
        ("nowhere.py:Maker", "nowhere.py does not exist"),
        (f"{FILE}:Nothing", "has no class 'Nothing'; it has Colour, Large, Slow, Poisoned, Returning"),
        ("{folder}/broken.py:Maker", "cannot be run .ZeroDivisionError: division by zero in line 1 of broken.py"),
        ("{folder}/picky.py:Maker", "cannot be made .TypeError.*its constructor must work without arguments"),
    ],
)
def test_a_file_or_class_that_is_not_there_is_named(out: Path, tmp_path: Path, source: str, problem: str) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "picky.py").write_text("class Maker:\n    def __init__(self, path): ...\n")
    with pytest.raises(UsageError, match=problem):
        add_columns(out, source.format(folder=tmp_path), workers=1)


def test_another_fingerprint_under_the_same_name_is_refused(copy: Path) -> None:
    maker = Returning(name="colour", fingerprint="colour-2")
    with pytest.raises(RefusedError, match=r"fingerprint 'colour-1' there, 'colour-2' now.*run `facefeed remove "):
        add_columns(copy, maker, workers=1)


_VERSIONED = """import pyarrow as pa

class Maker:
    name, fingerprint, columns = "versioned", "{0}", pa.schema([("value", pa.float32())])

    def compute(self, faces):
        return {{"value": [{0}] * len(faces)}}
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_is_saved_after_the_command_began_gives_no_values_under_the_old_fingerprint(
    out: Path, tmp_path: Path, workers: int
) -> None:
    file = tmp_path / "versioned.py"
    file.write_text(_VERSIONED.format(1))

    def save_next(*_: int) -> None:
        file.write_text(_VERSIONED.format(20))  # of another size: Python compiles a file anew by size and second

    with pytest.raises(StoppedError, match="has changed since the command began: its fingerprint was '1' and is '20'"):
        add_columns(out, f"{file}:Maker", workers=workers, on_progress=save_next)
    assert [*(out / "columns/versioned").glob("*.parquet")] == []
    file.write_text(_VERSIONED.format(1))
    assert add_columns(out, f"{file}:Maker", workers=1).units


def test_a_set_that_has_no_file_yet_may_be_begun_anew(out: Path) -> None:
    with pytest.raises(StoppedError):
        add_columns(out, Returning({}), workers=1)
    good = Returning(lambda faces: {"value": np.zeros(len(faces))}, fingerprint="2")
    assert add_columns(out, good, workers=1).fingerprint == "2"


# ---- what else is refused


def test_what_precompute_has_stored_cannot_be_removed(copy: Path) -> None:
    stays = "the column '{}', stored by precompute, cannot be removed"
    for name in ("hull", "landmarks"):
        with pytest.raises(UsageError, match=f"has no added columns '{name}'; it has colour; {stays.format(name)}"):
            remove_columns(copy, name)
    with pytest.raises(UsageError, match="has no added columns 'quality'; it has colour"):
        remove_columns(copy, "quality")
    with pytest.raises(UsageError, match="has no added columns"):
        remove_columns(copy, "../faces")


def test_a_folder_without_a_finished_dataset_is_refused(tmp_path: Path, out: Path) -> None:
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        add_columns(tmp_path, Colour())
    OutPaths(out).manifest.unlink()
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        add_columns(out, Colour())
    with pytest.raises(UsageError, match="workers=0: must be at least 1"):
        add_columns(out, Colour(), workers=0)


def test_while_another_run_is_at_work_it_is_refused(out: Path) -> None:
    with hold_lock(out / "driver.lease", work="facefeed precompute"):
        for call in (lambda: add_columns(out, Colour()), lambda: remove_columns(out, "colour")):
            with pytest.raises(RefusedError, match=r"out: facefeed precompute is working on it \(process"):
                call()


@pytest.mark.parametrize("command", ["add", "remove"])
def test_a_precompute_meanwhile_is_told_which_command_it_is(
    copy: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    from facefeed.pipeline.added_columns import run as module  # noqa: PLC0415

    refused: list[str] = []

    def renew_index(*_: object) -> list[Any]:
        with pytest.raises(RefusedError) as raised, hold_lease(OutPaths(copy)):
            pytest.fail("both hold it")
        refused.append(str(raised.value))
        return []

    monkeypatch.setattr(module, "_renew_index", renew_index)
    if command == "add":
        add_columns(copy, Large(), workers=1)
    else:
        remove_columns(copy, "colour")
    assert f"{copy}: facefeed {command} is working on it (process " in refused[0]


def test_a_set_that_was_not_finished_is_named_with_the_command_that_removes_it(out: Path) -> None:
    with pytest.raises(StoppedError):
        add_columns(out, Returning({}, name="failed"), workers=1)
    with pytest.raises(
        UsageError,
        match=rf"column 'value' is of the added columns 'failed'; give it another name, or run "
        rf"`facefeed remove {out} failed` first, which removes that set, finished or not",
    ):
        add_columns(out, Returning({}, name="next"), workers=1)
    for asked in ({"fields": ("image", "value")}, {"filters": [("value", ">", 1)]}):
        with pytest.raises(
            UsageError, match=r"added columns 'failed' are not finished; run `add_columns\(OUT, Returning"
        ):
            FaceDataLoader(out, num_workers=0, **asked)
    remove_columns(out, "failed")
    add_columns(out, Returning(lambda faces: {"value": np.zeros(len(faces))}, name="next"), workers=1)


def test_a_damaged_image_ends_it_with_the_file_and_the_command_that_finds_it(out: Path) -> None:
    index = Index(out)
    path = out / index.value("file", 0)
    data = bytearray(path.read_bytes())
    data[index.value("image_offset", 0) + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match=rf"{path}.*run `facefeed verify {out}`"):
        add_columns(out, Colour(), workers=1)


# ---- landmarks


@pytest.fixture(scope="module")
def dense(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = copy_dataset(dataset, tmp_path_factory.mktemp("dense") / "out")
    add_columns(out, LandmarkColumns(DenseStandIn(misses=5)), workers=1)
    return out


def test_with_landmarks_a_dataset_has_the_index_of_one_that_was_made_with_them(dense: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "made", landmarker=DenseStandIn(misses=5))
    index, made = Index(dense), Index(tmp_path / "made")
    assert {field.name: field.type for field in index.schema} == {field.name: field.type for field in made.schema}
    fits = [row for row in range(len(index)) if index.text("hull_method", row) == "stand-in"]
    assert 0 < len(fits) < len(index)
    both = [row for row in fits if made.text("hull_method", row) == "stand-in"]
    for row in both[:20]:
        np.testing.assert_allclose(index.points("landmarks_68", row), made.points("landmarks_68", row), atol=1e-3)
        np.testing.assert_allclose(index.points("hull", row), made.points("hull", row), atol=1e-3)
        for name, box in index.regions(row).items():
            np.testing.assert_allclose(box, made.regions(row)[name], atol=1e-3)


def test_a_face_that_they_do_not_fit_keeps_its_hull_and_gets_all_regions(dataset: Path, dense: Path) -> None:
    index, before = Index(dense), Index(dataset)
    missed = [row for row in range(len(index)) if index.text("hull_method", row) == "template5"]
    for row in missed:
        np.testing.assert_array_equal(index.points("hull", row), before.points("hull", row))
        assert len(index.points("landmarks_68", row)) == 0
        assert index.number("landmark_score", row) == 0.125
        for name, box in before.regions(row).items():
            np.testing.assert_allclose(index.regions(row)[name], box, atol=1e-4)
    assert missed
    face = FaceDataset(dense, split=None).face(missed[0])
    assert {"left_brow", "right_brow"} <= set(face.regions)


def test_the_68_points_of_a_batch_follow_the_image(dense: Path) -> None:
    fields = ("image", "row", "landmarks_68", "pose")
    batch = next(iter(FaceDataLoader(dense, batch_size=16, image_size=64, fields=fields, num_workers=0)))
    index = Index(dense)
    for row, points, pose in zip(batch["row"].tolist(), batch["landmarks_68"], batch["pose"], strict=True):
        expected = index.points("landmarks_68", row) * np.float32(64 / index.value("width", row))
        if len(expected):
            np.testing.assert_allclose(points.numpy(), expected, rtol=1e-5)
            assert pose.tolist() == [5, -10, 0]
        else:
            assert np.isnan(points.numpy()).all()
            assert np.isnan(pose.numpy()).all()


def test_a_dataset_that_was_made_with_them_refuses_them(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", landmarker=DenseStandIn())
    with pytest.raises(UsageError, match="out: has dense landmarks already, from `precompute --landmarks mesh`"):
        add_columns(tmp_path / "out", LandmarkColumns(DenseStandIn()))


def test_the_index_is_rebuilt_with_all_of_them(dense: Path, tmp_path: Path) -> None:
    out = copy_dataset(dense, tmp_path / "out")
    add_columns(out, Colour(), workers=1)
    before = (out / "index.arrow").read_bytes()
    (out / "index.arrow").unlink()
    assert rebuild_index_file(out)
    assert (out / "index.arrow").read_bytes() == before
    assert verify(out).findings == []
    inspected = run("inspect", out, "--page", tmp_path / "page.html", "--json")
    assert inspected.exit_code == 0, inspected.output
    page = (tmp_path / "page.html").read_text()
    assert ">brightness</th>" in page
    assert ">landmark score</th>" in page
