"""`facefeed compact`: the same rows in fewer files, what it refuses, and what comes after it."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from assets_columns import FILE, Large
from assets_dataset import NO_ROWS, UNITS, Clip, copy_dataset, make_dataset, open_run_state
from assets_docs import REFERENCE
from assets_failing_commands import files_of
from assets_in_process import Job
from assets_killed import Killed, killed_at
from assets_video import numbered, write_video
from click.testing import CliRunner, Result
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.cli import main
from facefeed.pipeline.commit.lease import hold_lease
from facefeed.pipeline.compaction.grouping import plan_compaction
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dataset.added_columns import ColumnSet
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.errors import CorruptDataError, RefusedError, UsageError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.plan import PlanPart, Unit
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file
from facefeed.pipeline.video import Sampling

SMALL = (
    *UNITS, ("train", (Clip("real/gina.mp4", 30), Clip("fake/gina-swap.mp4", 12))),
    ("train", (Clip("real/hugo.mp4", 25),)), ("val", (Clip("real/ines.mp4", 9),)),
)  # fmt: skip
"""Six units of train, one of them split and one without rows, two of val, and one of test."""
FILES_BEFORE, FILES = 8, 3


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With added columns, some of which are too large for the index."""
    out = tmp_path_factory.mktemp("compact") / "out"
    make_dataset(out, SMALL)
    add_columns(out, f"{FILE}:Colour", workers=1)
    add_columns(out, Large(), workers=1)
    return out


