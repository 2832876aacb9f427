"""Folders that are created, durably, wherever they may be; files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from facefeed.pipeline.errors import StoppedError
from facefeed.pipeline.files import files_below, make_folder, raise_unless_damage, write_atomically


def test_a_folder_may_be_created_in_one_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def open_unless_unreadable(path: Any, *arguments: Any) -> int:  # as root, which the tests may be, can list all
        if Path(path) == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *arguments)

    monkeypatch.setattr(os, "open", open_unless_unreadable)
    make_folder(tmp_path / "runs/first")
    make_folder(tmp_path / "runs")
    assert (tmp_path / "runs/first").is_dir()


def test_hidden_files_of_a_desktop_or_of_nfs_are_no_files_of_a_dataset(tmp_path: Path) -> None:
    for name in ("train/a.parquet", "train/.DS_Store", ".nfs0123"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert files_below(tmp_path) == [tmp_path / "train/a.parquet"]


def test_a_page_on_a_full_disk_is_no_mistake_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.html"
    page.write_text("as it was")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoppedError, match=r"^--page .*page\.html: No space left on device; make room and run "):
        write_atomically("new", page, "--page")
    assert page.read_text() == "as it was"


@pytest.mark.parametrize(
    "error", [MemoryError(), pa.ArrowMemoryError("malloc of size 4096 failed"), pa.ArrowMemoryError("ZSTD_DCtx")]
)
def test_a_file_that_memory_did_not_suffice_to_read_is_not_damaged(tmp_path: Path, error: MemoryError) -> None:
    with pytest.raises(StoppedError, match=r"a\.parquet: Cannot allocate memory"):
        raise_unless_damage(tmp_path / "a.parquet", error)


def test_a_file_beyond_the_limit_of_open_ones_is_not_damaged(tmp_path: Path) -> None:
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with pytest.raises(StoppedError, match=r"Too many open files; .* raise the limit of open files \(ulimit -n\) and "):
        raise_unless_damage(tmp_path / "a.parquet", error)


def test_a_file_that_no_thread_could_be_started_to_read_is_not_damaged(tmp_path: Path) -> None:
    error = pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable")
    with pytest.raises(StoppedError, match=r"a\.parquet: Failed to launch worker thread: you, or this container, have"):
        raise_unless_damage(tmp_path / "a.parquet", error)


def test_a_file_whose_reader_asks_for_more_than_any_machine_has_is_damaged(tmp_path: Path) -> None:
    raise_unless_damage(tmp_path / "a.parquet", pa.ArrowMemoryError(f"malloc of size {2**60} failed"))
