"""A power failure at any moment of a training: no reported checkpoint is lost, and the run ends as it would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from assets_dataset import Clip, make_dataset
from assets_fit import MinutePerStep, config
from assets_power_loss import Crash, Recording, State, crashes, lay, needless_syncs, problems, recorded, some
from facefeed.pipeline.errors import FacefeedError
from facefeed.pipeline.files import files_below
from facefeed.train.checkpoints.plain import read_checkpoint
from facefeed.train.checkpoints.publication import find_checkpoint
from facefeed.train.run.checkpoint_io import BEST, LAST
from facefeed.train.run.checkpointer import RunCheckpointer
from facefeed.train.run.graceful_stop import GracefulStop
from facefeed.train.run.runner import train

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

UNITS = (
    ("train", (Clip("real/anna.mp4", 9), Clip("fake/anna-swap.mp4", 7))),
    ("val", (Clip("real/dora.mp4", 3), Clip("fake/dora-swap.mp4", 2))),
    ("test", (Clip("real/emil.mp4", 2), Clip("fake/emil-talk.mp4", 2))),
)
CONFIG = config(save_every_minutes=1)  # two epochs of two steps, of a minute each


@pytest.fixture(autouse=True, scope="module")
def undrawn() -> Iterator[None]:
    """Pictures take half of these runs' time, and have tests of their own."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("facefeed.train.metrics.plots.log_plots", lambda *_: None)
        yield


class Training:
    """A run of `facefeed train` that is laid and resumed again and again.

    `saved`: the step of each checkpoint, as it was reported.
    """

    def __init__(self, folder: Path) -> None:
        self._out, self.disk = folder / "out", folder / "disk"
        self._run = self.disk / "runs/run"
        self.saved: list[int] = []
        make_dataset(self._out, UNITS)
        self._ends: dict[State, str] = {}

    def record(self, monkeypatch: pytest.MonkeyPatch, begin: State = ()) -> Recording:
        """What a run does to files that begins with this state; by default, with nothing."""
        record_saved = GracefulStop.record_saved
        lay(begin, self.disk)
        self.saved = []

        def note(stop: GracefulStop, step: int) -> None:
            record_saved(stop, step)
            self.saved.append(step)
            recording.step_finished()

        with recorded(self.disk, monkeypatch) as recording, monkeypatch.context() as patch:
            patch.setattr(GracefulStop, "record_saved", note)
            self._train()
            recording.step_finished()  # one more: the command has ended
        self.outcome = self._outcome()
        return recording

    def problem(self, crash: Crash) -> str:
        """Why this state is not what was promised; empty where it is."""
        lay(crash.state, self.disk)
        has_ended = crash.finished > len(self.saved)
        if has_ended and not (self._run / "result.json").is_file():
            return "no result after the command has ended"
        reported = self.saved[min(crash.finished, len(self.saved)) - 1] if crash.finished else 0
        # Logs are written and never read: of states that differ in them alone, one is resumed.
        read = tuple((name, data) for name, data in crash.state if "/logs/" not in name)
        try:
            if (step := self._saved_step()) < reported:
                return f"the checkpoint of step {reported} was reported, and that of step {step} is there"
            if read not in self._ends:
                self._ends[read] = self._problem_of_end()
        except FacefeedError as error:
            return f"stops: {error}"
        return self._ends[read]

    def _saved_step(self) -> int:
        checkpoint = find_checkpoint(self._run / "checkpoints" / LAST)
        return 0 if checkpoint is None else int(read_checkpoint(checkpoint)["global_step"])

    def _problem_of_end(self) -> str:
        self._train()
        return "" if self._outcome() == self.outcome else "another result, or other weights"

    def _train(self) -> Any:
        return train(self._out, CONFIG, self._run, callbacks=[MinutePerStep()])

    def _outcome(self) -> Any:
        result = self._train()  # reads that of the finished run
        states = [read_checkpoint(self._run / "checkpoints" / name)["state_dict"] for name in (LAST, BEST)]
        weights = [{name: tensor.numpy().tobytes() for name, tensor in state.items()} for state in states]
        return result.steps, result.epochs, result.best_step, result.checkpoint, result.val, result.test, weights


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


