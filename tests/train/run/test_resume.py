"""What a user notices of a run that goes on with steps of another size: each image once."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning
import pytest
import torch
from assets_fit import CallAtHook
from assets_train import TRAIN_FACES, Foreign, RecordFaces, SaveEach, classifier, data, small_dataset, trainer
from facefeed.train.levers.accumulate import ShortGroupRescaling
from facefeed.train.run.checkpoint_io import SafeCheckpointIO
from facefeed.train.run.checkpointer import RunCheckpointer
from facefeed.train.run.graceful_stop import GracefulStop
from facefeed.train.run.progress import Progress
from facefeed.train.run.signals import Signals
from facefeed.train.run.throughput import Throughput
from rich.console import Console

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

SIZE = 8


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield small_dataset(tmp_path_factory.mktemp("resume") / "out")
    torch.set_num_threads(threads)


class _SaveEach(SaveEach):
    """Saves after every epoch as well, as `<batches> after.ckpt`."""

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        trainer.save_checkpoint(self.folder / f"{self.batches} after.ckpt")


class _Rates(lightning.Callback):
    """The learning rate of each step."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self.steps.append(trainer.optimizers[0].param_groups[0]["lr"])


class _Groups(lightning.Callback):
    """Of how many batches each step of the optimizer is."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._batches = 0

    def on_after_backward(self, *_: Any) -> None:
        self._batches += 1

    def on_before_optimizer_step(self, *_: Any) -> None:
        self.steps.append(self._batches)
        self._batches = 0


class _Asking(Foreign):
    """Asks for the number of steps before a checkpoint's loops are restored, and keeps its learning rate."""

    def configure_optimizers(self) -> Any:
        assert self.trainer.estimated_stepping_batches > 0
        return torch.optim.AdamW(self.parameters(), 1e-3)


def by_epoch(steps: list[list[Any]]) -> list[tuple[int, str]]:
    return [(epoch, face) for epoch, faces in steps for face in faces]


def lengths(steps: list[list[Any]]) -> list[int]:
    """Steps of each epoch."""
    epochs = [epoch for epoch, _ in steps]
    return [epochs.count(epoch) for epoch in sorted(set(epochs))]


@pytest.fixture(scope="module", params=[{}, {"accumulate_grad_batches": 2}, {"val_check_interval": 2}], ids=str)
def saved(
    request: Any, out: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], RecordFaces]:
    """Checkpoints of every batch of two epochs in steps of 8 images, the Trainer's options, and the images."""
    folder, recorder = tmp_path_factory.mktemp("saved"), RecordFaces()
    trainer(max_epochs=2, callbacks=[recorder, _SaveEach(folder)], **request.param).fit(_Asking(), data(out))
    assert len(by_epoch(recorder.steps)) == 2 * TRAIN_FACES
    return folder, request.param, recorder


@pytest.mark.parametrize("size", [4, 6, 16])
def test_resumed_from_any_batch_with_another_batch_size_each_image_is_seen_once(
    out: Path, saved: tuple[Path, dict[str, Any], RecordFaces], size: int
) -> None:
    folder, options, original = saved
    steps_per_epoch = math.ceil(TRAIN_FACES / size)
    for file in sorted(folder.iterdir()):
        batches_done, resumed = int(file.stem.split()[0]), RecordFaces()
        fit = trainer(max_epochs=2, callbacks=[resumed], **options)
        fit.fit(_Asking(), data(out, batch_size=size), ckpt_path=file)
        images = len(by_epoch(original.steps[:batches_done]))
        assert by_epoch(resumed.steps) == by_epoch(original.steps)[images:], file.name
        epoch, in_epoch = divmod(images, TRAIN_FACES)
        expected = [math.ceil((TRAIN_FACES - in_epoch) / size), *[steps_per_epoch] * (1 - epoch)] if epoch < 2 else []
        assert lengths(resumed.steps) == expected
        assert fit.current_epoch == 2


