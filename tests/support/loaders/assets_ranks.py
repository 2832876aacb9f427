"""Several ranks of a training run, each a process of its own that these tests start and that imports this."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from assets_loaders import DEADLINE_SECONDS, Seen, ids, loader, seen
from facefeed.loaders.workers.local_ranks import count_local_ranks
from facefeed.loaders.workers.processes import worker_context


def in_ranks(count: int, work: Callable[..., Any], folder: Path, *arguments: Any) -> list[Any]:
    """What `work(rank, *arguments)` returns in each of some processes that form a gloo group."""
    worker_context(None)  # the fork server, with torch in it
    context = multiprocessing.get_context("forkserver")
    folder.mkdir(exist_ok=True)
    ranks = [context.Process(target=_rank, args=(rank, count, work, folder, arguments)) for rank in range(count)]
    try:
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(2 * DEADLINE_SECONDS)
        assert [rank.exitcode for rank in ranks] == [0] * count
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(count)]


def _rank(rank: int, count: int, work: Callable[..., Any], folder: Path, arguments: tuple[Any, ...]) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count,
        timeout=timedelta(seconds=DEADLINE_SECONDS),
    )  # fmt: skip
    torch.distributed.barrier()  # a rank that ends at once would cut connections that others are still making
    (folder / f"{rank}.pickle").write_bytes(pickle.dumps(work(rank, *arguments)))
    torch.distributed.destroy_process_group()


def all_reduce_step(number: int) -> None:
    """A step of training: fails, or times out, unless every rank is at the same step."""
    total = torch.tensor([number])
    torch.distributed.all_reduce(total)
    assert int(total) == number * torch.distributed.get_world_size()


@dataclass(frozen=True)
class RankRecord:
    """One rank's way through some epochs: what it knew before, then faces and labels by epoch and step."""

    length: int
    padded: int
    epochs: list[list[list[str]]]
    labels: list[list[list[int]]]


def run_epochs(rank: int, out: Path, settings: list[dict[str, Any]]) -> list[RankRecord]:
    """Two epochs with each of some settings, every step together with the other ranks."""
    records = []
    for number, options in enumerate(settings):
        batches = loader(out, **{"num_workers": 0, **options})
        length, padded = len(batches), batches.describe().padded_images
        faces: list[list[list[str]]] = []
        labels: list[list[list[int]]] = []
        for epoch in range(2):
            faces.append([])
            labels.append([])
            for step, batch in enumerate(batches):
                all_reduce_step(10_000 * number + 1_000 * epoch + step + 1)
                faces[-1].append(ids(batch))
                labels[-1].append(batch["label"].tolist())
        records.append(RankRecord(length, padded, faces, labels))
    return records


def ranks_here(_rank: int) -> int:
    """How many ranks this host has, where no launcher says it."""
    all_reduce_step(1)
    return count_local_ranks({})


def stop_after(rank: int, out: Path, steps: int, options: dict[str, Any]) -> tuple[list[Seen], dict[str, Any]]:
    """The first steps of an epoch together with the other ranks, and the state after them."""
    batches = loader(out, **options)
    running = iter(batches)
    first_batches = []
    for step in range(steps):
        all_reduce_step(step + 1)
        first_batches += seen([next(running)])
    return first_batches, batches.state_dict()
