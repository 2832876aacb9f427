"""Inputs of OUT that the source does not name any more, whatever lies under their names: their rows stay."""

from __future__ import annotations

import io
from typing import Any

import cv2
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
from assets_in_process import in_process, new_folder, one_by_one
from assets_video import numbered, write_video
from facefeed.pipeline.commit.publish import write_receipt
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.dryrun import run as dry_run_module
from facefeed.pipeline.dryrun.run import DryRunResult, dry_run
from facefeed.pipeline.dryrun.trials import Trials
from facefeed.pipeline.errors import StoppedError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.report import print_summary
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling
from rich.console import Console

OPTIONS = Options(sampling=Sampling(every=1), keep=FaceFilter(min_face_px=16), size_px=32)
ORIGINAL, FAKE, OTHER = "a.mp4,real,", "b.mp4,fake,a.mp4", "c.mp4,real,"


class Source:
    """A table of videos and clips, and the OUT that is made of it."""

    def __init__(self) -> None:
        folder = new_folder()
        self.folder, self.out = folder / "source", folder / "out"
        self.folder.mkdir()

    def list(self, *rows: str) -> None:
        (self.folder / "table.csv").write_text("\n".join(["path,label,source", *rows]) + "\n")

    def put(self, name: str, start: int, count: int = 3) -> None:
        write_video(self.folder / name, [numbered(start + number, 64, 48) for number in range(count)])

    def put_images(self, folder: str, start: int) -> None:
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        for number in range(3):
            cv2.imwrite(str(self.folder / folder / f"{number}.png"), numbered(start + number, 64, 48))

    def run(self, **more: Any) -> Summary:
        with in_process(more.pop("process", one_by_one)):
            return precompute(self.folder / "table.csv", self.out, options=OPTIONS, detector=FixedBoxDetector(), **more)

    def dry_run(self) -> DryRunResult:
        with pytest.MonkeyPatch.context() as patch, in_process():
            patch.setattr(dry_run_module, "_try_and_forecast", lambda *_, **__: (Trials(), None))
            return dry_run(self.folder / "table.csv", self.out, options=OPTIONS, detector=FixedBoxDetector())

    def rows(self, name: str) -> pa.Table:
        table: Any = pads.dataset(self.out / "faces", partitioning=None).to_table()
        return table.filter(pc.equal(table.column("video_id"), name)).sort_by("face_id")


def stop(job: JobSpec, units: list[Unit]) -> None:
    raise StoppedError("stopped once everything is planned")


def test_a_clip_whose_images_were_deleted_keeps_its_rows_when_its_original_changes() -> None:
    source = Source()
    source.put_images("real/k", 1)
    source.put_images("fake/k", 30)
    source.put("c.mp4", 60)
    source.list("real/k,real,", "fake/k,fake,real/k", OTHER)
    source.run()
    before = source.rows("fake/k")
    for image in (source.folder / "fake/k").iterdir():
        image.unlink()
    source.put_images("real/k", 90)
    dry = source.dry_run()
    summary = source.run()
    assert before.num_rows == 3
    assert source.rows("fake/k").equals(before)
    assert (summary.failures, summary.manifest.inputs["ok"]) == ([], 3)
    assert (dry.pending, dry.known_failures, dry.inputs_in_out) == (1, 0, 3)


@pytest.mark.parametrize("content", ["another video", "broken"])
@pytest.mark.parametrize("stops", [False, True], ids=["", "stopped before"])
def test_an_input_that_left_the_table_keeps_its_rows_though_another_file_has_its_name(
    content: str, stops: bool
) -> None:
    source = Source()
    for number, name in enumerate(("a.mp4", "b.mp4", "c.mp4")):
        source.put(name, 30 * number)
    source.list(ORIGINAL, FAKE, OTHER)
    source.run()
    before, taken_out = source.rows("b.mp4"), (source.folder / "b.mp4").read_bytes()
    source.put("a.mp4", 100)
    if stops:  # its fake is planned to be compared anew, and then taken out of the table
        with pytest.raises(StoppedError):
            source.run(process=stop)
    source.list(ORIGINAL, OTHER)
    if content == "broken":
        (source.folder / "b.mp4").write_bytes(b"half of a download")
    else:
        source.put("b.mp4", 150, count=5)
    summary = source.run()
    assert source.rows("b.mp4").equals(before)
    assert (summary.failures, summary.manifest.inputs["ok"], verify(source.out).findings) == ([], 3, [])
    (source.folder / "b.mp4").write_bytes(taken_out)
    source.list(ORIGINAL, FAKE, OTHER)
    source.run()
    assert not source.rows("b.mp4").column("mask").equals(before.column("mask")), "compared with the new original"
    assert source.rows("b.mp4").column("image").equals(before.column("image"))


