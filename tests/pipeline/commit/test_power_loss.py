"""A power failure at any moment: whatever the disk then holds, the same command ends with an undisturbed run's rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from assets_columns import Colour
from assets_in_process import Job
from assets_power_loss import Crash, Recording, crashes, lay, needless_syncs, problems, recorded, some
from assets_video import numbered, write_video
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.dataset.open_dataset import open_dataset
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.errors import FacefeedError, UsageError
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.verify.check import verify

MakeSource = Callable[..., Path]


class RecordedJob(Job):
    """One whose changes may be recorded."""

    recording: Recording | None = None

    def on_unit_finished(self) -> None:
        super().on_unit_finished()
        if self.recording is not None:
            self.recording.step_finished()


@pytest.fixture
def job(tmp_path: Path, make_source: MakeSource, small_options: Options) -> Iterator[RecordedJob]:
    source = make_source("real/a.mp4", "real/b.mp4", "fake/c.mp4")
    (tmp_path / "disk").mkdir()
    job = RecordedJob(source, tmp_path / "disk/out", small_options)
    with job.stack:
        yield job


def problem_after(job: Job, crash: Crash, rows: pa.Table, units: int, rows_before: pa.Table | None) -> str:
    """Why this state is not what was promised; empty where it is.

    `rows`: of an undisturbed run, of `units` units. `rows_before`: of the dataset that it began with.
    """
    lay(crash.state, job.out.parent)
    is_sound = False
    try:
        finished = verify(job.out)
    except UsageError:
        pass
    else:
        is_sound = finished.unfinished is None and not finished.findings
        if is_sound and not any(job.rows().equals(sound) for sound in (rows, rows_before) if sound is not None):
            return "verify has no finding in other rows"
        if problem := _problem_of_reader(job, is_finished=finished.unfinished is None):
            return problem
    try:
        num_certain = job.finished_units()
    except FacefeedError as error:
        return f"the plan is lost: {error}"
    if num_certain < min(crash.finished, units):
        return "a finished unit is lost"
    if crash.finished > units and not is_sound:
        return "the dataset is not finished and sound after the command has ended"
    try:
        job.run()
    except FacefeedError as error:
        return f"the same command stops: {error}"
    if not job.rows().equals(rows):
        return "other rows"
    return "; ".join(str(finding) for finding in verify(job.out).findings)


def _problem_of_reader(job: Job, *, is_finished: bool) -> str:
    try:
        _, index = open_dataset(job.out)
    except FacefeedError as error:
        return f"a reader cannot open a finished dataset: {error}" if is_finished else ""
    images = StoredImages(index)
    try:
        for row in range(index.num_rows):
            images.image(row)
    except FacefeedError as error:
        return f"a reader opens it and then fails: {error}"
    return ""


def recording_of(job: RecordedJob, monkeypatch: pytest.MonkeyPatch) -> tuple[Recording, pa.Table]:
    """What a run does to files, and its rows."""
    with recorded(job.out.parent, monkeypatch) as recording:
        job.recording = recording
        job.run()
        recording.step_finished()  # one more: the command has ended
    job.recording = None
    return recording, job.rows()


def problems_of(
    job: Job, run: tuple[Recording, pa.Table], chosen: Iterable[Crash], rows_before: pa.Table | None = None
) -> list[str]:
    """What is not as promised after each state that the run may leave."""
    recording, rows = run
    units = len(recording.finished) - 1
    return problems(lambda crash: problem_after(job, crash, rows, units, rows_before), chosen)


def change_source(job: Job) -> None:
    """Another video, and one that is replaced: the next run supersedes its unit."""
    shutil.copyfile(job.source / "real/a.mp4", job.source / "real/d.mp4")
    write_video(job.source / "real/b.mp4", [numbered(number, 160, 120) for number in range(15)])


def test_the_same_command_recovers_from_a_power_failure(job: RecordedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recording_of(job, monkeypatch)
    assert problems_of(job, run, some(crashes(run[0]), one_in=20)) == []


@pytest.mark.chaos
def test_the_same_command_recovers_from_every_power_failure(job: RecordedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recording_of(job, monkeypatch)
    states = list(crashes(run[0]))
    assert problems_of(job, run, states) == []
    print(f"{len(states)} states after {len(run[0].events)} changes and syncs: all recovered")


@pytest.mark.chaos
def test_an_update_recovers_from_every_power_failure(job: RecordedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job.run()
    rows_before = job.rows()
    change_source(job)
    run = recording_of(job, monkeypatch)
    states = list(crashes(run[0]))
    assert problems_of(job, run, states, rows_before) == []
    print(f"{len(states)} states after {len(run[0].events)} changes and syncs: all recovered")


def test_added_columns_of_superseded_rows_do_not_come_back(job: RecordedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job.run()
    add_columns(job.out, Colour(), workers=1)
    change_source(job)
    recording, _ = recording_of(job, monkeypatch)
    ends = [crash for crash in crashes(recording) if crash.finished == len(recording.finished)]
    assert ends
    for crash in ends:
        lay(crash.state, job.out.parent)
        incomplete = [finding.location for finding in verify(job.out).findings]
        assert incomplete == ["columns/colour"]  # of the new rows


@pytest.mark.chaos
def test_without_any_one_sync_a_power_failure_breaks_a_promise(
    job: RecordedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recording_of(job, monkeypatch)
    needless = needless_syncs(run[0], lambda crash: bool(problems_of(job, run, [crash])))
    # The lock's is for other hosts, which read its holder through a network file system; the other one is a trial of
    # what the file system can do.
    assert needless == {"lock._write_holder", "files.sync_folder < file_system.limits_of_file_system"}
