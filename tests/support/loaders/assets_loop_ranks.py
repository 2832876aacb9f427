"""Ranks that run the example of a training loop, as `torchrun --nproc-per-node 2 --max-restarts 1` starts them.

What examples import is imported once, here, in the process that ranks are forked from.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import accelerate  # noqa: F401
import deepspeed  # noqa: F401 (the Trainer imports it where it is installed)
import lightning  # noqa: F401
import torch
import torchvision  # noqa: F401
import transformers
from assets_loops import RANKS, checksums_of
from facefeed.loaders.loader.epoch_iterator import EpochIterator
from torch.distributed.checkpoint import state_dict  # noqa: F401
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.tensor import DTensor
from transformers import ResNetForImageClassification, Trainer  # noqa: F401


def launch(folder: str, kill_at: int | None) -> None:
    """Does as torchrun: starts a process a rank, and all of them again when one has died."""
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # see the guide
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as logs:
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=RANKS, run_id="loops", rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0", local_addr="127.0.0.1", max_restarts=1, monitor_interval=0.05,
            start_method="fork", logs_specs=DefaultLogsSpecs(logs), shutdown_timeout=1,
        )  # fmt: skip
        elastic_launch(config, _rank)(folder, kill_at)


def _rank(folder: str, kill_at: int | None) -> None:
    os.chdir(folder)
    rank, restarts = os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    _record(Path(f"rank {rank}, start {restarts}"), None if restarts else kill_at)
    torch.set_num_threads(1)
    torch.manual_seed(restarts)  # a resumed run has the checkpoint's weights, not those of the same seed
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(Path("train.py").read_text(encoding="utf-8"), "train.py", "exec"), names)
    weights = names["model"].state_dict().items()
    torch.save({name: value.to_local() if isinstance(value, DTensor) else value for name, value in weights},
               f"weights of {rank}")  # fmt: skip
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _record(file: Path, kill_at: int | None) -> None:
    """Writes checksums of the images of each batch that a loader delivers; kills this process in place of one."""
    next_batch, numbers = EpochIterator.__next__, itertools.count(1)

    def record(self: EpochIterator) -> Any:
        batch = next_batch(self)
        if next(numbers) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        with file.open("a") as lines:
            print(json.dumps(checksums_of(batch)), file=lines)
        return batch

    EpochIterator.__next__ = record  # type: ignore[method-assign]
