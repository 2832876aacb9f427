"""OUT in a store: the dataset of a folder, exactly once, whatever becomes of processes, requests and working copies."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from assets_columns import FILE
from assets_in_process import in_process, new_folder
from assets_out_in_store import (
    URL,
    Numbers,
    StoredOut,
    contents_of,
    kill_and_resume,
)
from assets_paths import python_path
from assets_stores import opened, without_delays
from assets_task_pool import TasksInProcess, checked_by
from assets_tiny_source import TinySource
from assets_worker_in_process import worker_in_process
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.commit import store_lock
from facefeed.pipeline.commit.store_lock import StoreLocks
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.writing import WritableFiles, open_out
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.errors import RefusedError, StoppedError, UsageError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.execution.unit_task import RefusedWorkerError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.inspect.inspection import inspect_dataset
from facefeed.pipeline.inspect.page import write_page
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, _Run, precompute
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file
from facefeed.pipeline.video import Sampling

OPTIONS = Options(sampling=Sampling(every=1), keep=FaceFilter(min_face_px=16), size_px=32)
SETTINGS: dict[str, Any] = {
    "options": OPTIONS, "detector": FixedBoxDetector(), "max_failed": FailureLimit.parse("2"),
}  # fmt: skip


def run_into(store: StoredOut, source: TinySource, **given: Any) -> Summary:
    """`precompute` of the source into the store."""
    with in_process():
        return precompute(source.folder, URL, storage_options=store.server.options, **{**SETTINGS, **given})


@pytest.fixture
def source() -> TinySource:
    """An original with its fake, another original, and one that cannot be read."""
    source = TinySource(new_folder() / "deepfakes")
    for name, content in {"real/a.mp4": "one", "fake/a.mp4": "two", "real/d.mp4": "long", "real/c.mp4": "cut"}.items():
        source.put(name, content)
    return source


def change(source: TinySource) -> None:
    """One video is replaced, one is new and one is gone."""
    source.put("real/d.mp4", "two")
    source.put("fake/d.mp4", "one")
    source.remove("real/c.mp4")


def test_the_dataset_in_a_store_is_that_in_a_folder_byte_for_byte(store: StoredOut, source: TinySource) -> None:
    out = new_folder() / "out"
    with in_process():
        local = precompute(source.folder, out, **SETTINGS)
    stored = run_into(store, source)
    assert stored.manifest == local.manifest
    assert stored.manifest.rows > 0
    assert store.contents() == contents_of(out)
    assert store.is_whole()
    change(source)
    store.on_another_machine()
    with in_process():
        local = precompute(source.folder, out, **SETTINGS)
    stored = run_into(store, source)
    assert stored.changes == local.changes
    assert store.contents() == contents_of(out)
    assert store.is_whole()
    assert {Path(name).stem for name in store.names() if name.startswith("index/")} == {
        Path(name).stem for name in store.units()
    }


def test_a_loader_reads_it(store: StoredOut, source: TinySource, tmp_path: Path) -> None:
    manifest = run_into(store, source).manifest
    dataset = opened(URL, tmp_path / "cache", storage_options=store.server.options)
    assert len(dataset.index) == manifest.rows


def test_a_run_with_nothing_to_do_writes_no_unit_and_fetches_none(store: StoredOut, source: TinySource) -> None:
    run_into(store, source)
    before = store.contents()
    store.server.behave()
    store.on_another_machine()
    run_into(store, source)
    assert store.server.requests == 0, "no unit's file was read"
    assert store.contents() == before


def killed_first_runs(store: StoredOut, source: TinySource, numbers: Numbers) -> int:
    out = new_folder() / "out"
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    return kill_and_resume(store, numbers, lambda: run_into(store, source), {}, contents_of(out))


def killed_updates(store: StoredOut, source: TinySource, numbers: Numbers) -> int:
    """The same after a change of the source: rows of replaced units are copied, and their files are removed."""
    out = new_folder() / "out"
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    run_into(store, source)
    before = store.everything()
    change(source)
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    return kill_and_resume(store, numbers, lambda: run_into(store, source), before, contents_of(out))


def test_a_run_killed_at_a_write_is_resumed_to_the_same_dataset(store: StoredOut, source: TinySource) -> None:
    numbers = ((number, number % 2 == 1) for number in range(1, 32, 9))
    assert killed_first_runs(store, source, numbers) >= 3


@pytest.mark.chaos
def test_a_run_killed_at_any_write_is_resumed_to_the_same_dataset(store: StoredOut, source: TinySource) -> None:
    numbers = ((number, done) for number in count() for done in (False, True))
    assert killed_first_runs(store, source, numbers) > 30


@pytest.mark.processes
def test_an_update_killed_at_a_write_is_resumed_to_the_same_dataset(store: StoredOut, source: TinySource) -> None:
    numbers = ((number, number % 2 == 0) for number in range(2, 48, 11))
    assert killed_updates(store, source, numbers) >= 2


@pytest.mark.chaos
def test_an_update_killed_at_any_write_is_resumed_to_the_same_dataset(store: StoredOut, source: TinySource) -> None:
    numbers = ((number, done) for number in count() for done in (False, True))
    assert killed_updates(store, source, numbers) > 30


def finished_compactions(store: StoredOut, source: TinySource, numbers: Numbers) -> int:
    """Compactions that are killed once they have planned; `precompute` does the rest of them."""
    out = new_folder() / "out"
    for name in ("real/e.mp4", "real/g.mp4"):
        source.put(name, "one")
        with in_process():
            precompute(source.folder, out, **SETTINGS)
        run_into(store, source)
    before = store.everything()
    assert compact(out, workers=1).merged_files == 1

    def compacting() -> None:
        compact(URL, workers=1, storage_options=store.server.options)

    return kill_and_resume(store, numbers, compacting, before, contents_of(out), resume=lambda: run_into(store, source))


def test_a_compaction_that_was_killed_is_finished_too(store: StoredOut, source: TinySource) -> None:
    assert finished_compactions(store, source, [(8, False), (9, True)]) == 2


@pytest.mark.chaos
def test_a_compaction_that_was_killed_anywhere_is_finished_too(store: StoredOut, source: TinySource) -> None:
    numbers = ((number, done) for number in count(8) for done in (False, True))
    assert finished_compactions(store, source, numbers) > 20


@pytest.mark.processes
@pytest.mark.parametrize("fault", ["slow_down", "lost"])
@pytest.mark.parametrize("phase", [0, 1])
def test_writes_that_fail_in_passing_are_repeated_and_nothing_is_there_twice(
    store: StoredOut, source: TinySource, fault: str, phase: int
) -> None:
    """Of a write whose answer is lost, the repeated one finds the file that it was to create."""
    out = new_folder() / "out"
    for is_changed in (False, True):
        if is_changed:
            change(source)
        with in_process():
            precompute(source.folder, out, **SETTINGS)
        store.server.behave()
        store.server.write_faults = lambda number: fault if number % 2 == phase else None
        run_into(store, source)
        assert store.server.writes > 20
        store.server.behave()
        assert store.contents() == contents_of(out)


def test_a_store_that_refuses_to_be_written_to_is_named_and_nothing_is_hidden_in_the_error(
    store: StoredOut, source: TinySource
) -> None:
    store.server.write_faults = lambda number: "denied"
    with pytest.raises(UsageError, match=rf"^{URL}/.*refuses to write it .*Access Denied") as raised:
        run_into(store, source)
    assert "not-to-be-shown" not in str(raised.value)
    assert os.environ["XDG_CACHE_HOME"] not in str(raised.value)
    store.server.behave()
    assert store.names() == []


@pytest.mark.parametrize(("fault", "reason"), [("refused", "ExpiredToken"), ("denied", "AccessDenied")])
def test_a_worker_that_the_store_refuses_is_named_by_its_host_and_no_input_is_at_fault(
    store: StoredOut, source: TinySource, fault: str, reason: str
) -> None:
    def expire(_: object) -> None:
        store.server.write_faults = lambda number: fault

    with (
        worker_in_process(expire),
        pytest.raises(RefusedWorkerError, match=rf"^host {gethostname()}: {URL}/.*refuses to write it .*{reason}"),
    ):
        precompute(source.folder, URL, storage_options=store.server.options, **SETTINGS)
    assert [name for name in store.names() if name.startswith(("faces/", "receipts/"))] == []


def test_credentials_that_expire_amid_the_run_stop_it_and_the_next_one_resumes(
    store: StoredOut, source: TinySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    finalize = _Run.finalize

    def expire(*arguments: Any) -> Any:
        store.server.write_faults = lambda _: "refused"
        return finalize(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(_Run, "finalize", expire)
        with pytest.raises(StoppedError, match=r"ExpiredToken.*finished units are kept.*run the same command again"):
            run_into(store, source)
    store.server.behave()
    finished = {name: store.read(name) for name in store.names() if name.startswith(("faces/", "receipts/"))}
    store.on_another_machine()
    monkeypatch.setattr(store_lock, "process_exists", lambda pid: False)  # the lease could not be released either
    run_into(store, source)
    assert {name: store.read(name) for name in finished} == finished
    assert store.is_whole()


@pytest.mark.parametrize("call", ["files.os.fsync", "commit.unit_file.pq.ParquetWriter"])
def test_a_local_disk_that_is_full_is_named_by_its_folder(store: StoredOut, source: TinySource, call: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = os.environ["XDG_CACHE_HOME"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"facefeed.pipeline.{call}", full)
        with pytest.raises(StoppedError, match=rf"^{folder}/.*No space left on device; .*make room"):
            run_into(store, source)
    run_into(store, source)
    assert store.is_whole()


def test_a_store_that_stops_answering_stops_the_run_which_is_resumed(store: StoredOut, source: TinySource) -> None:
    store.server.write_faults = lambda number: "slow_down" if number >= 14 else None
    with pytest.raises(StoppedError, match=rf"^{URL}/.*does not (accept|remove) the file"):
        run_into(store, source)
    store.server.behave()
    store.patch.setattr(store_lock, "process_exists", lambda pid: False)
    run_into(store, source)
    assert store.is_whole()


def test_a_store_that_overwrites_what_is_to_be_created_is_refused(store: StoredOut, source: TinySource) -> None:
    store.server.ignores_conditions = True
    with pytest.raises(UsageError, match="does not create files on the condition that there is none"):
        run_into(store, source)
    assert [name for name in store.names() if not name.startswith("leases/")] == []


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://127.0.0.1/faces", "is written to a folder, or to s3://, gs:// or az://"),
        ("file:///tmp/faces", "is written to a folder, or to s3://, gs:// or az://"),
        ("s3://no-such-bucket/faces", "there is no such bucket"),
        ("s3:/faces-out/set", "write it with two slashes"),
        ("s3://faces-out/set?versionId=1", r"has a \? or #"),
    ],
)
def test_an_address_that_cannot_hold_a_dataset_is_refused(
    store: StoredOut, source: TinySource, url: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        precompute(source.folder, url, storage_options=store.server.options, **SETTINGS)


def test_what_is_no_dataset_is_not_written_to(store: StoredOut, source: TinySource) -> None:
    store.write("notes.txt", b"mine")
    with pytest.raises(RefusedError, match=rf"OUT='{URL}': holds files that are no facefeed dataset"):
        run_into(store, source)
    assert store.names() == ["notes.txt"]


@pytest.mark.parametrize("marker", ["", "plan/", "receipts/", "faces/train/", "faces/train"])
def test_objects_that_mark_folders_are_no_files(store: StoredOut, source: TinySource, marker: str) -> None:
    """As the console of S3 and some tools write them; adlfs lists those of Azure without the slash."""
    store.write(marker, b"")
    run_into(store, source)
    store.write(marker, b"")
    assert store.is_whole()
    run_into(store, source)


def test_nothing_is_left_on_the_local_disk(store: StoredOut, source: TinySource) -> None:
    run_into(store, source)
    assert store.is_whole()
    with pytest.raises(RefusedError):
        run_into(store, source, options=Options(**{**vars(OPTIONS), "margin": 0.5}))
    assert [*(Path(os.environ["XDG_CACHE_HOME"]) / "facefeed" / "working").iterdir()] == []


def test_a_run_that_was_beaten_to_the_plan_is_refused(store: StoredOut, source: TinySource) -> None:
    """As one that was paused until another had taken its lease."""
    extend = _Run.extend_plan

    def extend_late(run: _Run, *arguments: Any) -> Any:
        store.write("plan/0.json", b"{}")
        return extend(run, *arguments)

    store.patch.setattr(_Run, "extend_plan", extend_late)
    with pytest.raises(RefusedError, match=rf"^{URL}: another run has planned meanwhile"):
        run_into(store, source)


def test_a_large_file_whose_last_answer_is_lost_is_written(
    store: StoredOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent in parts, which s3fs wants to take back then, and cannot."""
    monkeypatch.setattr("s3fs.core.calculate_chunksize", lambda *_, **__: 5 << 20)
    (tmp_path / "large").write_bytes(bytes(11 << 20))
    files = WritableFiles(StoreAddress(URL, store.server.options), StoreCounter())
    for write in (files.create, files.replace):
        store.server.behave()
        store.server.write_faults = lambda number: "lost" if number == 4 else None
        with suppress(FileExistsError):  # by itself
            write("faces/train/large.parquet", tmp_path / "large")
        assert store.server.writes > 5
        assert len(store.read("faces/train/large.parquet")) == 11 << 20
        store.remove("faces/train/large.parquet")


