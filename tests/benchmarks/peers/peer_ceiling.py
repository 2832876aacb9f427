"""Lane D's ceiling: nothing but decoding, bytes that lie in memory, into blocks that are used again.

`workers` threads (simplejpeg lets go of the interpreter's lock), or as many processes with blocks in shared memory.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch
from recipe import Order

_SLOTS = 8
_UNDER_WAY = 4
_STATE: dict[str, Any] = {}  # what forked processes inherit


def _decode(slot: int, first: int, after: int) -> int:
    block = _STATE["blocks"][slot]
    for place, data in enumerate(_STATE["data"][first:after]):
        simplejpeg.decode_jpeg(data, colorspace="RGB", buffer=block[place])
    return after - first


class _Ceiling:
    """Batches as (block,); a block is valid until the next batches are asked for."""

    def __init__(self, order: Order, executor: Executor) -> None:
        self._executor, self._batch = executor, order.batch

    def __iter__(self) -> Iterator[tuple[np.ndarray]]:
        starts = range(0, len(_STATE["data"]), self._batch)
        running: deque[tuple[int, Future[int]]] = deque()
        for number, first in enumerate(starts):
            slot = number % _SLOTS
            running.append((slot, self._executor.submit(_decode, slot, first, first + self._batch)))
            if len(running) == _UNDER_WAY:
                yield self._done(*running.popleft())
        while running:
            yield self._done(*running.popleft())

    def _done(self, slot: int, decoded: Future[int]) -> tuple[np.ndarray]:
        return (_STATE["blocks"][slot][: decoded.result()],)


def loader(order: Order) -> Any:
    data = [path.read_bytes() for path in sorted((order.folder / "files").iterdir())]
    height, width, _, _ = simplejpeg.decode_jpeg_header(data[0])
    blocks = torch.zeros((_SLOTS, order.batch, height, width, 3), dtype=torch.uint8)
    _STATE.update(data=data, blocks=blocks.share_memory_().numpy())
    if order.lane == "threads":
        return _Ceiling(order, ThreadPoolExecutor(order.workers))
    return _Ceiling(order, ProcessPoolExecutor(order.workers, multiprocessing.get_context("fork")))


def prepare(folder: Path) -> None:
    """Reads the files themselves."""
