"""What a user notices when a run is ended before its end: a checkpoint, a code, and the very next batch."""

from __future__ import annotations

import csv
import io
import json
import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from assets_docs import key_differences, keys
from assets_fit import STEPS, CallAtHook, MinutePerStep, config, raising, trained
from assets_paths import SUPPORT
from assets_processes import in_processes
from assets_train import VAL_FACES, RecordFaces, small_dataset
from facefeed.train.checkpoints import plain
from facefeed.train.run.result import Result
from facefeed.train.run.runner import train
from facefeed.train.run.signals import Signals, StoppedTrainingError
from rich.console import Console

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

Steps = list[list[Any]]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("stop") / "out")


@pytest.fixture(autouse=True, scope="module")
def undrawn() -> Iterator[None]:
    """Pictures take half of these runs' time, and have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("facefeed.train.metrics.plots.log_plots", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def uninterrupted(out: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Steps]:
    """A run that nothing disturbs."""
    return trained(out, tmp_path_factory.mktemp("whole") / "run")


def weights(run: Path) -> dict[str, torch.Tensor]:
    return plain.read_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]


def same(first: Result, second: Result) -> bool:
    """Whether two runs came to the same; what depends on the clock and the place does not count."""
    fields = ("epochs", "steps", "images", "best_step", "val", "test", "val_faces", "val_videos", "test_faces")
    return all(getattr(first, name) == getattr(second, name) for name in fields)


def stopped(out: Path, run: Path, *callbacks: Any, **changes: Any) -> tuple[StoppedTrainingError, Steps]:
    seen = RecordFaces()
    with pytest.raises(StoppedTrainingError) as caught:
        train(out, config(**changes), run, callbacks=[seen, MinutePerStep(), *callbacks])
    return caught.value, seen.steps


def test_a_signal_ends_the_run_after_the_step_and_it_goes_on_as_if_nothing_had_been(
    out: Path, tmp_path: Path, uninterrupted: tuple[Result, Steps]
) -> None:
    run = tmp_path / "run"
    error, first = stopped(out, run, CallAtHook("on_train_batch_start", 5, raising(signal.SIGTERM)))
    assert f"stopped by SIGTERM after step 5, which is saved in {run}; run the same command again" in str(error)
    assert error.details == {"signal": "SIGTERM", "step": 5, "run": str(run)}
    result, resumed = trained(out, run)
    assert first + resumed == uninterrupted[1]
    assert len(first) == 5
    assert same(result, uninterrupted[0])
    actual, expected = weights(run), weights(Path(uninterrupted[0].run))
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130), (signal.SIGHUP, 130)],
)
def test_the_code_says_who_ended_it_and_signals_do_afterwards_what_they_did(
    out: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    before = [signal.getsignal(sig) for sig in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)]
    error, first = stopped(out, tmp_path / "run", CallAtHook("on_train_batch_start", 1, raising(number)))
    assert error.exit_code == code
    assert f"stopped by {number.name} after step 1" in str(error)
    assert len(first) == 1
    assert [signal.getsignal(sig) for sig in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)] == before


def test_a_hangup_that_nohup_ignores_stops_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = dict.fromkeys((signal.SIGTERM, signal.SIGUSR1, signal.SIGINT), signal.SIG_DFL)
    monkeypatch.setattr(signal, "getsignal", {**handlers, signal.SIGHUP: signal.SIG_IGN}.__getitem__)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    with Signals() as signals:
        signals.install()
        assert set(handlers) == {signal.SIGTERM, signal.SIGUSR1, signal.SIGINT}
    assert set(handlers.values()) == {signal.SIG_DFL}


@pytest.mark.parametrize("epoch", [1, 2])
def test_after_an_epochs_last_step_the_validation_is_made_up_for(
    out: Path, tmp_path: Path, uninterrupted: tuple[Result, Steps], epoch: int
) -> None:
    error, first = stopped(
        out, tmp_path / "run", CallAtHook("on_train_batch_start", epoch * STEPS, raising(signal.SIGTERM))
    )
    assert error.details["step"] == epoch * STEPS
    result, resumed = trained(out, tmp_path / "run")
    assert first + resumed == uninterrupted[1]
    assert same(result, uninterrupted[0])


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_validation_that_is_made_up_for_is_reported_of_its_epoch(out: Path, tmp_path: Path, epoch: int) -> None:
    run, output = tmp_path / "run", io.StringIO()
    stopped(out, run, CallAtHook("on_train_batch_start", epoch * STEPS, raising(signal.SIGTERM)))
    train(out, config(), run, console=Console(file=output, soft_wrap=True), as_json=True)
    events = [json.loads(line) for line in output.getvalue().splitlines()]
    reported = [(event["epoch"], event["step"]) for event in events if event["event"] == "validated"]
    assert reported == [(number - 1, number * STEPS) for number in range(epoch, 3)]
    logged = [
        int(float(row["epoch"]))
        for file in run.glob("logs/csv/*/metrics.csv")
        for row in csv.DictReader(file.open())
        if row.get("val/loss")
    ]
    assert sorted(logged) == [0, 1]
    printed = {key for event in events for key in keys({event.pop("event"): event})}
    assert "resumed.step" in printed
    assert key_differences(printed, "Progress of a training")[0] == set()


class Losses(lightning.Callback):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]))


@pytest.mark.parametrize("older", [False, True])
def test_the_training_loss_that_a_validation_reports_is_of_all_sessions(out: Path, tmp_path: Path, older: bool) -> None:
    run, output, losses = tmp_path / "run", io.StringIO(), Losses()
    stopped(out, run, losses, CallAtHook("on_train_batch_start", 5, raising(signal.SIGTERM)), epochs=1)
    if older:  # a version that did not store the losses
        last = run / "checkpoints/last.ckpt"
        contents = torch.load(last, weights_only=True)
        del contents["callbacks"]["TrainingLoss"]
        torch.save(contents, last)
    console = Console(file=output, soft_wrap=True)
    train(out, config(epochs=1), run, callbacks=[losses], console=console, as_json=True)
    events = [json.loads(line) for line in output.getvalue().splitlines()]
    (reported,) = (event["train/loss"] for event in events if event["event"] == "validated")
    assert len(losses.losses) == STEPS
    counted = losses.losses[5:] if older else losses.losses
    assert reported == pytest.approx(sum(counted) / len(counted))


@pytest.mark.parametrize("steps", [3, STEPS])
def test_stopped_after_an_epochs_last_step_and_again_in_the_next_epoch_it_ends_after_as_many_epochs(
    out: Path, tmp_path: Path, uninterrupted: tuple[Result, Steps], steps: int
) -> None:
    run = tmp_path / "run"
    _, first = stopped(out, run, CallAtHook("on_train_batch_start", STEPS, raising(signal.SIGTERM)))
    _, second = stopped(out, run, CallAtHook("on_train_batch_start", steps, raising(signal.SIGTERM)))
    result, third = trained(out, run)
    assert first + second + third == uninterrupted[1]
    assert same(result, uninterrupted[0])


def test_in_a_validation_it_ends_at_once_and_the_validation_begins_anew(
    out: Path, tmp_path: Path, uninterrupted: tuple[Result, Steps]
) -> None:
    error, first = stopped(out, tmp_path / "run", CallAtHook("on_validation_batch_start", 1, raising(signal.SIGTERM)))
    assert error.details["step"] == STEPS
    result, resumed = trained(out, tmp_path / "run")
    assert first + resumed == uninterrupted[1]
    assert same(result, uninterrupted[0])


class Validations(lightning.Callback):
    """Records the step, the number of faces and the loss of each validation."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, float]] = []

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        loss = float(trainer.callback_metrics["val/loss"])
        self.seen.append((trainer.global_step, len(pl_module.scores.faces), loss))