def test_what_was_removed_before_is_not_removed_again(store: StoredOut, source: TinySource) -> None:
    run_into(store, source)
    change(source)
    run_into(store, source)
    removed: list[str] = []
    remove = WritableFiles.remove

    def removing(files: WritableFiles, name: str) -> None:
        removed.append(name)
        remove(files, name)

    store.patch.setattr(WritableFiles, "remove", removing)
    run_into(store, source)
    assert [name for name in removed if name.startswith(("faces/", "receipts/", "index/"))] == []


def test_a_large_copy_may_take_longer(store: StoredOut, monkeypatch: pytest.MonkeyPatch) -> None:
    without_delays(monkeypatch, timeout_seconds=1.0)
    limits: list[float] = []
    files = WritableFiles(StoreAddress(URL, store.server.options), StoreCounter())
    system = files._filesystem()[0]
    monkeypatch.setattr(system, "cp_file", lambda path, target, timeout: limits.append(timeout))
    files.copy("index.next.arrow", "index.arrow", 600 << 20)
    assert limits == [601.0]


def test_rows_of_other_settings_are_not_mixed_in(store: StoredOut, source: TinySource) -> None:
    run_into(store, source)
    before = store.contents()
    with pytest.raises(RefusedError, match=rf"OUT='{URL}': was made with other settings \(margin"):
        run_into(store, source, options=Options(**{**vars(OPTIONS), "margin": 0.5}))
    assert store.contents() == before