@pytest.fixture(scope="module")
def compacted(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = copy_dataset(dataset, tmp_path_factory.mktemp("compacted") / "out")
    compact(out, workers=1)
    return out


@pytest.fixture
def out(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


@pytest.fixture
def copy(compacted: Path, tmp_path: Path) -> Path:
    return copy_dataset(compacted, tmp_path / "out")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def table_of(folder: Path, pattern: str = "faces/*/*.parquet") -> pa.Table:
    table: pa.Table = pads.dataset(sorted(folder.glob(pattern)), partitioning=None).to_table().sort_by("face_id")
    return table


def names_of(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file() and "_tmp" not in path.parts}


# --- what stays as it was


def test_the_rows_are_the_same_in_one_file_a_split(dataset: Path, compacted: Path) -> None:
    assert len([*dataset.glob("faces/*/*.parquet")]) == FILES_BEFORE
    assert sorted(path.parent.name for path in compacted.glob("faces/*/*.parquet")) == ["test", "train", "val"]
    assert table_of(compacted).equals(table_of(dataset))
    assert len([*compacted.glob("receipts/*.json")]) == FILES


def test_the_rows_of_a_video_stay_together_in_their_order(dataset: Path, compacted: Path) -> None:
    def videos(out: Path) -> dict[str, list[str]]:
        ids: dict[str, list[str]] = {}
        for path in out.glob("faces/*/*.parquet"):
            rows = pq.read_table(path, columns=["video_id", "face_id"], partitioning=None).to_pylist()
            names = [row["video_id"] for row in rows]
            assert names == sorted(names, key=names.index), "rows of two videos are mixed"
            for row in rows:
                ids.setdefault(row["video_id"], []).append(row["face_id"])
        return ids

    assert videos(compacted) == videos(dataset)


def test_verify_accounts_for_every_input_as_before(dataset: Path, compacted: Path) -> None:
    result = verify(compacted)
    assert result.is_finished
    assert result.findings == []
    before, after = Manifest.read(dataset), Manifest.read(compacted)
    assert after.fingerprint != before.fingerprint
    assert (before.units, after.units) == (9, FILES)
    for name in ("config", "labels", "splits", "rows", "inputs", "refused", "faces_without_mask"):
        assert getattr(after, name) == getattr(before, name), name


def test_added_columns_are_copied_too(dataset: Path, compacted: Path) -> None:
    for name in ("colour", "large"):
        pattern = f"columns/{name}/*.parquet"
        assert len([*compacted.glob(pattern)]) == FILES
        assert table_of(compacted, pattern).equals(table_of(dataset, pattern))
        assert len([*compacted.glob(f"columns/{name}/_receipts/*")]) == FILES
    assert Index(compacted).added == Index(dataset).added
    assert json.loads(run("add", compacted, f"{FILE}:Colour", "--workers", "1", "--json").stdout)["units"] == 0


def test_a_loader_reads_every_face_once(dataset: Path, compacted: Path) -> None:
    def faces(out: Path) -> list[str]:
        loader = FaceDataLoader(
            out, batch_size=16, image_size=32, num_workers=0, drop_last=False, fields=("image", "face_id")
        )
        return sorted(face for batch in loader for face in batch["face_id"])

    assert faces(compacted) == faces(dataset)


def test_nothing_of_the_small_files_is_left(compacted: Path) -> None:
    assert [*(compacted / "_tmp").iterdir()] == []
    assert not (compacted / "index.next.arrow").exists()


# --- what is merged


def test_a_second_run_finds_nothing_to_merge(copy: Path) -> None:
    before = {name: (copy / name).read_bytes() for name in names_of(copy) if not name.endswith(".lease")}
    result = run("compact", copy)
    assert result.exit_code == 0
    assert "nothing to merge: 3 files" in result.stderr
    assert {name: (copy / name).read_bytes() for name in before} == before
    assert names_of(copy) - {"driver.lease"} == before.keys() - {"driver.lease"}


def test_files_are_merged_up_to_the_size_and_large_ones_stay(out: Path) -> None:
    run_state = open_run_state(out)
    sizes = {unit.unit_id: 0 for unit in run_state.plan.units()}
    for planned, _, receipt in run_state.finished_units():
        sizes[planned.unit_id] += receipt.bytes
    largest = max(sizes.values())
    units = plan_compaction(run_state, 2 * largest).units
    merged = {name for unit in units for name in unit.supersedes}
    assert {name for name, size in sizes.items() if size == largest} & merged == set()
    assert {unit.split for unit in units} == {"train", "val"}
    for unit in units:
        assert sum(sizes[name] for name in unit.supersedes) <= 2 * largest
        assert unit.reuses == tuple(entry.video_id for entry in unit.inputs)
    small = sorted(size for size in sizes.values() if size)[:2]
    assert plan_compaction(run_state, small[0]).units == ()
    groups = plan_compaction(run_state, 200_000).units
    assert all(sum(sizes[name] for name in unit.supersedes) <= 200_000 for unit in groups)


def test_a_file_beside_units_without_one_is_not_copied(tmp_path: Path) -> None:
    """A new name for it would change the fingerprint, and so end the training runs on it, for nothing."""
    out = tmp_path / "out"
    make_dataset(out, (("train", (Clip("real/anna.mp4", 5),)), ("train", NO_ROWS)))
    before = Manifest.read(out)
    result = run("compact", out)
    assert "nothing to merge: 1 file" in result.stderr
    assert Manifest.read(out) == before


def test_rows_of_an_input_that_an_earlier_version_retried_in_a_unit_of_its_own_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = (Clip("real/anna.mp4", 5), Clip("real/cut.mp4", 4, "truncated"))
    make_dataset(out, tuple(("train", clips) for clips in (first, (Clip("real/bert.mp4", 3),))))
    run_state = open_run_state(out)
    failed, other = run_state.plan.units()
    retried = Unit.make([failed.inputs[1]], "train", config_hash=run_state.config_hash, salt="1")
    receipt = run_state.receipt(other)
    assert receipt is not None
    receipt = replace(receipt, unit=retried.unit_id, inputs=[replace(receipt.inputs[0], video_id="real/cut.mp4")])
    run_state.paths.receipt(retried.unit_id).write_text(receipt.to_json())
    run_state.plan.append(run_state.paths, PlanPart(config=run_state.plan.parts[0].config, units=(retried,)))
    (merged,) = plan_compaction(open_run_state(out), 1 << 30).units
    assert merged.supersedes == (other.unit_id, retried.unit_id)


def test_two_threads_write_the_bytes_of_one(out: Path, compacted: Path) -> None:
    compact(out, workers=2)
    files = {name for name in names_of(compacted) if name.endswith(".parquet")}
    assert {name for name in names_of(out) if name.endswith(".parquet")} == files
    assert all((out / name).read_bytes() == (compacted / name).read_bytes() for name in files)


def test_the_report_names_files_rows_and_time(out: Path) -> None:
    result = run("compact", out, "--workers", "1")
    assert result.exit_code == 0
    assert re.search(r"8 files before, 3 now, [\d.]+ kB; 448 rows copied at [\d,]+ a second; ", result.stderr)


def test_json_has_the_documented_keys(out: Path) -> None:
    text = (REFERENCE / "json.md").read_text(encoding="utf-8").split("## Compaction\n")[1].split("\n## ")[0]
    documented = {*re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)}
    figures = json.loads(run("compact", out, "--json").stdout.splitlines()[-1])
    assert figures.keys() == documented
    assert (figures["files_before"], figures["files"], figures["merged_files"]) == (FILES_BEFORE, FILES, 2)
    assert figures["merged_rows"] == Index(out).num_rows - 19


# --- what is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [({"target_mb": 0}, "target_mb=0"), ({"target_mb": 1.5}, r"target_mb=1\.5"), ({"workers": 0}, "workers=0")],
)
def test_wrong_arguments_are_refused_by_name(out: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compact(out, **given)


def test_an_unfinished_dataset_is_refused_and_unchanged(out: Path) -> None:
    (out / "manifest.json").unlink()
    before = names_of(out)
    result = run("compact", out)
    assert result.exit_code == 2
    assert "no manifest.json, so no finished dataset" in result.stderr
    assert names_of(out) == before


def test_a_dataset_on_which_another_run_is_at_work_is_refused(out: Path) -> None:
    with hold_lease(OutPaths(out)), pytest.raises(RefusedError, match="is working on it"):
        compact(out)


def test_a_disk_without_room_for_a_copy_is_refused_before_anything_is_written(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
    before = names_of(out)
    with pytest.raises(RefusedError, match=r"small files of [\d.]+ kB, .* are copied before .* 1\.0 kB are free"):
        compact(out)
    assert names_of(out) - {"driver.lease"} == before - {"driver.lease"}


def test_the_disk_needs_room_for_a_copy_of_their_added_columns_too(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [path for split in ("train", "val") for path in out.glob(f"faces/{split}/*.parquet")]
    copied = [*small, *(path for unit in small for path in out.glob(f"columns/*/{unit.name}"))]
    size, usage = sum(path.stat().st_size for path in copied), namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, size - 1))
    with pytest.raises(RefusedError, match=r"small files of .* with their added columns, are copied before"):
        compact(out)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, size))
    assert compact(out).merged_files == 2


