"""What a user notices where a rank is killed, under each strategy on two and on three ranks: nothing, in the end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from assets_fit import CallAtHook, MinutePerStep, config, write_at_once
from assets_processes import in_processes
from assets_train import RecordFaces, small_dataset
from assets_zero import allow_zero_on_cpus
from facefeed.pipeline.errors import FacefeedError
from facefeed.train.metrics import plots
from facefeed.train.run.runner import train

pytestmark = pytest.mark.chaos

STEPS, KILLED_AT, GLOBAL_BATCH = 6, 4, 6
BACKBONE = "test_efficientnet_ln"  # without BatchNorm, whose statistics would be each rank's own
STRATEGIES = ("ddp", "fsdp", "zero:1", "zero:2", "zero:3")
EQUAL = 1e-4  # of losses, relative: ranks sum gradients in another order


def on_a_rank(
    out: str, run: str, name: str, levers: str, batch_size: int, kill: tuple[int, str, int] | None = None
) -> None:  # fmt: skip
    """A process of a run; `kill`: the rank that gets SIGKILL, the hook in which it does, and its batch."""
    allow_zero_on_cpus()
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    callbacks: list[Any] = [RecordFaces(Path(f"{run}-{name}-faces{rank}")), *([MinutePerStep()] if rank == 0 else [])]
    if kill is not None:
        write_at_once(pytest.MonkeyPatch())
        if rank == kill[0]:
            callbacks.append(CallAtHook(*kill[1:], lambda: os.kill(os.getpid(), signal.SIGKILL)))
    plots.log_plots = lambda *_: None  # they take half of such a run's time
    settings = config(
        epochs=1, steps=STEPS, levers=levers, model={"backbone": BACKBONE},
        data={"batch_size": batch_size, "balance": "none"},
    )  # fmt: skip
    try:
        train(out, settings, run, callbacks=callbacks)
    except FacefeedError as error:
        print(error)
        os._exit(error.exit_code)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_whose_rank_is_killed_in_training_and_in_validation_ends_as_on_one_process(
    strategy: str, ranks: int, tmp_path: Path
) -> None:
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    out = small_dataset(tmp_path / "out")

    def stage(name: str, *, count: int = ranks, **arguments: Any) -> dict[str, Any]:
        levers = f"{strategy}:{count}" if count > 1 else ""
        kwargs = {
            "out": str(out), "run": str(tmp_path / ("run" if count > 1 else "one")), "name": name, "levers": levers,
            "batch_size": GLOBAL_BATCH // count, **arguments,
        }  # fmt: skip
        return {"run": f"{__file__}:on_a_rank", "ranks": count, "arguments": kwargs}

    codes = in_processes(
        stage("whole", count=1),
        stage("first", kill=(ranks - 1, "on_train_batch_start", KILLED_AT)),
        stage("second", kill=(ranks - 1, "on_validation_batch_start", 1)),
        stage("rest"),
    )
    killed = [75] * (ranks - 1) + [-signal.SIGKILL]
    assert codes == [[0], killed, killed, [0] * ranks]
    assert not (tmp_path / "run-rest-faces0").exists(), "all steps were trained before the second kill"
    faces = [
        [RecordFaces.read(Path(f"{tmp_path}/run-{name}-faces{rank}")) for rank in range(ranks)]
        for name in ("first", "second")
    ]
    again = len(faces[0][0]) + len(faces[1][0]) - STEPS
    assert 0 <= again < KILLED_AT
    steps = [sorted(face for _, step in parts for face in step) for parts in zip(*faces[1], strict=True)]
    whole = [sorted(step) for _, step in RecordFaces.read(tmp_path / "one-whole-faces0")]
    assert steps == whole[STEPS - len(steps) :]
    one, run = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "run"))
    for part in ("val", "test"):
        assert run[part][f"{part}/loss"] == pytest.approx(one[part][f"{part}/loss"], rel=EQUAL)