def test_a_dataset_with_added_columns_is_continued_as_in_a_folder(store: StoredOut, source: TinySource) -> None:
    out = new_folder() / "out"

    def run() -> Summary:
        with in_process():
            precompute(source.folder, out, **SETTINGS)
        store.on_another_machine()
        return run_into(store, source)

    def add() -> int:
        local = add_columns(out, f"{FILE}:Colour", workers=1)
        store.on_another_machine()
        stored = add_columns(URL, f"{FILE}:Colour", workers=1, storage_options=store.server.options)
        assert (stored.units, stored.units_before) == (local.units, local.units_before)
        return stored.units

    run()
    assert add() > 1
    assert store.contents() == contents_of(out)
    change(source)
    (incomplete,) = run().incomplete_columns
    assert f"run `facefeed add {URL} " in str(incomplete)
    assert {name for name in store.names() if name.startswith("columns/")} == {
        path.relative_to(out).as_posix() for path in out.glob("columns/**/*.*")
    }
    assert add() > 0
    assert store.contents() == contents_of(out)
    assert store.is_whole()


def test_added_columns_whose_files_were_not_copied_to_the_store_are_named_before_the_index_loses_them(
    store: StoredOut, source: TinySource
) -> None:
    out, warnings = new_folder() / "out", list[str]()
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    add_columns(out, f"{FILE}:Colour", workers=1)
    for name in contents_of(out):
        if not name.startswith("columns/"):
            store.write(name, (out / name).read_bytes())
    source.put("fake/d.mp4", "one")
    store.patch.setattr(Progress, "warn", lambda _, text: warnings.append(text))
    run_into(store, source)
    (warning,) = [text for text in warnings if "added columns" in text]
    assert f"'colour': the index has them, but {URL}/columns/colour is not there" in warning


