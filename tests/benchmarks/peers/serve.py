"""One entry of the loader benchmark, in its own process and environment: makes a loader, runs epochs when told to.

    python serve.py --peer peer_webdataset --lane A --folder DIR

Reads one JSON object a line from stdin and answers with one on stdout: `{"do": "first"}` makes the loader and takes
its first batch; `{"do": "epoch"}` goes through it once; `{"do": "check", "to": FILE}` saves the tensors of the first
images, without randomness; `{"do": "prepare"}` writes the peer's container.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

CHECKED = 64


class Server:
    """Keeps one loader through all repeats, as training does."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        started = time.perf_counter()
        self._recipe = importlib.import_module("recipe")
        self._peer = importlib.import_module(arguments.peer)
        import cv2  # noqa: PLC0415
        import torch  # noqa: PLC0415

        torch.set_num_threads(1)
        cv2.setNumThreads(0)
        self._torch, self._given, self._loader = torch, arguments, None
        self.import_seconds = time.perf_counter() - started

    def _make(self, *, random: bool) -> Any:
        arguments = self._given
        store = self._recipe.Store(arguments.endpoint, Path(arguments.cache)) if arguments.endpoint else None
        order = self._recipe.Order(
            Path(arguments.folder), arguments.lane, arguments.batch, arguments.workers, random, store
        )
        return self._peer.loader(order)

    def first(self) -> dict[str, Any]:
        """From the loader's construction to its first batch; the rest of that epoch is gone through as well."""
        started = time.perf_counter()
        self._loader = self._make(random=True)
        batches = iter(self._loader)
        images = len(next(batches)[0])
        seconds = time.perf_counter() - started
        if self._given.whole:
            images += sum(len(batch[0]) for batch in batches)
        return {
            "first_batch_seconds": seconds, "import_seconds": self.import_seconds, "images": images,
            "seconds": time.perf_counter() - started,
        }  # fmt: skip

    def epoch(self) -> dict[str, Any]:
        """One epoch: images, seconds, and how many of these went by until its first batch."""
        started, first, images = time.perf_counter(), 0.0, 0
        for batch in self._loader:
            first = first or time.perf_counter() - started
            images += len(batch[0])
        return {"images": images, "seconds": time.perf_counter() - started, "first_batch_of_epoch_seconds": first}

    def check(self, to: str) -> dict[str, Any]:
        """Saves the images numbered below `CHECKED` as float32 (CHECKED, 3, 224, 224)."""
        decoded: dict[int, Any] = {}
        for images, numbers in self._make(random=False):
            decoded.update({int(n): i.clone() for i, n in zip(images, numbers, strict=True) if int(n) < CHECKED})
            if len(decoded) == CHECKED:
                break
        import numpy as np  # noqa: PLC0415

        tensor = self._torch.stack([decoded[number] for number in range(CHECKED)])
        np.save(to, tensor.numpy())
        return {"dtype": str(tensor.dtype), "shape": list(tensor.shape)}

    def prepare(self) -> dict[str, Any]:
        """Writes the container from the folder of JPEG files."""
        self._peer.prepare(Path(self._given.folder))
        return {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True)
    parser.add_argument("--lane", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--whole", action="store_true", help="go on after the first batch")
    parser.add_argument("--endpoint", help="of an S3 server that has the containers")
    parser.add_argument("--cache", help="a folder for what is fetched from there")
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    server = Server(arguments)
    for line in sys.stdin:
        request = json.loads(line)
        name = request.pop("do")
        if name == "quit":
            break
        answers.write(json.dumps(getattr(server, name)(**request)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
