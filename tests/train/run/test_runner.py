"""What a user notices of a run: it learns, its folder holds everything, and what cannot be done is refused."""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import json
import math
import os
import re
import resource
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import albumentations
import lightning
import pytest
import torch
from assets_dataset import Clip, make_dataset
from assets_fit import STEPS, CallAtHook, config, trained
from assets_train import TEST_FACES, TRAIN_FACES, UNITS, VAL_FACES, small_dataset
from facefeed.loaders import FaceDataset
from facefeed.pipeline.console import printable
from facefeed.pipeline.errors import FacefeedError, RefusedError, StoppedError, UsageError
from facefeed.pipeline.lock import hold_lock
from facefeed.train.checkpoints import plain
from facefeed.train.checkpoints.publication import find_checkpoint, publish
from facefeed.train.evaluate import evaluate
from facefeed.train.levers import LeverError
from facefeed.train.model.face_classifier import FaceClassifier, validation_metrics
from facefeed.train.run import checkpointer
from facefeed.train.run.folder import RunFolder
from facefeed.train.run.result import Result
from facefeed.train.run.runner import train
from facefeed.train.run.tables import show_result
from lightning.pytorch.callbacks import EMAWeightAveraging
from rich.console import Console

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("fit") / "out")


class Losses(lightning.Callback):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]))


LOSSES = Losses()


@pytest.fixture(scope="module")
def finished_run(out: Path, tmp_path_factory: pytest.TempPathFactory, draw: Callable[..., None]) -> tuple[Result, Path]:
    """A finished run of five epochs, with its pictures."""
    run = tmp_path_factory.mktemp("done") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("facefeed.train.metrics.plots.log_plots", draw)
        return trained(out, run, LOSSES, epochs=5, model={"learning_rate": 3e-4})[0], run


def finite(run: Path) -> bool:
    state = plain.read_checkpoint(run / "checkpoints" / "last.ckpt")["state_dict"]
    return all(bool(tensor.isfinite().all()) for tensor in state.values())


# ---- a run that comes to its end


def test_the_loss_falls_and_both_logs_and_both_checkpoints_are_there(finished_run: tuple[Result, Path]) -> None:
    run = finished_run[1]
    (log,) = run.glob("logs/csv/version_0/metrics.csv")
    rows = list(csv.DictReader(log.open()))
    assert len(LOSSES.losses) == 5 * STEPS
    assert sum(LOSSES.losses[-STEPS:]) < sum(LOSSES.losses[:STEPS]) / 4
    logged = [float(row["train/loss"]) for row in rows if row["train/loss"]]
    assert logged == pytest.approx(LOSSES.losses[9::10])
    assert [row["val/auc"] != "" for row in rows].count(True) == 5
    assert any(row["starvation/stall"] for row in rows)
    assert list(run.glob("logs/events.out.tfevents.*"))
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}
    assert {"val_roc.png", "test_confusion.png"} <= {path.name for path in (run / "logs").iterdir()}


def test_the_result_says_what_was_done_and_how_well_it_does(finished_run: tuple[Result, Path]) -> None:
    result, run = finished_run
    assert (result.epochs, result.steps, result.images) == (5, 5 * STEPS, 5 * TRAIN_FACES)
    assert (result.val_faces, result.val_videos, result.test_faces, result.test_videos) == (VAL_FACES, 3, TEST_FACES, 2)
    assert result.images_per_second is not None
    assert result.images_per_second > 0
    assert result.stall is not None
    assert 0 <= result.stall < 1
    assert result.memory["host_bytes"] is not None
    assert result.lever_metrics["finite"]["nonfinite_steps"] == 0
    assert {"val/auc", "val/video_auc", "val/log_loss", "val/accuracy_method_swap"} <= result.val.keys()
    assert validation_metrics(FaceDataset(result.dataset, split="val")) == list(result.val)
    assert {"test/auc", "test/accuracy", "test/accuracy_real"} <= result.test.keys()
    assert json.loads((run / "result.json").read_text()) == json.loads(json.dumps(asdict(result)))