def test_parts_on_machines_of_their_own_make_the_dataset_of_one_run(store: StoredOut, source: TinySource) -> None:
    out = new_folder() / "out"
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    assert run_into(store, source, part="2/2").units_left > 0
    assert "manifest.json" not in store.names()
    store.on_another_machine()
    assert run_into(store, source, part="1/2").units_left == 0
    assert store.contents() == contents_of(out)


_RUN = """
import json
import sys
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.video import Sampling

if __name__ == "__main__":
    precompute(
        sys.argv[1], sys.argv[2], workers=2, storage_options=json.loads(sys.argv[3]), detector=FixedBoxDetector(),
        options=Options(sampling=Sampling(every=1), keep=FaceFilter(min_face_px=16), size_px=32),
        max_failed=FailureLimit.parse("2"),
    )
"""


@pytest.mark.processes
def test_a_run_whose_processes_are_killed_is_resumed_at_once(
    store: StoredOut, source: TinySource, tmp_path: Path
) -> None:
    """With workers of Dask, which publish to the store themselves."""
    out, script = new_folder() / "out", tmp_path / "run.py"
    script.write_text(_RUN)
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    command = [sys.executable, str(script), str(source.folder), URL, json.dumps(store.server.options)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        while not any(name.startswith("receipts/") for name in store.names()):
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    receipts = {name: store.read(name) for name in store.names() if name.startswith("receipts/")}
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert store.contents() == contents_of(out)
    assert {name: store.read(name) for name in receipts} == receipts
    assert store.is_whole()


def test_a_copied_dataset_without_parts_of_the_index_goes_on(store: StoredOut, source: TinySource) -> None:
    out = new_folder() / "out"
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    for name, content in contents_of(out).items():
        store.write(name, content)
    change(source)
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    run_into(store, source)
    assert store.contents() == contents_of(out)


@pytest.mark.parametrize("damage", ["cut", "gone", "flipped"])
def test_damaged_parts_of_the_index_are_written_again(store: StoredOut, source: TinySource, damage: str) -> None:
    run_into(store, source)
    before = store.contents()
    for name in store.names():
        if name.startswith("index/"):
            content = store.read(name)
            flipped = content[:60] + bytes([content[60] ^ 1]) + content[61:]
            store.remove(name) if damage == "gone" else store.write(name, content[:-9] if damage == "cut" else flipped)
    store.on_another_machine()
    run_into(store, source)
    assert store.contents() == before


def test_a_unit_whose_file_was_cut_is_done_again(store: StoredOut, source: TinySource) -> None:
    run_into(store, source)
    before, name = store.contents(), store.units()[0]
    store.write(name, store.read(name)[:-1])
    run_into(store, source)
    assert store.contents() == before


def test_a_receipt_that_was_lost_is_made_from_its_file(store: StoredOut, source: TinySource) -> None:
    run_into(store, source)
    before, name = store.contents(), next(name for name in store.names() if name.startswith("receipts/"))
    store.remove(name)
    run_into(store, source)
    assert store.contents() == before


def test_verify_reads_every_byte_in_the_store(store: StoredOut, source: TinySource) -> None:
    run_into(store, source)
    options, name = store.server.options, store.units()[0]
    content = store.read(name)
    result = verify(URL, storage_options=options)
    assert (result.files, result.rows, result.findings) == (
        len(store.units()),
        run_into(store, source).manifest.rows,
        [],
    )
    middle = len(content) // 2
    store.write(name, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    assert "hash" in {finding.kind for finding in verify(URL, storage_options=options).findings}
    store.remove(name)
    assert [finding.kind for finding in verify(URL, storage_options=options).findings] == ["file"]
    store.write(name, content)
    store.write("index.arrow", store.read("index.arrow")[:-300])
    (finding,) = verify(URL, storage_options=options).findings
    assert (finding.kind, finding.detail.startswith(f"{URL}/index.arrow: cannot be read")) == ("index", True)
    assert rebuild_index_file(URL, storage_options=options)
    assert store.is_whole()
    manifest = store.read("manifest.json")
    store.write("manifest.json", manifest[:-300])
    (finding,) = verify(URL, storage_options=options).findings
    assert (finding.kind, finding.detail.startswith(f"{URL}/manifest.json: not a manifest")) == ("manifest", True)
    store.write("manifest.json", manifest)


def test_workers_that_verify_fetch_their_files_themselves_and_leave_none(store: StoredOut, source: TinySource) -> None:
    run_into(store, source)
    options, name = store.server.options, store.units()[0]
    content = store.read(name)
    store.write(name, content[: len(content) // 2])
    alone, pool = verify(URL, storage_options=options, workers=1), TasksInProcess()
    with checked_by(pool):
        result = verify(URL, storage_options=options, workers=2)
    assert (result.findings, result.figures()) == (alone.findings, alone.figures())
    assert {finding.kind for finding in result.findings} == {"size", "hash", "content"}
    assert [*(Path(os.environ["XDG_CACHE_HOME"]) / "facefeed" / "working").iterdir()] == []
    store.write(name, content)
    with checked_by(pool):
        assert verify(URL, storage_options=options, workers=2).findings == [], "the index is that of the files"


def test_inspect_shows_what_it_shows_of_a_folder(store: StoredOut, source: TinySource, tmp_path: Path) -> None:
    out = new_folder() / "set"
    with in_process():
        precompute(source.folder, out, **SETTINGS)
    run_into(store, source)
    pages = []
    with open_out(URL, store.server.options) as paths:
        for dataset, place in ((paths, URL), (out, str(out))):
            inspection = inspect_dataset(dataset)
            assert inspection.outcomes.paths.place == place
            write_page(inspection, tmp_path / "page.html")
            pictures = re.findall(r"data:image/[^\"]+", (tmp_path / "page.html").read_text())
            pages.append((inspection.findings, inspection.outcomes.size_bytes, pictures))
    assert pages[0] == pages[1]
    assert len(pages[0][2]) > 3


def test_verify_names_who_is_at_work(store: StoredOut, source: TinySource) -> None:
    run_into(store, source, part="1/2")
    locks = StoreLocks(WritableFiles(StoreAddress(URL, store.server.options), StoreCounter()))
    with locks.hold("part-2-of-2.lease", work="facefeed precompute --part 2/2"):
        unfinished = verify(URL, storage_options=store.server.options).unfinished
    assert unfinished is not None
    assert "next: facefeed precompute --part 2/2 (process " in unfinished.remarks[-1]
    unfinished = verify(URL, storage_options=store.server.options).unfinished
    assert unfinished is not None
    assert f"run `facefeed precompute SRC {URL}` again" in unfinished.remarks[-1]


def test_verify_names_an_address_without_a_dataset(store: StoredOut) -> None:
    with pytest.raises(UsageError, match=rf"^{URL}: no manifest.json"):
        verify(URL, storage_options=store.server.options)


def test_a_dry_run_writes_nothing_to_the_store(store: StoredOut, source: TinySource) -> None:
    with in_process():
        settings = {name: value for name, value in SETTINGS.items() if name != "max_failed"}
        result = dry_run(source.folder, URL, storage_options=store.server.options, workers=1, **settings)
    assert result.pending == 4
    assert store.names() == []
