"""`facefeed add` and `facefeed remove` of an OUT in a store: the files of a folder, whatever fails or is killed."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_columns import FILE, Colour, Large, Returning
from assets_dataset import copy_dataset, make_dataset
from assets_out_in_store import (
    SMALL,
    URL,
    Numbers,
    StoredOut,
    contents_of,
    kill_and_resume,
)
from click.testing import CliRunner
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.added_columns.run import AddSummary, add_columns, remove_columns
from facefeed.pipeline.cli import main
from facefeed.pipeline.commit import store_lock
from facefeed.pipeline.commit.store_lock import StoreLocks
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.writing import WritableFiles, open_out
from facefeed.pipeline.errors import RefusedError, StoppedError, UsageError
from facefeed.pipeline.inspect.inspection import inspect_dataset
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file

UNITS, ROWS = 4, 28
NOISE = pa.schema([("noise", pa.list_(pa.float32(), 2500))])
SOURCE = f"{FILE}:Colour"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small") / "out"
    make_dataset(out, SMALL)
    return out


@pytest.fixture(scope="module")
def coloured(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = copy_dataset(out, tmp_path_factory.mktemp("coloured") / "out")
    add_columns(copy, SOURCE, workers=1)
    return copy


@pytest.fixture
def plain(store: StoredOut, out: Path) -> StoredOut:
    store.restore(files_of(out))
    return store


@pytest.fixture
def with_columns(store: StoredOut, coloured: Path) -> StoredOut:
    store.restore(files_of(coloured))
    return store


def files_of(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in contents_of(out)}


def adding(store: StoredOut, maker: Any = SOURCE, **given: Any) -> AddSummary:
    return add_columns(URL, maker, storage_options=store.server.options, **{"workers": 1, **given})


def removing(store: StoredOut) -> int:
    return remove_columns(URL, "colour", storage_options=store.server.options)


def column_files(store: StoredOut) -> list[str]:
    return [name for name in store.names() if name.startswith("columns/") and name.endswith(".parquet")]


# --- the same files


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_the_files_are_those_that_are_added_in_a_folder_byte_for_byte(
    plain: StoredOut, coloured: Path, workers: int
) -> None:
    summary = adding(plain, workers=workers)
    assert (summary.units, summary.rows, summary.units_before) == (UNITS, ROWS, 0)
    assert summary.size_bytes == sum(path.stat().st_size for path in coloured.glob("columns/colour/*.parquet"))
    assert plain.contents() == contents_of(coloured)
    assert plain.is_whole()


def test_a_second_run_finds_nothing_to_do_and_reads_no_rows(plain: StoredOut, coloured: Path) -> None:
    adding(plain)
    plain.on_another_machine()
    plain.server.behave()
    assert adding(plain).units == 0
    assert plain.server.requests == 0
    assert plain.contents() == contents_of(coloured)


def test_a_loader_delivers_them_from_the_address_and_selects_by_them(
    with_columns: StoredOut, coloured: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "batch_size": 8, "fields": ("image", "row", "brightness", "tone"), "filters": [("tone", "==", "light")],
        "num_workers": 0, "shuffle": False,
    }  # fmt: skip
    loader = FaceDataLoader(URL, **given, cache=tmp_path, storage_options=with_columns.server.options)
    batch, expected = next(iter(loader)), next(iter(FaceDataLoader(coloured, **given)))
    assert len(batch["image"]) > 1
    assert batch["tone"] == expected["tone"]
    for name in ("image", "brightness"):
        np.testing.assert_array_equal(batch[name].numpy(), expected[name].numpy())


def test_a_loader_that_was_opened_before_is_followed_by_one_that_has_them(plain: StoredOut, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "batch_size": 8, "num_workers": 0, "cache": tmp_path, "storage_options": plain.server.options
    }  # fmt: skip
    before = FaceDataLoader(URL, **given)
    adding(plain)
    assert next(iter(before))[0].shape[0] == 8
    assert "brightness" in next(iter(FaceDataLoader(URL, fields=("image", "brightness"), **given)))


def test_columns_that_are_too_large_for_the_index_are_in_their_files(plain: StoredOut, tmp_path: Path) -> None:
    summary = adding(plain, Large())
    assert summary.indexed == ["vector_512"]
    (tmp_path / "columns.parquet").write_bytes(plain.read(column_files(plain)[0]))
    assert pq.read_schema(tmp_path / "columns.parquet").names == ["face_id", "vector_513", "vector_512"]
    assert plain.is_whole()


def test_inspect_counts_their_bytes_as_in_a_folder(with_columns: StoredOut, coloured: Path) -> None:
    with open_out(URL, with_columns.server.options) as paths:
        stored = inspect_dataset(paths).outcomes.size_bytes
    assert stored == inspect_dataset(coloured).outcomes.size_bytes


def test_removed_they_leave_the_dataset_as_it_was(with_columns: StoredOut, out: Path) -> None:
    assert removing(with_columns) == UNITS
    assert with_columns.contents() == contents_of(out)
    assert with_columns.is_whole()
    with pytest.raises(UsageError, match=rf"^{URL}: has no added columns 'colour'; it has none"):
        removing(with_columns)


def test_the_commands_take_the_address(plain: StoredOut, out: Path, coloured: Path) -> None:
    plain.patch.setenv("AWS_ENDPOINT_URL", plain.server.url)
    added = CliRunner().invoke(main, ["add", URL, SOURCE, "--workers", "1", "--json"])
    assert added.exit_code == 0, added.output
    assert json.loads(added.stdout.splitlines()[-1])["rows"] == ROWS
    assert f"{URL}: colour: brightness, side, tone, mean_rgb" in " ".join(added.stderr.split())
    assert plain.contents() == contents_of(coloured)
    removed = CliRunner().invoke(main, ["remove", URL, "colour", "--json"])
    assert removed.exit_code == 0, removed.output
    assert plain.contents() == contents_of(out)


@pytest.mark.parametrize("fault", ["slow_down", "lost"])
def test_requests_that_fail_in_passing_are_repeated(plain: StoredOut, coloured: Path, fault: str) -> None:
    plain.server.behave()
    plain.server.write_faults = lambda number: None if number % 2 else fault
    plain.server.faults = lambda number: None if number % 2 else "slow_down"
    adding(plain)
    assert plain.server.writes > UNITS
    plain.server.behave()
    assert plain.contents() == contents_of(coloured)


# --- what is refused


def test_a_dataset_on_which_another_run_is_at_work_is_refused(with_columns: StoredOut) -> None:
    locks = StoreLocks(WritableFiles(StoreAddress(URL, with_columns.server.options), StoreCounter()))
    before = with_columns.contents()
    with locks.hold("driver.lease", work="facefeed precompute"):
        for work in (lambda: adding(with_columns, Large()), lambda: removing(with_columns)):
            with pytest.raises(RefusedError, match="is working on it"):
                work()
    assert with_columns.contents() == before


def test_a_store_that_overwrites_what_is_to_be_created_is_refused(plain: StoredOut) -> None:
    before = plain.contents()
    plain.server.ignores_conditions = True
    with pytest.raises(UsageError, match="does not create files on the condition that there is none"):
        adding(plain)
    assert plain.contents() == before


def test_another_fingerprint_under_the_same_name_is_refused_with_the_address(with_columns: StoredOut) -> None:
    class Other(Colour):
        fingerprint = "colour-2"

    with pytest.raises(RefusedError, match=rf"^{URL}: .* run `facefeed remove {URL} colour` first"):
        adding(with_columns, Other())


# --- damage


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_a_damaged_file_of_columns_is_found_and_computed_again(
    with_columns: StoredOut, coloured: Path, workers: int
) -> None:
    name = column_files(with_columns)[0]
    content = with_columns.read(name)
    with_columns.write(name, content[:60] + bytes([content[60] ^ 1]) + content[61:])
    (finding,) = verify(URL, workers=workers, storage_options=with_columns.server.options).findings
    assert (finding.location, finding.detail) == (name, "its SHA-256 is not its receipt's")
    assert f"run `facefeed add {URL} " in finding.remedy
    with_columns.remove(name)
    assert adding(with_columns).units == 1
    assert with_columns.contents() == contents_of(coloured)


def test_verify_fetches_each_file_once(with_columns: StoredOut) -> None:
    with_columns.server.behave()
    assert with_columns.is_whole()
    assert with_columns.server.requests == UNITS + len(column_files(with_columns))


def test_columns_of_other_faces_are_found(with_columns: StoredOut, coloured: Path, tmp_path: Path) -> None:
    """As where receipt and file of another dataset were copied there."""
    first, second, *_ = column_files(with_columns)
    copy = copy_dataset(coloured, tmp_path / "copy")
    table = pq.read_table(copy / second, partitioning=None)
    pq.write_table(table.slice(0, 0), copy / second)
    with_columns.write(first, with_columns.read(second))
    findings = verify(URL, storage_options=with_columns.server.options).findings
    assert [finding.location for finding in findings] == [first]


def test_the_index_is_rebuilt_with_them(with_columns: StoredOut, coloured: Path) -> None:
    with_columns.write("index.arrow", b"damaged")
    assert rebuild_index_file(URL, storage_options=with_columns.server.options)
    assert with_columns.contents() == contents_of(coloured)


# --- compaction


@pytest.fixture(scope="module")
def compacted(coloured: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = copy_dataset(coloured, tmp_path_factory.mktemp("compacted") / "out")
    compact(copy, workers=1)
    return copy


def compacting(store: StoredOut) -> object:
    return compact(URL, workers=1, storage_options=store.server.options)


def test_a_compaction_carries_them_as_in_a_folder(with_columns: StoredOut, compacted: Path) -> None:
    compacting(with_columns)
    assert with_columns.contents() == contents_of(compacted)
    assert with_columns.is_whole()


def test_a_compaction_needs_room_for_the_columns_that_it_merges_at_a_time(
    plain: StoredOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be larger than the rows."""
    random = np.random.default_rng(0)
    adding(plain, Returning(lambda faces: {"noise": random.random((len(faces), 2500), np.float32)}, NOISE))
    merged = {Path(name).stem for name in plain.units() if name.startswith("faces/train/")}
    size = sum(len(plain.read(name)) for name in column_files(plain) if Path(name).stem in merged)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, 2 * size - 1))
    with pytest.raises(
        RefusedError, match=rf"^{URL}: small files .*, with their added columns, and what they .* --work"
    ):
        compacting(plain)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, 2 * size))
    compacting(plain)