def test_the_best_checkpoint_is_that_of_the_lowest_loss_in_validation(finished_run: tuple[Result, Path]) -> None:
    result, run = finished_run
    rows = list(csv.DictReader((run / "logs/csv/version_0/metrics.csv").open()))
    losses = [float(row["val/loss"]) for row in rows if row["val/loss"]]
    assert result.val["val/loss"] == pytest.approx(min(losses))
    assert result.best_step == STEPS * (losses.index(min(losses)) + 1)
    assert result.checkpoint == str(run / "checkpoints" / "best.ckpt")
    assert plain.read_checkpoint(result.checkpoint)["global_step"] == result.best_step


@pytest.mark.gpu
@pytest.mark.parametrize("steps", [None, 10])  # 10: within an epoch
@pytest.mark.parametrize(
    "text", ["", "bf16", "zero:1", "zero:2,bf16", "zero:3", "zero:3,fp16,clip:1", "zero:3:offload"]
)
def test_a_run_on_a_gpu_is_validated_and_its_best_weights_are_tested(
    text: str, steps: int | None, out: Path, tmp_path: Path
) -> None:
    result, seen = trained(out, tmp_path / "run", levers=text, steps=steps)
    assert len(seen) == result.steps == (steps or 2 * STEPS)
    assert 0 < result.val["val/loss"] < 10
    assert result.test_faces == TEST_FACES
    assert 0 < result.test["test/loss"] < 10


def test_with_averaged_weights_the_test_is_of_the_weights_in_the_best_checkpoint(out: Path, tmp_path: Path) -> None:
    result, _ = trained(out, tmp_path / "run", EMAWeightAveraging(decay=0.8))
    for split, metrics in (("val", result.val), ("test", result.test)):
        (evaluation,) = evaluate(result.checkpoint, [out], split=split, num_workers=0)
        assert metrics[f"{split}/log_loss"] == pytest.approx(evaluation.metrics["log_loss"], rel=1e-6)


def test_a_finished_run_is_not_trained_again(out: Path, finished_run: tuple[Result, Path]) -> None:
    result, seen = trained(out, finished_run[1], epochs=5, model={"learning_rate": 3e-4})
    assert seen == []
    assert asdict(result) == json.loads((finished_run[1] / "result.json").read_text())


def test_a_result_that_0_1_0_wrote_is_read(finished_run: tuple[Result, Path]) -> None:
    stored = asdict(finished_run[0])
    stored["told"] = stored.pop("lever_metrics")
    assert Result.read(stored) == finished_run[0]


@pytest.mark.parametrize("name", ["a\u00a0b", "\u3000", "\u200c", "\x1b[2J", "[red]"])
def test_a_finished_run_shows_its_table_again_whatever_its_methods_are_called(
    finished_run: tuple[Result, Path], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    metrics = {f"{split}/accuracy_method_{name}": 0.5 for split in ("val", "test")}
    show_result(Result.read(asdict(finished_run[0]) | {"val": metrics, "test": metrics}))
    shown = capsys.readouterr().err
    assert f"accuracy of method {printable(name)} " in shown
    assert "\x1b" not in shown


def test_a_run_whose_packaged_pipeline_another_version_has_changed_says_so_until_it_has_the_file(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from facefeed.loaders.augment import pipeline_file  # noqa: PLC0415 (takes half a second)

    run, options = tmp_path / "run", {"transform": "example.yaml"}
    trained(out, run, steps=1, data=options)
    stored = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**stored, "facefeed": "0.1.9"}))
    packaged, later = pipeline_file._PACKAGE / "example.yaml", tmp_path / "later"
    later.mkdir()
    (later / "example.yaml").write_bytes(packaged.read_bytes().replace(b"p: 0.5", b"p: 0.25"))
    monkeypatch.setattr(pipeline_file, "_PACKAGE", later)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        RefusedError,
        match=r"example\.yaml, which comes with facefeed, has other contents than in version 0\.1\.9, with which the "
        "run began: install that version, or put its file into the working folder",
    ):
        train(out, config(steps=1, data=options), run)
    (tmp_path / "example.yaml").write_bytes(packaged.read_bytes())
    train(out, config(steps=1, data=options), run)


