"""What a user notices where a rank that writes its part is killed, interrupted or has a full disk: nothing is lost."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_fit import STEPS, CallAtHook, MinutePerStep, config, write_at_once
from assets_processes import in_processes
from assets_train import small_dataset
from assets_zero import allow_zero_on_cpus
from facefeed.pipeline.errors import FacefeedError
from facefeed.train.checkpoints.plain import read_checkpoint
from facefeed.train.checkpoints.writing import AbandonableFile
from facefeed.train.metrics import plots
from facefeed.train.run.background_writer import BackgroundWriter
from facefeed.train.run.runner import train

pytestmark = pytest.mark.processes

SECONDS = 60  # after which a rank that waits for another thread fails


def _at_write(number: int, do: Callable[[], None]) -> None:
    """Calls `do` within the `number`-th write of this process to a checkpoint's files, from now on."""
    write, left = AbandonableFile.write, [number]

    def counted(file: AbandonableFile, data: Any) -> int:
        left[0] -= 1
        if left[0] == 0:
            do()
        return write(file, data)

    AbandonableFile.write = counted  # type: ignore[method-assign]


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _interrupt_again() -> None:
    """Loses patience with a write that takes until it is given up."""
    is_abandoned, abandon = threading.Event(), BackgroundWriter.abandon

    def note_abandoned(writer: BackgroundWriter) -> None:
        abandon(writer)
        is_abandoned.set()

    BackgroundWriter.abandon = note_abandoned  # type: ignore[method-assign]
    os.kill(os.getpid(), signal.SIGINT)
    assert is_abandoned.wait(SECONDS)


ENDS: dict[str, Callable[[], None]] = {
    "full": _full, "killed": lambda: os.kill(os.getpid(), signal.SIGKILL), "interrupted": _interrupt_again,
}  # fmt: skip


def on_a_rank(out: str, run: str, levers: str, end: str = "", rank: int | None = None) -> None:
    """A process of a run. `end`: what comes of the first write after the fourth step, on all ranks or on one."""
    if levers.startswith("zero"):
        allow_zero_on_cpus()
    own, at_once = int(os.environ["LOCAL_RANK"]), pytest.MonkeyPatch()
    callbacks: list[Any] = [MinutePerStep()] if own == 0 else []

    def begin() -> None:
        at_once.undo()
        if rank in (None, own):
            _at_write(3, ENDS[end])
        if end == "interrupted":
            signal.raise_signal(signal.SIGINT)

    if end:
        write_at_once(at_once)
        callbacks.append(CallAtHook("on_train_batch_start", 5, begin))
    plots.log_plots = lambda *_: None  # they take half of such a run's time, and have tests of their own
    try:
        train(out, config(epochs=1, levers=levers, data={"batch_size": 4}), run, callbacks=callbacks)
    except FacefeedError as error:
        Path(f"{run}-{end}{own}").write_text(str(error))
        os._exit(error.exit_code)
    except SystemExit as system_exit:
        os._exit(int(system_exit.code or 0))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_dataset(tmp_path_factory.mktemp("shards") / "out")


def saved_step(run: Path) -> int:
    last = run / "checkpoints/last.ckpt"
    of_zero = last / "checkpoint/mp_rank_00_model_states.pt"
    contents = torch.load(of_zero, weights_only=False) if of_zero.exists() else read_checkpoint(last)
    step: int = contents["global_step"]
    return step


def stage(out: Path, run: Path, levers: str, **arguments: Any) -> dict[str, Any]:
    if levers.startswith("zero"):
        pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    kwargs = {"out": str(out), "run": str(run), "levers": levers, **arguments}
    return {"run": f"{__file__}:on_a_rank", "ranks": 2, "arguments": kwargs}


@pytest.mark.parametrize(("levers", "rank"), [("fsdp:2", 1), ("fsdp:2", 0), ("ddp:2", 0), ("zero:2:2", 1)])
def test_a_full_disk_of_any_rank_ends_all_of_them_alike_and_the_first_reports_the_file(
    out: Path, tmp_path: Path, levers: str, rank: int
) -> None:
    """A rank that exits with an error would have the first one killed before it has reported."""
    run = tmp_path / "run"
    assert in_processes(stage(out, run, levers, end="full", rank=rank)) == [[75, 0]]
    assert re.search(r"/\.last\.ckpt.*: No space left on device; the last", (tmp_path / "run-full0").read_text())
    assert saved_step(run) == 3


@pytest.mark.parametrize("levers", ["fsdp:2", "zero:2:2"])
def test_killed_in_mid_write_of_its_part_the_run_goes_on_from_the_checkpoint_before(
    out: Path, tmp_path: Path, levers: str
) -> None:
    run = tmp_path / "run"
    assert in_processes(stage(out, run, levers, end="killed", rank=0)) == [[-signal.SIGKILL, 75]]
    assert (run / "checkpoints/.last.ckpt").is_dir()
    assert saved_step(run) == 3
    assert in_processes(stage(out, run, levers)) == [[0, 0]]
    assert saved_step(run) == STEPS
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}


@pytest.mark.parametrize("levers", ["fsdp:2", "zero:2:2"])
def test_a_second_ctrl_c_gives_up_the_parts_under_way_and_leaves_the_checkpoint_before(
    out: Path, tmp_path: Path, levers: str
) -> None:
    run = tmp_path / "run"
    assert in_processes(stage(out, run, levers, end="interrupted")) == [[130, 0]]
    assert saved_step(run) == 3
