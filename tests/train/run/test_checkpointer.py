"""What a user notices of a run's checkpoints: the best is the best, and none holds numbers that are none."""

from __future__ import annotations

import errno
import io
import os
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from assets_fit import STEPS, CallAtHook, config, trained, write_at_once
from assets_train import VAL_FACES, small_dataset
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.train.checkpoints import plain
from facefeed.train.checkpoints.publication import find_checkpoint, publish
from facefeed.train.levers import NonFiniteError
from facefeed.train.run import checkpointer
from facefeed.train.run.checkpoint_io import SafeCheckpointIO
from facefeed.train.run.runner import train
from lightning.pytorch.strategies import SingleDeviceStrategy
from rich.console import Console

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

NAN = float("nan")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("saving") / "out")


@pytest.fixture(autouse=True, scope="module")
def undrawn() -> Any:
    """Pictures take half of these runs' time, and have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("facefeed.train.metrics.plots.log_plots", lambda *_: None)
        yield


class On(lightning.Callback):
    """Calls `then` with the module, once, when `hook` comes for the `number`-th time."""

    def __init__(self, hook: str, then: Callable[[Any], None], number: int = 1) -> None:
        self._left, self._then = number, then
        setattr(self, hook, self._come)

    def _come(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self._then(pl_module)


def bias(module: Any) -> torch.Tensor:
    """Of the last layer."""
    return list(module.parameters())[-1].data


def statistics(module: Any) -> torch.Tensor:
    """Of the first BatchNorm."""
    return next(buffer for name, buffer in module.named_buffers() if name.endswith("running_mean"))


def is_finite(run: Path, name: str) -> bool:
    stored = plain.read_checkpoint(run / "checkpoints" / name)["state_dict"]
    return all(bool(tensor.isfinite().all()) for tensor in stored.values())


# ---- the best


@pytest.mark.parametrize("levers", ["", "best:val/auc", "best:val/log_loss"])
def test_after_a_validation_without_a_number_a_later_one_is_the_best(out: Path, tmp_path: Path, levers: str) -> None:
    original_bias: list[torch.Tensor] = []

    def spoil(module: Any) -> None:
        original_bias.append(bias(module).clone())
        bias(module).fill_(NAN)

    spoilt = On("on_validation_start", spoil)
    mended = On("on_validation_end", lambda module: bias(module).copy_(original_bias[0]))
    result, _ = trained(out, tmp_path / "run", spoilt, mended, levers=levers)
    assert result.best_step == 2 * STEPS
    assert result.checkpoint == str(tmp_path / "run" / "checkpoints" / "best.ckpt")
    stored = plain.read_checkpoint(result.checkpoint)
    assert stored["global_step"] == 2 * STEPS
    assert {"Saving", "Pace", "FiniteGuard"} <= stored["callbacks"].keys()  # by these names 0.1.0's runs are resumed
    assert result.val["val/loss"] == result.val["val/loss"]


def test_weights_that_are_not_finite_are_never_the_best(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    spoilt = On("on_validation_end", lambda module: bias(module).fill_(NAN))  # what was validated was finite
    with pytest.raises(NonFiniteError):
        trained(out, run, spoilt, epochs=5)
    assert not (run / "checkpoints" / "best.ckpt").exists()
    assert is_finite(run, "last.ckpt")


def lost() -> None:
    raise LookupError("lost")


def test_killed_before_a_best_was_recorded_the_result_is_of_the_weights_that_are_tested(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([0.5, 0.4, 0.6])  # the third is that of the second validation, which another device repeats
    monkeypatch.setattr(checkpointer, "logged_metrics", lambda *_: {"val/loss": next(losses)})
    with pytest.raises(LookupError):
        trained(out, tmp_path / "run", CallAtHook("on_train_epoch_end", 2, lost))
    result, _ = trained(out, tmp_path / "run")
    assert plain.read_checkpoint(result.checkpoint)["global_step"] == 2 * STEPS
    assert (result.best_step, result.val) == (2 * STEPS, {"val/loss": 0.4})


@pytest.mark.parametrize(("hook", "number"), [("on_train_batch_start", STEPS + 2), ("on_test_start", 1)])
def test_without_the_file_of_the_best_weights_the_next_validation_or_a_new_one_of_the_last_is_the_best(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str, number: int
) -> None:
    losses = iter([0.1, 0.2, 0.3])
    monkeypatch.setattr(checkpointer, "logged_metrics", lambda *_: {"val/loss": next(losses)})
    run, output = tmp_path / "run", io.StringIO()
    best = run / "checkpoints" / "best.ckpt"
    with pytest.raises(LookupError):
        trained(out, run, CallAtHook(hook, number, lost))
    best.unlink()
    result = train(out, config(), run, console=Console(file=output, soft_wrap=True))
    assert f"{best}: is gone; the best of the validations from now on takes its place" in output.getvalue()
    assert result is not None
    assert (result.best_step, result.val_faces, result.checkpoint) == (2 * STEPS, VAL_FACES, str(best))
    assert result.val["val/loss"] > 0.1


def test_the_best_weights_are_there_again_where_a_kill_came_before_they_had_their_name(
    out: Path, tmp_path: Path
) -> None:
    """A folder of parts takes its name in two renames; between them the one before has another."""
    run = tmp_path / "run"
    best = run / "checkpoints" / "best.ckpt"
    with pytest.raises(LookupError):
        trained(out, run, CallAtHook("on_test_start", 1, lost))
    best_step = plain.read_checkpoint(best)["global_step"]
    best.rename(best.with_name(".best.ckpt.before"))
    result, _ = trained(out, run)
    assert (result.best_step, result.checkpoint) == (best_step, str(best))
    assert sorted(path.name for path in best.parent.iterdir()) == ["best.ckpt", "last.ckpt"]


def test_a_damaged_file_of_the_best_weights_is_refused_with_what_gives_the_run_a_result(
    out: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    best = run / "checkpoints" / "best.ckpt"
    with pytest.raises(LookupError):
        trained(out, run, CallAtHook("on_test_start", 1, lost))
    best.write_bytes(best.read_bytes()[:5000])
    with pytest.raises(UsageError, match=r"best.ckpt: cannot be read, .*; delete it, and the last weights are tested$"):
        trained(out, run)
    best.unlink()
    assert trained(out, run)[0].best_step == 2 * STEPS


def test_best_weights_that_cannot_be_found_again_stop_the_run_resumably(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    best = run / "checkpoints" / "best.ckpt"
    with pytest.raises(
        StoppedError, match=r"best.ckpt: was there, and now No such file .*; fix that, and run the same"
    ):
        trained(out, run, CallAtHook("setup", 2, best.unlink))  # for the test
    assert trained(out, run)[0].best_step == 2 * STEPS


# ---- numbers that are none


def test_running_statistics_that_are_not_finite_are_never_saved(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    spoilt = On("on_train_epoch_end", lambda module: statistics(module).fill_(NAN), 2)
    trained(out, run, spoilt)
    assert is_finite(run, "last.ckpt")


class Other(SingleDeviceStrategy):
    """A strategy under which a rank sees only a part of the weights, as ZeRO's."""