def test_stopped_in_a_later_validation_all_of_its_faces_decide_on_the_best(out: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"model": {"learning_rate": 3e-2}}  # the second validation is the best
    validations, rest = Validations(), Validations()
    undisturbed, _ = trained(out, tmp_path / "whole", validations, **changes)
    second_batch_of_second_validation = math.ceil(VAL_FACES / 8) + 2
    stop = CallAtHook("on_validation_batch_start", second_batch_of_second_validation, raising(signal.SIGTERM))
    error, _ = stopped(out, tmp_path / "run", stop, **changes)
    result, _ = trained(out, tmp_path / "run", rest, **changes)
    assert error.details["step"] == undisturbed.best_step == 2 * STEPS
    assert rest.seen == validations.seen[1:]
    assert same(result, undisturbed)


@pytest.mark.parametrize("epoch", [1, 2])
def test_stopped_in_a_validation_an_early_stop_comes_no_later(out: Path, tmp_path: Path, epoch: int) -> None:
    changes: dict[str, Any] = {"levers": "early_stop:val/loss:1", "epochs": 5, "model": {"learning_rate": 1e-9}}
    undisturbed, _ = trained(out, tmp_path / "whole", **changes)
    stop = CallAtHook("on_validation_start", epoch, raising(signal.SIGTERM))
    error, _ = stopped(out, tmp_path / "run", stop, **changes)
    result, _ = trained(out, tmp_path / "run", **changes)
    assert error.details["step"] == epoch * STEPS
    assert undisturbed.epochs < 5
    assert same(result, undisturbed)