def test_a_dataset_that_lacks_a_file_is_refused_with_what_to_do(out: Path) -> None:
    next(out.glob("faces/train/*.parquet")).unlink()
    with pytest.raises(CorruptDataError, match=r"1 unit of it, for example \w+, is missing or damaged; run `facefeed"):
        compact(out)
    assert not (out / "plan/1.json").exists()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ("faces/train", r"faces/train/\w+\.parquet: its SHA-256 is not its receipt's"),
        ("columns/colour", r"columns/colour/\w+\.parquet: its SHA-256 is not its receipt's"),
    ],
)
def test_a_damaged_file_is_found_before_anything_is_written_and_verify_names_it(
    out: Path, damaged: str, message: str
) -> None:
    flip(max((out / damaged).glob("*.parquet"), key=lambda each: each.stat().st_size))
    before = files_of(out)
    with pytest.raises(CorruptDataError, match=rf"{message}; nothing was written: run `facefeed verify"):
        compact(out, workers=2)
    assert files_of(out) == before
    assert {finding.location.startswith(damaged) for finding in verify(out).findings} == {True}


def test_a_dataset_without_its_plan_is_refused_and_nothing_is_added_to_it(out: Path) -> None:
    shutil.rmtree(out / "plan")
    before = files_of(out)
    for command in (("compact", out), ("add", out, f"{FILE}:Colour")):
        result = run(*command)
        assert result.exit_code == 1
        assert "holds 0 parts, the manifest accounts for 1; run `facefeed verify" in result.stderr
    assert files_of(out) == before


def test_an_interrupt_ends_the_check_of_the_files(out: Path) -> None:
    before, calls = files_of(out), []

    def on_progress(*progress: int) -> None:
        calls.append(progress)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(out, on_progress=on_progress)
    assert files_of(out) == before


# --- stopped half-way


