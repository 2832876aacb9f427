"""What a user notices of leases in a store: two runs never work on one OUT, and no dead one blocks it for long."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import fsspec
import pytest
from assets_stores import MisbehavingServer, s3_server, without_delays
from facefeed.pipeline.commit import store_lock
from facefeed.pipeline.commit.store_lock import StoreLocks
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.writing import WritableFiles
from facefeed.pipeline.errors import RefusedError, StoppedError
from facefeed.pipeline.lock import STALE_SECONDS

NAME = "driver.lease"
URL = "s3://leases-of-out/set"


@pytest.fixture(scope="module")
def server() -> Iterator[MisbehavingServer]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as server:
        fsspec.filesystem("s3", skip_instance_cache=True, **server.options).mkdir("leases-of-out")
        yield server


@pytest.fixture
def files(server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[WritableFiles]:
    without_delays(monkeypatch)
    files = WritableFiles(StoreAddress(URL, server.options), StoreCounter())
    yield files
    server.behave()
    for stored in files.list():
        files.remove(stored.name)


@dataclass
class Clock:
    """The store's clock, which goes on while somebody waits."""

    seconds: float = 0.0
    announced: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, now_ns = Clock(), store_lock._now_ns
    monkeypatch.setattr(store_lock, "_now_ns", lambda files: now_ns(files) + int(clock.seconds * 1e9))
    return clock


def leave_lease(files: WritableFiles, **holder: object) -> None:
    """As a process of another machine leaves it that was killed."""
    record = {"host": "node7", "pid": 1, "since": "noon", "work": "facefeed precompute", "machine": "another"}
    files.replace(f"leases/{NAME}.000000004", json.dumps(record | holder).encode())


def test_a_second_holder_is_refused_and_the_message_names_the_first(files: WritableFiles) -> None:
    locks = StoreLocks(files)
    with (
        locks.hold(NAME, work="facefeed precompute"),
        pytest.raises(RefusedError, match=rf"^{URL}: facefeed precompute is working on it \(process \d+ on "),
        locks.hold(NAME, work="facefeed verify"),
    ):
        pass
    with locks.hold(NAME, work="facefeed verify") as held:
        held.check()
    assert not locks.are_held()[NAME]


def test_one_of_many_that_start_at_once_holds_it(files: WritableFiles) -> None:
    at_work, most, times, begin = [], [0], [0], threading.Barrier(6)

    def work() -> None:
        locks = StoreLocks(files)
        begin.wait()
        for _ in range(4):
            try:
                with locks.hold(NAME, work="facefeed precompute"):
                    at_work.append(1)
                    most[0] = max(most[0], len(at_work))
                    times[0] += 1
                    at_work.pop()
            except RefusedError:
                continue

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert times[0] > 0


def test_a_dead_holder_of_another_machine_is_waited_for_a_minute(files: WritableFiles, clock: Clock) -> None:
    leave_lease(files)
    began = time.monotonic()
    with StoreLocks(files, clock.sleep).hold(NAME, work="facefeed precompute", on_wait=clock.announced.append):
        pass
    passed_seconds = time.monotonic() - began  # by the store's clock too, which is a real one beneath
    assert clock.seconds + passed_seconds >= STALE_SECONDS - 3
    assert clock.seconds <= STALE_SECONDS + 3
    assert "process 1 on node7, since noon held it and may have been killed; waiting" in clock.announced[0]


def test_a_living_holder_of_another_machine_ends_the_wait(files: WritableFiles, clock: Clock) -> None:
    leave_lease(files)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.seconds > 20:  # its heartbeat, by the same clock
            clock.seconds = 0.0
            leave_lease(files)

    with (
        pytest.raises(RefusedError, match="process 1 on node7, since noon"),
        StoreLocks(files, sleep).hold(NAME, work="facefeed precompute"),
    ):
        pass


def test_a_container_that_is_started_again_does_not_take_its_own_process_for_the_killed_one(
    files: WritableFiles, clock: Clock
) -> None:
    """The process has the same number in both."""
    leave_lease(files, machine=store_lock._machine(), pid=os.getpid(), started=1)
    with StoreLocks(files, clock.sleep).hold(NAME, work="facefeed precompute", on_wait=clock.announced.append):
        pass
    assert (clock.seconds, clock.announced) == (0, [])


