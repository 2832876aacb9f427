"""Exactly once, whatever dies when: publishing, orphans, races, and disks that refuse."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from facefeed.pipeline.commit import publish as commit
from facefeed.pipeline.commit.finalize import quarantine_orphans
from facefeed.pipeline.commit.publish import (
    check_unit_file,
    make_folders,
    publish,
    unit_file_metadata,
    write_receipt,
)
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import CorruptDataError, StoppedError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.files import sha256_of, stop_on_disk_error, write_durably
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit
from facefeed.pipeline.planning.receipts import ReceiptReader
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.sources import list_source
from facefeed.pipeline.video import Sampling
from numpy.typing import NDArray

MakeSource = Callable[..., Path]


def attempt(folder: Path, *, unit: str = "u1", config: str = "c1", rows: int = 3) -> Path:
    path = folder / f"{unit}.inprogress"
    table = pa.table({"x": list(range(rows))})
    with pq.ParquetWriter(path, table.schema, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(unit_file_metadata(unit, config, rows))
    return path


def test_a_published_file_has_its_name_at_once_and_whole(tmp_path: Path) -> None:
    attempt_path = attempt(tmp_path)
    digest = publish(attempt_path, tmp_path / "train/u1.parquet", "u1", "c1", 3)
    assert digest == sha256_of(tmp_path / "train/u1.parquet")
    assert not attempt_path.exists()


def test_the_second_of_two_attempts_gives_way(tmp_path: Path) -> None:
    final = tmp_path / "u1.parquet"
    publish(attempt(tmp_path), final, "u1", "c1", 3)
    inode = final.stat().st_ino
    assert publish(attempt(tmp_path, rows=5), final, "u1", "c1", 5) is None
    assert final.stat().st_ino == inode


def test_a_damaged_winner_is_replaced(tmp_path: Path) -> None:
    final = tmp_path / "u1.parquet"
    final.write_bytes(b"PAR1 torn")
    digest = publish(attempt(tmp_path), final, "u1", "c1", 3)
    assert check_unit_file(final, "u1", "c1", 3) == 3
    assert digest == sha256_of(final)


def test_a_pipe_in_place_of_the_winner_is_replaced(tmp_path: Path) -> None:
    final = tmp_path / "u1.parquet"
    os.mkfifo(final)
    publish(attempt(tmp_path), final, "u1", "c1", 3)
    assert check_unit_file(final, "u1", "c1", 3) == 3


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP], ids=os.strerror)
def test_without_hard_links_rename_publishes_and_the_first_still_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(commit.os, "link", no_links)
    final = tmp_path / "u1.parquet"
    publish(attempt(tmp_path), final, "u1", "c1", 3)
    inode = final.stat().st_ino
    publish(attempt(tmp_path), final, "u1", "c1", 3)
    assert final.stat().st_ino == inode


@pytest.mark.parametrize(("unit", "config", "rows"), [("u2", "c1", 3), ("u1", "c2", 3), ("u1", "c1", 4)])
def test_a_file_of_another_unit_config_or_length_is_never_published(
    tmp_path: Path, unit: str, config: str, rows: int
) -> None:
    with pytest.raises(CorruptDataError, match="expected"):
        publish(attempt(tmp_path), tmp_path / "u1.parquet", unit, config, rows)
    assert not (tmp_path / "u1.parquet").exists()


def test_no_flipped_byte_passes_with_other_values(tmp_path: Path) -> None:
    path = attempt(tmp_path, rows=100)
    column = pq.read_metadata(path).row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    content, detected = path.read_bytes(), 0
    for position in range(start, start + column.total_compressed_size):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
        try:
            check_unit_file(path, "u1", "c1", 100)
            assert pq.read_table(path)["x"].to_pylist() == list(range(100))  # a page's header has slack of its own
        except CorruptDataError:
            detected += 1
    assert detected > column.total_compressed_size / 2


@pytest.mark.parametrize("fault", [errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("where", ["check_unit_file", "adopt", "receipt"])
def test_a_disk_that_fails_while_a_unit_is_committed_is_a_stop_and_no_unit_s_fault(
    worker: tuple[JobSpec, Unit], monkeypatch: pytest.MonkeyPatch, where: str, fault: int
) -> None:
    job, unit = worker
    if where == "adopt":
        unit_run(job, unit)
        job.paths.receipt(unit.unit_id).unlink()
    files = list(job.paths.faces.rglob("*.parquet"))

    def fails(*_: object, **__: object) -> None:
        raise OSError(fault, os.strerror(fault))

    target = {
        "check_unit_file": "commit.publish.pq.ParquetFile",
        "adopt": "files.hashlib.file_digest",
        "receipt": "dataset.out.files.os.fsync",
    }[where]
    with monkeypatch.context() as patch:
        patch.setattr(f"facefeed.pipeline.{target}", fails)
        with pytest.raises(StoppedError, match=os.strerror(fault)):
            unit_run(job, unit)
    assert list(job.paths.faces.rglob("*.parquet")) == files, "nothing is set aside for a disk's fault"
    assert unit_run(job, unit).rows == 10


def test_a_receipt_that_cannot_be_read_for_a_disk_s_fault_is_not_taken_for_missing(
    worker: tuple[JobSpec, Unit], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, unit = worker
    unit_run(job, unit)

    def fails(_: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(StoppedError, match="Input/output error"):
        ReceiptReader(job.paths, "c1").trusted(unit.unit_id)


def test_a_plan_number_is_given_once(tmp_path: Path) -> None:
    write_durably(tmp_path / "0.json", "first", tmp_path, replace=False)
    with pytest.raises(FileExistsError):
        write_durably(tmp_path / "0.json", "second", tmp_path, replace=False)
    assert (tmp_path / "0.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["0.json"]


def test_a_full_disk_is_a_clean_stop_that_names_its_reason(tmp_path: Path) -> None:
    with pytest.raises(StoppedError, match=r"/dev/full: No space left on device; finished work is kept"), \
            stop_on_disk_error(Path("/dev/full")), Path("/dev/full").open("w") as full:  # fmt: skip
        full.write("x" * 100_000)


@pytest.fixture
def worker(tmp_path: Path, make_source: MakeSource, small_options: Options) -> tuple[JobSpec, Unit]:
    """A job over two videos and its one unit."""
    listing = list_source(make_source("real/a.mp4", "real/b.mp4"))
    job = JobSpec(
        root=listing.root, out=tmp_path / "out", options=small_options, detector=FixedBoxDetector(),
        labels=listing.labels, config_hash="c1",
    )  # fmt: skip
    make_folders(OutPaths(job.out))
    return job, Unit.make(listing.entries, "train", config_hash="c1", salt="0")


def timeless(receipt: Receipt) -> Receipt:
    """But for what adoption cannot know: how long the inputs took."""
    return replace(receipt, inputs=[replace(outcome, seconds=0.0) for outcome in receipt.inputs])


def unit_run(job: JobSpec, unit: Unit) -> Receipt:
    slot = UnitWorker(job)
    try:
        return slot.run(unit)
    finally:
        slot.close()


def test_a_unit_leaves_one_file_one_receipt_and_no_attempt(worker: tuple[JobSpec, Unit]) -> None:
    job, unit = worker
    receipt = unit_run(job, unit)
    assert [outcome.outcome for outcome in receipt.inputs] == ["ok", "ok"]
    assert (receipt.rows, [outcome.faces for outcome in receipt.inputs]) == (10, [5, 5])
    path = job.out / str(receipt.file)
    assert (receipt.bytes, receipt.sha256) == (path.stat().st_size, sha256_of(path))
    assert Receipt.from_json(job.paths.receipt(unit.unit_id).read_bytes(), where="") == receipt
    assert list(job.paths.temporary.iterdir()) == []


def test_a_folder_in_place_of_a_receipt_is_named_with_the_way_out(worker: tuple[JobSpec, Unit]) -> None:
    job, unit = worker
    path = OutPaths(job.out).receipt(unit.unit_id)
    path.mkdir()
    with pytest.raises(StoppedError, match=rf"{path}: .* move that folder away and run the same command again"):
        unit_run(job, unit)
    path.rmdir()
    assert unit_run(job, unit).rows


def test_a_kill_between_file_and_receipt_is_made_good(worker: tuple[JobSpec, Unit]) -> None:
    job, unit = worker
    first = unit_run(job, unit)
    job.paths.receipt(unit.unit_id).unlink()
    inode = (job.out / str(first.file)).stat().st_ino
    assert timeless(unit_run(job, unit)) == timeless(first)
    assert (job.out / str(first.file)).stat().st_ino == inode


def test_a_deleted_file_comes_back_byte_for_byte_however_long_it_takes(
    worker: tuple[JobSpec, Unit], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, unit = worker
    monkeypatch.setattr("facefeed.pipeline.rows.input_pipeline._seconds_since", lambda _: 1.5)
    first = unit_run(job, unit)
    path = job.out / str(first.file)
    before = path.read_bytes()
    path.unlink()
    monkeypatch.setattr("facefeed.pipeline.rows.input_pipeline._seconds_since", lambda _: 2.5)
    assert unit_run(job, unit).sha256 == sha256_of(path)
    assert path.read_bytes() == before


def test_a_receipt_of_other_bytes_than_those_that_stand_gives_way(worker: tuple[JobSpec, Unit]) -> None:
    """A GPU need not find the same faces to the last bit when a lost file is made again."""
    job, unit = worker
    first = unit_run(job, unit)
    other = replace(first, sha256="0" * 64)
    write_receipt(job.paths, unit, other)
    assert Receipt.from_json(job.paths.receipt(unit.unit_id).read_bytes(), where="") == other


def test_a_receipt_that_lists_other_inputs_is_none(worker: tuple[JobSpec, Unit]) -> None:
    job, unit = worker
    first = unit_run(job, unit)
    path = job.paths.receipt(unit.unit_id)
    path.write_text(replace(first, inputs=[replace(each, video_id="other.mp4") for each in first.inputs]).to_json())
    run_state = RunState(job.paths, Plan([PlanPart(config={}, units=(unit,))]), "c1")
    assert list(run_state.pending_units()) == [unit]
    assert list(run_state.outcomes()) == []
    assert unit_run(job, unit).sha256 == first.sha256
    assert list(run_state.pending_units()) == []


def test_what_a_worker_given_up_for_lost_still_finishes_does_not_stand_beside_the_halves(
    worker: tuple[JobSpec, Unit],
) -> None:
    job, unit = worker
    halves = unit.halves(job.config_hash)
    split = Receipt(unit=unit.unit_id, config_hash="c1", outcome="split", children=[half.unit_id for half in halves])
    write_receipt(job.paths, unit, split)
    for half in halves:
        unit_run(job, half)
    assert unit_run(job, unit) == split
    files = {path.stem for path in job.paths.faces.rglob("*.parquet")}
    assert files == {half.unit_id for half in halves}
    assert Receipt.from_json(job.paths.receipt(unit.unit_id).read_bytes(), where="") == split


def test_what_a_split_unit_published_just_before_its_worker_died_leaves_the_readers_way(
    worker: tuple[JobSpec, Unit],
) -> None:
    job, unit = worker
    late = unit_run(job, unit)
    job.paths.receipt(unit.unit_id).unlink()  # died here; the driver has split the unit
    halves = unit.halves(job.config_hash)
    write_receipt(
        job.paths,
        unit,
        Receipt(unit=unit.unit_id, config_hash="c1", outcome="split", children=[half.unit_id for half in halves]),
    )
    for half in halves:
        unit_run(job, half)
    run_state = RunState(
        job.paths, Plan([PlanPart(config={"labels": ["real", "fake"], "schema": 3}, units=(unit,))]), "c1"
    )
    assert quarantine_orphans(run_state) == [late.file]
    assert {path.stem for path in job.paths.faces.rglob("*.parquet")} == {half.unit_id for half in halves}
    assert quarantine_orphans(run_state) == []


def test_a_second_attempt_that_fails_does_not_undo_the_first(worker: tuple[JobSpec, Unit]) -> None:
    job, unit = worker
    first = unit_run(job, unit)
    nothing = Receipt(unit=unit.unit_id, config_hash="c1", outcome="done")
    assert write_receipt(job.paths, unit, nothing) == first
    (job.out / str(first.file)).unlink()  # a receipt without its file can be replaced
    assert write_receipt(job.paths, unit, nothing) == nothing


def test_a_worker_that_is_stopped_in_mid_video_blames_no_video(
    worker: tuple[JobSpec, Unit], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, unit = worker
    slot = UnitWorker(replace(job, options=replace(job.options, sampling=Sampling(every=1))))
    genuine = FixedBoxDetector.detect

    def stopped(self: FixedBoxDetector, rgb: NDArray[np.uint8]) -> Faces:
        slot.close()  # as Dask does when the driver is interrupted
        return genuine(self, rgb)

    monkeypatch.setattr(FixedBoxDetector, "detect", stopped)
    with pytest.raises(StoppedError, match="this worker was stopped"):
        slot.run(unit)
    assert list(job.paths.receipts.iterdir()) == list(job.paths.faces.rglob("*.parquet")) == []


def test_a_source_that_vanishes_stops_the_run_instead_of_failing_every_video(worker: tuple[JobSpec, Unit]) -> None:
    job, unit = worker
    job.root.rename(job.root.with_name("unmounted"))
    with pytest.raises(StoppedError, match="does not exist on this worker"):
        unit_run(job, unit)
    assert list(job.paths.receipts.iterdir()) == []


def test_the_same_unit_twice_at_once_gives_one_file(worker: tuple[JobSpec, Unit], tmp_path: Path) -> None:
    job, unit = worker
    code = textwrap.dedent("""
        import pickle, sys
        from facefeed.pipeline.execution.unit_worker import UnitWorker
        job, unit = pickle.loads(open(sys.argv[1], "rb").read())
        slot = UnitWorker(job)
        sys.stdin.readline()  # the starting gun
        print(slot.run(unit).sha256)
    """)
    (tmp_path / "work.pickle").write_bytes(pickle.dumps((job, unit)))
    command = [sys.executable, "-c", code, str(tmp_path / "work.pickle")]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    digests = {racer.communicate(timeout=120)[0].strip() for racer in racers}
    (file,) = job.paths.faces.rglob("*.parquet")
    assert digests == {sha256_of(file)}
    assert {racer.returncode for racer in racers} == {0}
    assert list(job.paths.temporary.iterdir()) == []


def limited(job: JobSpec, unit: Unit, size_bytes: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the unit in a process that may not write files larger than `size_bytes`."""
    code = textwrap.dedent("""
        import pickle, sys
        from facefeed.pipeline.errors import StoppedError
        from facefeed.pipeline.execution.unit_worker import UnitWorker
        job, unit = pickle.loads(open(sys.argv[1], "rb").read())
        try:
            UnitWorker(job).run(unit)
        except StoppedError as error:
            print(error)
            sys.exit(error.exit_code)
    """)
    (folder / "work.pickle").write_bytes(pickle.dumps((job, unit)))

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

    command = [sys.executable, "-c", code, str(folder / "work.pickle")]
    return subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("size_bytes", [0, 1, 100, 2_000, 10_000])