def test_an_interrupt_ends_the_threads_and_leaves_no_attempt(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(done: int, _: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(out, workers=2, on_progress=interrupt)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("facefeed-merge")]
    assert [*(out / "_tmp").iterdir()] == []
    compact(out)
    assert verify(out).findings == []


def kill_half_way(out: Path) -> None:
    """After one merged unit, before the other."""

    def die(done: int, _: int) -> None:
        if done:
            raise Killed

    with pytest.raises(Killed):
        compact(out, workers=1, on_progress=die)


def test_after_a_kill_other_commands_name_the_one_that_finishes_it(out: Path) -> None:
    kill_half_way(out)
    assert Index(out).num_rows == Manifest.read(out).rows
    added = run("add", out, f"{FILE}:Slow")
    assert added.exit_code == 2
    assert re.search(r"unfinished: a compaction did not come to its end; \d of 3 units are done", added.stderr)
    assert f"next: run `facefeed compact {out}` again" in added.stderr
    verdict = run("verify", out)
    assert verdict.exit_code == 1
    assert "facefeed compact" in verdict.stderr


def test_the_same_command_finishes_it_and_copies_no_unit_twice(out: Path, compacted: Path) -> None:
    kill_half_way(out)
    merged = {
        path: path.stat().st_ino
        for path in out.glob("faces/*/*.parquet")
        if (compacted / path.relative_to(out)).exists()
    }
    summary = compact(out, workers=1)
    assert (summary.files_before, summary.files, summary.merged_files) == (FILES_BEFORE, FILES, 1)
    assert summary.is_resumed
    assert summary.removed_files == 7
    assert len(merged) == 2  # one of them is the file of test, which stays
    assert {path: path.stat().st_ino for path in merged} == merged
    assert table_of(out).equals(table_of(compacted))
    assert Index(out).added == Index(compacted).added
    assert verify(out).findings == []


def test_what_was_not_removed_at_the_end_is_removed_by_the_next_run(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("facefeed.pipeline.compaction.run.remove_superseded", lambda _: 0)
        compact(out, workers=1)
    (finding,) = verify(out).findings
    assert finding.kind == "unknown-file"
    assert re.fullmatch(
        r"is left of a unit that was replaced, and \d+ more: readers of the folder see rows twice", finding.detail
    )
    assert finding.remedy == f"run `facefeed compact {out}`, which removes them"
    report = run("compact", out)
    assert "7 files removed that an interrupted run had left; 3 files" in " ".join(report.stderr.split())
    assert "nothing to merge" not in report.stderr
    assert verify(out).findings == []


# --- added columns that are not all there


def file_of_colour(out: Path) -> Path:
    """Its file for a unit of val, whose small file has 31 rows."""
    column_set = ColumnSet.read(OutPaths(out), "colour")
    assert column_set is not None
    receipt = next(each for _, unit, each in open_run_state(out).finished_units() if unit.split == "val" and each.file)
    return column_set.unit_file(receipt.unit)


def test_columns_whose_files_are_gone_are_not_lost_without_a_word(out: Path) -> None:
    shutil.rmtree(out / "columns/colour")
    with pytest.raises(
        RefusedError, match=r"'colour', but columns/colour is not there, .* run `facefeed remove .* colour`$"
    ):
        compact(out, workers=1)
    assert "colour" in Index(out).added
    assert rebuild_index_file(out)
    assert compact(out, workers=1).merged_files == 2


def test_columns_that_lack_rows_are_not_lost_for_others_and_the_commands_are_named(out: Path) -> None:
    file_of_colour(out).unlink()
    before = files_of(out)
    result = run("compact", out)
    assert result.exit_code == 2
    assert re.search(
        r"31 rows of small files lack the added columns 'colour', .* run `facefeed add .*`, or `facefeed remove",
        " ".join(result.stderr.split()),
    )
    assert files_of(out) == before
    add_columns(out, f"{FILE}:Colour", workers=1)
    compact(out)
    assert verify(out).findings == []


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda record: record.write_text("{"), "does not describe added columns"),
        (Path.unlink, "not there, but files of its columns are"),
    ],
)
def test_where_the_record_of_columns_is_damaged_nothing_begins_and_they_can_be_removed(
    out: Path, spoil: Callable[[Path], object], text: str
) -> None:
    spoil(out / "columns/colour/_set.json")
    with pytest.raises(CorruptDataError, match=f"{text}.*run `facefeed remove"):
        compact(out)
    assert not (out / "plan/1.json").exists()
    remove_columns(out, "colour")
    compact(out)
    assert verify(out).findings == []


