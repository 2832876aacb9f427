"""How long a checkpoint holds up training: the step after which it is saved, and those while it is being written.

    python tests/benchmarks/bench_checkpoints.py [--mbytes 300] [--steps 40] [--repeats 3] [--step-ms 100]

A module of linear layers under AdamW, whose weights and optimizer state are of --mbytes; a step takes --step-ms of a
device that leaves the CPU free, and what the layers and the optimizer take on one thread. A checkpoint is saved as
`facefeed train` does, after every tenth step: never (`none`); written before the next step (`waits`); written in the
background (`background`). On one process, and on two CPU ranks under ddp, fsdp (shards) and zero:2. Prints one JSON
object with every repeat: seconds of the median step that saves nothing while nothing is written, of the steps that
begin a checkpoint, of those while it is written, and of the writes. A table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support" / "train"))
import lightning
import torch
from assets_zero import allow_zero_on_cpus
from facefeed.train import levers
from facefeed.train.levers.ranks.fsdp_strategy import FSDP2Strategy
from facefeed.train.run.background_writer import BackgroundWriter
from facefeed.train.run.checkpoint_io import SafeCheckpointIO
from facefeed.train.run.checkpointer import RunCheckpointer
from facefeed.train.run.graceful_stop import GracefulStop
from facefeed.train.run.signals import Signals
from torch import nn
from torch.utils.data import DataLoader

WIDTH = 1024
EVERY = 10
STRATEGIES = {"one process": "", "ddp:2": "ddp:2", "fsdp:2": "fsdp:2", "zero:2": "zero:2:2"}
MODES = ("none", "waits", "background")


class Layers(lightning.LightningModule):
    """Square layers; of each step, one image's."""

    def __init__(self, number: int, step_seconds: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(number)))
        self._step_seconds = step_seconds

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        time.sleep(self._step_seconds)
        loss: torch.Tensor = self.layers(batch).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-5)


class Clock(lightning.Callback):
    """Seconds of each step, with what the callbacks do after it, and whether one was written in its time."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, float, bool]] = []
        self.writes: list[tuple[float, float]] = []
        self._began = 0.0

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        now = time.perf_counter()
        if trainer.global_step:
            is_written = any(begun < now and ended > self._began for begun, ended in self.writes)
            self.steps.append((trainer.global_step, now - self._began, is_written or self._is_writing))
        self._began = now

    _is_writing = False

    def timed(self, write: Any) -> Any:
        """A write that is recorded."""

        def run(*arguments: Any) -> None:
            begun, self._is_writing = time.perf_counter(), True
            write(*arguments)
            self.writes.append((begun, time.perf_counter()))
            self._is_writing = False

        return run


def rank(strategy: str, mode: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any] | None:
    """A fit in this process."""
    torch.set_num_threads(1)
    if strategy.startswith("zero"):
        allow_zero_on_cpus()
    number = max(1, round(arguments.mbytes * 1e6 / (12 * WIDTH * WIDTH)))
    clock, start = Clock(), BackgroundWriter.start

    def start_write(writer: BackgroundWriter, write: Any) -> None:
        start(writer, clock.timed(write))
        if mode == "waits":
            writer.wait()

    BackgroundWriter.start = start_write  # type: ignore[method-assign]
    with Signals() as signals:
        stop = GracefulStop(signals, folder, save_every_minutes=1e9)
        saving = RunCheckpointer(folder, stop, metric="val/loss", mode="min", seed=0)

        class Due(lightning.Callback):
            def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
                stop.save_is_due = mode != "none" and trainer.global_step % EVERY == 0

        module, trainer = levers.trainer(
            Layers(number, arguments.step_ms / 1e3), levers.parse(strategy), accelerator="cpu",
            max_steps=arguments.steps + 1, callbacks=[clock, stop, Due(), saving], logger=False,
            default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False,
            **({} if strategy else {"devices": 1}),
        )  # fmt: skip
        trainer.strategy.checkpoint_io = SafeCheckpointIO()
        if isinstance(trainer.strategy, FSDP2Strategy):
            trainer.strategy.saves_shards = True
        with saving.writing():
            trainer.fit(module, DataLoader(torch.zeros(10_000, WIDTH), 1))
    if trainer.global_rank:
        return None
    saves = mode != "none"
    plain = [took for step, took, written in clock.steps if not written and not (saves and step % EVERY == 0)]
    return {
        "step": statistics.median(plain) if plain else None,
        "saving": [took for step, took, _ in clock.steps if saves and step % EVERY == 0],
        "written": [took for step, took, written in clock.steps if written and step % EVERY],
        "writes": [ended - begun for begun, ended in clock.writes],
        "mbytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6,
    }


def measured(strategy: str, mode: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """A fit in processes of its own."""
    with tempfile.TemporaryDirectory(prefix=arguments.prefix) as folder:
        own = [__file__, "--rank", strategy, mode, folder, "--mbytes", str(arguments.mbytes)]
        own += ["--steps", str(arguments.steps), "--step-ms", str(arguments.step_ms)]
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if strategy else []
        subprocess.run(
            [sys.executable, *launcher, *own], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        report: dict[str, Any] = json.loads(Path(folder, "report.json").read_text())
        return report


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mbytes", type=float, default=300)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--step-ms", type=float, default=100)
    parser.add_argument("--prefix", default=os.path.join(tempfile.gettempdir(), "checkpoints-"))  # noqa: PTH118
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measures each strategy and mode, in turn, `repeats` times."""
    arguments = parsed_arguments()
    if arguments.rank:
        strategy, mode, folder = arguments.rank
        if (report := rank(strategy, mode, arguments, Path(folder))) is not None:
            Path(folder, "report.json").write_text(json.dumps(report))
        return
    reports: list[dict[str, Any]] = []
    for number in range(arguments.repeats):
        for name, strategy in STRATEGIES.items():
            for mode in MODES:
                report = {"strategy": name, "mode": mode, "repeat": number, **measured(strategy, mode, arguments)}
                reports.append(report)
                means = {key: statistics.mean(report[key] or [0]) for key in ("saving", "written", "writes")}
                texts = (f"{key} {value:.3f}" for key, value in {"step": report["step"] or 0, **means}.items())
                print(f"{name:12} {mode:10}", *texts, file=sys.stderr)
    print(json.dumps({"mbytes": arguments.mbytes, "step_ms": arguments.step_ms, "reports": reports}))


if __name__ == "__main__":
    main()
