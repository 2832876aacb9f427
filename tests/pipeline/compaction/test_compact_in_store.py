"""`facefeed compact` of an OUT in a store: the dataset of a folder compacted, whatever fails and whoever resumes it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections import namedtuple
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from assets_dataset import make_dataset
from assets_out_in_store import (
    SMALL,
    URL,
    Numbers,
    StoredOut,
    contents_of,
    kill_and_resume,
)
from assets_stores import opened
from click.testing import CliRunner
from facefeed.pipeline.cli import main
from facefeed.pipeline.commit import store_lock
from facefeed.pipeline.commit.store_lock import StoreLocks
from facefeed.pipeline.compaction import merging
from facefeed.pipeline.compaction.run import CompactSummary, _Compaction, compact
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.dataset.stores import fetching
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.remote_files import RemoteFiles
from facefeed.pipeline.dataset.stores.writing import StoreFiles, WritableFiles, out_store
from facefeed.pipeline.errors import CorruptDataError, RefusedError, StoppedError, UsageError
from facefeed.pipeline.planning.plan import Plan, PlanPart

FILES_BEFORE, FILES = 4, 2


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small") / "out"
    make_dataset(out, SMALL)
    return out


@pytest.fixture(scope="module")
def compacted(out: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the folder holds once it is compacted."""
    copy = tmp_path_factory.mktemp("compacted") / "out"
    shutil.copytree(out, copy)
    compact(copy, workers=1)
    return contents_of(copy)


@pytest.fixture
def small(store: StoredOut, out: Path) -> StoredOut:
    """A copy of the dataset in the store, without parts of the index."""
    store.restore(files_of(out))
    return store


def files_of(out: Path) -> dict[str, bytes]:
    """What is copied to a store."""
    names = contents_of(out)
    return {name: (out / name).read_bytes() for name in names}


def compacting(store: StoredOut, **given: Any) -> CompactSummary:
    return compact(URL, storage_options=store.server.options, **{"workers": 1, **given})


def rows_on_the_disk() -> list[str]:
    """Names of the units of which there are rows in the working copy."""
    copies = Path(os.environ["XDG_CACHE_HOME"]).rglob("*.parquet*")
    return sorted({path.name.partition(".")[0] for path in copies})


def read_every_image(store: StoredOut, cache: Path) -> int:
    """What a training that begins now reads; returns how many images."""
    dataset = opened(URL, cache, storage_options=store.server.options)
    images = StoredImages(dataset.index, dataset.reader)
    return sum(bool(images.image(row)) for row in range(len(dataset.index)))


# --- the same dataset


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_the_folder_compacted_byte_for_byte(
    small: StoredOut, compacted: dict[str, bytes], workers: int, tmp_path: Path
) -> None:
    rows = json.loads(small.read("manifest.json"))["rows"]
    summary = compacting(small, workers=workers)
    assert (summary.files_before, summary.files, summary.merged_files) == (FILES_BEFORE, FILES, 1)
    assert small.contents() == compacted
    assert {Path(name).stem for name in small.names() if name.startswith("index/")} == {
        Path(name).stem for name in small.units()
    }
    assert small.is_whole()
    assert read_every_image(small, tmp_path) == rows
    assert [*(Path(os.environ["XDG_CACHE_HOME"]) / "facefeed" / "working").iterdir()] == []


def test_a_second_run_finds_nothing_to_merge_and_reads_no_row(small: StoredOut, compacted: dict[str, bytes]) -> None:
    compacting(small)
    small.on_another_machine()
    small.server.behave()
    summary = compacting(small)
    assert (summary.files, summary.merged_files, summary.removed_files) == (FILES, 0, 0)
    assert small.server.requests == 0
    assert small.contents() == compacted


def test_the_command_takes_the_address_and_prints_the_figures_of_a_folder(
    small: StoredOut, compacted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", small.server.url)
    result = CliRunner().invoke(main, ["compact", URL, "--json"])
    assert result.exit_code == 0
    assert f"{URL}: 4 files before, 2 now" in " ".join(result.stderr.split())
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["files_before"], figures["files"], figures["removed_files"]) == (FILES_BEFORE, FILES, 3)
    assert small.contents() == compacted


# --- what it asks of the store and of the disk


def test_a_small_file_is_read_once_to_check_it_and_once_to_copy_it(small: StoredOut) -> None:
    merged = [name for name in small.units() if name.startswith("faces/train/")]
    small.server.behave()
    compacting(small)
    assert small.server.requests == 2 * len(merged) + 1, "the file that stays has no part of the index yet"