def test_a_dead_process_of_this_machine_is_not_waited_for(
    files: WritableFiles, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_lease(files, machine=store_lock._machine())
    monkeypatch.setattr(store_lock, "process_exists", lambda pid: False)
    with StoreLocks(files, clock.sleep).hold(NAME, work="facefeed precompute"):
        pass
    assert clock.seconds == 0


def test_a_holder_that_slept_for_a_minute_finds_out_that_another_has_it(files: WritableFiles, clock: Clock) -> None:
    locks = StoreLocks(files)
    with ExitStack() as stack:
        first = stack.enter_context(locks.hold(NAME, work="facefeed precompute"))
        clock.sleep(STALE_SECONDS + 1)
        with locks.hold(NAME, work="facefeed verify") as second:
            with pytest.raises(StoppedError, match="has taken it over"):
                first.check()
            second.check()
    assert not locks.are_held()[NAME]


def test_a_lease_taken_and_released_while_another_looked_is_not_taken_twice(files: WritableFiles) -> None:
    """Numbers go on: one that is free again is not the next one."""
    locks = StoreLocks(files)
    late = store_lock.HeldStoreLock(store_lock._Objects(files, NAME), 0, "facefeed precompute")
    for _ in range(2):
        with locks.hold(NAME, work="facefeed verify"):
            pass
    with locks.hold(NAME, work="facefeed verify") as held:
        with pytest.raises(RefusedError):
            late.take()
        held.check()


def test_a_lease_that_is_removed_as_it_is_taken_is_not_held(
    files: WritableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = WritableFiles.create

    def create_and_lose(self: WritableFiles, name: str, content: bytes) -> None:
        create(self, name, content)
        self.remove(name)

    monkeypatch.setattr(WritableFiles, "create", create_and_lose)
    with pytest.raises(RefusedError), StoreLocks(files).hold(NAME, work="facefeed precompute"):
        pass


@pytest.mark.parametrize("fault", ["slow_down", "lost"])
def test_a_lease_is_taken_though_answers_are_lost(files: WritableFiles, server: MisbehavingServer, fault: str) -> None:
    locks = StoreLocks(files)
    for phase in (0, 1):
        server.behave()
        server.write_faults = lambda number, phase=phase: fault if number % 2 == phase else None  # type: ignore[misc]
        with locks.hold(NAME, work="facefeed precompute") as held:
            held.check()
            assert locks.are_held()[NAME]


def test_the_holder_shows_that_it_is_alive(files: WritableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    beaten, replace = threading.Event(), WritableFiles.replace

    def replacing(self: WritableFiles, name: str, content: bytes) -> None:
        replace(self, name, content)
        if NAME in name and content:
            beaten.set()

    monkeypatch.setattr("facefeed.pipeline.lock.HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr(WritableFiles, "replace", replacing)
    with StoreLocks(files).hold(NAME, work="facefeed precompute"):
        assert beaten.wait(30)


def test_names_are_those_of_leases(files: WritableFiles) -> None:
    locks = StoreLocks(files)
    with locks.hold(NAME, work="facefeed precompute"), locks.hold("part-1-of-4.lease", work="facefeed precompute"):
        assert locks.are_held() == {NAME: True, "part-1-of-4.lease": True}
    locks.remove("part-1-of-4.lease")
    assert locks.are_held() == {NAME: False}


def test_a_wait_ends_where_somebody_removes_the_lease(files: WritableFiles, clock: Clock) -> None:
    leave_lease(files)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        files.remove(f"leases/{NAME}.000000004")

    with StoreLocks(files, sleep).hold(NAME, work="facefeed precompute"):
        pass
    assert clock.seconds < 10


def test_all_leases_are_looked_at_with_few_requests(files: WritableFiles) -> None:
    locks = StoreLocks(files)
    with ExitStack() as stack:
        for part in range(1, 9):
            stack.enter_context(locks.hold(f"part-{part}-of-8.lease", work="facefeed precompute"))
        files.counter.take()
        assert len(locks.are_held()) == 8
        assert files.counter.take().requests <= 8 + 4
