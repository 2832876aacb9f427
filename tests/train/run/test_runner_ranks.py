"""What a user notices of a run on several ranks: killed, it goes on as if nothing had been, also on other ranks."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from assets_fit import STEPS, CallAtHook, MinutePerStep, config, raising, trained, write_at_once
from assets_processes import in_processes
from assets_train import RecordFaces, small_dataset
from facefeed.pipeline.errors import FacefeedError, RefusedError
from facefeed.train.checkpoints import plain
from facefeed.train.checkpoints.shards import is_sharded
from facefeed.train.config.recipes import Config
from facefeed.train.datamodule import FaceDataModule
from facefeed.train.evaluate import evaluate
from facefeed.train.metrics import plots
from facefeed.train.model.warm_start import warm_start
from facefeed.train.run.folder import RunFolder
from facefeed.train.run.runner import train
from facefeed.train.run.signals import StoppedTrainingError

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

DROPOUT: dict[str, Any] = {"model": {"drop_rate": 0.5}}


class Draws(lightning.Callback):
    """Notes, without moving them on, what Python's, numpy's and torch's generators would draw in each step."""

    def __init__(self) -> None:
        self.steps: list[list[float]] = []

    def on_train_batch_start(self, *_: Any) -> None:
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self.steps.append([random.random(), float(np.random.rand()), float(torch.rand(()))])
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


class Moves(lightning.Callback):
    """Draws in each step, as transforms of users do."""

    def on_train_batch_end(self, *_: Any) -> None:
        random.random()
        np.random.rand()


def _nothing(*_: Any) -> None:
    """Draws no pictures."""


def weights(run: Path) -> dict[str, torch.Tensor]:
    return plain.read_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]


def same(first: Path, second: Path) -> bool:
    actual, expected = weights(first), weights(second)
    return actual.keys() == expected.keys() and all(torch.equal(actual[name], expected[name]) for name in expected)


# ---- one process


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("ranks") / "out")


@pytest.fixture(autouse=True, scope="module")
def undrawn() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "log_plots", _nothing)
        yield


@pytest.fixture(scope="module")
def undisturbed(out: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[float]]]:
    run, draws = tmp_path_factory.mktemp("undisturbed") / "run", Draws()
    trained(out, run, draws, Moves(), **DROPOUT)
    return run, draws.steps


def _lost() -> None:
    raise LookupError("lost")


@pytest.mark.parametrize(
    ("ending", "step", "lasting"),
    [
        (raising(signal.SIGTERM), 5, 5),
        (raising(signal.SIGTERM), STEPS, STEPS),  # its validation is still to come
        (_lost, STEPS + 1, STEPS),  # between two epochs
    ],
)
def test_a_resumed_run_draws_the_random_numbers_that_were_next(
    out: Path, tmp_path: Path, undisturbed: tuple[Path, list[list[float]]], ending: Any, step: int, lasting: int
) -> None:
    first, resumed = Draws(), Draws()
    with pytest.raises((StoppedTrainingError, LookupError)):
        trained(out, tmp_path / "run", first, Moves(), CallAtHook("on_train_batch_start", step, ending), **DROPOUT)
    random.seed(5)
    np.random.seed(5)
    trained(out, tmp_path / "run", resumed, Moves(), **DROPOUT)
    assert first.steps[:lasting] + resumed.steps == undisturbed[1]
    assert same(tmp_path / "run", undisturbed[0])


@pytest.mark.parametrize("step", [STEPS, STEPS + 1])  # the last of an epoch, which is validated then, and the next
def test_a_run_of_so_many_steps_goes_on_with_the_epoch_that_was_next(out: Path, tmp_path: Path, step: int) -> None:
    whole, expected = trained(out, tmp_path / "whole", steps=20, epochs=3)
    ending = raising(signal.SIGTERM) if step == STEPS else _lost
    with pytest.raises((StoppedTrainingError, LookupError)):
        trained(out, tmp_path / "run", CallAtHook("on_train_batch_start", step, ending), steps=20, epochs=3)
    for _ in range(2):  # killed between two epochs again
        with pytest.raises(LookupError):
            trained(out, tmp_path / "run", CallAtHook("on_train_batch_start", 1, _lost), steps=20, epochs=3)
    result, resumed = trained(out, tmp_path / "run", steps=20, epochs=3)
    assert resumed == expected[STEPS:]
    assert (result.epochs, result.steps, result.images) == (whole.epochs, 20, 2 * 52 + 6 * 8)


