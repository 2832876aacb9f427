"""What a user notices of checkpoints that are written while training goes on: no step waits, and nothing is lost."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from assets_fit import STEPS, CallAtHook, MinutePerStep, config, trained
from assets_paths import SUPPORT
from assets_train import small_dataset
from facefeed.pipeline.errors import StoppedError
from facefeed.train.checkpoints.plain import read_checkpoint
from facefeed.train.checkpoints.staging import copied_to_host
from facefeed.train.run import checkpoint_io
from facefeed.train.run.background_writer import BackgroundWriter
from facefeed.train.run.runner import train
from rich.console import Console

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

SECONDS = 60  # after which a test that waits for another thread fails
WRITE = checkpoint_io.write_file


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("background") / "out")


@pytest.fixture(autouse=True, scope="module")
def undrawn() -> Iterator[None]:
    """Pictures take half of these runs' time, and have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("facefeed.train.metrics.plots.log_plots", lambda *_: None)
        yield


class SlowDisk:
    """A disk that has written nothing before `step` has begun, and then goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self._is_fast = threading.Event()
        self.until = CallAtHook("on_train_batch_start", step, self._is_fast.set)
        monkeypatch.setattr(checkpoint_io, "write_file", self._write)

    def _write(self, *arguments: Any) -> None:
        assert self._is_fast.wait(SECONDS)
        WRITE(*arguments)


class Steps(lightning.Callback):
    """Records the number of each step that has begun."""

    def __init__(self) -> None:
        self.begun = 0

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self.begun = trainer.global_step + 1


def lost() -> None:
    raise LookupError("lost")


def differences(first: Any, second: Any, name: str = "") -> list[str]:
    """Names of nested values that differ in any bit."""
    if isinstance(first, torch.Tensor):
        return [] if first.dtype == second.dtype and torch.equal(first, second) else [name]
    if isinstance(first, dict):
        assert first.keys() == second.keys(), name
        return [each for key in first for each in differences(first[key], second[key], f"{name}/{key}")]
    if isinstance(first, (list, tuple)):
        return [each for pair in zip(first, second, strict=True) for each in differences(*pair, name)]
    return [] if first == second else [name]


def test_a_checkpoint_that_is_written_while_training_goes_on_is_the_one_that_a_step_waits_for(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, optimizer, the loader's position and random numbers: all but the time that steps took."""
    saved = {}
    for name in ("waits", "goes on"):
        with monkeypatch.context() as patch:
            disk = SlowDisk(patch, 3 if name == "waits" else 6)  # a step is a minute: it is begun after the third
            ends = CallAtHook("on_train_batch_start", 6, lost)
            with pytest.raises(LookupError):
                trained(out, tmp_path / name, disk.until, ends, model={"drop_rate": 0.5})
        saved[name] = read_checkpoint(tmp_path / name / "checkpoints/last.ckpt")
    assert saved["waits"]["global_step"] == 3
    for contents in saved.values():
        del contents["callbacks"]["Pace"]
    assert differences(saved["waits"], saved["goes on"]) == []