def test_columns_that_lack_rows_are_named_also_where_nothing_is_merged(copy: Path) -> None:
    file_of_colour(copy).unlink()
    assert rebuild_index_file(copy)
    result = run("compact", copy, "--json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["merged_files"], figures["removed_files"]) == (0, 0)
    assert figures["incomplete_columns"] == [
        f"added columns 'colour': 40 rows lack them; run `facefeed add {copy} {FILE}:Colour`"
    ]


def test_columns_that_were_lost_while_a_compaction_was_killed_are_named_with_what_adds_them(out: Path) -> None:
    path = file_of_colour(out)
    with killed_at(out, 30), pytest.raises(Killed):
        compact(out, workers=1)
    path.unlink()
    result = run("compact", out)
    assert result.exit_code == 0
    assert re.search(r"added columns 'colour': \d+ rows lack them; run `facefeed add", result.stderr)
    assert {*Index(out).added} == {"large"}
    add_columns(out, f"{FILE}:Colour", workers=1)
    assert verify(out).findings == []


# --- precompute after it

OPTIONS = Options(sampling=Sampling(every=5), keep=FaceFilter(min_face_px=16), size_px=64)


@pytest.fixture
def job(tmp_path: Path) -> Any:
    """Four videos that came one after the other, so that each is a unit of its own; three of them in one split."""
    job = Job(tmp_path / "src", tmp_path / "out", OPTIONS)
    for number, name in enumerate(("train/real/a", "train/real/b", "train/real/c", "val/real/d")):
        film(tmp_path / f"src/{name}.mp4", 16 * number)
        job.run()
    yield job
    job.stack.close()


def film(path: Path, first: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_video(path, [numbered(first + number, 160, 120) for number in range(10)])


def test_precompute_has_nothing_to_do_after_it(job: Any) -> None:
    rows = job.rows()
    assert len([*job.out.glob("faces/train/*.parquet")]) == 3
    compact(job.out)
    files = {path: path.stat().st_ino for path in job.out.glob("faces/*/*.parquet")}
    job.run()
    assert {path: path.stat().st_ino for path in job.out.glob("faces/*/*.parquet")} == files
    assert job.rows().equals(rows)


def test_a_video_that_changes_after_it_is_done_again_alone(job: Any) -> None:
    compact(job.out)
    film(job.out.parent / "src/train/real/b.mp4", 100)
    job.run()
    reused = {outcome.video_id: outcome.reused for _, outcome in open_run_state(job.out).outcomes()}
    assert reused == {
        "train/real/a.mp4": True, "train/real/b.mp4": False, "train/real/c.mp4": True, "val/real/d.mp4": False,
    }  # fmt: skip
    assert verify(job.out).findings == []


def test_a_plan_from_before_it_is_refused_and_no_file_is_touched(job: Any) -> None:
    rows = job.rows()
    compact(job.out)
    last = max((job.out / "plan").iterdir(), key=lambda path: int(path.stem))
    content = last.read_bytes()
    last.unlink()
    before = names_of(job.out)
    with pytest.raises(CorruptDataError, match=r"holds \d parts, the manifest accounts for \d; run `facefeed verify"):
        job.run()
    assert names_of(job.out) == before
    with pytest.raises(CorruptDataError, match="the manifest accounts for"):
        dry_run(job.source, job.out, options=OPTIONS, detector=FixedBoxDetector())
    last.write_bytes(content)
    job.run()
    assert job.rows().equals(rows)


def test_precompute_finishes_a_compaction_that_was_killed(job: Any) -> None:
    rows = job.rows()
    with killed_at(job.out, 12), pytest.raises(Killed):
        compact(job.out, workers=1)
    assert not verify(job.out).is_finished
    job.run()
    assert job.rows().equals(rows)
    assert verify(job.out).findings == []


# --- speed


def test_a_row_group_is_read_once_however_many_videos_it_holds(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []

    class Counting(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
        def read_row_group(self, number: int, columns: list[str] | None = None, **given: Any) -> pa.Table:
            if columns is None and "/faces/" in self._source_name:
                read.append((self._source_name, number))
            return super().read_row_group(number, columns=columns, **given)

        def __init__(self, source: Any, **given: Any) -> None:
            self._source_name = str(source)
            super().__init__(source, **given)

    monkeypatch.setattr("facefeed.pipeline.rows.reuse.pq.ParquetFile", Counting)
    compact(out, workers=1)
    assert read
    assert len(read) == len({*read})
