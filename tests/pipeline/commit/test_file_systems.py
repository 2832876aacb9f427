"""What a user notices where the file system of OUT lacks what local ones have: the same dataset, and a word on it."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from assets_failing_calls import library
from assets_in_process import in_process
from assets_paths import python_path
from facefeed.pipeline.commit.file_system import limits_of_file_system
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling
from rich.console import Console

COMMANDS = ("precompute", "update", "last-part", "add", "remove", "export-folders", "export-webdataset", "export-hf")


def out_paths(out: Path) -> OutPaths:
    paths = OutPaths(out)
    make_folders(paths)
    return paths


def check_commands(
    commands: tuple[str, ...], how: str, folder: Path, *, timeout_seconds: float
) -> dict[str, dict[str, str]]:
    """How each command ends on each kind of file system that lacks something; all must end as on one that does not."""
    (folder / "library").mkdir()
    (folder / "work").mkdir()
    result = subprocess.run(
        [sys.executable, "-m", "assets_lacking_runs", str(folder / "work"), how, *commands],
        env={**os.environ, "PYTHONPATH": python_path(), "LD_PRELOAD": str(library(folder / "library"))},
        capture_output=True, text=True, check=False, timeout=timeout_seconds,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    endings: dict[str, dict[str, str]] = json.loads(result.stdout.splitlines()[-1])
    assert {name: {*each.values()} for name, each in endings.items()} == {name: {"the same"} for name in commands}
    return endings


@pytest.mark.processes
def test_without_hard_links_locks_and_syncs_of_folders_every_command_ends_as_with_them(tmp_path: Path) -> None:
    endings = check_commands(COMMANDS, "together", tmp_path, timeout_seconds=300)
    assert endings["precompute"].keys() == {"link flock fsync_folder: EOPNOTSUPP"}
    assert endings["add"].keys() == {"link flock fsync_folder: EOPNOTSUPP"}


@pytest.mark.chaos
@pytest.mark.parametrize("command", [*COMMANDS, "train"])
def test_without_any_one_of_them_every_command_ends_as_with_it(command: str, tmp_path: Path) -> None:
    check_commands((command,), "alone", tmp_path, timeout_seconds=3600)


def fail(error: int) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise OSError(error, os.strerror(error))

    return call


@pytest.mark.parametrize(
    ("where", "name", "error", "limit"),
    [
        (os, "link", errno.EPERM, "no hard links: finished files are renamed"),
        (fcntl, "flock", errno.ENOLCK, "no locks: after a run that was killed, the next waits for a minute"),
        (os, "fsync", errno.EINVAL, "folders cannot be synced: a power failure may cost finished units"),
    ],
)
def test_a_limit_of_the_file_system_is_named_and_the_trial_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, error: int, limit: str
) -> None:
    paths = out_paths(tmp_path)
    assert limits_of_file_system(paths) == []
    monkeypatch.setattr(where, name, fail(error))
    (text,) = limits_of_file_system(paths)
    assert limit in text
    assert [*paths.temporary.iterdir()] == []


def test_a_file_system_that_maps_no_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = out_paths(tmp_path)
    monkeypatch.setattr(mmap, "mmap", fail(errno.ENODEV))
    with pytest.raises(UsageError, match=r"cannot map files into memory .* put the dataset on another one"):
        limits_of_file_system(paths)
    assert [*paths.temporary.iterdir()] == []


@pytest.mark.parametrize(("where", "name"), [(os, "link"), (fcntl, "flock"), (os, "fsync"), (mmap, "mmap")])
def test_a_disk_that_fails_is_not_taken_for_one_that_lacks_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    paths = out_paths(tmp_path)
    monkeypatch.setattr(where, name, fail(errno.EIO))
    with pytest.raises(StoppedError, match=f"{tmp_path}.*Input/output error"):
        limits_of_file_system(paths)
    assert [*paths.temporary.iterdir()] == []


def test_precompute_says_what_the_file_system_of_out_lacks(
    make_source: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, out = io.StringIO(), tmp_path / "out"
    monkeypatch.setattr(os, "link", fail(errno.EPERM))
    options = Options(sampling=Sampling(every=10), keep=FaceFilter(min_face_px=1))
    with in_process():
        precompute(
            make_source("real/a.mp4"), out, options=options,
            detector=FixedBoxDetector(), progress=Progress(Console(file=stream, width=10_000, highlight=False)),
        )  # fmt: skip
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    warnings = [event["text"] for event in events if event["event"] == "warning"]
    assert [text for text in warnings if str(out) in text] == [
        f"OUT='{out}': no hard links: finished files are renamed, and the lease alone keeps two runs apart"
    ]
    assert verify(out).findings == []