def test_so_does_one_whose_unit_is_split_since_a_worker_was_lost() -> None:
    source = Source()
    for number, name in enumerate(("a.mp4", "b.mp4", "c.mp4")):
        source.put(name, 30 * number)
    source.list(ORIGINAL, FAKE, OTHER)
    source.run()
    before = source.rows("b.mp4")
    source.put("a.mp4", 100)
    source.put("b.mp4", 150)
    source.list(ORIGINAL, OTHER)

    def lose_workers(job: JobSpec, units: list[Unit]) -> None:
        for unit in units:
            halves = unit.halves(job.config_hash)
            split = Receipt(
                unit=unit.unit_id, config_hash=job.config_hash, outcome="split", supersedes=list(unit.supersedes),
                children=[half.unit_id for half in halves],
            )  # fmt: skip
            write_receipt(job.paths, unit, split)
            one_by_one(job, list(halves))

    source.run(process=lose_workers)
    assert source.rows("b.mp4").equals(before)


@pytest.mark.parametrize("part", [None, "2/2"])
def test_an_input_that_left_the_table_before_it_was_computed_is_not_computed_until_it_is_back(
    part: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Source()
    videos = [f"v{number}.mp4" for number in range(6)]
    for number, name in enumerate(videos):
        source.put(name, 9 * number)
    rows = [f"{name},{('real', 'fake')[number % 2]}," for number, name in enumerate(videos)]
    source.list(*rows)
    source.run(part="1/2")
    left = [name for name in videos if not source.rows(name)]
    taken_out = left[0]
    source.list(*(row for row in rows if not row.startswith(taken_out)))
    stream = io.StringIO()
    summary = source.run(part=part, progress=Progress(Console(file=stream, width=10_000, highlight=False)))
    assert [name for name in videos if not source.rows(name)] == [taken_out]
    assert (summary.manifest.inputs["total"], summary.manifest.inputs["ok"], summary.failures) == (5, 5, [])
    assert (summary.manifest.removed, verify(source.out).findings) == ([taken_out], [])
    print_summary(summary, source.folder, source.out)
    assert "rows stay" not in stream.getvalue()
    assert "rows were kept" not in capsys.readouterr().err
    source.list(*rows)
    assert source.run().manifest.inputs["ok"] == 6
    assert source.rows(taken_out).num_rows == 3


def test_the_dry_run_counts_the_inputs_that_the_run_counts() -> None:
    source = Source()
    for number in range(4):
        source.put(f"v{number}.mp4", 9 * number)
    (source.folder / "bad.mp4").write_bytes(b"no video")
    rows = [f"v{number}.mp4,real," for number in range(4)] + ["bad.mp4,real,"]
    source.list(*rows)
    source.run(max_failed=FailureLimit(count=1))
    assert source.dry_run().known_failures == 1
    for number in range(4):  # so that the unit of `bad.mp4` is replaced
        source.put(f"v{number}.mp4", 100 + 9 * number)
    assert (source.dry_run().known_failures, source.dry_run().inputs_in_out) == (1, 5)
    source.list(*rows[:4])
    dry = source.dry_run()
    summary = source.run()
    assert (dry.known_failures, dry.inputs_in_out) == (0, 4)
    assert sum(sum(counts.values()) for counts in dry.survey.by_split.values()) == 4
    assert (summary.failures, summary.manifest.inputs["total"], summary.manifest.removed) == ([], 4, ["bad.mp4"])


def test_so_it_does_where_a_stopped_run_left_inputs_that_are_gone_since() -> None:
    source = Source()
    rows = [f"v{number}.mp4,{('real', 'fake')[number % 2]}," for number in range(6)]
    for number in range(6):
        source.put(f"v{number}.mp4", 9 * number)
    source.list(*rows)
    with pytest.raises(StoppedError):
        source.run(process=stop)
    source.list(*rows[1:])
    dry = source.dry_run()
    summary = source.run()
    assert (dry.pending, dry.inputs_in_out) == (5, 5)
    assert (summary.manifest.inputs["ok"], summary.manifest.inputs["total"]) == (5, 5)


def test_one_that_became_a_link_out_of_the_source_before_it_was_computed_is_reported_as_that() -> None:
    source = Source()
    source.put("a.mp4", 1)
    source.put("c.mp4", 30)
    source.list(ORIGINAL, OTHER)
    with pytest.raises(StoppedError):
        source.run(process=stop)
    (source.folder / "c.mp4").rename(source.out.parent / "c.mp4")
    (source.folder / "c.mp4").symlink_to(source.out.parent / "c.mp4")
    summary = source.run(max_failed=FailureLimit(count=1))
    assert [(failure.video_id, failure.reason) for failure in summary.failures] == [("c.mp4", "outside_root")]


def test_a_fake_of_an_original_that_the_source_names_no_more_is_computed_once_for_another_file_in_its_place() -> None:
    source = Source()
    source.put("a.mp4", 1)
    source.put("b.mp4", 30)
    source.put("c.mp4", 60)
    source.list(ORIGINAL, FAKE, OTHER)
    source.run()
    source.put("a.mp4", 90)
    source.put("b.mp4", 31)
    source.list(FAKE, OTHER)
    assert [entry.video_id for entry in source.run().changes.changed] == ["b.mp4"]
    assert source.run().changes.changed == []