class Parts:
    """Saves of checkpoints that are folders of parts, as strategies for several GPUs write them."""

    num_saves = 3

    def __init__(self, folder: Path) -> None:
        self.disk = folder / "disk"
        self._checkpoints = self.disk / "checkpoints"

    def record(self, monkeypatch: pytest.MonkeyPatch) -> Recording:
        """What the saves do to files."""
        self._checkpoints.mkdir(parents=True)
        with recorded(self.disk, monkeypatch) as recording:
            for number in range(1, self.num_saves + 1):
                self._save(number)
                recording.step_finished()
        return recording

    def problem(self, crash: Crash) -> str:
        """Why this state is not what was promised; empty where it is."""
        lay(crash.state, self.disk)
        checkpoint = find_checkpoint(self._checkpoints / LAST)
        if checkpoint is None:
            return "no checkpoint" if crash.finished else ""
        if (number := self._number(checkpoint)) not in range(max(crash.finished, 1), self.num_saves + 1):
            return f"checkpoint {crash.finished} was reported, and {number} is there"
        self._save(self.num_saves + 1)
        checkpoint = find_checkpoint(self._checkpoints / LAST)
        if checkpoint is None or self._number(checkpoint) != self.num_saves + 1:
            return "the next checkpoint is not whole"
        left = sorted(path.name for path in self._checkpoints.iterdir())
        return "" if left == [LAST] else f"{left} are left"

    def _save(self, number: int) -> None:
        trainer: Any = SimpleNamespace(
            is_global_zero=True, world_size=1, global_step=number,
            strategy=SimpleNamespace(reduce_boolean_decision=lambda decision, **_: decision),
            save_checkpoint=lambda path, storage_options: storage_options(lambda _: self._write(number, path)),
        )  # fmt: skip
        checkpointer = RunCheckpointer(self._checkpoints, GRACEFUL_STOP, metric="val/loss", mode="min", seed=0)
        checkpointer._save(trainer, LAST)
        checkpointer.finish(trainer)

    @staticmethod
    def _write(number: int, path: Path) -> None:
        for name in PARTS:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(f"{name} of {number}")

    @staticmethod
    def _number(checkpoint: Path) -> int | None:
        """Number of a whole checkpoint; None of one that lacks anything."""
        texts = {path.relative_to(checkpoint).as_posix(): path.read_text() for path in files_below(checkpoint)}
        numbers = range(1, Parts.num_saves + 2)
        return next((each for each in numbers if texts == {name: f"{name} of {each}" for name in PARTS}), None)


PARTS = ("latest", "ranks/0/model.pt", "ranks/0/optimizer.pt")
GRACEFUL_STOP: Any = SimpleNamespace(record_saved=lambda _: None)  # only a whole training asks it


def test_a_training_resumes_after_a_power_failure(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    states = list(crashes(training.record(monkeypatch)))
    assert problems(training.problem, some(states, one_in=len(states) // 4)) == []


Crashes = tuple[Training, list[Crash]]


@pytest.fixture(scope="module")
def after_first(tmp_path_factory: pytest.TempPathFactory) -> Crashes:
    """A training, and what a power failure at each moment of it leaves."""
    training = Training(tmp_path_factory.mktemp("first"))
    with pytest.MonkeyPatch.context() as patch:
        return training, list(crashes(training.record(patch)))


@pytest.fixture(scope="module")
def after_second(tmp_path_factory: pytest.TempPathFactory) -> Crashes:
    """The same of a training that resumes after one, by which a third checkpoint had been begun."""
    training = Training(tmp_path_factory.mktemp("second"))
    with pytest.MonkeyPatch.context() as patch:
        first = crashes(training.record(patch))
        num_saved = training.saved.index(2) + 1
        begins = (crash.state for crash in first if crash.finished == num_saved)
        begin = next(state for state in begins if dict(state).get("runs/run/checkpoints/.last.ckpt"))
        recording = training.record(patch, begin)
    assert training.saved[0] == 2
    return training, list(crashes(recording))


PARTS_OF_TIME = 8
"""Of a training, for a test each: all together take longer than a test that hangs may on a busy machine."""


def part(states: list[Crash], number: int) -> list[Crash]:
    """Those of a part of the time: many that follow each other end alike, which is computed once."""
    return states[number * len(states) // PARTS_OF_TIME : (number + 1) * len(states) // PARTS_OF_TIME]


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(PARTS_OF_TIME))
def test_a_training_resumes_after_every_power_failure(after_first: Crashes, number: int) -> None:
    training, states = after_first
    assert problems(training.problem, part(states, number)) == []


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(PARTS_OF_TIME))
def test_a_training_resumes_after_a_second_power_failure(after_second: Crashes, number: int) -> None:
    training, states = after_second
    assert problems(training.problem, part(states, number)) == []


@pytest.mark.chaos
def test_without_any_one_sync_a_power_failure_breaks_a_promise(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    needless = needless_syncs(training.record(monkeypatch), lambda crash: bool(training.problem(crash)))
    # The lock's is for other hosts, which read its holder through a network file system.
    assert needless == {"lock._write_holder"}


def test_a_checkpoint_of_parts_is_whole_after_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saves = Parts(tmp_path)
    assert problems(saves.problem, some(crashes(saves.record(monkeypatch)), one_in=10)) == []


@pytest.mark.chaos
def test_a_checkpoint_of_parts_is_whole_after_every_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = Parts(tmp_path)
    recording = saves.record(monkeypatch)
    states = list(crashes(recording))
    assert problems(saves.problem, states) == []
    print(f"{len(states)} states after {len(recording.events)} changes and syncs: all recovered")


def test_without_any_one_sync_a_checkpoint_of_parts_may_not_be_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = Parts(tmp_path)
    assert needless_syncs(saves.record(monkeypatch), lambda crash: bool(saves.problem(crash))) == set()