def test_a_compaction_where_they_lack_rows_is_refused_with_the_command(with_columns: StoredOut) -> None:
    merged = {Path(name).stem for name in with_columns.units() if name.startswith("faces/train/")}
    with_columns.remove(next(name for name in column_files(with_columns) if Path(name).stem in merged))
    before = with_columns.contents()
    with pytest.raises(RefusedError, match=rf"^{URL}: .* lack the added columns 'colour', .*facefeed add {URL} "):
        compacting(with_columns)
    assert with_columns.contents() == before


def test_an_export_has_them(with_columns: StoredOut, tmp_path: Path) -> None:
    with_columns.patch.setenv("AWS_ENDPOINT_URL", with_columns.server.url)
    result = CliRunner().invoke(main, ["export", URL, str(tmp_path / "exported"), "--as", "hf"])
    assert result.exit_code == 0, result.output
    columns = pq.read_schema(next((tmp_path / "exported").rglob("*.parquet"))).names
    assert {"brightness", "tone"} <= {*columns}


# --- stopped half-way


def test_a_store_that_stops_answering_stops_the_run_which_is_resumed(plain: StoredOut, coloured: Path) -> None:
    plain.server.behave()
    plain.server.write_faults = lambda number: "slow_down" if number >= 10 else None
    with pytest.raises(StoppedError, match=rf"^{URL}/.*does not (accept|remove) the file"):
        adding(plain)
    plain.server.behave()
    plain.patch.setattr(store_lock, "process_exists", lambda pid: False)
    assert adding(plain).units < UNITS
    assert plain.contents() == contents_of(coloured)


