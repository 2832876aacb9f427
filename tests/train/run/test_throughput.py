"""What a user notices of a run's time and speed: validations are in its time, and checkpoints do not slow it down."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning
import psutil
import pytest
import torch
from assets_clock import Clock
from assets_dataset import make_dataset
from assets_fit import STEPS, CallAtHook, trained
from assets_train import UNITS, small_dataset
from facefeed.train.levers import memory
from facefeed.train.run import throughput
from facefeed.train.run.checkpoint_io import SafeCheckpointIO

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("throughput") / "out")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the throughput, by which a step takes a second, a validation 100, and a checkpoint 1000."""
    clock = Clock()
    write = SafeCheckpointIO.save_checkpoint

    def save_checkpoint(*arguments: Any, **options: Any) -> None:
        clock.pass_by(1000)
        write(*arguments, **options)

    monkeypatch.setattr(SafeCheckpointIO, "save_checkpoint", save_checkpoint)
    monkeypatch.setattr(throughput, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr("facefeed.train.metrics.plots.log_plots", lambda *_: None)
    return clock


class PassTime(lightning.Callback):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_train_batch_start(self, *_: Any) -> None:
        self._clock.pass_by(1)

    def on_validation_start(self, *_: Any) -> None:
        self._clock.pass_by(100)


class SaveInStep(lightning.Callback):
    """Saves after the third step; called before the throughput, unlike callbacks that Lightning moves to the end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 3:
            trainer.save_checkpoint(self._path)


def test_the_last_validation_is_in_the_time_of_a_run(out: Path, tmp_path: Path, clock: Clock) -> None:
    result, _ = trained(out, tmp_path / "run", PassTime(clock), epochs=1, save_every_minutes=60)
    assert result.seconds == STEPS + 1000 + 100  # the checkpoint before the validation


def test_the_time_of_a_run_is_there_too_where_only_its_test_was_left(out: Path, tmp_path: Path, clock: Clock) -> None:
    def lost() -> None:
        raise LookupError("the test was lost")

    changes: dict[str, Any] = {"epochs": 1, "save_every_minutes": 60}
    with pytest.raises(LookupError):
        trained(out, tmp_path / "run", PassTime(clock), CallAtHook("on_test_start", 1, lost), **changes)
    result, seen = trained(out, tmp_path / "run", PassTime(clock), **changes)
    assert seen == []
    assert result.seconds == STEPS + 1000 + 100


@pytest.mark.parametrize("steps", [None, 3])  # 3: ends within an epoch
def test_workers_are_in_the_memory_of_a_run_without_a_validation_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int | None
) -> None:
    make_dataset(tmp_path / "out", (UNITS[0],))
    monkeypatch.setattr(memory, "_peak_rss_bytes", lambda pid: 0 if pid == os.getpid() else 1)
    result, _ = trained(tmp_path / "out", tmp_path / "run", epochs=1, steps=steps, data={"num_workers": 1})
    lasting = psutil.Process().children(recursive=True)  # the server that workers are forked from
    assert result.memory["host_bytes"] == len(lasting) + 1


@pytest.mark.parametrize("saves_first", [False, True])
def test_checkpoints_within_an_epoch_do_not_slow_a_run_down(
    out: Path, tmp_path: Path, clock: Clock, saves_first: bool
) -> None:
    callbacks = [PassTime(clock), *([SaveInStep(tmp_path / "other.ckpt")] if saves_first else [])]
    minutes = 60 if saves_first else 3  # a step is a minute
    result, _ = trained(out, tmp_path / "run", *callbacks, epochs=1, save_every_minutes=minutes)
    assert result.seconds > 2 * 1000
    assert result.images_per_second is not None
    assert 7 < result.images_per_second <= 8  # the last step has four faces