def test_a_run_stopped_in_the_validation_of_its_last_steps_is_validated_once_it_goes_on(
    out: Path, tmp_path: Path
) -> None:
    whole, _ = trained(out, tmp_path / "whole", steps=10, epochs=3)
    stop = CallAtHook("on_validation_batch_start", 4, raising(signal.SIGTERM))  # the first epoch has three
    with pytest.raises(StoppedTrainingError):
        trained(out, tmp_path / "run", stop, steps=10, epochs=3)
    result, resumed = trained(out, tmp_path / "run", steps=10, epochs=3)
    assert resumed == []
    assert (result.steps, result.best_step, result.val) == (10, whole.best_step, whole.val)
    assert result.test == whole.test


# ---- two ranks, with a part of the weights each


def on_a_rank(out: str, run: str, name: str, kill: int | None = None, copy: str | None = None, **changes: Any) -> None:
    """A process of a run; `kill`: the step in which the second rank gets SIGKILL. `copy`: a run to go on with there."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if copy is not None:
        shutil.copytree(copy, run)
    draws, seen = Draws(), RecordFaces(Path(f"{run}-{name}-faces{rank}"))
    callbacks: list[Any] = [draws, seen, *([MinutePerStep()] if rank == 0 else [])]
    if kill is not None:
        write_at_once(pytest.MonkeyPatch())
    if kill is not None and rank == 1:
        callbacks.append(CallAtHook("on_train_batch_start", kill, lambda: os.kill(os.getpid(), signal.SIGKILL)))
    plots.log_plots = _nothing  # they take half of such a run's time, and have tests of their own
    try:
        train(out, config(epochs=1, **DROPOUT, **changes), run, callbacks=callbacks)
    except FacefeedError as error:
        print(error)
        os._exit(error.exit_code)
    finally:
        Path(f"{run}-{name}-draws{rank}").write_text(json.dumps(draws.steps))
    threads_before = gloo_threads()
    atexit._run_exitfuncs()  # type: ignore[attr-defined]  # a forked process ends without
    Path(f"{run}-{name}-threads{rank}").write_text(json.dumps([threads_before, gloo_threads()]))


def gloo_threads() -> list[str]:
    """The names of this process's threads that run collective calls."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


class _Writes:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


TWO: dict[str, Any] = {"levers": "fsdp:2,clip:1", "data": {"batch_size": 4}}


