"""What stands for a source in a store goes with its run, also with one that was killed, and never with another."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from facefeed.pipeline.stored_source.source import open_source

KILLED_RUN = """
import os, signal, sys
from facefeed.pipeline.stored_source.source import open_source
with open_source(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_AS_IT_REMOVES = """
import os, pathlib, shutil, signal, sys
from facefeed.pipeline.stored_source.source import open_source

def kill(path, **options):
    for file in pathlib.Path(path).iterdir():  # in any order
        if file.is_file():
            file.unlink()
    os.kill(os.getpid(), signal.SIGKILL)

with open_source(sys.argv[1]):
    shutil.rmtree = kill
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def src(tmp_path: Path) -> str:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos/a.mp4").write_bytes(b"film")
    return f"file://{tmp_path}/videos"


def run_until_killed(src: str, script: str = KILLED_RUN) -> None:
    ended = subprocess.run([sys.executable, "-c", script, src], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_what_a_killed_run_left_is_removed_by_the_next_one(src: str, temporary: Path) -> None:
    run_until_killed(src)
    (left,) = temporary.iterdir()
    with open_source(src):
        assert not left.exists()
    assert [*temporary.iterdir()] == []


def test_what_a_run_left_that_was_killed_as_it_removed_its_files_is_removed_too(src: str, temporary: Path) -> None:
    run_until_killed(src, KILLED_AS_IT_REMOVES)
    (left,) = temporary.iterdir()
    with open_source(src):
        assert not left.exists()


def test_a_folder_on_nfs_goes_once_its_lock_file_is_closed(
    src: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a file that is removed while it is open keeps its folder, under another name."""
    remove = shutil.rmtree

    def rmtree(path: Path, **options: Any) -> None:
        files = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        if not any(Path(file).is_relative_to(path) for file in files):
            remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    run_until_killed(src)
    with open_source(src):
        assert len([*temporary.iterdir()]) == 1
    assert [*temporary.iterdir()] == []


def test_a_run_that_goes_on_keeps_what_it_has(src: str, temporary: Path) -> None:
    with open_source(src) as living:
        run_until_killed(src)
        with open_source(src) as another:
            assert another.path != living.path
            assert len([*temporary.iterdir()]) == 2
        assert (living.path / "a.mp4").exists()


def test_what_may_be_of_a_run_that_begins_or_of_another_host_stays(src: str, temporary: Path) -> None:
    (temporary / "facefeed-source-1").mkdir()
    (temporary / "facefeed-source-2").mkdir()
    (temporary / "facefeed-source-2/in-use-elsewhere").touch()
    with open_source(src):
        pass
    assert {path.name for path in temporary.iterdir()} == {"facefeed-source-1", "facefeed-source-2"}