@pytest.mark.parametrize("size", [4, 8, 16])
def test_it_announces_the_number_of_steps_that_the_run_ends_with(
    out: Path, saved: tuple[Path, dict[str, Any], RecordFaces], size: int
) -> None:
    folder, options, _ = saved
    for batches in (2, 4, 6):
        output = io.StringIO()
        progress = Progress(Console(file=output, soft_wrap=True), Throughput(), "run")
        fit = trainer(max_epochs=2, callbacks=[progress], **options)
        fit.fit(_Asking(), data(out, batch_size=size), ckpt_path=folder / f"{batches}.ckpt")
        done = batches // options.get("accumulate_grad_batches", 1)
        assert f"run: resumes after step {done} of {fit.global_step}\n" in output.getvalue()


@pytest.mark.parametrize(
    ("step", "steps_per_epoch", "epoch", "expected"),
    [(1200, 150, 4, 2000), (500, 200, 5, 1500)],
    ids=["twice the ranks, ended by its steps", "half the ranks, ended by its epochs"],
)
def test_of_a_run_with_both_limits_it_announces_the_one_that_ends_it(
    step: int, steps_per_epoch: int, epoch: int, expected: int
) -> None:
    output = io.StringIO()
    progress = Progress(Console(file=output, soft_wrap=True), Throughput(), "run")
    fit = SimpleNamespace(
        max_epochs=10, max_steps=2000, global_step=step, accumulate_grad_batches=1,
        num_training_batches=steps_per_epoch, datamodule=SimpleNamespace(position=(epoch, 0)),
    )  # fmt: skip
    progress.on_train_start(fit, None)
    assert output.getvalue() == f"run: resumes after step {step:,} of {expected:,}\n"


@pytest.mark.parametrize("size", [SIZE, 4])
def test_a_fit_of_so_many_steps_goes_on_with_the_next_epoch_after_one_that_is_saved_at_its_end(
    out: Path, tmp_path: Path, size: int
) -> None:
    original, resumed = RecordFaces(), RecordFaces()
    trainer(max_epochs=2, max_steps=100, callbacks=[original, _SaveEach(tmp_path)]).fit(_Asking(), data(out))
    fit = trainer(max_epochs=2, max_steps=100, callbacks=[resumed])
    fit.fit(_Asking(), data(out, batch_size=size), ckpt_path=tmp_path / f"{math.ceil(TRAIN_FACES / SIZE)} after.ckpt")
    assert by_epoch(resumed.steps) == by_epoch(original.steps)[TRAIN_FACES:]
    assert fit.current_epoch == 2


