"""What those are advised to do who read an OUT that is not finished, while parts of its job are at work."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from assets_columns import FILE
from assets_in_process import in_process
from assets_parts import Run
from click.testing import CliRunner
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.cli import main
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.lock import hold_lock

PART = "facefeed precompute --part 2/2"
NO_PROCESS = 2**31 - 2


@pytest.fixture
def out(run: Run, folder: Path) -> Iterator[Path]:
    """What the first of two parts has left."""
    with in_process():
        run("1/2")
        yield folder / "out"


def part_at_work(out: Path) -> AbstractContextManager[None]:
    return hold_lock(out / "part-2-of-2.lease", work=PART)


def forge(out: Path, *, host: str, pid: int, age_seconds: float) -> None:
    """The lease of a part as another process has left it."""
    lease, then = out / "part-2-of-2.lease", time.time() - age_seconds
    lease.write_text(json.dumps({"host": host, "pid": pid, "since": "2026-01-01T00:00:00+00:00", "work": PART}))
    os.utime(lease, (then, then))


def printed(command: str) -> Callable[[Path], str]:
    def run_command(out: Path) -> str:
        return CliRunner().invoke(main, [command, str(out)]).stderr

    return run_command


def loaded(out: Path) -> str:
    with pytest.raises(UsageError) as refused:
        FaceDataLoader(out, batch_size=2)
    return str(refused.value)


def added(out: Path) -> str:
    with pytest.raises(UsageError) as refused:
        add_columns(out, f"{FILE}:Colour")
    return str(refused.value)


READERS = pytest.mark.parametrize(
    "advice_of", [printed("verify"), printed("inspect"), loaded, added], ids=["verify", "inspect", "loader", "add"]
)


@READERS
def test_while_a_part_is_at_work_readers_are_advised_to_wait_for_it(out: Path, advice_of: Callable[..., str]) -> None:
    with part_at_work(out):
        advice = advice_of(out)
    assert f"{PART} (process {os.getpid()} on {socket.gethostname()}, since 20" in advice
    assert "is at work on it; wait, the last to end finishes it" in advice
    assert "precompute SRC" not in advice


@READERS
def test_without_a_part_at_work_readers_are_advised_to_run_the_job(out: Path, advice_of: Callable[..., str]) -> None:
    assert f"run `facefeed precompute SRC {out}`" in advice_of(out)


@pytest.mark.parametrize(
    ("host", "pid", "age_seconds", "is_at_work"),
    [
        ("node7", 4711, 5.0, True),
        ("node7", 4711, 90.0, False),
        (socket.gethostname(), NO_PROCESS, 5.0, False),
        (socket.gethostname(), os.getpid(), 90.0, False),
    ],
    ids=["on another host", "silent for long", "killed here", "its process id in use again"],
)
def test_a_part_that_was_killed_is_not_waited_for(
    out: Path, host: str, pid: int, age_seconds: float, is_at_work: bool
) -> None:
    forge(out, host=host, pid=pid, age_seconds=age_seconds)
    assert ("is at work on it" in loaded(out)) == is_at_work
    assert ("precompute SRC" in loaded(out)) != is_at_work


def test_a_dataset_that_cannot_be_written_to_is_read_while_a_part_is_at_work(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(out, host="node7", pid=4711, age_seconds=5.0)
    opened, lease = list[int](), out / "part-2-of-2.lease"
    before = lease.stat().st_mtime_ns, lease.read_bytes()
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *a, **k: opened.append(flags) or real(path, flags, *a, **k))
    assert "node7" in loaded(out)
    assert not any(flags & (os.O_RDWR | os.O_WRONLY) for flags in opened)
    assert (lease.stat().st_mtime_ns, lease.read_bytes()) == before


def test_several_parts_at_work_are_named(out: Path) -> None:
    with part_at_work(out), hold_lock(out / "part-3-of-4.lease", work="facefeed precompute --part 3/4"):
        assert "--part 2/2 (process" in loaded(out)
        assert "--part 3/4 (process" in loaded(out)
        assert "are at work on it" in loaded(out)


def test_columns_are_neither_added_nor_removed_beside_a_part_at_work(run: Run, out: Path) -> None:
    """Also where OUT is finished, and the part does nothing but look."""
    run("2/2")
    add_columns(out, f"{FILE}:Colour", workers=1)
    before = sorted(out.rglob("*"))
    with part_at_work(out):
        for change in (lambda: add_columns(out, f"{FILE}:Colour"), lambda: remove_columns(out, "colour")):
            with pytest.raises(RefusedError, match=r"--part 2/2 is working on it \(process .*; wait for it"):
                change()
    assert [path for path in sorted(out.rglob("*")) if path.suffix != ".lease"] == [
        path for path in before if path.suffix != ".lease"
    ]
    assert remove_columns(out, "colour") > 0