def test_under_a_strategy_that_has_freed_weights_too(out: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def set_strategy(module: Any) -> None:
        module.trainer.strategy.__class__ = Other

    freed = torch.nn.Parameter(torch.empty(0))  # as stage 3 leaves weights between steps
    with_freed = On("setup", lambda module: module.register_parameter("freed", freed))
    spoilt = On("on_train_epoch_end", lambda module: statistics(module).fill_(NAN), 2)
    trained(out, run, On("on_fit_start", set_strategy), with_freed, spoilt)
    assert is_finite(run, "last.ckpt")
    assert plain.read_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"] == 2 * STEPS


def test_a_run_none_of_whose_steps_could_be_saved_ends_with_that_sentence(out: Path, tmp_path: Path) -> None:
    spoilt = On("on_train_batch_start", lambda module: bias(module).fill_(NAN))
    with pytest.raises(NonFiniteError) as caught:
        trained(out, tmp_path / "run", spoilt, steps=3)
    assert caught.value.exit_code == 1


# ---- when, and how


@pytest.fixture
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is done before the next step."""
    write_at_once(monkeypatch)


@pytest.mark.usefixtures("written_at_once")
def test_a_checkpoint_is_written_every_so_many_minutes_and_at_the_epochs_end(out: Path, tmp_path: Path) -> None:
    run, saved = tmp_path / "run", []

    def note_step(*_: Any) -> None:
        path = run / "checkpoints" / "last.ckpt"
        saved.append(plain.read_checkpoint(path)["global_step"] if path.exists() else 0)

    recorder = lightning.Callback()
    recorder.on_train_batch_start = note_step  # type: ignore[method-assign]
    trained(out, run, recorder, save_every_minutes=4)  # a step is a minute
    assert saved == [0, 0, 0, 0, 4, 4, 4, *[STEPS] * 4, STEPS + 4, STEPS + 4, STEPS + 4]


@pytest.mark.parametrize("fails", [False, True])
def test_no_rank_goes_on_or_ends_before_the_first_has_put_the_checkpoint_in_its_place(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Once a rank has ended, srun ends the others; and where the first fails, they do not wait for it."""
    order: list[Any] = []

    def publish_or_fail(temporary: Path, path: Path) -> None:
        order.append("published")
        if fails:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        publish(temporary, path)

    def agree(_: Any, decision: bool, all: bool) -> bool:  # noqa: A002 (Lightning's)
        order.append("agreed")
        return decision and all

    monkeypatch.setattr(checkpointer, "publish", publish_or_fail)
    monkeypatch.setattr(SingleDeviceStrategy, "reduce_boolean_decision", agree)
    end = CallAtHook("on_test_start", 1, lambda: order.append("test"))
    with pytest.raises(StoppedError, match="No space left") if fails else nullcontext():
        trained(out, tmp_path / "run", end, epochs=1, save_every_minutes=60)
    ended = order.index("test") if not fails else len(order)
    last = max(index for index, name in enumerate(order[:ended]) if name == "published")
    assert "agreed" in order[last:ended]


def test_a_checkpoint_is_written_without_a_copy_of_it_in_memory(tmp_path: Path) -> None:
    stored = {"state_dict": {str(number): torch.zeros(1_000_000) for number in range(4)}}
    tracemalloc.start()
    try:
        SafeCheckpointIO().save_checkpoint(stored, tmp_path / "last.ckpt")
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size_bytes = (tmp_path / "last.ckpt").stat().st_size
    assert size_bytes > 16_000_000
    assert most_bytes < size_bytes / 10
    assert plain.read_checkpoint(tmp_path / "last.ckpt")["state_dict"].keys() == stored["state_dict"].keys()


def test_a_second_ctrl_c_while_a_checkpoint_is_written_is_no_error_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.FileIO):
        def write(self, data: Any) -> int:
            if self.tell():
                raise KeyboardInterrupt
            return super().write(data)

    def open_file(path: Path, mode: str) -> Interrupted:
        return Interrupted(path, mode)

    monkeypatch.setattr(Path, "open", open_file)
    with pytest.raises(KeyboardInterrupt):
        SafeCheckpointIO().save_checkpoint({"state_dict": {"weight": torch.zeros(1_000_000)}}, tmp_path / "last.ckpt")