@pytest.mark.parametrize("name", ["transform", "eval_transform"])
def test_a_run_is_refused_with_a_pipeline_edited_since_until_its_file_is_restored(
    out: Path, tmp_path: Path, name: str
) -> None:
    file, run = tmp_path / "flip.yaml", tmp_path / "run"
    albumentations.save(albumentations.Compose([albumentations.HorizontalFlip()]), str(file), data_format="yaml")
    contents, options = file.read_bytes(), {name: str(file)}
    edited = contents.replace(b"p: 0.5", b"p: 0.25")
    trained(out, run, steps=1, data=options)
    file.write_bytes(edited)
    for finished in (True, False):
        if not finished:
            (run / "result.json").unlink()
        with pytest.raises(
            RefusedError, match=rf"data\.{name}: \S+flip\.yaml has other contents than when .* files, or"
        ):
            train(out, config(steps=1, data=options), run)
    folder = RunFolder(run)
    file.write_bytes(contents + b"# a comment changes nothing\n")
    folder.check(config(steps=1, data=options), out)
    file.write_bytes(edited)
    stored = json.loads((run / "config.json").read_text())
    del stored["pipelines"]  # as a version before wrote it
    (run / "config.json").write_text(json.dumps(stored))
    folder.check(config(steps=1, data=options), out)


def test_a_finished_run_shows_its_table_again_without_the_file_of_its_pipeline(out: Path, tmp_path: Path) -> None:
    file = tmp_path / "flip.yaml"
    albumentations.save(albumentations.Compose([albumentations.HorizontalFlip()]), str(file), data_format="yaml")
    result, _ = trained(out, tmp_path / "run", steps=1, data={"transform": str(file)})
    file.unlink()
    again, seen = trained(out, tmp_path / "run", steps=1, data={"transform": str(file)})
    assert (again.test, seen) == (result.test, [])


def test_the_config_in_the_folder_is_whole(out: Path, finished_run: tuple[Result, Path]) -> None:
    stored = json.loads((finished_run[1] / "config.json").read_text())
    assert stored["config"] == json.loads(json.dumps(asdict(config(epochs=5, model={"learning_rate": 3e-4}))))
    assert stored["dataset"]["path"] == str(out)
    assert len(stored["dataset"]["fingerprint"]) > 8


def test_of_a_run_that_ends_in_mid_epoch_the_last_weights_are_measured(out: Path, tmp_path: Path) -> None:
    result, seen = trained(out, tmp_path / "run", steps=STEPS + 2)
    assert (result.steps, len(seen)) == (STEPS + 2, STEPS + 2)
    assert result.best_step in (STEPS, STEPS + 2)
    assert (result.val_faces, result.test_faces) == (VAL_FACES, TEST_FACES)
    short, _ = trained(out, tmp_path / "short", steps=2)
    assert (short.best_step, short.val_faces) == (2, VAL_FACES)


def test_a_run_that_its_epochs_end_before_its_steps_has_a_stall(out: Path, tmp_path: Path) -> None:
    assert trained(out, tmp_path / "run", epochs=3, steps=100_000)[0].stall is not None


def test_a_finished_run_that_was_moved_is_reported_where_it_is(out: Path, tmp_path: Path) -> None:
    trained(out, tmp_path / "before", epochs=1)
    (tmp_path / "before").rename(tmp_path / "now")
    moved, _ = trained(out, tmp_path / "now", epochs=1)
    assert moved.run == str(tmp_path / "now")
    assert Path(moved.checkpoint).parent == tmp_path / "now/checkpoints"
    assert Path(moved.checkpoint).is_file()


