"""What a user notices of a run under DeepSpeed's ZeRO: it learns what DDP learns, resumes, and its best is tested."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from assets_fit import STEPS, CallAtHook, MinutePerStep, config
from assets_processes import in_processes
from assets_train import RecordFaces, small_dataset
from assets_zero import allow_zero_on_cpus
from facefeed.pipeline.errors import FacefeedError
from facefeed.train.metrics import plots
from facefeed.train.run.runner import train

pytestmark = pytest.mark.processes

ZERO = ("zero:1", "zero:2", "zero:3", "zero:3:offload")
EQUAL = 1e-6  # of losses, relative: ZeRO may sum gradients in another order


def on_a_rank(out: str, run: str, name: str, levers: str, kill: int | None = None) -> None:
    """A process of a run; `kill`: the step in which the second rank gets SIGKILL."""
    allow_zero_on_cpus()
    rank = int(os.environ["LOCAL_RANK"])
    callbacks: list[Any] = [RecordFaces(Path(f"{run}-{name}-faces{rank}")), *([MinutePerStep()] if rank == 0 else [])]
    if kill is not None and rank == 1:
        callbacks.append(CallAtHook("on_train_batch_start", kill, lambda: os.kill(os.getpid(), signal.SIGKILL)))
    plots.log_plots = lambda *_: None  # they take half of such a run's time
    try:
        train(out, config(epochs=1, levers=levers, data={"batch_size": 4}), run, callbacks=callbacks)
    except FacefeedError as error:
        print(error)
        os._exit(error.exit_code)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two ranks: under DDP and each stage of ZeRO; stages 2 and 3 also killed in step five and resumed."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    path = tmp_path_factory.mktemp("zero")
    out = small_dataset(path / "out")

    def stage(levers: str, run: str, name: str = "whole", **arguments: Any) -> dict[str, Any]:
        kwargs = {"out": str(out), "run": str(path / run), "name": name, "levers": f"{levers}:2", **arguments}
        return {"run": f"{__file__}:on_a_rank", "ranks": 2, "arguments": kwargs}

    whole = [stage(text, text.replace(":", "-")) for text in ("ddp", *ZERO)]
    codes = in_processes(
        *whole,
        *(stage(f"zero:{number}", f"killed-{number}", "first", kill=5) for number in (2, 3)),
        *(stage(f"zero:{number}", f"killed-{number}", "rest") for number in (2, 3)),
    )
    assert codes == [[0, 0]] * len(whole) + [[75, -signal.SIGKILL]] * 2 + [[0, 0]] * 2
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


@pytest.mark.parametrize("number", [2, 3])
def test_killed_and_resumed_it_trains_on_what_was_next_and_scores_as_if_nothing_had_been(
    folder: Path, number: int
) -> None:
    whole, resumed = f"zero-{number}", f"killed-{number}"
    for rank in (0, 1):
        faces = RecordFaces.read(folder / f"{whole}-whole-faces{rank}")
        rest = RecordFaces.read(folder / f"{resumed}-rest-faces{rank}")
        assert 0 < len(rest) < STEPS
        assert rest == faces[STEPS - len(rest) :]
    assert result(folder, resumed)["val"] == result(folder, whole)["val"]
    assert result(folder, resumed)["test"] == result(folder, whole)["test"]