# ---- a power failure


class FileCalls:
    """Records in order what is written to disk (`synced`, an inode) and what is named (`named`, an inode, a path)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int, str]] = []
        monkeypatch.setattr(os, "fsync", self._fsync)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._naming(getattr(os, name)))

    def _fsync(self, descriptor: Any) -> None:
        self.calls.append(("synced", os.fstat(descriptor).st_ino, ""))

    def _naming(self, rename: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def record(source: Any, target: Any) -> None:
            self.calls.append(("named", Path(source).stat().st_ino, str(target)))
            rename(source, target)

        return record

    def is_durable(self, path: Path) -> bool:
        """Whether `path` was written to disk each time before it was named, and its name at once thereafter."""
        namings = [(index, call[1]) for index, call in enumerate(self.calls) if call[0::2] == ("named", str(path))]
        after = ("synced", path.parent.stat().st_ino, "")
        return bool(namings) and all(
            ("synced", inode, "") in self.calls[:index] and self.calls[index + 1] == after for index, inode in namings
        )


def test_after_a_power_failure_no_file_of_a_run_is_empty_and_what_it_reported_is_there(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty result.json would be taken for that of a finished run."""
    run, files = tmp_path / "run", FileCalls(monkeypatch)
    trained(out, run, epochs=1)
    for name in ("config.json", "checkpoints/last.ckpt", "checkpoints/best.ckpt", "result.json"):
        assert files.is_durable(run / name), name


def test_after_a_power_failure_no_part_of_a_checkpoint_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / ".last.ckpt", "one")
    part = (tmp_path / ".last.ckpt" / "part").stat().st_ino
    files = FileCalls(monkeypatch)
    publish(tmp_path / ".last.ckpt", tmp_path / "last.ckpt")
    assert files.is_durable(tmp_path / "last.ckpt")
    assert files.calls[0] == ("synced", part, "")


# ---- a folder of parts takes its name


def folder(path: Path, text: str) -> None:
    path.mkdir()
    (path / "part").write_text(text)


def test_looking_for_a_checkpoint_renames_nothing(tmp_path: Path) -> None:
    folder(tmp_path / ".last.ckpt.before", "one")  # as a kill between the two steps of a publication leaves it
    last = tmp_path / "last.ckpt"
    checkpoint = find_checkpoint(last)
    assert [path.name for path in tmp_path.iterdir()] == [".last.ckpt.before"]
    assert checkpoint is not None
    assert (checkpoint / "part").read_text() == "one"
    folder(tmp_path / ".last.ckpt", "two")
    publish(tmp_path / ".last.ckpt", last)
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]
    assert (last / "part").read_text() == "two"


def test_the_checkpoint_before_is_there_until_the_new_one_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / ".last.ckpt.before", "one")
    folder(tmp_path / ".last.ckpt", "two")

    def killed(*_: Any) -> None:
        raise LookupError("killed before the new name")

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(LookupError):
        publish(tmp_path / ".last.ckpt", tmp_path / "last.ckpt")
    checkpoint = find_checkpoint(tmp_path / "last.ckpt")
    assert checkpoint is not None
    assert (checkpoint / "part").read_text() == "one"