def test_an_epoch_that_the_last_step_cuts_does_not_count_as_done(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for steps, epochs in ((2, 0), (STEPS, 1), (STEPS + 2, 1)):
        result, _ = trained(out, run / str(steps), steps=steps)
        assert (result.epochs, result.steps) == (epochs, steps)
    (run / "2/result.json").unlink()  # as a run killed before its test
    assert trained(out, run / "2", steps=2)[0].epochs == 0


def test_without_a_validation_split_the_last_weights_are_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    make_dataset(out, (UNITS[0],))
    result, _ = trained(out, tmp_path / "run", epochs=1)
    assert result.checkpoint == str(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert (result.val, result.test, result.best_step) == ({}, {}, STEPS)
    show_result(result)
    shown = capsys.readouterr().err
    assert f"the last weights, of step {STEPS}" in shown
    assert "best" not in shown
    assert "AUC over" not in shown, "there is none"


def test_the_best_lever_says_by_what_the_best_is_chosen(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result, _ = trained(out, run, epochs=3, levers="best:val/accuracy")
    rows = list(csv.DictReader((run / "logs/csv/version_0/metrics.csv").open()))
    accuracies = [float(row["val/accuracy"]) for row in rows if row["val/accuracy"]]
    assert result.val["val/accuracy"] == pytest.approx(max(accuracies))
    assert result.best_step == STEPS * (accuracies.index(max(accuracies)) + 1)


def test_what_is_frozen_is_in_the_result_and_does_not_learn(out: Path, tmp_path: Path) -> None:
    result, _ = trained(out, tmp_path / "run", epochs=1, levers="freeze:backbone.net.conv_stem")
    (row,) = result.frozen
    assert (row["name"], row["tensors"]) == ("backbone.net.conv_stem", 1)
    torch.manual_seed(0)
    drawn = FaceClassifier(config().model).state_dict()
    learned = plain.read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["state_dict"]
    same = {name for name in learned if torch.equal(learned[name], drawn[name])}
    assert "backbone.net.conv_stem.weight" in same
    assert "backbone.net.classifier.weight" not in same


@pytest.mark.parametrize("hook", ["on_train_end", "on_test_start"])
def test_a_run_that_stopped_early_stays_stopped(out: Path, tmp_path: Path, hook: str) -> None:
    run, levers = tmp_path / "run", "early_stop:val/loss:1"
    changes: dict[str, Any] = {"levers": levers, "epochs": 6, "model": {"learning_rate": 1e-9}}
    with pytest.raises(LookupError):  # between the end of the last epoch and that of the test
        trained(out, run, CallAtHook(hook, 1, _lost), **changes)
    result, seen = trained(out, run, **changes)
    assert seen == []
    assert result.epochs < 6


def _lost() -> None:
    raise LookupError("the test was lost")


# ---- settings


def test_other_settings_or_faces_are_another_run(out: Path, finished_run: tuple[Result, Path], tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"model.learning_rate: 0.0003 there, 0.001 here; epochs: 5 there, 2 here"):
        train(out, config(), finished_run[1])
    make_dataset(tmp_path / "other", (("train", (Clip("real/zoe.mp4", 9), Clip("fake/zoe-swap.mp4", 9))),))
    with pytest.raises(RefusedError, match=r"the dataset: .*out there, .*other here, with other faces"):
        train(tmp_path / "other", config(epochs=5, model={"learning_rate": 3e-4}), finished_run[1])


def test_what_the_result_does_not_depend_on_may_change(
    out: Path, finished_run: tuple[Result, Path], tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(out)
    free: dict[str, Any] = {"recipe": "renamed", "save_every_minutes": 50, "data": {"num_workers": 1}}
    result, _ = trained(tmp_path / "link", finished_run[1], epochs=5, model={"learning_rate": 3e-4}, **free)
    assert result.steps == 5 * STEPS


def test_levers_that_cannot_work_are_refused_before_anything_is_written(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fp16: a CPU has no scaled fp16"):
        train(out, config(levers="fp16"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_where_the_levers_of_a_run_do_not_work_it_is_not_advised_to_take_others(out: Path, tmp_path: Path) -> None:
    folder, of_a_gpu = RunFolder(tmp_path / "run"), config(levers="fp16")
    with folder.locked(of_a_gpu, out, ranks=1):
        (folder.checkpoints / "last.ckpt").touch()
    with pytest.raises(LeverError, match=r"a CPU has no scaled fp16 .*\n.*run: .* levers stay, .*; continue it on"):
        train(out, of_a_gpu, folder.root)


def test_two_metrics_for_one_best_checkpoint_are_refused_before_anything_is_written(out: Path, tmp_path: Path) -> None:
    with pytest.raises(LeverError, match=r"best:val/auc and best:val/loss: both are levers of one kind \(best\)"):
        train(out, config(levers="best:val/auc,best:val/loss"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- folders and files


def test_a_folder_with_something_else_in_it_is_left_alone(out: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RefusedError, match=r"holds files, but no config\.json, so no run of facefeed train"):
        train(out, config(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_that_was_killed_while_it_wrote_its_config_begins_anew(out: Path, tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "config.json.5c1f").write_text('{"version": ')
    result, _ = trained(out, tmp_path, steps=1)
    assert result.steps == 1


def _refuse() -> None:
    raise UsageError("refused in its first steps")


def test_a_command_that_is_refused_in_its_first_steps_leaves_nothing_but_what_was_there(
    out: Path, tmp_path: Path
) -> None:
    run, refusing = tmp_path / "run", {"epochs": 1, "model": {"learning_rate": 0.01}}
    with pytest.raises(UsageError, match="refused in"):
        trained(out, run, CallAtHook("on_fit_start", 1, _refuse), **refusing)
    assert not run.exists()
    trained(out, run, epochs=1)
    for name in ("result.json", "checkpoints/last.ckpt"):
        (run / name).unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    assert run / "checkpoints" / "best.ckpt" in before
    with pytest.raises(UsageError, match="refused in"):
        trained(out, run, CallAtHook("on_fit_start", 1, _refuse), **refusing)
    assert {path: path.read_bytes() for path in before} == before


def test_the_best_weights_of_an_earlier_run_do_not_pass_for_those_of_one_begun_anew_in_its_folder(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    trained(out, run, epochs=1)
    best = run / "checkpoints" / "best.ckpt"
    for name in ("result.json", "checkpoints/last.ckpt"):
        (run / name).unlink()
    with pytest.raises(LookupError):  # before its first checkpoint
        trained(out, run, CallAtHook("on_train_batch_start", 2, _lost))
    assert best.exists()
    monkeypatch.setattr(checkpointer, "logged_metrics", lambda *_: {"val/loss": math.nan})
    result, _ = trained(out, run, epochs=1)
    assert result.checkpoint.endswith("last.ckpt")
    assert not best.exists()


@pytest.mark.parametrize("text", ["{}", "not json", '{"version": 9, "config": {}, "dataset": {"fingerprint": ""}}'])
def test_a_config_of_something_else_is_refused(out: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FacefeedError, match=r"config\.json: is none of facefeed train's"):
        train(out, config(), tmp_path)


def test_a_batch_that_cannot_hold_the_classes_is_refused_before_a_network_is_made(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facefeed.train.run.runner.FaceClassifier", lambda *_: pytest.fail("a network was made"))
    with pytest.raises(UsageError, match=r"data\.batch_size=7: cannot hold .* of 2; take --set data\.batch_size=6"):
        train(out, config(data={"batch_size": 7}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_where_nothing_can_be_written_it_says_so(out: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--run .*file/run: cannot be written .*; name a folder that can"):
        train(out, config(), tmp_path / "file" / "run")


@pytest.mark.parametrize("name", ["make_folder", "hold_lock", "find_checkpoint", "RunFolder.read_result"])
@pytest.mark.parametrize(
    ("error", "remedy"), [(errno.ENOSPC, "make room"), (errno.EIO, "fix that"), (errno.ESTALE, "fix that")]
)
def test_a_disk_that_is_full_or_fails_is_no_mistake_of_the_user(
    name: str, error: int, remedy: str, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(f"facefeed.train.run.folder.{name}", fail)
    with pytest.raises(
        StoppedError, match=rf"run: {os.strerror(error)}; finished work is kept; {remedy} and run the same command"
    ):
        train(out, config(), tmp_path / "run")


def test_two_do_not_train_in_one_folder(out: Path, tmp_path: Path) -> None:
    with (
        hold_lock(tmp_path / ".lock", work="facefeed train"),
        pytest.raises(RefusedError, match=f"process {os.getpid()} "),
    ):
        train(out, config(), tmp_path)


def without_locks(*_: Any) -> None:
    raise OSError(errno.ENOSYS, "as Lustre says without its option flock")


def test_a_file_system_without_locks_can_be_trained_on(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", without_locks)
    result, _ = trained(out, tmp_path / "run", steps=1)
    assert result.steps == 1


def test_without_locks_a_heartbeat_keeps_others_out(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", without_locks)
    with (
        hold_lock(tmp_path / ".lock", work="facefeed train"),
        pytest.raises(RefusedError, match=f"process {os.getpid()} "),
    ):
        train(out, config(), tmp_path)


def test_a_run_that_was_killed_on_another_host_is_waited_for_and_then_taken_over(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / ".lock"
    lock.write_text(json.dumps({"host": "node17", "pid": 4711, "since": "2026-01-01T00:00:00+00:00"}))
    now = lock.stat().st_mtime + 20
    slept: list[float] = []
    clock = SimpleNamespace(time=lambda: now + sum(slept), monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr("facefeed.pipeline.lock.time", clock)
    with RunFolder(tmp_path).locked(config(), out, ranks=1):
        assert json.loads(lock.read_text())["pid"] == os.getpid()
    assert "process 4711 on node17" in capsys.readouterr().err
    assert 40 <= sum(slept) <= 45


@pytest.mark.parametrize("looks", ["check", "begun_levers", "locked"])
def test_a_folder_on_a_mount_that_fails_is_named_and_the_same_command_resumes(
    looks: str, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bool:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    def look() -> None:
        folder = RunFolder(tmp_path)
        if looks == "check":
            folder.check(config(), out)
        elif looks == "begun_levers":
            assert folder.begun_levers is None
        else:
            with folder.locked(config(), out, ranks=1):
                pass

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", fail)
        with pytest.raises(StoppedError, match=rf"^{tmp_path}/.*: Stale file handle; .* run the same command again$"):
            look()
    look()


def test_a_rank_that_starts_late_leaves_the_folder_to_the_first(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints").mkdir()  # a folder without config.json, which the first rank refuses
    refused = config(levers="best:val/nope")  # by what comes after the look at the folder
    with pytest.raises(RefusedError):
        train(out, refused, tmp_path)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(LeverError):
        train(out, refused, tmp_path)


def test_of_a_finished_run_other_ranks_have_nothing_to_tell(
    out: Path, finished_run: tuple[Result, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    assert train(out, config(epochs=5, model={"learning_rate": 3e-4}), finished_run[1]) is None


def test_on_a_full_disk_it_stops_and_the_checkpoint_before_is_whole(out: Path, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    fill = CallAtHook(
        "on_train_batch_start", 5, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    )
    try:
        with pytest.raises(
            StoppedError, match=r"\.last\.ckpt: File too large; the last checkpoint is complete"
        ) as caught:
            trained(out, tmp_path / "run", fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.exit_code == 75
    result, seen = trained(out, tmp_path / "run")
    assert len(seen) == 2 * STEPS - 3
    assert result.steps == 2 * STEPS


def test_a_checkpoint_that_would_run_code_is_refused_and_does_not(out: Path, tmp_path: Path) -> None:
    run, written = tmp_path / "run", tmp_path / "written"
    with pytest.raises(LookupError):
        trained(out, run, CallAtHook("on_train_batch_start", 4, _lost))
    torch.save({"state_dict": {}, "loops": _Writes(written)}, run / "checkpoints" / "last.ckpt")
    with pytest.raises(UsageError, match=r"last\.ckpt: asks for \w+\.mkdir to be run, .*refused"):
        trained(out, run)
    assert not written.exists()


class _Writes:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_of_many_files_takes_its_name_whole_too(tmp_path: Path) -> None:
    def write(path: Path, text: str) -> None:
        path.mkdir()
        (path / "part").write_text(text)

    hidden, last = tmp_path / ".last.ckpt", tmp_path / "last.ckpt"
    for text in ("one", "two"):
        write(hidden, text)
        publish(hidden, last)
        assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]
        assert (last / "part").read_text() == text
    assert find_checkpoint(tmp_path / "best.ckpt") is None


# ---- numbers


def test_losses_that_are_no_numbers_end_the_run_with_a_sentence_and_are_not_saved(out: Path, tmp_path: Path) -> None:
    from facefeed.train.levers import NonFiniteError  # noqa: PLC0415

    def poison(trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == 4:
            next(pl_module.parameters()).data.fill_(float("nan"))

    poisoned = CallAtHook("on_train_batch_start", 99, _lost)
    poisoned.on_train_batch_start = poison  # type: ignore[method-assign]
    with pytest.raises(NonFiniteError, match=r"NaN or infinite in 1\d steps in a row, from step 4 on") as caught:
        trained(out, tmp_path / "run", poisoned, epochs=3)
    assert caught.value.exit_code == 1
    assert finite(tmp_path / "run")
    assert plain.read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] == 3


# ---- how it shows itself


def test_in_a_log_it_is_plain_lines(out: Path, tmp_path: Path) -> None:
    output = io.StringIO()
    train(out, config(epochs=1), tmp_path / "run", console=Console(file=output, soft_wrap=True))
    lines = output.getvalue().splitlines()
    assert not any(line.startswith("{") for line in lines)
    assert any(line.startswith("step 1 of 7: epoch 1 of 1, loss ") for line in lines)
    assert any(re.match(r"epoch 1, step 7: train loss \d\.\d+, val loss ", line) for line in lines)


def test_a_validation_without_a_number_is_shown_as_that(out: Path, tmp_path: Path) -> None:
    output = io.StringIO()
    spoil = lightning.Callback()
    spoil.on_validation_start = lambda trainer, pl_module: _spoil(pl_module)  # type: ignore[method-assign]
    with pytest.raises(FacefeedError):
        train(
            out, config(epochs=5), tmp_path / "run", callbacks=[spoil], as_json=True,
            console=Console(file=output, soft_wrap=True),
        )  # fmt: skip
    events = [json.loads(line) for line in output.getvalue().splitlines()]
    validated = next(event for event in events if event["event"] == "validated")
    assert [validated[f"val/{name}"] for name in ("loss", "auc", "video_log_loss", "accuracy")] == [None] * 4
    warned = [event["warning"] for event in events if event["event"] == "warning"]
    assert any(warning.startswith("not saved: ") for warning in warned)
    assert any(warning.startswith("val: the predictions for 17 of 17 faces are NaN") for warning in warned)


def _spoil(module: Any) -> None:
    list(module.parameters())[-1].data.fill_(float("nan"))


@pytest.mark.parametrize("as_json", [False, True])
def test_a_run_on_faces_of_one_class_shows_the_warning_of_it(tmp_path: Path, as_json: bool) -> None:
    make_dataset(tmp_path / "out", (("train", (Clip("real/anna.mp4", 8),)),))
    output = io.StringIO()
    console = Console(file=output, soft_wrap=True)
    train(tmp_path / "out", config(steps=1), tmp_path / "run", console=console, as_json=as_json)
    lines = output.getvalue().splitlines()
    shown = [json.loads(line).get("warning", "") for line in lines] if as_json else lines
    assert any("all faces of train have the label real, so there is nothing to tell apart" in line for line in shown)


def test_for_a_program_it_is_one_json_object_a_line(out: Path, tmp_path: Path) -> None:
    output = io.StringIO()
    train(out, config(), tmp_path / "run", console=Console(file=output, soft_wrap=True), as_json=True)
    events = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [event["event"] for event in events if event["event"] != "warning"] == ["progress", "validated", "validated"]
    assert {"epoch", "step", "steps", "loss", "images_per_second", "stall", "eta_seconds"} <= events[0].keys()
    validated = [event for event in events if event["event"] == "validated"]
    assert [(event["epoch"], event["step"]) for event in validated] == [(0, STEPS), (1, 2 * STEPS)]
    assert all({"train/loss", "val/auc"} <= event.keys() for event in validated)


def test_on_a_terminal_it_shows_a_bar_and_a_line_for_each_validation(out: Path, tmp_path: Path) -> None:
    output = io.StringIO()
    train(out, config(), tmp_path / "run", console=Console(file=output, force_terminal=True, width=80))
    text = output.getvalue()
    assert "14/14" in text
    assert "epoch 1, step 7: train loss " in text
    assert ", AUC of videos " in text


# ---- what is found before it begins, and ways out


@pytest.mark.parametrize("lever", ["best:val/nope", "early_stop:loss", "best:test/auc", "best:train/loss"])
def test_a_metric_that_nobody_logs_is_refused_before_anything_is_written(lever: str, out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{lever}.*: a validation does not log .*; try val/loss, val/auc, .*d_swap$"):
        trained(out, tmp_path / "run", levers=lever)
    assert not (tmp_path / "run").exists()


REAL_OF_VAL = ("val", (Clip("real/dora.mp4", 4),))


@pytest.mark.parametrize(
    ("units", "lever", "reason"),
    [
        (REAL_OF_VAL, "bf16,best:val/auc", "best:val/auc: a validation does not log 'val/auc', by the labels, "),
        (REAL_OF_VAL, "early_stop:val/accuracy_fake", "; try val/loss, val/log_loss, .*, val/accuracy_real$"),
        (("val", (Clip("fake/dora-swap.mp4", 4),)), "best:val/accuracy_method_talk", "val/accuracy_method_swap$"),
        (("val", ()), "best:val/loss", "best:val/loss: no face of val has a known label"),
    ],
)
def test_a_metric_that_the_faces_of_val_do_not_have_is_refused_before_the_first_step(
    tmp_path: Path, units: Any, lever: str, reason: str
) -> None:
    make_dataset(tmp_path / "out", (("train", (Clip("real/anna.mp4", 8), Clip("fake/anna-swap.mp4", 8))), units))
    with pytest.raises(LeverError, match=reason):
        trained(tmp_path / "out", tmp_path / "run", levers=lever)
    assert not (tmp_path / "run").exists()


def test_the_loss_of_an_epochs_last_batch_does_not_end_a_run_early(out: Path, tmp_path: Path) -> None:
    with pytest.raises(LeverError, match=r"early_stop:train/loss:5: 'train/loss' is .* last batch.*; take val/loss"):
        trained(out, tmp_path / "run", levers="early_stop:train/loss:5")
    assert not (tmp_path / "run").exists()


def test_a_deterministic_run_has_the_seed_of_its_config_and_a_lever_with_another_is_refused(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")  # Lightning leaves them behind
    with pytest.raises(UsageError, match=r"deterministic:1: the run's seed=0 is the one that counts.*--set seed=1 for"):
        trained(out, tmp_path / "run", levers="deterministic:1")
    assert not (tmp_path / "run").exists()
    dropping: dict[str, Any] = {"steps": 2, "model": {"drop_rate": 0.5}}
    losses = []
    for number, (text, seed) in enumerate((("deterministic:1", 1), ("deterministic", 1), ("deterministic", 2))):
        recorder = Losses()
        trained(out, tmp_path / f"run {number}", recorder, levers=text, seed=seed, **dropping)
        losses.append(recorder.losses)
    assert losses[0] == losses[1] != losses[2]


def test_a_result_of_another_version_is_refused_with_the_way_out(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(out, run, epochs=1)
    whole = (run / "result.json").read_text()
    (run / "result.json").write_text('{"a": 1}')
    with pytest.raises(FacefeedError, match=r"result.json: is none of this version .*; delete it"):
        trained(out, run, epochs=1)
    (run / "result.json").unlink()
    trained(out, run, epochs=1)
    second_result, first_result = json.loads((run / "result.json").read_text()), json.loads(whole)
    assert (second_result["test"], second_result["steps"]) == (first_result["test"], first_result["steps"])


def test_a_checkpoint_that_was_cut_short_is_refused_with_the_way_out(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(out, run, epochs=1)
    (run / "result.json").unlink()
    last = run / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[:5000])
    with pytest.raises(UsageError, match=r"last.ckpt: cannot be read, .*; delete it, and the run begins anew"):
        trained(out, run, epochs=1)