def test_a_checkpoint_of_the_new_size_goes_on_as_any_other(out: Path, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    trainer(max_epochs=1, callbacks=[_SaveEach(tmp_path / "first")]).fit(_Asking(), data(out))
    original = RecordFaces()
    fit = trainer(max_epochs=1, callbacks=[original, _SaveEach(tmp_path)])
    fit.fit(_Asking(), data(out, batch_size=4), ckpt_path=tmp_path / "first" / "3.ckpt")
    assert lengths(original.steps) == [7]
    resumed = RecordFaces()
    trainer(max_epochs=1, callbacks=[resumed]).fit(_Asking(), data(out, batch_size=4), ckpt_path=tmp_path / "2.ckpt")
    assert resumed.steps == original.steps[2:]


@pytest.mark.parametrize("size", [4, 16])
def test_a_run_that_ends_at_a_number_of_steps_comes_to_the_end_of_its_schedule(
    out: Path, tmp_path: Path, size: int
) -> None:
    options: dict[str, Any] = {"learning_rate": 0.1, "warmup_steps": 0, "schedule": "linear"}
    resumed = _Rates()
    trainer(max_steps=8, max_epochs=-1, callbacks=[_SaveEach(tmp_path)]).fit(classifier(**options), data(out))
    trainer(max_steps=8, max_epochs=-1, callbacks=[resumed]).fit(
        classifier(**options), data(out, batch_size=size), ckpt_path=tmp_path / "4.ckpt"
    )
    assert resumed.steps == pytest.approx([0.1 * (8 - step) / 8 for step in range(4, 8)])


LINEAR: dict[str, Any] = {"learning_rate": 0.1, "warmup_steps": 0, "schedule": "linear"}


def _rates(out: Path, size: int, folder: Path, checkpoint: Path | None = None, **limits: int) -> list[float]:
    """The learning rates of a fit in steps of `size` images, whose checkpoints of each batch are then in `folder`."""
    folder.mkdir()
    rates = _Rates()
    fit = trainer(**limits, limit_val_batches=0, callbacks=[rates, _SaveEach(folder)])
    fit.fit(classifier(**LINEAR), data(out, batch_size=size), ckpt_path=checkpoint)
    return rates.steps


def test_with_both_limits_the_learning_rate_goes_by_the_one_that_ends_the_resumed_run(
    out: Path, tmp_path: Path
) -> None:
    limits = {"max_epochs": 3, "max_steps": 20}
    expected = _rates(out, 8, tmp_path / "expected", max_epochs=3)
    _rates(out, 16, tmp_path / "16", **limits)  # 4 steps an epoch
    smaller = _rates(out, 8, tmp_path / "8", tmp_path / "16" / "8 after.ckpt", **limits)
    assert smaller == pytest.approx(expected[14:])  # the third epoch ends it, though three epochs are 21 steps
    later = _rates(out, 8, tmp_path / "8 again", tmp_path / "8" / "3.ckpt", **limits)
    assert later == pytest.approx(expected[17:])
    by_steps = _rates(out, 2, tmp_path / "2", tmp_path / "8" / "3.ckpt", **limits)
    assert by_steps == pytest.approx([0.1 * (20 - step) / 20 for step in range(11, 20)])


def test_with_both_limits_a_run_that_its_steps_end_keeps_its_schedule_in_larger_steps_too(
    out: Path, tmp_path: Path
) -> None:
    limits = {"max_epochs": 3, "max_steps": 15}
    expected = _rates(out, 8, tmp_path / "8", **limits)
    larger = _rates(out, 16, tmp_path / "16", tmp_path / "8" / "14.ckpt", **limits)  # of which 3 epochs are 12 steps
    assert larger == pytest.approx(expected[14:])


@pytest.mark.parametrize("size", [4, 16])
def test_the_learning_rate_is_that_of_a_run_of_the_new_size_at_that_image(out: Path, tmp_path: Path, size: int) -> None:
    options: dict[str, Any] = {"learning_rate": 0.1, "warmup_steps": 4, "schedule": "linear"}
    expected, resumed = _Rates(), _Rates()
    trainer(max_epochs=2, callbacks=[expected]).fit(classifier(**options), data(out, batch_size=size))
    trainer(max_epochs=1, callbacks=[_SaveEach(tmp_path)]).fit(classifier(**options), data(out))
    callbacks = [resumed, _SaveEach(tmp_path)]
    trainer(max_epochs=2, callbacks=callbacks).fit(
        classifier(**options), data(out, batch_size=size), ckpt_path=tmp_path / "4.ckpt"
    )
    steps_done = 4 * SIZE // size
    assert resumed.steps == pytest.approx(expected.steps[steps_done:])
    later = _Rates()
    trainer(max_epochs=2, callbacks=[later]).fit(
        classifier(**options), data(out, batch_size=size), ckpt_path=tmp_path / "3.ckpt"
    )
    assert later.steps == pytest.approx(expected.steps[steps_done + 3 :])


def test_killed_after_the_validation_that_a_resume_repeats_the_learning_rate_still_is_that_of_the_new_size(
    out: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"learning_rate": 0.1, "warmup_steps": 0, "schedule": "linear"}
    expected, resumed = _Rates(), _Rates()
    trainer(max_epochs=2, callbacks=[expected]).fit(classifier(**options), data(out, batch_size=4))
    last = tmp_path / "last.ckpt"

    def run(callback: lightning.Callback, size: int) -> None:
        with Signals() as signals:
            stop = GracefulStop(signals, tmp_path, save_every_minutes=60)
            saving = RunCheckpointer(tmp_path, stop, metric="val/loss", mode="min", seed=0)
            with saving.writing():
                fit = trainer(max_epochs=2, enable_checkpointing=True, callbacks=[callback, stop, saving])
                fit.strategy.checkpoint_io = SafeCheckpointIO()
                fit.fit(classifier(**options), data(out, batch_size=size), ckpt_path=last if last.exists() else None)

    for hook, size in (("on_validation_start", SIZE), ("on_train_batch_start", 4)):
        with pytest.raises(LookupError):
            run(CallAtHook(hook, 1, _killed), size)
    run(resumed, 4)
    assert resumed.steps == pytest.approx(expected.steps[math.ceil(TRAIN_FACES / 4) :])


def _killed() -> None:
    raise LookupError("killed")


def test_a_warning_says_that_steps_are_of_another_size(out: Path, tmp_path: Path) -> None:
    trainer(max_epochs=1, callbacks=[_SaveEach(tmp_path)]).fit(_Asking(), data(out))
    with pytest.warns(UserWarning, match="global_batch=4: the checkpoint is of 8 images a step; training continues at"):
        trainer(max_epochs=1).fit(_Asking(), data(out, batch_size=4), ckpt_path=tmp_path / "2.ckpt")


@pytest.mark.parametrize(
    ("before", "batches", "size", "group", "groups"),
    [
        (2, 2, SIZE, 4, [2, 3]),
        (2, 4, SIZE, 4, [3]),
        (2, 6, SIZE, 4, [1]),
        (4, 4, SIZE, 2, [2, 1]),
        (4, 4, 2 * SIZE, 4, [2]),
        (4, 4, SIZE // 2, 4, [4, 1]),
    ],
)
def test_groups_of_another_size_begin_where_the_epoch_did_so_the_first_may_have_fewer_batches(
    out: Path, tmp_path: Path, before: int, batches: int, size: int, group: int, groups: list[int]
) -> None:
    trainer(max_epochs=1, accumulate_grad_batches=before, callbacks=[SaveEach(tmp_path)]).fit(_Asking(), data(out))
    resumed = _Groups()
    fit = trainer(max_epochs=1, accumulate_grad_batches=group, callbacks=[resumed, ShortGroupRescaling(group)])
    fit.fit(_Asking(), data(out, batch_size=size), ckpt_path=tmp_path / f"{batches}.ckpt")
    assert resumed.steps == groups


def test_a_first_group_of_fewer_batches_is_averaged_over_those(out: Path, tmp_path: Path) -> None:
    trainer(max_epochs=1, accumulate_grad_batches=2, callbacks=[SaveEach(tmp_path)]).fit(_Asking(), data(out))
    before = torch.load(tmp_path / "2.ckpt", weights_only=True)["state_dict"]
    weights = []
    for group in (2, 4):
        model = _Asking()
        fit = trainer(max_epochs=1, max_steps=2, accumulate_grad_batches=group, callbacks=[ShortGroupRescaling(group)])
        fit.fit(model, data(out), ckpt_path=tmp_path / "2.ckpt")
        weights.append(model.state_dict())
    assert not torch.equal(weights[0]["head.weight"], before["head.weight"])
    assert all(map(torch.equal, *(state.values() for state in weights)))


@pytest.mark.parametrize("batches", [3, 4, 5])
def test_in_mid_group_the_learning_rate_is_that_of_the_group(out: Path, tmp_path: Path, batches: int) -> None:
    options: dict[str, Any] = {"learning_rate": 0.1, "warmup_steps": 0, "schedule": "linear"}
    trainer(max_epochs=1, callbacks=[SaveEach(tmp_path)]).fit(classifier(**options), data(out))
    expected, resumed = _Rates(), _Rates()
    trainer(max_epochs=2, accumulate_grad_batches=4, callbacks=[expected]).fit(
        classifier(**options), data(out, batch_size=SIZE // 2)
    )
    trainer(max_epochs=2, accumulate_grad_batches=4, callbacks=[resumed]).fit(
        classifier(**options), data(out, batch_size=SIZE // 2), ckpt_path=tmp_path / f"{batches}.ckpt"
    )
    assert resumed.steps == pytest.approx(expected.steps[2 * batches :])
