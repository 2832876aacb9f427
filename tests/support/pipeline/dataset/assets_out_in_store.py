"""An OUT in a store: who writes to it, where it is killed, and what must then be there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from assets_dataset import HALVED, NO_ROWS, Clip
from assets_in_process import new_folder
from assets_killed import Killed
from assets_stores import MisbehavingServer, s3_server, without_delays
from facefeed.pipeline.commit import store_lock
from facefeed.pipeline.dataset.stores.remote_files import RemoteFiles
from facefeed.pipeline.dataset.stores.writing import out_store
from facefeed.pipeline.verify.check import verify

BUCKET = "faces-out"
URL = f"s3://{BUCKET}/set"

SMALL = (
    ("train", HALVED), ("train", (Clip("real/gina.mp4", 3), Clip("fake/gina-swap.mp4", 2))), ("train", NO_ROWS),
    ("val", (Clip("real/ines.mp4", 2),)),
)  # fmt: skip
"""Three units of train, one of them split and one without rows, and one of val: clips for `make_dataset`."""


@dataclass
class StoredOut:
    """The bucket, and who writes to it. The server is in this process: what it holds is asked for without requests."""

    server: MisbehavingServer
    patch: pytest.MonkeyPatch

    def names(self) -> list[str]:
        return sorted(key.removeprefix("set/") for key in [*_backend().get_bucket(BUCKET).keys])

    def read(self, name: str) -> bytes:
        stored = _backend().get_object(BUCKET, f"set/{name}")
        if stored is None:
            raise FileNotFoundError(name)
        return bytes(stored.value)

    def write(self, name: str, content: bytes) -> None:
        _backend().put_object(BUCKET, f"set/{name}", content)

    def remove(self, name: str) -> None:
        _backend().delete_object(BUCKET, f"set/{name}")

    def units(self) -> list[str]:
        return [name for name in self.names() if name.startswith("faces/")]

    def clear(self) -> None:
        for name in self.names():
            self.remove(name)

    def everything(self) -> dict[str, bytes]:
        """All files, by their names."""
        return {name: self.read(name) for name in self.names()}

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Has these files, and no other ones."""
        self.clear()
        for name, content in files.items():
            self.write(name, content)

    def contents(self) -> dict[str, bytes]:
        """All that a copy of the dataset to a folder would hold, but for times in receipts."""
        kept = [name for name in self.names() if not name.startswith(("leases/", "index/", "_tmp/"))]
        return {name: timeless(name, self.read(name)) for name in kept}

    def on_another_machine(self) -> None:
        """Whoever comes next has no working copy."""
        self.patch.setenv("XDG_CACHE_HOME", str(new_folder()))

    def is_whole(self) -> bool:
        return verify(URL, storage_options=self.server.options).findings == []


def timeless(name: str, content: bytes) -> bytes:
    if not name.startswith("receipts/"):
        return content
    receipt = json.loads(content)
    receipt["inputs"] = [{**outcome, "seconds": 0.0, "reused": False} for outcome in receipt["inputs"]]
    return json.dumps(receipt, sort_keys=True).encode()


def contents_of(out: Path) -> dict[str, bytes]:
    """What `StoredOut.contents` is of the same dataset."""
    names = [path.relative_to(out).as_posix() for path in sorted(out.rglob("*")) if path.is_file()]
    kept = [name for name in names if not name.startswith("_tmp/") and not name.endswith(".lease")]
    return {name: timeless(name, (out / name).read_bytes()) for name in kept}


def _backend() -> Any:
    """What the server of this process stores."""
    from moto.core import DEFAULT_ACCOUNT_ID  # noqa: PLC0415 (a second)
    from moto.s3.models import s3_backends  # noqa: PLC0415

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


@contextmanager
def server_with_bucket() -> Iterator[MisbehavingServer]:
    """A server with an empty bucket, for the tests of a module."""
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as server:
        _backend().create_bucket(BUCKET, "us-east-1")
        yield server


@contextmanager
def for_one_test(store: StoredOut) -> Iterator[StoredOut]:
    """Yields the store, which is emptied and behaves again after the block."""
    without_delays(store.patch)
    store.on_another_machine()
    yield store
    store.server.behave()
    store.server.ignores_conditions = False
    store.clear()


@contextmanager
def killed_at_write(number: int, *, done: bool) -> Iterator[Callable[[], bool]]:
    """Ends the process at its write of that number, before or after the store has `done` it; yields whether it did."""
    numbers, dead = count(), False
    attempt = RemoteFiles._attempt

    def attempt_or_die(files: RemoteFiles, name: str, request: Any, work: Any = "read") -> Any:
        nonlocal dead
        is_last = work != "read" and next(numbers) == number
        if dead or (is_last and not done):
            dead = True
            raise Killed
        result = attempt(files, name, request, work)
        if is_last:
            dead = True
            raise Killed
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteFiles, "_attempt", attempt_or_die)
        patch.setattr(store_lock, "heartbeat", lambda _: nullcontext())  # its writes would count, as many as time takes
        patch.setattr(out_store, "map_on_threads", lambda function, items: [function(item) for item in items])
        yield lambda: dead


Numbers = Iterable[tuple[int, bool]]
"""Of writes to the store, and whether the store has done them."""


def kill_and_resume(
    store: StoredOut,
    numbers: Numbers,
    run: Callable[[], object],
    before: Mapping[str, bytes],
    expected: Mapping[str, bytes],
    *,
    resume: Callable[[], object] | None = None,
    on_killed: Callable[[], object] = lambda: None,
) -> int:
    """Kills `run` at each of these writes, and resumes it; returns how many it killed.

    Args:
        store: that it writes to.
        numbers: the writes.
        run: the command.
        before: what the store holds as it begins.
        expected: `StoredOut.contents` once it is resumed.
        resume: what resumes it; None: the same command.
        on_killed: called after each kill.

    """
    store.patch.setattr(store_lock, "process_exists", lambda pid: False)
    killed = 0
    for number, done in numbers:
        store.restore(before)
        store.on_another_machine()
        with killed_at_write(number, done=done) as is_dead, suppress(Killed):
            run()
        if not is_dead():
            break
        killed += 1
        receipts = {name: store.read(name) for name in store.names() if name.startswith("receipts/")}
        on_killed()
        if number % 2:
            store.on_another_machine()
        (resume or run)()
        found = store.contents()
        other = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        assert other == [], f"killed at write {number}, done={done}: {other}"
        kept = receipts.keys() & expected.keys()  # those of units that were replaced are removed
        assert {name: store.read(name) for name in kept} == {name: receipts[name] for name in kept}, "not done again"
    assert store.is_whole()
    return killed