def test_a_disk_that_refuses_half_way_leaves_nothing_behind_and_says_why(
    worker: tuple[JobSpec, Unit], tmp_path: Path, size_bytes: int
) -> None:
    job, unit = worker
    stopped = limited(job, unit, size_bytes, tmp_path)
    assert stopped.returncode == 75, stopped.stderr
    assert "File too large" in stopped.stdout
    assert list(job.paths.faces.rglob("*.parquet")) == []
    assert list(job.paths.receipts.iterdir()) == []
    assert list(job.paths.temporary.iterdir()) == []
    assert unit_run(job, unit).rows == 10


@pytest.mark.parametrize(
    ("fault", "call"),
    [
        ("signal=SIGKILL", "fsync"),
        ("error=ENOSPC", "link"),
        *((fault, "linkat") for fault in ("signal=SIGKILL", "error=ENOSPC", "error=EIO")),
        *(
            pytest.param(fault, call, marks=pytest.mark.processes)
            for call, faults in (("fsync", ("error=ENOSPC", "error=EIO")), ("link", ("signal=SIGKILL", "error=EIO")))
            for fault in faults
        ),
    ],
)
def test_a_commit_that_is_struck_at_any_system_call_shows_no_partial_file(
    worker: tuple[JobSpec, Unit], tmp_path: Path, strace: str, call: str, fault: str
) -> None:
    job, unit = worker
    code = textwrap.dedent("""
        import pickle, sys
        from facefeed.pipeline.errors import StoppedError
        from facefeed.pipeline.execution.unit_worker import UnitWorker
        job, unit = pickle.loads(open(sys.argv[1], "rb").read())
        try:
            UnitWorker(job).run(unit)
        except StoppedError as error:
            sys.exit(error.exit_code)
    """)
    (tmp_path / "work.pickle").write_bytes(pickle.dumps((job, unit)))
    num_faults = 0
    for when in range(1, 6):
        command = [
            strace, "-f", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={when}",
            sys.executable, "-c", code, str(tmp_path / "work.pickle"),
        ]  # fmt: skip
        result = subprocess.run(command, check=False, timeout=120, stdin=subprocess.DEVNULL, capture_output=True)
        for path in job.paths.faces.rglob("*"):
            assert path.is_dir() or check_unit_file(path, unit.unit_id, "c1", 10) == 10
        for path in job.paths.receipts.iterdir():
            receipt = Receipt.from_json(path.read_bytes(), where=str(path))
            assert sha256_of(job.out / str(receipt.file)) == receipt.sha256
        if result.returncode == 0:
            break
        num_faults += 1
        assert result.returncode in {75, -signal.SIGKILL, 128 + signal.SIGKILL}, result.stderr
    else:
        pytest.fail(f"{call} was still struck at its {when}th time")
    assert num_faults or call in {"link", "linkat"}  # which of the two names the C library calls is its own affair
    assert json.loads(job.paths.receipt(unit.unit_id).read_bytes())["rows"] == 10
