"""What tests of the loader's processes share, importable by these processes too: transforms, a training script.

Run as a script it is a training process that a test may kill: `python assets_loaders.py '{"out": ...}'`.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
import torch
from facefeed.loaders import Clip, FaceDataLoader
from torch.utils.data import DataLoader, IterableDataset

SIDE = 32
FIELDS = ("image", "label", "face_id")
DEADLINE_SECONDS = 60.0
"""How long a test waits for what should take a second, before it calls it hung."""

Seen = list[tuple[str, bytes]]


def loader(out: Path | str | list[str], **options: Any) -> FaceDataLoader:
    """A loader of small images that says which faces they are."""
    return FaceDataLoader(out, **{"image_size": SIDE, "batch_size": 32, "fields": FIELDS, **options})


def seen(batches: Iterable[dict[str, Any]]) -> list[Seen]:
    """Each batch as its faces and the bytes of their images, in order."""
    return [
        [(face, image.numpy().tobytes()) for face, image in zip(batch["face_id"], batch["image"], strict=True)]
        for batch in batches
    ]


def take_first_of_workers(iterator: Iterator[Any]) -> list[Any]:
    """The batches up to the first that surely comes from a worker: one before may come from the loader's process."""
    return [next(iterator), next(iterator)]


class BrokenBatch:
    """For `collate_fn`: a batch that cannot be pickled."""

    def __init__(self, samples: Any) -> None:
        self.num_samples = len(samples)

    def __reduce__(self) -> Any:
        raise IndexError("no such page")


def end_a_program(samples: Any) -> int:
    """For `collate_fn`: the exit code of a program that the worker starts and terminates."""
    program = subprocess.Popen(["sleep", str(DEADLINE_SECONDS)])
    program.terminate()
    return program.wait()


def ids(batch: dict[str, Any]) -> list[str]:
    return list(batch["face_id"])


