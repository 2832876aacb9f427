"""What a user notices of a run under DeepSpeed's ZeRO: it learns what DDP learns, resumes, and its best is tested."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from threading import Event
from typing import Any

import lightning
import pytest
import torch
from assets_fit import STEPS, CallAtHook, MinutePerStep, config, write_at_once
from assets_processes import in_processes
from assets_train import RecordFaces, small_dataset
from assets_zero import allow_zero_on_cpus
from facefeed.pipeline.errors import FacefeedError
from facefeed.train.evaluate import evaluate
from facefeed.train.metrics import plots
from facefeed.train.run.result import Result
from facefeed.train.run.runner import train
from facefeed.train.run.tables import next_steps

pytestmark = pytest.mark.processes

SHORT = ("ddp", "zero:2,bf16", "zero:3")
ZERO = ("zero:1", "zero:2", "zero:3")
EQUAL = 1e-6  # of losses, relative: ZeRO may sum gradients in another order


class SaveTwice(lightning.Callback):
    """Saves the same step as DeepSpeed does, and in two parts: copies in host memory, and their files."""

    def __init__(self, run: str) -> None:
        self._run = run

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 4:
            trainer.save_checkpoint(f"{self._run}-waits.ckpt")
            trainer.save_checkpoint(f"{self._run}-goes-on.ckpt", storage_options=lambda write: write(Event()))


def on_a_rank(
    out: str, run: str, name: str, levers: str, kill: int | None = None, at: str = "train", **changes: Any
) -> None:
    """A process of a run; `kill`: the batch, of those that it is `at`, in which the second rank gets SIGKILL."""
    allow_zero_on_cpus()
    rank = int(os.environ["LOCAL_RANK"])
    callbacks: list[Any] = [RecordFaces(Path(f"{run}-{name}-faces{rank}")), *([MinutePerStep()] if rank == 0 else [])]
    if levers.startswith("zero") and kill is None:
        callbacks.append(SaveTwice(run))
    if kill is not None:
        write_at_once(pytest.MonkeyPatch())
    if kill is not None and rank == 1:
        callbacks.append(CallAtHook(f"on_{at}_batch_start", kill, lambda: os.kill(os.getpid(), signal.SIGKILL)))
    plots.log_plots = lambda *_: None  # they take half of such a run's time
    try:
        train(out, config(epochs=1, levers=levers, data={"batch_size": 4}, **changes), run, callbacks=callbacks)
    except FacefeedError as error:
        print(error)
        os._exit(error.exit_code)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two ranks: under DDP and each stage of ZeRO; stage 3 also killed and resumed, and with few steps."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    path = tmp_path_factory.mktemp("zero")
    out = small_dataset(path / "out")

    def stage(levers: str, run: str, name: str = "whole", **arguments: Any) -> dict[str, Any]:
        strategy, *others = levers.split(",")
        levers = ",".join([f"{strategy}:2", *others])
        kwargs = {"out": str(out), "run": str(path / run), "name": name, "levers": levers, **arguments}
        return {"run": f"{__file__}:on_a_rank", "ranks": 2, "arguments": kwargs}

    whole = [stage(text, text.replace(":", "-")) for text in ("ddp", *ZERO)]
    codes = in_processes(
        *whole,
        stage("zero:3", "killed", "first", kill=5),
        stage("zero:3", "killed", "rest"),
        *(stage(text, f"short-{text}", steps=3) for text in SHORT),
        stage("zero:3", "lost", "first", kill=1, at="validation", steps=3),
        stage("zero:3", "lost", "rest", steps=3),
    )
    resumed = [[75, -signal.SIGKILL], [0, 0]]
    assert codes == [[0, 0]] * len(whole) + resumed + [[0, 0]] * len(SHORT) + resumed
    return path


def result(folder: Path, run: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / run / "result.json").read_text())
    return values


@pytest.mark.parametrize("text", ZERO)
def test_its_best_weights_are_tested_and_score_as_those_of_ddp(folder: Path, text: str) -> None:
    ddp, zero = result(folder, "ddp"), result(folder, text.replace(":", "-"))
    assert (zero["steps"], zero["test_faces"]) == (STEPS, ddp["test_faces"])
    assert zero["checkpoint"].endswith("best.ckpt")
    for part in ("val", "test"):
        assert zero[part][f"{part}/loss"] == pytest.approx(ddp[part][f"{part}/loss"], rel=EQUAL)


def test_killed_and_resumed_it_trains_on_what_was_next_and_scores_as_if_nothing_had_been(folder: Path) -> None:
    for rank in (0, 1):
        faces = RecordFaces.read(folder / f"zero-3-whole-faces{rank}")
        rest = RecordFaces.read(folder / f"killed-rest-faces{rank}")
        assert 0 < len(rest) < STEPS
        assert rest == faces[STEPS - len(rest) :]
    assert result(folder, "killed")["val"] == result(folder, "zero-3")["val"]
    assert result(folder, "killed")["test"] == result(folder, "zero-3")["test"]


def same(first: Any, second: Any) -> bool:
    """Whether nested values are the same in each bit; objects are compared by their attributes."""
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(value, second[key]) for key, value in first.items())
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second or (type(first) is type(second) and same(vars(first), vars(second)))


@pytest.mark.parametrize("text", ZERO)
def test_a_checkpoint_that_is_written_while_training_goes_on_holds_what_deepspeeds_own_does(
    folder: Path, text: str
) -> None:
    waits, goes_on = (folder / f"{text.replace(':', '-')}-{name}.ckpt" for name in ("waits", "goes-on"))
    names = sorted(path.relative_to(waits) for path in waits.rglob("*"))
    assert names == sorted(path.relative_to(goes_on) for path in goes_on.rglob("*"))
    files = [name for name in names if name.suffix == ".pt"]
    assert len(files) > 1
    for name in files:
        assert same(*(torch.load(path / name, weights_only=False) for path in (waits, goes_on)))


@pytest.mark.parametrize("text", SHORT)
def test_steps_that_end_within_an_epoch_are_validated_saved_and_tested(folder: Path, text: str) -> None:
    short = result(folder, f"short-{text}")
    assert (short["steps"], short["best_step"]) == (3, 3)
    assert short["val"]["val/loss"] > 0
    assert short["test_faces"] == result(folder, "ddp")["test_faces"]
    if text == "zero:3":
        assert short["test"]["test/loss"] == pytest.approx(result(folder, "short-ddp")["test"]["test/loss"], rel=EQUAL)


def test_killed_in_the_validation_of_its_last_steps_it_goes_on_with_that(folder: Path) -> None:
    assert not (folder / "lost-rest-faces0").exists()  # no step was trained
    assert result(folder, "lost")["val"] == result(folder, "short-zero:3")["val"]
    assert result(folder, "lost")["test"] == result(folder, "short-zero:3")["test"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("run", ["zero-1", "zero-3", "short-zero:3"])
def test_one_file_of_its_parts_is_evaluated_as_it_was_tested(folder: Path, run: str, tmp_path: Path) -> None:
    from lightning.pytorch.utilities.deepspeed import (  # noqa: PLC0415 (imports DeepSpeed)
        convert_zero_checkpoint_to_fp32_state_dict,
    )

    tested = result(folder, run)
    convert_zero_checkpoint_to_fp32_state_dict(tested["checkpoint"], tmp_path / "best.ckpt")
    (evaluation,) = evaluate(tmp_path / "best.ckpt", [folder / "out"])
    assert evaluation.metrics["log_loss"] == pytest.approx(tested["test"]["test/log_loss"], rel=EQUAL)


def test_what_comes_next_is_to_make_one_file_of_the_parts(folder: Path) -> None:
    *_, following = next_steps(Result(**result(folder, "zero-3")))
    assert following.startswith(f"next: make one file of {folder}/zero-3/checkpoints/best.ckpt by convert_zero")
    *_, following = next_steps(Result(**result(folder, "ddp")))
    assert following == f"next: facefeed evaluate {folder}/ddp/checkpoints/best.ckpt {folder}/out"