@pytest.fixture(scope="module")
def folder(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: whole; killed in its fifth step, and resumed; on one process, in steps as large, and half as large; resumed
    from a malicious file; uneven: of 45 faces, of whose last five the first rank has three.
    """
    path = tmp_path_factory.mktemp("runs")
    evil, run_config = RunFolder(path / "evil"), config(epochs=1, **DROPOUT, **TWO)
    classes = FaceDataModule(out, run_config.data).classes
    with evil.locked(replace(run_config, model=replace(run_config.model, classes=classes)), out, ranks=2):
        torch.save({"state_dict": {}, "loops": _Writes(path / "written")}, evil.checkpoints / "last.ckpt")

    def stage(run: str, name: str, *, ranks: int = 2, **arguments: Any) -> dict[str, Any]:
        kwargs = {"out": str(out), "run": str(path / run), "name": name, **(TWO if ranks == 2 else {}), **arguments}
        return {"run": f"{__file__}:on_a_rank", "ranks": ranks, "arguments": kwargs}

    codes = in_processes(
        stage("whole", "whole"),
        stage("killed", "first", kill=5),
        stage("alone", "rest", ranks=1, copy=str(path / "killed"), levers="clip:1"),
        stage("halved", "rest", ranks=1, copy=str(path / "killed"), levers="clip:1", data=TWO["data"]),
        stage("killed", "rest"),
        stage("evil", "rest"),
        stage("uneven", "whole", levers="ddp:2", data={"batch_size": 4, "frames_per_video": 19, "balance": "none"}),
    )
    assert codes == [[0, 0], [75, -signal.SIGKILL], [0], [0], [0, 0], [2, 2], [0, 0]]
    return path


def draws(folder: Path, run: str, name: str) -> list[list[list[float]]]:
    return [json.loads((folder / f"{run}-{name}-draws{rank}").read_text()) for rank in (0, 1)]


def faces(folder: Path, run: str, name: str, ranks: int = 2) -> list[list[str]]:
    """Of all ranks together, by step."""
    seen = [RecordFaces.read(folder / f"{run}-{name}-faces{rank}") for rank in range(ranks)]
    return [sorted(face for _, step in steps for face in step) for steps in zip(*seen, strict=True)]


@pytest.mark.processes
def test_killed_and_resumed_under_fsdp_the_weights_are_those_of_a_run_that_nothing_disturbed(folder: Path) -> None:
    assert same(folder / "killed", folder / "whole")
    results = [json.loads((folder / run / "result.json").read_text()) for run in ("killed", "whole")]
    assert results[0]["val"] == results[1]["val"]
    assert results[0]["test"] == results[1]["test"]
    checkpoints = sorted((folder / "whole" / "checkpoints").iterdir())
    assert [(path.name, is_sharded(path)) for path in checkpoints] == [("best.ckpt", True), ("last.ckpt", True)]


@pytest.mark.processes
def test_the_weights_of_a_run_under_fsdp_are_evaluated_and_started_from(folder: Path, out: Path) -> None:
    best = folder / "whole" / "checkpoints" / "best.ckpt"
    (evaluation,) = evaluate(best, [out])
    tested = json.loads((folder / "whole" / "result.json").read_text())["test"]
    assert evaluation.metrics["log_loss"] == pytest.approx(tested["test/log_loss"], abs=1e-5)
    model, _ = warm_start(config().model, best)
    stored = plain.read_checkpoint(best)["state_dict"]
    assert all(torch.equal(weight, stored[name]) for name, weight in model.state_dict().items())


@pytest.mark.processes
def test_ranks_draw_other_random_numbers_and_resume_each_its_own(folder: Path) -> None:
    uninterrupted, resumed = draws(folder, "whole", "whole"), draws(folder, "killed", "rest")
    assert all(first != second for first, second in zip(*uninterrupted, strict=True))
    assert resumed == [steps[3:] for steps in uninterrupted]  # the checkpoint is that of the third step


@pytest.mark.processes
def test_a_rank_that_is_done_ends_its_threads_before_the_interpreter_does(folder: Path) -> None:
    """One that freed a tensor later would abort the process, and the job would have failed. That is under DDP."""
    for rank in (0, 1):
        while_training, at_exit = json.loads((folder / f"uneven-whole-threads{rank}").read_text())
        assert while_training
        assert not at_exit


@pytest.mark.processes
def test_one_process_goes_on_with_the_batches_that_two_ranks_left(folder: Path) -> None:
    assert faces(folder, "alone", "rest", ranks=1) == faces(folder, "whole", "whole")[3:]
    assert len(faces(folder, "whole", "whole")) == STEPS


@pytest.mark.processes
def test_one_process_goes_on_in_steps_of_half_the_size_with_each_image_once(folder: Path) -> None:
    remaining = [face for step in faces(folder, "whole", "whole")[3:] for face in step]
    resumed = faces(folder, "halved", "rest", ranks=1)
    assert sorted(face for step in resumed for face in step) == sorted(remaining)
    assert [len(step) for step in resumed] == [4] * 7
    result = json.loads((folder / "halved" / "result.json").read_text())
    assert (result["epochs"], result["steps"], result["images"]) == (1, 3 + 7, 52)
    stored = json.loads((folder / "halved" / "config.json").read_text())
    assert (stored["ranks"], stored["batch_size"]) == (1, 4)


@pytest.mark.processes
def test_images_that_ranks_share_unevenly_are_counted_once(folder: Path) -> None:
    assert [len(step) for step in faces(folder, "uneven", "whole")] == [8] * 5 + [5]
    assert json.loads((folder / "uneven" / "result.json").read_text())["images"] == 45


@pytest.mark.processes
def test_a_malicious_checkpoint_is_refused_on_all_ranks_and_runs_nothing(folder: Path) -> None:
    assert not (folder / "written").exists()


# ---- a run's folder and the ranks of a resume


def begun(run: Path, out: Path, levers: str, size: int, ranks: int) -> tuple[RunFolder, Config]:
    """Returns the folder of a run that has a checkpoint, and the run's settings."""
    folder, initial = RunFolder(run), config(levers=levers, data={"batch_size": size})
    with folder.locked(initial, out, ranks=ranks):
        (folder.checkpoints / "last.ckpt").touch()
    return folder, initial


def resume(
    folder: RunFolder, out: Path, config: Config, levers: str, size: int, ranks: int, *, saves: bool = True
) -> None:
    """Begins a session with other ranks and ends it, after its first checkpoint if it `saves`."""
    other = replace(config, levers=levers, data=replace(config.data, batch_size=size))
    folder.check(other, out)
    with folder.locked(other, out, ranks=ranks):
        if saves:
            folder.record_session(size, ranks)


def test_a_run_goes_on_with_other_ranks_if_each_or_all_together_take_as_many_images(out: Path, tmp_path: Path) -> None:
    as_many = [("ddp:8:1,bf16", 4, 8), ("fsdp:2:2,bf16", 8, 4), ("bf16", 32, 1)]
    fewer = [("ddp:4,bf16", 4, 4), ("bf16", 4, 1), ("ddp:3,bf16", 4, 3)]
    for number, other in enumerate([*as_many, *fewer]):
        folder, initial = begun(tmp_path / str(number), out, "ddp:4:2,bf16", 4, 8)
        resume(folder, out, initial, *other)
    folder, initial = begun(tmp_path / "run", out, "ddp:4:2,bf16", 4, 8)
    for ranks, remedy in (
        (8, r"take data\.batch_size=4, or name"),
        (4, r"take data\.batch_size=8 for steps of as many, or data\.batch_size=4"),
        (3, r"take data\.batch_size=4, or name"),
    ):
        with pytest.raises(RefusedError, match=rf"4 x 8 images .* of 6 x {ranks}; {remedy}"):
            resume(folder, out, initial, f"ddp:{ranks},bf16", 6, ranks)
    with pytest.raises(RefusedError, match=r"levers: bf16 there, zero:2,bf16 here"):
        folder.check(replace(initial, levers="zero:2,bf16"), out)


def test_a_run_under_zero_goes_on_with_as_many_ranks_alone(out: Path, tmp_path: Path) -> None:
    """With a strategy on all GPUs, whose number is no part of the levers."""
    folder, initial = begun(tmp_path / "run", out, "zero:2,bf16", 4, 8)
    resume(folder, out, initial, "zero:2,bf16", 4, 8)
    with pytest.raises(RefusedError, match=r"run: its checkpoint is of 8 ranks under zero:2, .* would be 4; take 8"):
        resume(folder, out, initial, "zero:2,bf16", 4, 4)


def test_batch_size_and_ranks_are_compared_with_those_of_the_session_before(out: Path, tmp_path: Path) -> None:
    folder, initial = begun(tmp_path / "run", out, "bf16", 8, 1)
    resume(folder, out, initial, "ddp:2,bf16", 8, 2)
    with pytest.raises(RefusedError, match=r"its steps are of 8 x 2 images .* of 4 x 2; take data\.batch_size=8, or"):
        resume(folder, out, initial, "ddp:2,bf16", 4, 2)  # as many as in its first session
    resume(folder, out, initial, "bf16", 16, 1)
    resume(folder, out, initial, "ddp:2,bf16", 16, 2)


def test_a_session_that_ended_before_its_first_checkpoint_changes_nothing_for_the_next(
    out: Path, tmp_path: Path
) -> None:
    folder, initial = begun(tmp_path / "run", out, "ddp:2,bf16", 8, 2)
    resume(folder, out, initial, "bf16", 16, 1, saves=False)  # needs more memory than there is
    resume(folder, out, initial, "bf16", 8, 1)


def test_a_run_that_goes_on_records_with_its_first_checkpoint_of_how_many_images_its_steps_are(
    out: Path, tmp_path: Path
) -> None:
    run, file = tmp_path / "run", tmp_path / "run" / "config.json"
    with pytest.raises(LookupError):
        trained(out, run, CallAtHook("on_train_batch_start", 4, _lost))
    begun_on_two = {**json.loads(file.read_text()), "ranks": 2}
    file.write_text(json.dumps(begun_on_two))
    with pytest.raises(LookupError):
        trained(out, run, CallAtHook("on_train_batch_start", 1, _lost))
    assert json.loads(file.read_text()) == begun_on_two
    trained(out, run)
    assert json.loads(file.read_text()) == {**begun_on_two, "ranks": 1, "batch_size": 8}


def test_a_run_that_changed_its_ranks_shows_its_result_to_its_first_command_and_its_last(
    out: Path, tmp_path: Path
) -> None:
    folder, first = begun(tmp_path / "run", out, "ddp:2,bf16", 8, 2)
    last = replace(first, levers="bf16", data=replace(first.data, batch_size=16))
    folder.check(last, out)
    folder.write_result({"config": asdict(last)})
    folder.check(first, out)
    folder.check(last, out)
    for other in (replace(last, levers="ddp:4,bf16"), replace(last, data=first.data), replace(last, epochs=9)):
        with pytest.raises(RefusedError, match="with other settings"):
            folder.check(other, out)


def test_a_run_goes_on_without_levers_that_its_other_ranks_do_not_take(out: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    initial = config(levers="ddp:4,channels_last,sync_batchnorm,clip:1")
    with folder.locked(initial, out, ranks=4):
        (folder.checkpoints / "last.ckpt").touch()
    for levers in ("fsdp:4,sync_batchnorm,clip:1", "channels_last,clip:1", initial.levers):
        folder.check(replace(initial, levers=levers), out)
    for levers in ("ddp:4,sync_batchnorm,clip:1", "fsdp:4,clip:1", "clip:1", "fsdp:4,sync_batchnorm"):
        with pytest.raises(RefusedError, match=r"with other settings \(levers: "):
            folder.check(replace(initial, levers=levers), out)