def wait_until(happened: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Polls until something has happened; fails where it does not in time."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.01)


# ---- transforms


@dataclass(frozen=True)
class Noise:
    """Draws from the global generators of numpy, as a transform of one's own might."""

    def __call__(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"image": image ^ np.random.randint(0, 256, image.shape, np.uint8)}


def noise_of_numpy(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A function by position that returns the image alone, and draws from numpy's global generator."""
    return pixels ^ np.random.randint(0, 256, pixels.shape, np.uint8)


def flip_by_torch(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A function by keyword that returns a view of the image alone, and draws from torch's generator."""
    return image[:, ::-1] if torch.rand(()) < 0.5 else image


class TwoPartError(Exception):
    """Cannot be made anew from its text alone."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


@dataclass(frozen=True)
class FailOnImage:
    """Does its deed on one image, known by its pixels, and nothing on others."""

    deed: str
    crc32: int

    def __call__(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        if zlib.crc32(image) == self.crc32:
            if self.deed == "raise":
                raise ZeroDivisionError("a bug in the transform")
            if self.deed == "interrupt":
                raise KeyboardInterrupt
            if self.deed == "raise own":
                raise TwoPartError("one", "two")
            if self.deed == "raise local":
                raise type("LocalError", (Exception,), {"__qualname__": "f.<locals>.LocalError"})("known here alone")
            if self.deed == "raise StopIteration":
                next(iter(()))
            if self.deed == "exit":
                os._exit(7)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"image": image}


@dataclass(frozen=True)
class FailWhileFileExists:
    """Does the deed of a `FailOnImage` as long as a file is there."""

    poison: FailOnImage
    exists: Path

    def __call__(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        return self.poison(image) if self.exists.exists() else {"image": image}


@dataclass(frozen=True)
class BlockUntilFileExists:
    """Lets the image of a `FailOnImage` through when a file is there."""

    image: FailOnImage
    until: Path

    def __call__(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        if zlib.crc32(image) == self.image.crc32:
            wait_until(self.until.exists, "leave to go on")
        return {"image": image}


@dataclass(frozen=True)
class CountedImages:
    """Counts the images that went through it in any process."""

    path: Path

    def __call__(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        with self.path.open("ab") as file:
            file.write(b".")
        return {"image": image}

    @property
    def images(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0


class StampProcess:
    """Writes the process that it runs in, by its number modulo 251, to all pixels."""

    def __call__(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"image": np.full_like(image, os.getpid() % 251)}


class OpensAtFirstImage:
    """Makes what no worker can be sent at its first image; counts images in a number that all processes share."""

    def __init__(self, num_images: Any) -> None:
        self.num_images, self.opened = num_images, None

    def __call__(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        self.opened = self.opened or threading.Lock()
        with self.num_images.get_lock():
            self.num_images.value += 1
        return {"image": image}


@dataclass(frozen=True)
class NoteStart:
    """A `worker_init_fn` that leaves a note of each worker's threads."""

    folder: Path

    def __call__(self, worker: int) -> None:
        (self.folder / str(worker)).write_text(f"torch {torch.get_num_threads()}, cv2 {cv2.getNumThreads()}")


@dataclass(frozen=True)
class FailingStart:
    """A `worker_init_fn` that fails."""

    def __call__(self, worker: int) -> None:
        raise LookupError("no such camera")


@dataclass(frozen=True)
class StartsLate:
    """A `worker_init_fn` that keeps worker 1 until the process that started it is gone."""

    def __call__(self, worker: int) -> None:
        server = os.getppid()
        while worker == 1 and os.getppid() == server:
            time.sleep(0.01)


def lazily(items: Any) -> Any:
    """A `collate_fn` whose batch cannot be pickled."""
    return (image for image, _ in items)


def poisoned(deed: str, out: Path, step: int, **options: Any) -> FailOnImage:
    """A transform that does its deed on an image of a step of epoch 0."""
    batches = loader(out, num_workers=0, dtype="uint8", **options)
    image = list(batches)[step]["image"][1].permute(1, 2, 0).contiguous()
    return FailOnImage(deed, zlib.crc32(image.numpy()))


# ---- a training process


def start_training(out: Path | list[str], folder: Path, **options: Any) -> psutil.Popen:
    """A training process that takes one step for each line on its stdin, and prints one in return."""
    arguments = json.dumps({"out": out if isinstance(out, list) else str(out), "folder": str(folder), **options})
    from assets_paths import python_path  # noqa: PLC0415 (pytest, which a training process need not import)

    environment = {**os.environ, "PYTHONPATH": python_path()}
    return psutil.Popen(
        [sys.executable, "-W", "error", __file__, arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment,
    )  # fmt: skip


def take_steps(training: psutil.Popen, steps: int) -> None:
    for _ in range(steps):
        training.stdin.write("step\n")
        training.stdin.flush()
        assert training.stdout.readline() == "done\n"


def is_sending(pid: int) -> bool:
    """Whether a thread of a process waits for room in a pipe, a part of its message being sent."""
    return any("pipe_write" in (task / "wchan").read_text() for task in Path(f"/proc/{pid}/task").iterdir())


def has_ended(process: psutil.Process) -> bool:
    """Whether it is a zombie or gone."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def shared_names(process: psutil.Process) -> set[Path]:
    """Files of /dev/shm that a process has mapped and that still have a name."""
    lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    names = {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}
    return {Path(name) for name in names if not name.endswith(" (deleted)")}


def _train(
    *, out: str | list[str], folder: str, clip: dict[str, Any] | None = None, handled: Iterable[int] = (),
    **options: Any,
) -> None:  # fmt: skip
    for number in handled:  # as a script that saves at the end of the step
        signal.signal(number, lambda *_: None)
    batches = loader(out, transform=Noise(), clip=Clip(**clip) if clip else None, **options)
    state, log = Path(folder, "state.json"), Path(folder, "steps.pickle")
    running: Any = None
    with log.open("ab") as steps:
        for _ in sys.stdin:
            running = running or iter(batches)
            steps.write(pickle.dumps(seen([next(running)])))
            steps.flush()
            state.with_suffix(".new").write_text(json.dumps(batches.state_dict()))
            state.with_suffix(".new").replace(state)
            print("done", flush=True)


def slowly(image: Any, **_: Any) -> Any:
    """Takes a millisecond and no core, so that workers help on any machine."""
    time.sleep(0.001)
    return image


class CountingStream(IterableDataset[int]):
    """Numbers that go on from epoch to epoch, as its own loader asks."""

    first = 0

    def go_on(self, count: int) -> None:
        self.first += count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + 4))


class LoaderOfStreams(DataLoader[Any]):
    """As the loaders of streaming libraries: it asks for its dataset's type, and calls methods of its own."""

    def __iter__(self) -> Any:
        assert isinstance(self.dataset, CountingStream)
        yield from super().__iter__()
        self.dataset.go_on(4)


if __name__ == "__main__":
    _train(**json.loads(sys.argv[1]))