def test_credentials_that_expire_amid_the_run_stop_it_and_the_next_one_resumes(
    plain: StoredOut, coloured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expire(*_: int) -> None:
        plain.server.write_faults = lambda _: "refused"

    with pytest.raises(StoppedError, match=r"ExpiredToken.*finished units are kept.*run the same command again"):
        adding(plain, on_progress=expire)
    plain.server.behave()
    monkeypatch.setattr(store_lock, "process_exists", lambda pid: False)  # the lease could not be released either
    adding(plain)
    assert plain.contents() == contents_of(coloured)


def killed(store: StoredOut, work: str, numbers: Numbers, out: Path, coloured: Path, compacted: Path) -> int:
    run, before, expected = {
        "add": (adding, out, coloured),
        "remove": (removing, coloured, out),
        "compact": (compacting, coloured, compacted),
    }[work]

    def resume() -> None:
        with suppress(UsageError):  # killed after the last write of a removal: there is no set any more
            run(store)

    return kill_and_resume(store, numbers, lambda: run(store), files_of(before), contents_of(expected), resume=resume)


@pytest.mark.parametrize(("work", "first"), [("add", 5), ("remove", 3), ("compact", 9)])
def test_killed_at_a_write_it_is_resumed(
    store: StoredOut, out: Path, coloured: Path, compacted: Path, work: str, first: int
) -> None:
    numbers = ((first, False), (first + 4, True))
    assert killed(store, work, numbers, out, coloured, compacted) >= 2


@pytest.mark.chaos
@pytest.mark.parametrize("work", ["add", "remove", "compact"])
def test_killed_at_any_write_it_is_resumed(
    store: StoredOut, out: Path, coloured: Path, compacted: Path, work: str
) -> None:
    numbers = ((number, done) for number in count() for done in (False, True))
    assert killed(store, work, numbers, out, coloured, compacted) > 20
