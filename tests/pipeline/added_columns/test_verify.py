"""What `facefeed verify`, `precompute` and readers say of added columns that are damaged, stale or incomplete."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from assets_columns import DEED, FILE, POISON, Colour, Returning
from assets_dataset import copy_dataset, finish_dataset, make_dataset
from assets_export import exported
from assets_in_process import Job
from click.testing import CliRunner
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline import report
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.errors import CorruptDataError, RefusedError, StoppedError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.files import sha256_of
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file


@pytest.fixture(scope="module")
def coloured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("coloured") / "out"
    make_dataset(out)
    add_columns(out, f"{FILE}:Colour", workers=1)
    return out


@pytest.fixture
def copy(coloured: Path, tmp_path: Path) -> Path:
    return copy_dataset(coloured, tmp_path / "out")


def column_file(out: Path) -> Path:
    """The largest of the files of added columns."""
    return max((out / "columns/colour").glob("*.parquet"), key=lambda path: path.stat().st_size)


def findings(out: Path) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.location, finding.detail) for finding in verify(out).findings]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def other_faces(path: Path) -> None:
    """The same file with its first two faces exchanged, and a receipt of it: only a comparison of rows finds it."""
    table = pq.read_table(path)
    order = pa.array([1, 0, *range(2, len(table))])
    pq.write_table(table.take(order).replace_schema_metadata(pq.read_metadata(path).metadata), path)
    change_receipt(path, bytes=path.stat().st_size, sha256=sha256_of(path))


def change_receipt(path: Path, **values: Any) -> None:
    receipt = path.parent / "_receipts" / f"{path.stem}.json"
    receipt.write_text(json.dumps({**json.loads(receipt.read_bytes()), **values}))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: path.unlink(), "missing"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-10]), "bytes, its receipt says"),
    "flipped": (lambda path: flip(path, path.stat().st_size // 2), "its SHA-256 is not its receipt's"),
    "faces": (other_faces, "its faces are not those of faces/train/"),
    "stale": (lambda path: change_receipt(path, state="0" * 16), "was computed for other rows: faces/train/"),
    "receipt": (lambda path: (path.parent / "_receipts" / f"{path.stem}.json").unlink(), "its receipt is missing"),
    "no receipt": (lambda path: change_receipt(path, version=9), "not a receipt of added columns"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_columns_is_one_finding_that_names_it(copy: Path, damage: str) -> None:
    path = column_file(copy)
    hurt, detail = DAMAGE[damage]
    hurt(path)
    ((kind, location, text),) = findings(copy)
    assert (kind, location) == ("columns", f"columns/colour/{path.name}")
    assert detail in text
    result = CliRunner().invoke(main, ["verify", str(copy)])
    assert result.exit_code == 1
    first = "" if damage == "missing" else "delete the file and "
    assert result.stderr.splitlines()[-1] == (
        f"columns: {first}run `facefeed add {copy} {FILE}:Colour`, which recomputes it, or `facefeed "
        f"remove {copy} colour`"
    )


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_a_damaged_file_of_rows_is_no_finding_on_its_added_columns(copy: Path, damage: str) -> None:
    path = copy / "faces/train" / column_file(copy).name
    DAMAGE[damage][0](path)
    assert {(kind, location) for kind, location, _ in findings(copy) if kind in ("columns", "index")} == set()


@pytest.mark.parametrize("damage", DAMAGE)
def test_deleting_the_file_and_adding_again_mends_it(coloured: Path, copy: Path, damage: str) -> None:
    path = column_file(copy)
    DAMAGE[damage][0](path)
    path.unlink(missing_ok=True)
    assert add_columns(copy, f"{FILE}:Colour", workers=1).units == 1
    assert findings(copy) == []
    assert path.read_bytes() == column_file(coloured).read_bytes()


def test_a_set_that_the_index_has_and_that_is_gone_is_found(copy: Path) -> None:
    shutil.rmtree(copy / "columns")
    assert findings(copy) == [("columns", "columns/colour", "missing, although the index has its columns")]
    assert rebuild_index_file(copy)
    assert findings(copy) == []
    assert Index(copy).added == {}


def test_a_record_that_says_nothing_is_found_and_can_be_removed(copy: Path) -> None:
    (copy / "columns/colour/_set.json").write_text("{}")
    assert [kind for kind, *_ in findings(copy)] == ["columns"]
    with pytest.raises(Exception, match=r"does not describe added columns .*run `facefeed remove .* colour`"):
        add_columns(copy, Colour(), workers=1)
    remove_columns(copy, "colour")
    assert findings(copy) == []
    assert "brightness" not in Index(copy).schema.names


def test_a_set_of_a_dataset_of_another_version_is_not_removed(copy: Path) -> None:
    """It may be sound, and read by the version that made it."""
    manifest = copy / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 2}))
    (copy / "columns/colour/_set.json").write_text("{}")
    with pytest.raises(CorruptDataError, match="is of version 2"):
        remove_columns(copy, "colour")
    assert (copy / "columns/colour/_set.json").exists()


def test_a_copy_of_a_set_in_its_folder_is_removed_by_the_command_that_the_error_names(copy: Path) -> None:
    shutil.copytree(copy / "columns/colour", copy / "columns/colour old")
    with pytest.raises(CorruptDataError, match=r"run `facefeed remove .* 'colour old'`"):
        add_columns(copy, Colour(), workers=1)
    remove_columns(copy, "colour old")
    assert findings(copy) == []
    assert "brightness" in Index(copy).schema.names


@pytest.mark.parametrize("name", ["", ".", "..", "../faces", "colour/_receipts"])
def test_nothing_but_a_set_is_removed(copy: Path, name: str) -> None:
    with pytest.raises(UsageError, match="has no added columns"):
        remove_columns(copy, name)
    assert findings(copy) == []


def test_columns_with_values_that_are_no_numbers_are_sound(copy: Path) -> None:
    schema = pa.schema([("one", pa.float32()), ("two", pa.list_(pa.float64(), 2))])

    def compute(faces: Any) -> dict[str, Any]:
        values = np.full((len(faces), 2), np.nan)
        return {"one": values[:, 0], "two": values}

    add_columns(copy, Returning(compute, schema), workers=1)
    assert findings(copy) == []


def test_an_index_with_the_classes_in_another_order_is_found(copy: Path) -> None:
    path = copy / "index.arrow"
    data = path.read_bytes()
    assert data.count(b'["real", "fake"]') == 2, "in the schema at both ends of the file"
    path.write_bytes(data.replace(b'["real", "fake"]', b'["fake", "real"]'))
    assert [kind for kind, *_ in findings(copy)] == ["index"]
    assert rebuild_index_file(copy)
    assert findings(copy) == []


def test_a_file_of_no_unit_is_found(copy: Path) -> None:
    path = column_file(copy)
    path.with_name("0" * 32 + ".parquet").write_bytes(path.read_bytes())
    ((kind, _, detail),) = findings(copy)
    assert (kind, detail) == ("columns", "is of no unit of this dataset; other readers would see its rows")


def test_a_file_that_a_killed_run_has_published_is_adopted(coloured: Path, copy: Path) -> None:
    path = column_file(copy)
    inode = path.stat().st_ino
    (path.parent / "_receipts" / f"{path.stem}.json").unlink()
    add_columns(copy, f"{FILE}:Colour", workers=1)
    assert path.stat().st_ino == inode
    receipts = "columns/colour/_receipts"
    assert {each.name: each.read_bytes() for each in (copy / receipts).iterdir()} == {
        each.name: each.read_bytes() for each in (coloured / receipts).iterdir()
    }


def test_a_damaged_file_of_a_set_that_lacks_units_is_named_too(copy: Path) -> None:
    paths = sorted((copy / "columns/colour").glob("*.parquet"))
    column_file(copy).unlink()
    assert rebuild_index_file(copy)
    damaged = next(path for path in paths if path.exists())
    flip(damaged, damaged.stat().st_size - 20)  # in the footer, which building an index does not check
    (_, location, detail), (_, of_set, lacks) = findings(copy)
    assert location == f"columns/colour/{damaged.name}"
    assert detail == "its SHA-256 is not its receipt's"
    assert (of_set, lacks.partition(" of ")[0]) == ("columns/colour", "not finished, it lacks 1 unit")


def test_a_damaged_file_is_set_aside_when_the_index_is_written_again(copy: Path) -> None:
    path = column_file(copy)
    data = path.read_bytes()
    at = data.index(pq.read_table(path)["tone"].to_pylist()[0].encode())
    flip(path, at)
    maker = Returning(lambda faces: {"value": np.zeros(len(faces))})
    with pytest.raises(StoppedError, match=r"1 damaged file went to _tmp: run the same command"):
        add_columns(copy, maker, workers=1)
    add_columns(copy, maker, workers=1)
    assert Index(copy).added == {"returning": "1"}
    ((_, location, detail),) = findings(copy)
    assert location == "columns/colour"
    assert detail == "not finished, it lacks 1 unit of 5 with 320 rows"
    add_columns(copy, f"{FILE}:Colour", workers=1)
    assert findings(copy) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: shutil.rmtree(out / "columns"),
        lambda out: (out / "columns/colour/_set.json").unlink(),
        lambda out: (out / "columns/notes.txt").write_text("mine"),
        lambda out: column_file(out).with_name("0" * 32 + ".parquet").write_bytes(b""),
    ],
)
def test_a_finding_on_a_set_as_a_whole_has_a_remedy_that_helps(copy: Path, spoil: Callable[[Path], object]) -> None:
    spoil(copy)
    (finding,) = verify(copy).findings
    if finding.remedy.startswith("delete"):
        (copy / finding.location).unlink()
    else:
        (command,) = re.findall(r"`facefeed ([^`]+)`", finding.remedy)
        CliRunner().invoke(main, shlex.split(command))
    assert verify(copy).findings == []


def test_an_unfinished_set_is_finished_or_removed_by_the_commands_that_verify_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "OUT of two"
    make_dataset(out)
    (tmp_path / "mine.py").write_text(FILE.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(POISON, "real/anna.mp4/100/0")
    monkeypatch.setenv(DEED, "raise")
    with pytest.raises(StoppedError):
        add_columns(out, "mine.py:Poisoned", workers=1)
    monkeypatch.delenv(POISON)
    report.print_verdict(verify(out), out)
    remedy = capsys.readouterr().err.splitlines()[-1]
    finish, remove = re.findall(r"`facefeed ([^`]+)`", remedy)
    assert remedy == f"columns: run `facefeed {finish}`, which completes them, or `facefeed {remove}`"
    assert shlex.split(finish) == ["add", str(out), f"{tmp_path}/mine.py:Poisoned"]
    assert shlex.split(remove) == ["remove", str(out), "poisoned"]
    monkeypatch.chdir("/")
    assert CliRunner().invoke(main, [*shlex.split(finish), "--workers", "1"]).exit_code == 0
    assert findings(out) == []
    assert CliRunner().invoke(main, shlex.split(remove)).exit_code == 0
    assert findings(out) == []


def test_what_completes_the_columns_of_an_object_is_a_call(copy: Path) -> None:
    with pytest.raises(StoppedError):
        add_columns(copy, Returning({}), workers=1)
    (finding,) = verify(copy).findings
    assert finding.remedy.startswith("run `add_columns(OUT, Returning(...))`, which completes them, or `facefeed ")


# ---- new and changed videos


Run = Callable[[Path], Summary]


@pytest.fixture
def run(cluster_address: str, small_options: Options, tmp_path: Path) -> Run:
    def call(source: Path) -> Summary:
        return precompute(
            source, tmp_path / "out", options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address
        )

    return call


def test_after_new_and_changed_videos_columns_are_out_of_the_index_until_what_is_missing_was_added(
    run: Run, make_source: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, source = tmp_path / "out", make_source("real/a.mp4", "real/b.mp4", "real/c.mp4")
    run(source)
    add_columns(out, f"{FILE}:Colour", workers=1)
    before = {path.name: path.stat().st_mtime_ns for path in (out / "columns/colour").glob("*.parquet")}
    assert run(source).incomplete_columns == []
    assert Index(out).added == {"colour": "colour-1"}, "a run without anything new changes nothing"
    make_source("real/d.mp4")
    (source / "real/b.mp4").write_bytes((source / "real/a.mp4").read_bytes() + b"\0" * 8)
    summary = run(source)
    text = f"added columns 'colour': 10 rows lack them; run `facefeed add {out} {FILE}:Colour`"
    assert list(map(str, summary.incomplete_columns)) == [text]
    assert report.summary_json(summary)["incomplete_columns"] == [text]
    report.print_summary(summary, source, out)
    assert text in capsys.readouterr().err
    assert exported(out, tmp_path / "dest", "hf")["incomplete_columns"] == [text]
    ((kind, location, detail),) = findings(out)
    assert (kind, location) == ("columns", "columns/colour")
    assert detail == "not finished, it lacks 2 units of 4 with 10 rows"
    kept = {path.name for path in (out / "columns/colour").glob("*.parquet")}
    assert len(kept) == len(list((out / "columns/colour/_receipts").iterdir())) == 2, (
        "of superseded units nothing stays"
    )

    with pytest.raises(UsageError) as no_field:
        FaceDataLoader(out, split=None, batch_size=4, fields=("image", "tone"), num_workers=0)
    assert str(no_field.value) == f"fields: 'tone' is no column; {text}"
    with pytest.raises(UsageError) as no_filter:
        FaceDataset(out, split=None, filters=[("tone", "==", "dark")])
    assert str(no_filter.value).startswith('filters=(tone == "dark"): ')
    assert str(no_filter.value).endswith(text)
    assert len(str(no_filter.value).removesuffix(text)) < 100
    assert len(FaceDataset(out, split=None)) == 20
    moved = shutil.copytree(out, tmp_path / "OUT moved")
    with pytest.raises(UsageError, match=rf"run `facefeed add '{moved}' {FILE}:Colour`"):
        FaceDataset(moved, split=None, filters=[("tone", "==", "dark")])

    assert add_columns(out, f"{FILE}:Colour", workers=1).rows == 10
    assert findings(out) == []
    assert Index(out).column("brightness").null_count == 0
    after = {path.name: path.stat().st_mtime_ns for path in (out / "columns/colour").glob("*.parquet")}
    assert {name: before[name] for name in kept}.items() <= after.items(), "what was there is not computed again"


class JobWithCopy(Job):
    """A job while which somebody copies a set of added columns in its folder, after its next unit."""

    is_copying = False

    def copy_set(self) -> None:
        shutil.copytree(self.out / "columns/colour", self.out / "columns/colour.bak")

    def on_unit_finished(self) -> None:
        super().on_unit_finished()
        if self.is_copying:
            self.copy_set()


@pytest.fixture
def job(make_source: Callable[..., Path], small_options: Options, tmp_path: Path) -> Iterator[JobWithCopy]:
    """Of two videos that have added columns, and a new one."""
    job = JobWithCopy(make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out", small_options)
    with job.stack:
        job.run()
        add_columns(job.out, f"{FILE}:Colour", workers=1)
        make_source("real/c.mp4")
        yield job


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_copy_of_a_set_that_a_run_finds_is_removed_by_the_command_that_it_names(job: JobWithCopy, when: str) -> None:
    units = job.finished_here
    if when == "before":
        job.copy_set()
    job.is_copying = when == "during"
    with pytest.raises(CorruptDataError, match="does not describe added columns") as caught:
        job.run()
    job.is_copying = False
    assert job.finished_here == units + (when == "during"), "what it cannot finish it does not begin"
    assert verify(job.out).is_finished == (when == "before")
    (command,) = re.findall(r"`facefeed ([^`]+)`", str(caught.value))
    assert CliRunner().invoke(main, shlex.split(command)).exit_code == 0
    job.run()
    assert job.finished_here == units + 1, "no unit is done again"
    assert {path.name for path in (job.out / "columns").iterdir()} == {"colour"}
    assert {finding.location for finding in verify(job.out).findings} == {"columns/colour"}, "the new rows lack them"


def test_a_set_and_a_manifest_that_are_both_damaged_are_mended_by_what_the_messages_name(job: JobWithCopy) -> None:
    for name in ("columns/colour/_set.json", "manifest.json"):
        (job.out / name).write_text("{}")
    (finding,) = verify(job.out).findings
    assert finding.remedy.startswith("run `facefeed precompute` again")
    with pytest.raises(CorruptDataError, match="does not describe added columns") as caught:
        job.run()
    (command,) = re.findall(r"`facefeed ([^`]+)`", str(caught.value))
    assert CliRunner().invoke(main, shlex.split(command)).exit_code == 0
    job.run()
    assert findings(job.out) == []


def test_a_sound_set_of_an_unfinished_dataset_is_not_removed(job: JobWithCopy) -> None:
    job.is_copying = True
    with pytest.raises(CorruptDataError):
        job.run()
    with pytest.raises(RefusedError, match="a later run did not come to its end"):
        remove_columns(job.out, "colour")


def test_a_dataset_without_added_columns_has_the_index_that_it_had(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out")
    before = (tmp_path / "out/index.arrow").read_bytes()
    assert b"facefeed.added" not in before
    (tmp_path / "out/columns").mkdir()
    finish_dataset(tmp_path / "out")
    assert (tmp_path / "out/index.arrow").read_bytes() == before
    assert findings(tmp_path / "out") == []


def test_an_unfinished_dataset_is_refused_with_what_finishes_it(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    result = CliRunner().invoke(main, ["add", str(copy), f"{FILE}:Colour", "--json"])
    assert result.exit_code == 2
    assert "no finished dataset" in json.loads(result.stdout)["error"]


def test_filters_on_numbers_of_added_columns_select_rows(copy: Path) -> None:
    index = Index(copy)
    limit = float(np.median(index.column("brightness").to_numpy()))
    chosen = FaceDataset(copy, split=None, filters=pc.field("brightness") > limit)
    assert len(chosen) == int((index.column("brightness").to_numpy() > limit).sum())