def test_the_local_disk_has_the_rows_of_one_unit_at_a_time(
    store: StoredOut, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.restore(files_of(out))
    small_units = {Path(name).stem for name in store.units() if name.startswith("faces/train/")}
    seen: list[set[str]] = []
    publish, replace = StoreFiles.publish, StoreFiles.replace

    def publishing(files: StoreFiles, attempt: Path, path: Path) -> None:
        publish(files, attempt, path)
        seen.append({*rows_on_the_disk()} - {path.stem})

    def replacing(files: StoreFiles, attempt: Path, path: Path) -> None:
        replace(files, attempt, path)
        if path.name == "index.next.arrow":
            seen.append({*rows_on_the_disk()})

    monkeypatch.setattr(StoreFiles, "publish", publishing)
    monkeypatch.setattr(StoreFiles, "replace", replacing)
    compacting(store)
    assert seen == [small_units, set()]


def test_files_of_several_requests_are_fetched_with_eight_at_a_time(
    small: StoredOut, compacted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out_store, "_MAX_SMALL_BYTES", 1 << 10)
    monkeypatch.setattr(fetching, "BLOCK_BYTES", 1 << 10)
    lock, reading, most = threading.Lock(), 0, 0
    read = RemoteFiles.read

    def reading_one(files: RemoteFiles, name: str, *given: Any, **options: Any) -> bytes:
        nonlocal reading, most
        with lock:
            reading += 1
            most = max(most, reading)
        try:
            return read(files, name, *given, **options)
        finally:
            with lock:
                reading -= 1

    monkeypatch.setattr(RemoteFiles, "read", reading_one)
    compacting(small)
    assert 1 < most <= 8
    assert small.contents() == compacted


def test_a_disk_without_room_for_what_is_merged_at_a_time_is_refused_with_its_folder(
    small: StoredOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage, before = namedtuple("usage", "total used free"), small.contents()
    size = sum(len(content) for name, content in before.items() if name.startswith("faces/train/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, 2 * size - 1))
    folder = os.environ["XDG_CACHE_HOME"]
    with pytest.raises(
        RefusedError, match=rf"^{URL}: small files .* in {folder}/facefeed/working at a time, .* --work"
    ):
        compacting(small)
    assert small.contents() == before
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, 2 * size))
    assert compacting(small, workers=8).merged_files == 1


@pytest.mark.parametrize("fault", ["slow_down", "lost"])
def test_requests_that_fail_in_passing_are_repeated(small: StoredOut, compacted: dict[str, bytes], fault: str) -> None:
    small.server.behave()
    small.server.write_faults = lambda number: None if number % 2 else fault
    small.server.faults = lambda number: None if number % 2 else "slow_down"
    compacting(small)
    assert small.server.writes > 10
    small.server.behave()
    assert small.contents() == compacted


# --- what is refused, and leaves the dataset as it was


def test_a_store_that_overwrites_what_is_to_be_created_is_refused(small: StoredOut) -> None:
    before = small.contents()
    small.server.ignores_conditions = True
    with pytest.raises(UsageError, match="does not create files on the condition that there is none"):
        compacting(small)
    assert small.contents() == before


def test_a_dataset_on_which_another_run_is_at_work_is_refused(small: StoredOut) -> None:
    locks, before = StoreLocks(WritableFiles(StoreAddress(URL, small.server.options), StoreCounter())), small.contents()
    with locks.hold("driver.lease", work="facefeed precompute"), pytest.raises(RefusedError, match="is working on it"):
        compacting(small)
    assert small.contents() == before


def test_a_damaged_file_is_found_before_anything_is_written(small: StoredOut) -> None:
    name = small.units()[0]
    content = small.read(name)
    small.write(name, content[:60] + bytes([content[60] ^ 1]) + content[61:])
    before = small.contents()
    with pytest.raises(CorruptDataError, match=rf"^{URL}: {name}: its SHA-256 .*run `facefeed verify {URL}`"):
        compacting(small)
    assert small.contents() == before
    small.remove(name)
    with pytest.raises(CorruptDataError, match=rf"^{URL}: 1 unit of it, .* is missing or damaged"):
        compacting(small)


def test_an_address_without_a_finished_dataset_is_named(small: StoredOut) -> None:
    small.remove("manifest.json")
    with pytest.raises(
        UsageError, match=rf"^{URL}: no manifest.json, so no finished dataset; run `facefeed precompute"
    ):
        compacting(small)


@pytest.mark.parametrize("step", ["merge", "finish"])
def test_credentials_that_expire_in_the_middle_stop_it_and_the_next_run_resumes(
    small: StoredOut, compacted: dict[str, bytes], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_step = getattr(_Compaction, step)

    def expire(*arguments: Any) -> Any:
        small.server.write_faults = lambda _: "refused"
        return run_step(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(_Compaction, step, expire)
        with pytest.raises(StoppedError, match=r"ExpiredToken.*run the same command again"):
            compacting(small)
    small.server.behave()
    small.on_another_machine()
    monkeypatch.setattr(store_lock, "process_exists", lambda pid: False)  # the lease could not be released either
    assert compacting(small).is_resumed
    assert small.contents() == compacted


def test_a_run_that_was_beaten_to_the_plan_is_refused(small: StoredOut, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was paused until another had taken its lease."""
    append = Plan.append

    def append_late(plan: Plan, paths: OutPaths, part: PlanPart) -> None:
        small.write("plan/1.json", b"{}")
        append(plan, paths, part)

    monkeypatch.setattr(Plan, "append", append_late)
    with pytest.raises(RefusedError, match=rf"^{URL}: another run has planned meanwhile"):
        compacting(small)


# --- stopped half-way


def test_a_run_whose_lease_was_taken_over_says_so_where_the_other_has_removed_what_it_merged(
    small: StoredOut, compacted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    merge_unit = merging._merge_unit

    def merge_late(*given: Any) -> Any:
        monkeypatch.setattr(merging, "_merge_unit", merge_unit)
        with monkeypatch.context() as patch:
            patch.setattr(store_lock, "process_exists", lambda pid: False)
            compacting(small)
        return merge_unit(*given)

    monkeypatch.setattr(merging, "_merge_unit", merge_late)
    with pytest.raises(StoppedError, match=rf"^{URL}: .* has taken it over"):
        compacting(small)
    assert small.contents() == compacted


def test_a_receipt_that_is_there_as_it_is_written_and_gone_as_it_is_read_is_written(
    small: StoredOut, compacted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    create = WritableFiles.create

    def exists_for_a_moment(files: WritableFiles, name: str, content: Any) -> None:
        if name.startswith("receipts/"):
            raise FileExistsError(name)
        create(files, name, content)

    monkeypatch.setattr(WritableFiles, "create", exists_for_a_moment)
    compacting(small)
    assert small.contents() == compacted


def test_a_disk_that_is_full_as_a_long_plan_is_fetched_is_named_by_its_folder(
    small: StoredOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(out_store, "_MAX_SMALL_BYTES", 1 << 10)
    monkeypatch.setattr(fetching, "write_at", full)
    with pytest.raises(StoppedError, match=rf"^{os.environ['XDG_CACHE_HOME']}/.*/plan/0.json: No space left on device"):
        compacting(small)


def test_a_store_that_stops_answering_stops_the_run_which_is_resumed(
    small: StoredOut, compacted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    small.server.behave()
    small.server.write_faults = lambda number: "slow_down" if number >= 10 else None
    with pytest.raises(StoppedError, match=rf"^{URL}/.*does not (accept|remove) the file"):
        compacting(small)
    small.server.behave()
    monkeypatch.setattr(store_lock, "process_exists", lambda pid: False)
    assert compacting(small).is_resumed
    assert small.contents() == compacted


def killed_compactions(store: StoredOut, out: Path, compacted: dict[str, bytes], folder: Path, numbers: Numbers) -> int:
    """Whoever opens the dataset after a kill has all of its rows."""
    rows, caches = Manifest.read(out).rows, count()

    def read() -> None:
        assert read_every_image(store, folder / str(next(caches))) == rows

    return kill_and_resume(store, numbers, lambda: compacting(store), files_of(out), compacted, on_killed=read)


def test_a_compaction_killed_at_a_write_is_resumed_and_readers_have_all_rows(
    store: StoredOut, out: Path, compacted: dict[str, bytes], tmp_path: Path
) -> None:
    numbers = ((number, number % 2 == 1) for number in range(4, 24, 7))
    assert killed_compactions(store, out, compacted, tmp_path, numbers) >= 3


@pytest.mark.chaos
def test_a_compaction_killed_at_any_write_is_resumed_and_readers_have_all_rows(
    store: StoredOut, out: Path, compacted: dict[str, bytes], tmp_path: Path
) -> None:
    numbers = ((number, done) for number in count() for done in (False, True))
    assert killed_compactions(store, out, compacted, tmp_path, numbers) > 30
