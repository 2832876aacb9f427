"""The main job, from a folder of videos to an account of every one of them, on a real Dask cluster."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from assets_faults import (
    POISON_SIZE,
    BrokenProcessDetector,
    FaultyDetector,
    RecordingDetector,
    UnloadableDetector,
    faulty_child,
)
from assets_index import flip_bit
from assets_video import numbered, read_number, spoil, write_video
from click.testing import CliRunner
from distributed import LocalCluster
from facefeed.pipeline import report
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.image_codec import ImageEncoder, decode_rgb_strictly
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import CorruptDataError, RefusedError, StoppedError, TooManyFailedError, UsageError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.execution.unit_scheduler import UnitScheduler
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.inspect.inspection import inspect_dataset
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import FailureLimit, Summary, precompute
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import DecoderLimits, Sampling
from rich.console import Console

Run = Callable[..., Summary]
MakeSource = Callable[..., Path]


@pytest.fixture
def run(cluster_address: str, small_options: Options, tmp_path: Path) -> Run:
    """`precompute` with a detector that needs no network; OUT is `tmp_path/out` unless named."""

    def call(src: Path, out: Path | None = None, **given: Any) -> Summary:
        given = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address, **given}
        return precompute(src, out or tmp_path / "out", **given)

    return call


def table(out: Path) -> pa.Table:
    """All rows, in an order that does not depend on units."""
    return pads.dataset(out / "faces").to_table().sort_by("face_id")


def receipts(out: Path) -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_bytes()) for path in (out / "receipts").iterdir()}


def written(out: Path) -> dict[str, tuple[int, int]]:
    """Identity and time of every unit's file and receipt: what was redone has other ones."""
    paths = [*(out / "receipts").iterdir(), *(out / "faces").rglob("*.parquet")]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def poison(path: Path, frames: int = 6) -> Path:
    """A video that the faulty detectors choke on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = POISON_SIZE
    return write_video(path, [numbered(number, width, height) for number in range(frames)])


def test_every_wanted_frame_of_every_video_becomes_rows(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    summary = run(make_source("real/a.mp4", "fake/b.mp4"))
    rows = table(tmp_path / "out").to_pylist()
    assert [(row["video_id"], row["frame_index"]) for row in rows] == [
        (name, index) for name in ("fake/b.mp4", "real/a.mp4") for index in (0, 10, 15, 20, 5)
    ]
    assert {row["video_id"]: row["label"] for row in rows} == {"real/a.mp4": 0, "fake/b.mp4": 1}
    assert {(row["frame_width"], row["frame_height"]) for row in rows} == {(160, 120)}
    assert summary.manifest.rows == 10
    assert summary.manifest.inputs == {"total": 2, "ok": 2, "partial": 0, "no_faces": 0, "failed": {}, "missing": 0}
    assert verify(tmp_path / "out").findings == []


@pytest.mark.processes
def test_a_worker_on_the_cpu_loads_no_torch(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    """Its import takes seconds, and in each worker 400 MB."""
    detector = RecordingDetector(modules=str(tmp_path / "modules"))
    run(make_source("real/a.mp4"), detector=detector, scheduler=None, workers=1)
    modules = {name.partition(".")[0] for name in (tmp_path / "modules").read_text().split()}
    assert modules & {"torch", "torchvision", "facenet_pytorch", "openvino", "distributed"} == {
        "openvino",
        "distributed",
    }


def test_a_row_shows_the_frame_that_it_names(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    whole_frame = FixedBoxDetector(boxes=((0.0, 0.0, 1.0, 1.0),))
    options = Options(sampling=Sampling(every=7), margin=0.0, size_px=160)
    run(make_source("real/a.mp4"), detector=whole_frame, options=options)
    for row in table(tmp_path / "out").to_pylist():
        crop = decode_rgb_strictly(row["image"])
        assert crop.shape == (160, 160, 3)  # a square round 160 x 120, black above and below
        assert crop[:18].max() < 16
        assert read_number(crop[20:140]) == row["frame_index"]
        assert row["pts_seconds"] == pytest.approx(row["frame_index"] / 25)


def test_every_input_has_exactly_one_outcome(
    run: Run, make_source: MakeSource, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_source("real/a.mp4", "real/b.mp4")
    (source / "real/empty.mp4").touch()
    (source / "real/text.mp4").write_text("no video\n" * 50)
    (source / "real/<script>alert(1)<.mp4").write_text("x" * 100)
    whole = (source / "real/a.mp4").read_bytes()
    (source / "real/cut.mp4").write_bytes(whole[: len(whole) // 2])
    (source / "real/link.mp4").symlink_to(shutil.copyfile(source / "real/a.mp4", tmp_path / "outside.mp4"))
    spoil(source / "real/scratched.mp4", source / "real/a.mp4", range(20, 25))
    limits = DecoderLimits(max_damaged_percent=20)
    summary = run(source, limits=limits, max_failed=FailureLimit(count=5))
    assert summary.partial == ["real/scratched.mp4"]
    assert summary.manifest.inputs == {
        "total": 8, "ok": 2, "partial": 1, "no_faces": 0, "missing": 0,
        "failed": {"empty": 1, "not_video": 2, "outside_root": 1, "truncated": 1},
    }  # fmt: skip
    assert verify(tmp_path / "out").findings == []
    report.print_summary(summary, source, tmp_path / "out")
    stderr = capsys.readouterr().err
    assert re.search(r"partial\W+1\b", stderr)
    assert "1 partial input, without the damaged frames: real/scratched.mp4" in stderr


def test_a_video_without_faces_is_counted_apart_from_failures_and_only_such_are_no_dataset(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    with pytest.raises(TooManyFailedError, match="no face in any of 1 input") as raised:
        run(make_source("real/a.mp4"), detector=FixedBoxDetector(boxes=()), max_failed=FailureLimit(count=1))
    assert raised.value.details["inputs"] == {
        "total": 1, "ok": 0, "partial": 0, "no_faces": 1, "failed": {}, "missing": 0,
    }  # fmt: skip
    assert not OutPaths(tmp_path / "out").manifest.exists()


def test_a_second_run_redoes_nothing(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("real/a.mp4", "real/b.mp4", "fake/c.mp4")
    first = run(source)
    before = written(tmp_path / "out")
    second = run(source)
    assert written(tmp_path / "out") == before
    assert second.totals.inputs == 0
    assert second.manifest == first.manifest


def test_what_lost_its_receipt_is_adopted_not_made_again(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("real/a.mp4", "real/b.mp4")
    run(source)
    rows, before = table(tmp_path / "out"), written(tmp_path / "out")
    for path in (tmp_path / "out/receipts").iterdir():
        path.unlink()
    OutPaths(tmp_path / "out").manifest.unlink()
    run(source)
    after = written(tmp_path / "out")
    assert {name: stat for name, stat in after.items() if name.endswith(".parquet")} == {
        name: stat for name, stat in before.items() if name.endswith(".parquet")
    }
    assert table(tmp_path / "out") == rows
    assert verify(tmp_path / "out").findings == []


def test_a_damaged_orphan_is_set_aside_and_made_again(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    run(source)
    rows = table(out)
    (file,) = (out / "faces").rglob("*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.write_bytes(data)
    for path in (out / "receipts").iterdir():
        path.unlink()
    run(source)
    assert table(out) == rows
    assert [path.name for path in (out / "_tmp").iterdir() if path.suffix == ".quarantined"]


def test_files_that_no_unit_accounts_for_leave_the_readers_way(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    run(source)
    (file,) = (out / "faces").rglob("*.parquet")
    shutil.copyfile(file, file.with_name("stray.parquet"))
    summary = run(source)
    assert [Path(name).name for name in summary.orphans] == ["stray.parquet"]
    assert verify(out).findings == []


def test_videos_that_come_later_only_add_units(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    run(source)
    before = written(out)
    make_source("fake/b.mp4")
    summary = run(source)
    assert before.items() <= written(out).items()
    assert summary.totals.inputs == 1
    assert set(table(out)["video_id"].to_pylist()) == {"real/a.mp4", "fake/b.mp4"}
    assert verify(out).findings == []


def test_a_changed_video_replaces_its_rows(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    run(source)
    old = set(written(out))
    write_video(source / "real/a.mp4", [numbered(number, 160, 120) for number in range(12)])
    summary = run(source)
    assert table(out)["frame_index"].to_pylist() == [0, 10, 5]
    assert len(summary.changes.changed) == 1
    assert old.isdisjoint(written(out))
    assert verify(out).findings == []


def test_a_copy_of_the_source_with_new_times_makes_nothing_anew(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4", "fake/c.mp4"), tmp_path / "out"
    first = run(source)
    before = written(out)
    scratch = tmp_path / "scratch"
    shutil.copytree(source, scratch, copy_function=shutil.copyfile)  # as `cp -r` does: the same bytes, new times
    for number, path in enumerate(sorted(scratch.rglob("*.mp4"))):
        os.utime(path, ns=(number, 10**18 + number))
    second_run = run(scratch)
    assert second_run.totals.inputs == 0
    assert written(out) == before
    assert second_run.manifest == replace(first.manifest, plan_parts=2)  # the second part holds the new times alone
    assert (len(second_run.changes.touched), second_run.changes.changed) == (3, [])
    assert run(scratch).changes.touched == [], "the new times are known now: nothing is hashed again"


def test_of_a_unit_only_the_changed_video_is_decoded_again(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4", "real/c.mp4"), tmp_path / "out"
    lines = ["path,label,source", "real/a.mp4,real,", "real/b.mp4,fake,real/a.mp4", "real/c.mp4,fake,real/a.mp4"]
    (source / "table.csv").write_text("\n".join(lines))  # of one original: one unit
    run(source / "table.csv")
    before = table(out)
    write_video(source / "real/b.mp4", [numbered(number, 160, 120) for number in range(12)])
    summary = run(source / "table.csv")
    assert (summary.totals.inputs, summary.totals.frames) == (1, 3)
    changed = pc.field("video_id") == "real/b.mp4"
    assert table(out).filter(~changed).equals(before.filter(~changed)), "every column, also images and masks"
    assert table(out).filter(changed)["frame_index"].to_pylist() == [0, 10, 5]
    assert verify(out).findings == []


def test_rows_of_a_video_that_is_gone_are_kept(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    run(source)
    rows = table(out)
    (source / "real/b.mp4").unlink()
    summary = run(source)
    assert table(out) == rows
    assert summary.changes.gone == ["real/b.mp4"]
    assert summary.manifest.inputs["total"] == 2
    assert verify(out).findings == []


def test_rows_of_a_video_that_cannot_be_looked_at_are_kept_and_reported_apart_from_those_that_are_gone(
    run: Run, make_source: MakeSource, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4", "real/c.mp4"), tmp_path / "out"
    run(source)
    rows = table(out)
    for name in ("real/b.mp4", "real/c.mp4"):
        (source / name).unlink()
    (source / "real/b.mp4").symlink_to("not-there-now.mp4")
    summary = run(source)
    assert table(out) == rows
    assert (summary.unreadable, summary.kept) == (["real/b.mp4"], ["real/c.mp4"])
    figures = report.summary_json(summary)["changes"]
    assert (figures["unreadable"], figures["gone"]) == (1, 1)
    report.print_summary(summary, source, out)
    text = " ".join(capsys.readouterr().err.split())
    assert "not readable in the source, rows were kept as they were; the same command looks again: 1 input" in text
    assert "no longer in the source, rows were kept: 1 input" in text
    (source / "real/b.mp4").unlink()
    write_video(source / "real/b.mp4", [numbered(number, 160, 120) for number in range(12)])
    assert run(source).unreadable == []
    assert table(out).filter(pc.field("video_id") == "real/b.mp4")["frame_index"].to_pylist() == [0, 10, 5]


def test_rows_of_a_gone_video_outlive_the_change_of_its_neighbour_in_the_unit(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    lines = ["path,label,source", "real/a.mp4,real,", "real/b.mp4,fake,real/a.mp4"]  # of one original: one unit
    (source / "table.csv").write_text("\n".join(lines))
    run(source / "table.csv")
    before = table(out)
    (source / "real/b.mp4").unlink()
    write_video(source / "real/a.mp4", [numbered(number, 160, 120) for number in range(12)])
    run(source / "table.csv")
    after = table(out)
    of_b = pc.field("video_id") == "real/b.mp4"
    assert after.filter(of_b).equals(before.filter(of_b))
    assert after.filter(~of_b)["frame_index"].to_pylist() == [0, 10, 5]
    assert verify(out).findings == []


def test_other_settings_are_refused_by_name(run: Run, make_source: MakeSource, small_options: Options) -> None:
    source = make_source("real/a.mp4")
    run(source)
    with pytest.raises(RefusedError, match=r"size_px: 64 there, 80 now"):
        run(source, options=replace(small_options, size_px=80))
    with pytest.raises(RefusedError, match=r"detector: "):
        run(source, detector=FixedBoxDetector(boxes=((0.1, 0.1, 0.5, 0.5),)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            lambda: {"options": {"margin": 0.3}},
            r"options={.*}: must be Options; try Options\(margin=0\.3\)",
        ),
        (lambda: {"options": Options(size_px=224.5)}, r"size=224\.5: must be 16 to 4096 px"),  # type: ignore[arg-type]
        (lambda: {"options": Options(margin="0.3")}, "margin='0.3': must be 0 to 10"),  # type: ignore[arg-type]
        (lambda: {"options": Options(align="no")}, "align='no': must be of type bool"),  # type: ignore[arg-type]
        (lambda: {"options": Options(image="png")}, "image='png': must be of type ImageEncoder"),  # type: ignore[arg-type]
        (lambda: {"options": Options(seed="x")}, "seed='x': must be a whole number"),  # type: ignore[arg-type]
        (lambda: {"options": Options(keep=FaceFilter(max_faces=1.5))}, r"max_faces=1\.5"),  # type: ignore[arg-type]
        (lambda: {"options": Options(image=ImageEncoder(quality=9.5))}, r"quality=9\.5"),  # type: ignore[arg-type]
        (lambda: {"options": Options(sampling=Sampling(fps="3"))}, "fps='3'"),  # type: ignore[arg-type]
        (lambda: {"limits": DecoderLimits(deadline_seconds="9")}, "deadline_seconds='9'"),  # type: ignore[arg-type]
        (lambda: {"limits": 60}, r"limits=60: must be DecoderLimits; try DecoderLimits\(deadline_seconds=60\)"),
        (lambda: {"max_failed": "1%"}, r"max_failed='1%': must be a FailureLimit; try FailureLimit\.parse\('1%'\)"),
        (lambda: {"max_failed": FailureLimit(count=-1)}, "max_failed: count=-1: must be a number of inputs"),
        (lambda: {"retry_failed": "sloth"}, "retry-failed sloth: no such reason; use one of empty, not_video"),
        (lambda: {"columns": "age"}, r"columns='age': must be a list of names; try \['age'\]"),
        (lambda: {"splits": 5}, "splits=5: must be the path of a file, such as 'splits.json', or None"),
        (lambda: {"layout": 5}, "layout=5: must be a name, or an object with name, needs, fits, read; has no name"),
        (lambda: {"detector": 5}, "detector=5: must be a name, or an object with fingerprint, frames_at_once, detect"),
        (lambda: {"detector": FixedBoxDetector}, r"detector=FixedBoxDetector: is a class; .*=FixedBoxDetector\(\)"),
        (lambda: {"landmarker": 5}, "landmarker=5: must be a name, or an object with fingerprint, is_dense, locate"),
        (lambda: {"workers": "2"}, "workers='2': must be at least 1"),
        (lambda: {"workers": (1, 2, 3), "cluster": "slurm"}, r"workers=\(1, 2, 3\): must be two whole numbers"),
        (lambda: {"workers": 1, "cluster": "slurmm"}, "slurmm"),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_before_anything_is_written(
    make_source: MakeSource, tmp_path: Path, arguments: Callable[[], dict[str, Any]], message: str
) -> None:
    source = make_source("real/a.mp4")
    with pytest.raises(UsageError, match=message):
        precompute(source, tmp_path / "out", **arguments())
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_else_is_refused(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("real/a.mp4")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").touch()
    with pytest.raises(RefusedError, match="holds files that are no facefeed dataset"):
        run(source)
    with pytest.raises(UsageError, match="is a file"):
        run(source, tmp_path / "out/thesis.txt")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_more_failures_than_allowed_leave_no_manifest_and_a_larger_allowance_finishes(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    (source / "real/empty.mp4").touch()
    with pytest.raises(TooManyFailedError, match=r"1 of 3 inputs failed \(1 empty\), none may fail") as raised:
        run(source, max_failed=FailureLimit(count=0))
    assert [failure["video_id"] for failure in raised.value.details["failures"]] == ["real/empty.mp4"]
    assert not OutPaths(out).manifest.exists()
    unfinished = verify(out)
    assert (unfinished.findings, unfinished.is_finished, unfinished.pending, unfinished.rows) == ([], False, 0, 10)
    before = written(out)
    assert run(source, max_failed=FailureLimit(count=1)).totals.inputs == 0
    assert written(out) == before
    assert Manifest.read(out).inputs["failed"] == {"empty": 1}


def test_what_failed_and_was_removed_from_the_source_no_longer_counts_as_failed_until_it_is_back(
    run: Run, make_source: MakeSource, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    (source / "real/empty.mp4").touch()
    time = (source / "real/empty.mp4").stat().st_mtime
    run(source, max_failed=FailureLimit(count=1))
    (source / "real/empty.mp4").unlink()
    summary = run(source, max_failed=FailureLimit(count=0))
    assert (summary.failures, summary.manifest.removed) == ([], ["real/empty.mp4"])
    assert (summary.manifest.inputs["total"], summary.manifest.inputs["failed"]) == (2, {})
    report.print_summary(summary, source, out)
    text = capsys.readouterr().err
    assert re.search("without rows, removed from SRC .* 1", text)
    assert "rows were kept" not in text
    figures = report.summary_json(summary)
    assert (figures["removed"], figures["changes"]["gone"]) == (1, 0)
    stream = io.StringIO()
    progress = Progress(Console(file=stream, width=10_000, highlight=False))
    summary = run(source, max_failed=FailureLimit(count=0), retry_failed="", progress=progress)
    assert (summary.failures, summary.totals.inputs) == ([], 0)
    assert "rows stay" not in stream.getvalue(), "it has none"
    inspection = inspect_dataset(out)
    assert not inspection.outcomes.failures
    assert "None of the 2 inputs failed." in [finding.what for finding in inspection.findings]
    assert verify(out).findings == []
    (source / "real/empty.mp4").touch()
    os.utime(source / "real/empty.mp4", (time, time))
    summary = run(source, max_failed=FailureLimit(count=1))
    assert (summary.manifest.inputs["failed"], summary.manifest.removed) == ({"empty": 1}, [])
    (source / "real/empty.mp4").unlink()
    (source / "real/empty.mp4").symlink_to("/etc/hostname")  # there, but with a problem: nothing that was removed
    summary = run(source, max_failed=FailureLimit(count=1))
    assert (summary.manifest.inputs["failed"], summary.manifest.removed) == ({"empty": 1}, [])


def test_a_finished_dataset_is_unfinished_again_after_a_later_run_that_ends_early(
    run: Run, make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    run(source)
    make_source("real/new.mp4")
    spoil(source / "real/b.mp4", source / "real/a.mp4", range(20, 22))
    (source / "real/empty.mp4").touch()
    with pytest.raises(TooManyFailedError, match="1 of 4 inputs failed"):
        run(source, max_failed=FailureLimit(count=0), limits=DecoderLimits(max_damaged_percent=50))
    verdict = verify(out)
    assert (verdict.findings, verdict.is_finished, verdict.exit_code) == ([], False, 1)
    page = ["--page", str(tmp_path / "inspect.html")]
    for command in (["verify", str(out)], ["inspect", str(out), *page]):
        stderr = CliRunner().invoke(main, command).stderr
        assert "unfinished: a later run did not come to its end; 3 of 3 units are done, 0 inputs left to do" in stderr
        assert "1 input failed: 1 empty" in stderr
        assert f"run `facefeed precompute SRC {out}` again, with the same options" in stderr
        assert "--retry-failed" in stderr
        assert "--max-failed 1" in stderr
    assert not (tmp_path / "inspect.html").exists()
    refused = CliRunner().invoke(main, ["verify", str(out), "--rebuild-index"])
    assert refused.exit_code == 2
    assert "a later run did not come to its end" in refused.stderr
    run(source, max_failed=FailureLimit(count=1))
    assert (verify(out).findings, verify(out).is_finished) == ([], True)


def test_an_interrupted_later_run_on_a_dataset_that_did_not_count_its_plan_parts_is_unfinished(
    run: Run, make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    run(source)
    manifest = json.loads((out / "manifest.json").read_bytes())
    del manifest["plan_parts"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    make_source("real/new.mp4")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(UnitScheduler, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(source)
    verdict = verify(out)
    assert (verdict.findings, verdict.is_finished, verdict.pending) == ([], False, 1)
    stderr = CliRunner().invoke(main, ["inspect", str(out), "--page", str(tmp_path / "inspect.html")]).stderr
    assert "unfinished: a later run did not come to its end" in stderr
    run(source)
    assert (verify(out).findings, verify(out).is_finished) == ([], True)


def test_a_damaged_manifest_is_replaced_by_the_next_run(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    run(source)
    (out / "manifest.json").write_text("{")
    make_source("real/new.mp4")
    assert run(source).manifest == Manifest.read(out)
    assert verify(out).findings == []


def test_a_run_that_is_refused_for_failures_of_before_leaves_a_finished_dataset_finished(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    (source / "real/empty.mp4").touch()
    run(source, max_failed=FailureLimit(count=1))
    make_source("real/new.mp4")
    with pytest.raises(TooManyFailedError, match="nothing was done"):
        run(source, max_failed=FailureLimit(count=0))
    assert (verify(out).findings, verify(out).is_finished) == ([], True)
    assert run(source, max_failed=FailureLimit(count=1)).totals.inputs == 1


@pytest.mark.parametrize(("fault", "reason"), [("segfault", "crashed"), ("hang", "timeout"), ("memory", "too_large")])
def test_a_video_that_takes_its_decoder_down_loses_only_itself(
    run: Run, make_source: MakeSource, tmp_path: Path, fault: str, reason: str
) -> None:
    source = make_source("real/a.mp4", "real/poison.mp4", "real/z.mp4")
    patience_seconds = 2 if fault == "hang" else 60
    limits = DecoderLimits(command=faulty_child(fault), deadline_seconds=patience_seconds, memory_bytes=1 << 30)
    summary = run(source, limits=limits, max_failed=FailureLimit(count=1))
    assert summary.manifest.inputs["failed"] == {reason: 1}
    assert set(table(tmp_path / "out")["video_id"].to_pylist()) == {"real/a.mp4", "real/z.mp4"}
    assert summary.totals.lost_units == 0
    assert verify(tmp_path / "out").findings == []


def test_inputs_that_another_limit_of_damage_decided_are_named_and_redone_on_request_alone(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    spoil(source / "real/scratched.mp4", source / "real/a.mp4", range(20, 25))  # one of the five wanted frames

    def warnings(max_damaged_percent: float, **given: Any) -> str:
        stream = io.StringIO()
        progress = Progress(Console(file=stream, width=10_000, highlight=False))
        run(source, limits=DecoderLimits(max_damaged_percent=max_damaged_percent), progress=progress,
            max_failed=FailureLimit(count=1), **given)  # fmt: skip
        events = [json.loads(line) for line in stream.getvalue().splitlines()]
        messages = [
            event["text"] for event in events if event["event"] == "warning" and "--max-damaged" in event["text"]
        ]
        return "\n".join(messages)

    assert warnings(20) == ""
    rows, before = table(out), written(out)
    assert warnings(40) == ""
    assert warnings(0) == (
        "1 partial input has more damage than --max-damaged 0% allows and keeps its rows, since it was judged by "
        "another limit (20%): real/scratched.mp4; with --retry-failed decode_error it is judged again"
    )
    assert (written(out), table(out)) == (before, rows)
    assert warnings(0, retry_failed="decode_error") == ""
    assert Manifest.read(out).inputs["failed"] == {"decode_error": 1}
    assert set(table(out)["video_id"].to_pylist()) == {"real/a.mp4"}
    assert verify(out).findings == []
    before = written(out)
    assert warnings(20) == (
        "1 input failed as decode_error that --max-damaged 20% may allow and stays failed, since it was judged by "
        "another limit (0%): real/scratched.mp4; with --retry-failed decode_error it is judged again"
    )
    assert written(out) == before
    assert warnings(20, retry_failed="") == ""
    assert (table(out), Manifest.read(out).inputs["partial"]) == (rows, 1)
    assert verify(out).findings == []


def test_of_a_unit_only_what_another_limit_of_damage_decided_is_judged_anew(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    spoil(source / "real/scratched.mp4", source / "real/a.mp4", range(20, 25))
    run(source, limits=DecoderLimits(max_damaged_percent=20))
    none = DecoderLimits(max_damaged_percent=0)
    result = run(source, limits=none, retry_failed="decode_error", max_failed=FailureLimit(count=1))
    assert (result.totals.inputs, len(result.changes.rejudged)) == (1, 1)
    assert set(table(out)["video_id"].to_pylist()) == {"real/a.mp4", "real/b.mp4"}
    assert verify(out).findings == []


def test_failures_are_redone_on_request_alone(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source, out = make_source("real/a.mp4", "real/poison.mp4"), tmp_path / "out"
    broken = DecoderLimits(command=faulty_child("segfault"))
    run(source, limits=broken, max_failed=FailureLimit(count=1))
    before = written(out)
    assert run(source, max_failed=FailureLimit(count=1)).totals.inputs == 0
    assert run(source, retry_failed="timeout", max_failed=FailureLimit(count=1)).totals.inputs == 0
    assert written(out) == before
    mended = run(source, retry_failed="crashed")
    assert mended.totals.inputs == 1
    assert mended.manifest.inputs == {"total": 2, "ok": 2, "partial": 0, "no_faces": 0, "failed": {}, "missing": 0}
    assert set(table(out)["video_id"].to_pylist()) == {"real/a.mp4", "real/poison.mp4"}
    assert verify(out).findings == []


@pytest.mark.parametrize("fault", ["kill", pytest.param("raise", marks=pytest.mark.processes)])
def test_a_video_that_takes_its_worker_down_is_found_and_loses_only_itself(
    run: Run, make_source: MakeSource, tmp_path: Path, fault: str
) -> None:
    source = make_source(*(f"real/{name}.mp4" for name in "abd"))
    poison(source / "real/c.mp4")
    summary = run(source, detector=FaultyDetector(fault), max_failed=FailureLimit(count=1))
    (failure,) = summary.failures
    assert (failure.video_id, failure.reason) == ("real/c.mp4", "crashed")
    assert "worker was lost" in failure.detail or "a bug in the detector" in failure.detail
    assert summary.manifest.inputs == {
        "total": 4,
        "ok": 3,
        "partial": 0,
        "no_faces": 0,
        "failed": {"crashed": 1},
        "missing": 0,
    }
    assert verify(tmp_path / "out").findings == []


@pytest.mark.processes
def test_a_worker_that_is_lost_once_costs_no_video(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("real/a.mp4")
    poison(source / "real/b.mp4")
    summary = run(source, detector=FaultyDetector("kill once", str(tmp_path / "marker")))
    assert summary.totals.lost_units == 1
    assert summary.manifest.inputs["ok"] == 2
    undisturbed = run(source, tmp_path / "other")
    assert table(tmp_path / "out") == table(tmp_path / "other")
    assert undisturbed.totals.lost_units == 0


@pytest.mark.processes
def test_an_only_worker_whose_process_is_broken_gets_a_new_one_and_costs_no_video(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, broken = make_source("real/a.mp4", "real/b.mp4"), BrokenProcessDetector(marker=str(tmp_path / "marker"))
    summary = run(source, detector=broken, scheduler=None, workers=1)
    assert summary.manifest.inputs == {"total": 2, "ok": 2, "partial": 0, "no_faces": 0, "failed": {}, "missing": 0}
    assert summary.totals.lost_units == 1


def test_a_detector_that_cannot_be_loaded_stops_the_run_at_once_and_says_why(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source = make_source("real/a.mp4")
    with pytest.raises(StoppedError, match=r"the cluster failed \(RuntimeError: CUDA error: no kernel image"):
        run(source, detector=UnloadableDetector())
    assert run(source).manifest.inputs["ok"] == 1


@pytest.mark.processes
def test_a_missing_main_guard_is_reported_once_in_one_line(make_source: MakeSource, tmp_path: Path) -> None:
    script, source, out = tmp_path / "script.py", str(make_source("real/a.mp4")), str(tmp_path / "out")
    script.write_text(
        "from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector\n"
        "from facefeed.pipeline.precompute import precompute\n"
        f"precompute({source!r}, {out!r}, detector=FixedBoxDetector(), workers=1)"
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1
    assert "if __name__ == '__main__':" in result.stderr.splitlines()[-1]


def test_workers_of_several_threads_are_refused_with_what_to_start_instead(
    make_source: MakeSource, small_options: Options, tmp_path: Path
) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=3, dashboard_address="127.0.0.1:0", host="127.0.0.1") as cluster,
        pytest.raises(StoppedError, match=r"1 workers have several threads .* start them with --nthreads 1"),
    ):
        precompute(
            make_source("real/a.mp4"), tmp_path / "out", options=small_options, detector=FixedBoxDetector(),
            scheduler=cluster.scheduler_address,
        )  # fmt: skip


def test_a_neighbour_changed_twice_before_it_was_done_costs_a_gone_video_nothing(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    (source / "table.csv").write_text("path,label,source\nreal/a.mp4,real,\nreal/b.mp4,fake,real/a.mp4")
    run(source / "table.csv")
    of_b = pc.field("video_id") == "real/b.mp4"
    before = table(out).filter(of_b)
    (source / "real/b.mp4").unlink()
    poison(source / "real/a.mp4")
    with pytest.raises(StoppedError):  # planned, but not done
        run(source / "table.csv", detector=UnloadableDetector())
    write_video(source / "real/a.mp4", [numbered(number, 160, 120) for number in range(12)])
    assert run(source / "table.csv").manifest.inputs["ok"] == 2
    assert table(out).filter(of_b).equals(before)
    assert verify(out).findings == []


def test_a_run_with_nothing_to_do_writes_neither_index_nor_manifest(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, paths = make_source("real/a.mp4"), OutPaths(tmp_path / "out")
    run(source)
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (paths.index, paths.manifest)]
    summary = run(source)
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (paths.index, paths.manifest)] == before
    assert summary.manifest == Manifest.read(paths.root)


@pytest.mark.parametrize(
    "defect", ["no index", "empty index", "not installed", "other rows", "another bit", "unreadable", "no manifest"]
)
def test_a_run_with_nothing_to_do_writes_an_index_that_is_not_that_of_the_rows(
    defect: str, run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, paths = make_source("real/a.mp4"), OutPaths(tmp_path / "out")
    run(source)
    before = paths.index.read_bytes(), paths.manifest.read_bytes()
    if defect == "no index":
        paths.index.unlink()
    elif defect == "empty index":
        paths.index.write_bytes(b"")
    elif defect == "not installed":  # killed after the manifest
        paths.index.rename(paths.next_index)
    elif defect == "other rows":
        with pa.ipc.open_file(paths.index) as index:
            batch = index.read_all().slice(1)
        with pa.ipc.new_file(paths.index, batch.schema) as writer:
            writer.write_table(batch)
    elif defect == "another bit":
        flip_bit(paths.index, "label")
    elif defect == "unreadable":
        paths.index.unlink()
        paths.index.symlink_to(paths.index.name)
    else:
        paths.manifest.unlink()
    run(source)
    assert (paths.index.read_bytes(), paths.manifest.read_bytes()) == before
    assert not paths.next_index.exists()
    assert verify(paths.root).findings == []


def test_a_file_that_was_damaged_before_the_account_is_made_anew_by_the_next_run(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    run(source)
    rows = table(out)
    OutPaths(out).manifest.unlink()
    path = min((out / "faces").rglob("*.parquet"))
    column = pq.read_metadata(path).row_group(0).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StoppedError, match=r"1 damaged file went to _tmp: run the same command again"):
        run(source)
    assert run(source).totals.inputs == 1
    assert table(out).equals(rows)
    assert verify(out).findings == []


def test_a_run_that_cannot_write_its_index_of_files_that_are_whole_does_not_ask_to_be_repeated(
    run: Run, make_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CorruptDataError("a row group is unreadable")

    monkeypatch.setattr("facefeed.pipeline.commit.finalize.write_dataset_index", fail)
    with pytest.raises(CorruptDataError, match="a row group is unreadable; run `facefeed verify"):
        run(make_source("real/a.mp4"))


def test_a_refused_leak_leaves_no_trace_of_a_new_out(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("train/real/a.mp4", "test/fake/b.mp4")
    lines = ["path,label,split,source", "train/real/a.mp4,real,train,", "test/fake/b.mp4,fake,test,train/real/a.mp4"]
    (source / "table.csv").write_text("\n".join(lines))
    with pytest.raises(RefusedError, match="a leak"):
        run(source / "table.csv")
    assert not (tmp_path / "out").exists()
    assert run(source / "table.csv", allow_leaks=True).manifest.inputs["ok"] == 2


def test_failures_that_the_listing_knows_are_weighed_before_the_work_begins(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source = make_source("real/a.mp4", "real/b.mp4")
    for name in "cd":
        (source / f"real/{name}.mp4").symlink_to(shutil.copyfile(source / "real/a.mp4", tmp_path / f"{name}.mp4"))
    with pytest.raises(TooManyFailedError, match=r"2 of 4 inputs failed \(2 outside_root\), at most 1 may fail"):
        run(source, scheduler="tcp://127.0.0.1:9", max_failed=FailureLimit(count=1))
    assert not (tmp_path / "out").exists()


def test_failures_of_an_interrupted_run_are_weighed_before_the_next_one_begins(
    run: Run, make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    (source / "real/empty.mp4").touch()
    with pytest.raises(TooManyFailedError):
        run(source, max_failed=FailureLimit(count=0))
    make_source("real/new.mp4")
    with pytest.raises(TooManyFailedError, match=r"1 of 3 inputs failed \(1 empty\), none may fail.*nothing was done"):
        run(source, scheduler="tcp://127.0.0.1:9", max_failed=FailureLimit(count=0))
    unfinished = verify(out)
    assert (unfinished.is_finished, unfinished.pending, unfinished.exit_code) == (False, 0, 1)


def test_a_set_in_which_all_fails_is_never_a_success(run: Run, tmp_path: Path) -> None:
    (tmp_path / "src/real").mkdir(parents=True)
    (tmp_path / "src/real/a.mp4").touch()
    with pytest.raises(TooManyFailedError, match="1 of 1 input failed"):
        run(tmp_path / "src")


@pytest.mark.parametrize(
    ("text", "total", "allowed"),
    [
        ("5", 3, 5),
        ("0", 9, 0),
        ("1%", 30, 1),
        ("1%", 1, 0),
        ("7%", 100, 7),
        ("0%", 5, 0),
        ("100%", 4, 4),
        ("99%", 4, 3),
    ],
)
def test_the_allowance_is_counted_exactly(text: str, total: int, allowed: int) -> None:
    assert FailureLimit.parse(text).max_failures(total) == allowed


def test_all_splits_and_settings_stand_in_the_account(run: Run, make_source: MakeSource) -> None:
    summary = run(make_source(*(f"real/{number}.mp4" for number in range(6))))
    manifest = summary.manifest
    assert sum(counts["rows"] for counts in manifest.splits.values()) == manifest.rows == 30
    assert set(manifest.splits) == {"train", "val", "test"}
    assert manifest.config["sampling"] == {"every": 5}
    assert manifest.labels == ["real", "fake"]


def test_a_scheduler_that_is_not_there_is_named(
    make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facefeed.pipeline.execution.cluster._CONNECT_SECONDS", 1)  # nothing will ever answer
    with pytest.raises(StoppedError, match=r"tcp://127.0.0.1:9: cannot be reached"):
        precompute(
            make_source("real/a.mp4"), tmp_path / "out", scheduler="tcp://127.0.0.1:9", detector=FixedBoxDetector()
        )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, too small for the rows of twelve videos."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", disk], check=False).returncode:
        pytest.skip("a file system can be mounted by root alone")
    yield disk
    # Lazily: a worker may still hold the traceback of the full disk, and with it a file.
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_stops_the_run_and_after_making_room_nothing_is_missing(
    run: Run, make_source: MakeSource, small_disk: Path
) -> None:
    source, out = make_source(*(f"real/{number}.mp4" for number in range(12))), small_disk / "out"
    with pytest.raises(StoppedError, match=r"No space left on device; finished work is kept; make room and run"):
        run(source, out)
    assert not OutPaths(out).manifest.exists()
    subprocess.run(["mount", "-o", "remount,size=10m", small_disk], check=True)
    assert run(source, out).manifest.inputs == {
        "total": 12,
        "ok": 12,
        "partial": 0,
        "no_faces": 0,
        "failed": {},
        "missing": 0,
    }
    assert verify(out).findings == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_out_that_may_not_be_written_says_so(run: Run, make_source: MakeSource, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(UsageError, match="Permission denied; name a folder you may write to"):
        run(make_source("real/a.mp4"), tmp_path / "closed/out")