def test_in_the_test_at_the_end_nothing_is_trained_again(
    out: Path, tmp_path: Path, uninterrupted: tuple[Result, Steps]
) -> None:
    in_test = [CallAtHook("on_test_batch_start", 1, raising(signal.SIGTERM)) for _ in range(2)]
    error, first = stopped(out, tmp_path / "run", in_test[0])
    assert error.details["step"] == 2 * STEPS
    error, _ = stopped(out, tmp_path / "run", in_test[1])
    assert f"stopped by SIGTERM after step {2 * STEPS}, which is saved" in str(error)
    result, resumed = trained(out, tmp_path / "run")
    assert (first, resumed) == (uninterrupted[1], [])
    assert same(result, uninterrupted[0])


def test_half_a_group_of_accumulated_batches_is_finished_first(out: Path, tmp_path: Path) -> None:
    run, levers = tmp_path / "run", "accumulate:3"
    _, undisturbed = trained(out, tmp_path / "whole", levers=levers)
    error, first = stopped(out, run, CallAtHook("on_train_batch_start", 4, raising(signal.SIGTERM)), levers=levers)
    assert error.details["step"] == 2
    assert len(first) == 6
    _, resumed = trained(out, run, levers=levers)
    assert first + resumed == undisturbed


def test_before_the_first_step_there_is_nothing_to_save(out: Path, tmp_path: Path) -> None:
    error, first = stopped(out, tmp_path / "run", CallAtHook("on_fit_start", 1, raising(signal.SIGTERM)))
    assert "stopped by SIGTERM before its first checkpoint; run the same command again" in str(error)
    assert first == []
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_second_ctrl_c_does_not_wait_for_the_step(
    out: Path, tmp_path: Path, uninterrupted: tuple[Result, Steps]
) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    error, first = stopped(out, tmp_path / "run", CallAtHook("on_before_optimizer_step", 5, twice))
    assert error.exit_code == 130
    assert error.details["step"] == 3  # the last that was saved
    assert len(first) == 5
    _, resumed = trained(out, tmp_path / "run")
    assert first[:3] + resumed == uninterrupted[1]


def read(path: Path, ranks: int) -> list[Steps]:
    return [RecordFaces.read(Path(f"{path}{rank}")) for rank in range(ranks)]


@pytest.mark.processes
def test_killed_in_mid_epoch_it_goes_on_with_the_batches_that_were_left_also_over_ranks(
    out: Path, tmp_path: Path, uninterrupted: tuple[Result, Steps]
) -> None:
    """SIGKILL in one process; of two ranks one alone gets SIGTERM, and both end at the same step; then one is lost."""

    def stage(name: str, seen: str, **arguments: Any) -> dict[str, Any]:
        kwargs = {"out": str(out), "run": str(tmp_path / name), "seen": str(tmp_path / seen), "epochs": 1, **arguments}
        return {
            "run": f"{SUPPORT}/train/assets_fit.py:session",
            "ranks": 2 if "levers" in arguments else 1,
            "arguments": kwargs,
        }

    two = {"levers": "ddp:2", "data": {"batch_size": 4}}
    codes = in_processes(
        stage("one", "killed", kill=[signal.SIGKILL, 0, 5]),
        stage("one", "rest"),
        stage("two", "first", kill=[signal.SIGTERM, 1, 4], **two),
        stage("two", "lost", kill=[signal.SIGKILL, 1, 2], **two),
        stage("two", "then", **two),
    )
    assert codes == [[-signal.SIGKILL], [0], [75, 0], [75, -signal.SIGKILL], [0, 0]]
    undisturbed = uninterrupted[1][:STEPS]
    (killed,), (resumed,) = read(tmp_path / "killed", 1), read(tmp_path / "rest", 1)
    assert killed == undisturbed[:5]
    assert resumed == undisturbed[3:]  # of the checkpoint at step 3
    first, second = read(tmp_path / "first", 2), read(tmp_path / "then", 2)
    assert [len(steps) for steps in (*first, *second)] == [4, 4, 3, 3]
    together = [
        [epoch, sorted(faces + others)]
        for (epoch, faces), (_, others) in zip(first[0] + second[0], first[1] + second[1], strict=True)
    ]
    assert together == [[epoch, sorted(faces)] for epoch, faces in undisturbed]
