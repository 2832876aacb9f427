"""One rank of a loader over an OUT that is updated meanwhile: `python soak_reader.py '{"out": ..., "rank": ...}'`.

It opens a loader, goes through its epochs, checks each face at once, and opens the next loader when OUT has a newer
state. Events go to a file, a JSON object a line. Its state is saved after each batch, so that it may be killed.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.errors import FacefeedError, UsageError
from soak_samples import Sampler

RANKS = 2
BATCH_SIZE = 3
LEAST_EPOCHS = 3
"""Epochs that each rank goes through of a state, so that both have some in common."""
PAUSE_SECONDS = 0.1
"""Between two batches, as a training step takes: an OUT of a few faces would else be read a hundred times a second."""


@dataclass
class Reader:
    out: Path
    folder: Path
    rank: int
    workers: int
    sampler: Sampler
    faces: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._events = (self.folder / f"events-{self.rank}.jsonl").open("a")
        self._state = self.folder / f"state-{self.rank}.json"
        self._resumes = self._state.exists()

    @property
    def is_stopped(self) -> bool:
        return (self.folder / "stop").exists()

    def note(self, event: str, **values: Any) -> None:
        self._events.write(json.dumps({"event": event, "rank": self.rank, **values}) + "\n")
        self._events.flush()

    def run(self) -> None:
        while not self.is_stopped:
            if not (self.out / "manifest.json").exists():
                time.sleep(0.05)
                continue
            try:
                self._read_state()
            except FacefeedError as error:
                self._check_outdated(error)
            self.faces = []
            self.sampler.take()

    def _read_state(self) -> None:
        """Opens what OUT holds now and goes through some epochs of it."""
        self.fingerprint = ""
        loader = FaceDataLoader(
            self.out, split=None, shuffle=True, batch_size=BATCH_SIZE, image_size=32, dtype="uint8",
            num_workers=self.workers, fields=("image", "label", "face_id"), rank=self.rank, num_replicas=RANKS,
        )  # fmt: skip
        self.fingerprint = loader.dataset.index.fingerprint
        first = self._resume(loader)
        expected = self._expected(loader)
        self.note("opened", fingerprint=self.fingerprint, faces=sorted(expected))
        epoch = first
        while not self.is_stopped and not (epoch - first >= LEAST_EPOCHS and self._is_old()):
            self._read_epoch(loader, epoch, expected)
            epoch += 1

    def _resume(self, loader: FaceDataLoader) -> int:
        """Loads the state of the process that was killed before, once; the epoch that follows."""
        if not self._resumes:
            return 0
        self._resumes = False
        saved = json.loads(self._state.read_text())
        is_same = saved["state"]["fingerprint"] == self.fingerprint
        try:
            loader.load_state_dict(saved["state"])
        except UsageError:
            if is_same:
                raise
            self.note("state refused")
            return 0
        assert is_same, "a state of another dataset is loaded"
        self.faces = saved["faces"]
        self.note("resumed", epoch=saved["epoch"], faces=len(self.faces))
        if saved["is_complete"]:
            self._end_epoch(saved["epoch"])
        return int(saved["epoch"]) + saved["is_complete"]

    def _expected(self, loader: FaceDataLoader) -> dict[str, list[int]]:
        """Label and checksum of the pixels of each face of the state, read in this process."""
        dataset, index = loader.dataset, loader.dataset.index
        return {
            str(index.value("face_id", row)): [int(index.number("label", row)), zlib.crc32(dataset.load_pixels(row))]
            for row in map(int, dataset.rows)
        }

    def _read_epoch(self, loader: FaceDataLoader, epoch: int, expected: dict[str, list[int]]) -> None:
        steps_left = len(loader) - loader.next_step
        for batch in loader:
            for face, label, image in zip(batch["face_id"], batch["label"].tolist(), batch["image"], strict=True):
                pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
                assert expected.get(face) == [label, zlib.crc32(pixels)], f"wrong face {face} of {self.fingerprint}"
                self.faces.append(face)
            steps_left -= 1
            self._save(loader, epoch, is_complete=not steps_left)
            time.sleep(PAUSE_SECONDS)
        assert not loader.stats().corrupt, "damaged images"
        self._end_epoch(epoch)

    def _end_epoch(self, epoch: int) -> None:
        self.note("epoch", fingerprint=self.fingerprint, epoch=epoch, faces=self.faces)
        self.faces = []

    def _save(self, loader: FaceDataLoader, epoch: int, *, is_complete: bool) -> None:
        saved = {"state": loader.state_dict(), "epoch": epoch, "faces": self.faces, "is_complete": is_complete}
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(saved))
        new.replace(self._state)

    def _is_old(self) -> bool:
        return self.sampler.is_due or Manifest.read(self.out).fingerprint != self.fingerprint

    def _check_outdated(self, error: FacefeedError) -> None:
        """An error is allowed where OUT has another state than the loader was opened on, and it says so."""
        is_outdated = bool(self.fingerprint) and Manifest.read(self.out).fingerprint != self.fingerprint
        if not is_outdated or "has changed since" not in str(error):
            raise error
        self.note("outdated", error=str(error))


def main(out: str, folder: str, rank: int, workers: int, samples: str, seconds: float) -> None:
    with suppress(KeyboardInterrupt):
        sampler = Sampler(Path(samples), f"rank {rank}", seconds)
        Reader(Path(out), Path(folder), rank, workers, sampler).run()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