def test_a_resumed_run_ends_with_the_weights_of_one_that_nothing_disturbed(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(out, tmp_path / "undisturbed", model={"drop_rate": 0.5})
    with monkeypatch.context() as patch:
        callbacks = [SlowDisk(patch, 5).until, CallAtHook("on_train_batch_start", 6, lost)]
        with pytest.raises(LookupError):
            trained(out, tmp_path / "run", *callbacks, model={"drop_rate": 0.5})
    _, steps = trained(out, tmp_path / "run", model={"drop_rate": 0.5})
    assert len(steps) == 2 * STEPS - 3
    ends = [read_checkpoint(tmp_path / name / "checkpoints/last.ckpt") for name in ("undisturbed", "run")]
    for name in ("state_dict", "optimizer_states"):
        assert differences(ends[0][name], ends[1][name]) == []


def full(contents: Any, path: Path, *_: Any) -> None:
    path.write_bytes(b"the first half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_disk_that_is_full_while_training_goes_on_stops_the_run_and_leaves_the_checkpoint_before(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun = tmp_path / "run", Steps()
    fills = CallAtHook("on_train_batch_start", 5, lambda: monkeypatch.setattr(checkpoint_io, "write_file", full))
    with pytest.raises(StoppedError, match=r"/\.last\.ckpt: No space left on device; .* is complete: fix that") as stop:
        trained(out, run, fills, begun)
    assert stop.value.exit_code == 75
    assert 7 <= begun.begun <= 8  # the sixth step was to be saved, and the seventh has ended the epoch
    assert read_checkpoint(run / "checkpoints/last.ckpt")["global_step"] == 3
    monkeypatch.setattr(checkpoint_io, "write_file", WRITE)
    _, steps = trained(out, run)
    assert len(steps) == 2 * STEPS - 3


def test_on_a_disk_that_is_full_from_the_start_there_is_no_talk_of_a_checkpoint(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_io, "write_file", full)
    with pytest.raises(StoppedError, match=r"/\.last\.ckpt: No space left on device; there is no checkpoint yet: fix"):
        trained(out, tmp_path / "run")


def test_where_another_error_ends_the_run_a_write_that_failed_too_is_reported(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, disk = io.StringIO(), SlowDisk(monkeypatch, 4)
    slow = checkpoint_io.write_file

    def fill(*arguments: Any) -> None:
        slow(*arguments)
        full(*arguments)

    monkeypatch.setattr(checkpoint_io, "write_file", fill)
    callbacks = [MinutePerStep(), disk.until, CallAtHook("on_train_batch_start", 4, lost)]
    with pytest.raises(LookupError):
        train(out, config(), tmp_path / "run", callbacks=callbacks, console=Console(file=output, soft_wrap=True))
    assert "the checkpoint that was being written is not there ([Errno 28] No space left" in output.getvalue()


def test_a_second_ctrl_c_gives_up_the_write_in_flight_and_leaves_the_checkpoint_before(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, is_writing, is_abandoned = tmp_path / "run", threading.Event(), threading.Event()
    abandon = BackgroundWriter.abandon

    def note_abandoned(writer: BackgroundWriter) -> None:
        abandon(writer)
        is_abandoned.set()

    def write(contents: Any, path: Path, abandoned: threading.Event) -> None:
        is_writing.set()
        assert is_abandoned.wait(SECONDS)
        WRITE(contents, path, abandoned)

    def interrupt() -> None:
        assert is_writing.wait(SECONDS)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(BackgroundWriter, "abandon", note_abandoned)
    slow = CallAtHook("on_train_batch_start", 5, lambda: monkeypatch.setattr(checkpoint_io, "write_file", write))
    with pytest.raises(StoppedError) as stop:
        trained(out, run, slow, CallAtHook("on_train_batch_start", 7, interrupt))
    assert stop.value.exit_code == 130
    assert stop.value.details["step"] == 3
    assert read_checkpoint(run / "checkpoints/last.ckpt")["global_step"] == 3


def test_a_copy_in_host_memory_has_nothing_of_the_original_and_ties_weights_as_it_does() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    net[1].weight = net[0].weight
    image = torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    state = {"net": net.state_dict(), "list": [image, (1, "two", None)], "counts": {"a": [1]}}
    copied = copied_to_host(state)
    assert differences(state, copied) == []
    assert copied["net"]._metadata == state["net"]._metadata
    assert copied["net"]["0.weight"].data_ptr() == copied["net"]["1.weight"].data_ptr()
    assert copied["list"][0].stride() == image.stride()
    with torch.no_grad():
        net[0].weight.fill_(7)
    image.fill_(7)
    state["counts"]["a"].append(2)
    assert float(copied["net"]["0.weight"].max()) < 7
    assert float(copied["list"][0].max()) < 7
    assert copied["counts"] == {"a": [1]}


KILLED = """
import os, signal, sys, threading
sys.path[:0] = sys.argv[3].split(os.pathsep)
from assets_fit import trained
from facefeed.train.checkpoints import writing
open_file, written = writing.AbandonableFile.write, [0]
def write(file, data):
    written[0] += 1
    if written[0] == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    return open_file(file, data)
writing.AbandonableFile.write = write
trained(sys.argv[1], __import__("pathlib").Path(sys.argv[2]))
"""


@pytest.mark.chaos
@pytest.mark.parametrize("number", [5, 700, 1500])
def test_killed_in_the_middle_of_a_write_the_run_resumes_from_the_checkpoint_before(
    out: Path, tmp_path: Path, number: int
) -> None:
    run, path = tmp_path / "run", os.pathsep.join(path for path in sys.path if str(SUPPORT) in path)
    arguments = [sys.executable, "-c", KILLED, str(out), str(run), path, str(number)]
    killed = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (run / "checkpoints/.last.ckpt").is_file() or (run / "checkpoints/.best.ckpt").is_file()
    result, _ = trained(out, run)
    assert result.steps == 2 * STEPS
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}
