"""What a user notices of the lease: two runs never work on one OUT, and no dead one blocks it."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from assets_fresh_runs import run_precompute
from assets_in_process import in_process, new_folder, one_by_one
from assets_tiny_source import TinySource
from facefeed.pipeline import lock
from facefeed.pipeline.commit.lease import Lease, hold_lease
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.errors import RefusedError, StoppedError
from facefeed.pipeline.lock import HEARTBEAT_SECONDS, STALE_SECONDS
from facefeed.pipeline.planning.options import JobSpec
from facefeed.pipeline.planning.plan import Unit

_HOLD = """
import sys
from pathlib import Path
from typing import Any
from facefeed.pipeline.commit.lease import hold_lease
from facefeed.pipeline.dataset.out import OutPaths
with hold_lease(OutPaths(Path(sys.argv[1]).parent)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    return tmp_path / "driver.lease"


def hold(lease: Path, *arguments: Any, **settings: Any) -> AbstractContextManager[Lease]:
    return hold_lease(OutPaths(lease.parent), *arguments, **settings)


@contextmanager
def another_driver(lease: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease until its standard input closes."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(lease)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def forge(lease: Path, *, host: str, age_seconds: float) -> None:
    lease.write_text(json.dumps({"host": host, "pid": 4711, "since": "2026-01-01T00:00:00+00:00"}))
    then = time.time() - age_seconds
    os.utime(lease, (then, then))


def holder(lease: Path) -> dict[str, object]:
    text = lease.read_text()
    return json.loads(text) if text else {}  # type: ignore[no-any-return]


def test_a_second_driver_is_refused_with_the_first_one_named(lease: Path) -> None:
    with another_driver(lease) as first:
        with pytest.raises(RefusedError) as caught, hold(lease):
            pytest.fail("both hold it")
        for part in (str(lease.parent), f"process {first.pid}", socket.gethostname(), "since 20", "wait for it"):
            assert part in str(caught.value)
        assert holder(lease)["pid"] == first.pid, "the refusal has not touched the first one's lease"


def test_two_runs_in_one_process_are_two_drivers_too(lease: Path) -> None:
    with hold(lease), pytest.raises(RefusedError, match=f"process {os.getpid()}"), hold(lease):
        pytest.fail("both hold it")


def test_a_killed_driver_holds_nothing(lease: Path) -> None:
    with another_driver(lease) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert holder(lease)["pid"] == first.pid, "it had no chance to give it back"
        with hold(lease):
            assert holder(lease)["pid"] == os.getpid()


def test_what_is_given_back_is_free_for_any_host(lease: Path) -> None:
    with hold(lease):
        record = {"host": socket.gethostname(), "pid": os.getpid(), "work": "facefeed precompute"}
        assert holder(lease) == {**record, "since": holder(lease)["since"]}
    assert holder(lease) == {}
    with hold(lease):
        pass


@pytest.mark.parametrize("error", [RefusedError("no"), KeyboardInterrupt()], ids=["refused", "interrupted"])
def test_it_is_given_back_after_an_error_too(lease: Path, error: BaseException) -> None:
    """Or another host, where the same job is started again, would have to wait until it is stale."""
    with pytest.raises(type(error)), hold(lease):
        raise error
    assert holder(lease) == {}


@dataclass
class Clock:
    """In place of the module `time`: sleeping takes no time, and something may happen meanwhile."""

    now: float
    slept: float = 0.0
    meanwhile: Callable[[float], object] = lambda _: None

    def time(self) -> float:
        return self.now + self.slept

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.meanwhile(self.slept)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(now=time.time())
    monkeypatch.setattr("facefeed.pipeline.lock.time", clock)
    return clock


def test_a_lease_that_another_host_keeps_renewing_is_respected(lease: Path, clock: Clock) -> None:
    forge(lease, host="node17", age_seconds=5)
    before = lease.read_bytes()
    clock.meanwhile = lambda slept: slept >= HEARTBEAT_SECONDS and os.utime(lease, (clock.time(), clock.time()))
    refusal = r"another facefeed command is working on it \(process 4711 on node17, since 2026-01-01"
    with pytest.raises(RefusedError, match=refusal), hold(lease):
        pytest.fail("both hold it")
    assert lease.read_bytes() == before
    assert clock.slept < 2 * HEARTBEAT_SECONDS, "one sign of life is enough"


def test_a_driver_that_was_killed_on_another_host_is_waited_for_and_then_replaced(lease: Path, clock: Clock) -> None:
    forge(lease, host="node17", age_seconds=20)
    messages: list[str] = []
    with hold(lease, messages.append):
        assert holder(lease)["host"] == socket.gethostname()
    assert STALE_SECONDS - 20 <= clock.slept < STALE_SECONDS
    (sentence,) = messages
    for part in ("process 4711 on node17", "40 s"):
        assert part in sentence


def test_a_driver_with_a_cluster_waits_for_a_lock_that_outlives_its_host(
    lease: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server keeps it for longer than the heartbeat counts; a job that is requeued starts before that."""
    monkeypatch.setattr("facefeed.pipeline.commit.lease.time", clock)
    messages: list[str] = []
    with another_driver(lease) as first:

        def let_go(slept: float) -> None:
            if slept >= STALE_SECONDS + HEARTBEAT_SECONDS:
                first.kill()
                first.wait()

        clock.meanwhile = let_go
        with hold(lease, messages.append, waits=True):
            assert holder(lease)["pid"] == os.getpid()
    (sentence,) = messages
    assert f"process {first.pid}" in sentence
    assert sentence.endswith("waiting for 120 s at most, since it may have died")


def test_a_driver_with_a_cluster_does_not_wait_for_ever_for_one_that_lives(
    lease: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facefeed.pipeline.commit.lease.time", clock)
    with another_driver(lease), pytest.raises(RefusedError), hold(lease, waits=True):
        pytest.fail("both hold it")
    assert clock.slept == 120


def test_a_clock_that_runs_behind_the_file_server_s_waits_no_longer_than_a_minute(lease: Path, clock: Clock) -> None:
    forge(lease, host="node17", age_seconds=-3600)
    with hold(lease):
        assert holder(lease)["pid"] == os.getpid()
    assert clock.slept <= STALE_SECONDS + 2


def test_what_another_host_releases_meanwhile_is_free(lease: Path, clock: Clock) -> None:
    forge(lease, host="node17", age_seconds=0)
    clock.meanwhile = lambda slept: slept == 1 and lease.write_text("")
    with hold(lease):
        assert holder(lease)["pid"] == os.getpid()
    assert clock.slept < HEARTBEAT_SECONDS


def test_of_two_that_waited_for_the_same_dead_driver_one_gets_it(lease: Path, clock: Clock) -> None:
    """Where locks do not reach the other host, both see it go stale at the same moment."""
    forge(lease, host="node17", age_seconds=STALE_SECONDS - 1)

    def other_signs_too(slept: float) -> None:
        if slept > 1:
            forge(lease, host="node18", age_seconds=-slept)

    clock.meanwhile = other_signs_too
    with pytest.raises(RefusedError, match="on node18"), hold(lease):
        pytest.fail("both hold it")
    assert holder(lease)["host"] == "node18", "the refusal has not touched the other one's lease"


def test_where_there_are_no_locks_a_living_process_of_this_host_is_refused_at_once(
    lease: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("facefeed.pipeline.lock.fcntl.flock", no_locks)
    text = {"host": socket.gethostname(), "pid": os.getppid(), "since": "2026-01-01T00:00:00+00:00"}
    lease.write_text(json.dumps(text))
    with pytest.raises(RefusedError, match=f"process {os.getppid()}"), hold(lease):
        pytest.fail("both hold it")
    assert clock.slept == 0


def test_a_stale_lease_of_another_host_is_taken_over(lease: Path) -> None:
    forge(lease, host="node17", age_seconds=STALE_SECONDS * 2)
    with hold(lease):
        assert holder(lease)["host"] == socket.gethostname()


def test_a_lease_that_this_host_left_behind_is_taken_at_once(lease: Path) -> None:
    forge(lease, host=socket.gethostname(), age_seconds=0)
    with hold(lease):
        assert holder(lease)["pid"] == os.getpid()


@pytest.mark.parametrize("text", ["", "{", "[1]", "\0" * 100, '{"pid": {}}'])
def test_a_damaged_lease_blocks_nobody(lease: Path, text: str) -> None:
    lease.write_text(text)
    with hold(lease):
        assert holder(lease)["pid"] == os.getpid()
        with pytest.raises(RefusedError), hold(lease):
            pytest.fail("both hold it")


def test_a_driver_that_lost_its_lease_stops_and_leaves_that_of_its_successor(
    lease: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its machine was suspended for longer than a minute, and locks do not reach other hosts."""
    read_state, looks = lock._read_state, threading.Semaphore(0)

    def read_and_count(path: Path) -> tuple[dict[str, object], float]:
        state = read_state(path)
        looks.release()
        return state

    monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr(lock, "_read_state", read_and_count)
    with hold(lease) as held:
        held.check()
        forge(lease, host="elsewhere", age_seconds=3600)
        with pytest.raises(StoppedError, match=r"process 4711 on elsewhere, .* has taken it over"):
            held.check()
        while looks.acquire(blocking=False):
            pass
        assert looks.acquire(timeout=60)
        assert looks.acquire(timeout=60), "a heartbeat has come to its end since"
    assert holder(lease)["host"] == "elsewhere"
    assert lease.stat().st_mtime < time.time() - 3000, "a heartbeat would hide the successor's death"


def test_a_run_that_lost_its_lease_publishes_nothing() -> None:
    folder = new_folder()
    source, out = TinySource(folder / "source"), folder / "out"
    source.put("real/a.mp4", "one")

    def lose_the_lease(job: JobSpec, units: list[Unit]) -> None:
        one_by_one(job, units)
        forge(job.paths.lease, host="elsewhere", age_seconds=3600)

    with in_process(lose_the_lease), pytest.raises(StoppedError, match="has taken it over"):
        run_precompute(source, out, "usual")
    assert not (out / "manifest.json").exists()
    with in_process():
        run_precompute(source, out, "usual")
    assert (out / "manifest.json").exists()


def test_the_heartbeat_keeps_it_fresh(lease: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aged, beat, utime = threading.Event(), threading.Event(), os.utime

    def touch(file: int) -> None:
        if aged.is_set():  # a beat that began before proves nothing
            utime(file)
            beat.set()

    monkeypatch.setattr("facefeed.pipeline.lock.HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr("facefeed.pipeline.lock.os.utime", touch)
    with hold(lease):
        utime(lease, (0, 0))
        aged.set()
        assert beat.wait(60)
        assert lease.stat().st_mtime > 0
    assert HEARTBEAT_SECONDS < STALE_SECONDS / 2, "a beat may come late without the lease being lost"
