"""What a user of `StarvationMonitor` notices: metrics that are true, one warning, and a Trainer that is as it was."""

from __future__ import annotations

import csv
import json
import logging
import pickle
import re
import textwrap
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from assets_clock import Clock
from assets_docs import GUIDES
from assets_loaders import wait_until
from assets_processes import in_processes
from facefeed.loaders.torch_internals import count_ready_batches
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

READ, STEP = 0.030, 0.010
SHARE = READ / (READ + STEP)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    from facefeed.train.starvation import data_wait  # noqa: PLC0415

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    fake_clock = Clock()
    monkeypatch.setattr(data_wait, "clock", fake_clock)
    return fake_clock


@dataclass
class Items(Dataset[torch.Tensor]):
    """Items that take their time to read: `seconds` each, or what it gives for an item's number."""

    clock: Clock
    seconds: float | Callable[[int], float]
    length: int = 40

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.length:
            raise IndexError
        self.clock.pass_by(self.seconds if isinstance(self.seconds, float) else self.seconds(index))
        return torch.tensor([float(index)])


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, items: Items) -> None:
        self.items = items

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.items)  # type: ignore[call-overload, no-any-return]


def Model(step: Callable[[], None], validate: Callable[[], None] = lambda: None) -> Any:  # noqa: N802 (a class, made when Lightning is wanted)
    import lightning  # noqa: PLC0415

    class _Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(1, 1)
            self.steps = 0

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            self.steps += 1
            step()
            batch = batch if isinstance(batch, torch.Tensor) else batch[0].mean((1, 2, 3))[:, None]
            return self.head(batch).mean()

        def validation_step(self, batch: Any, _: int) -> None:
            validate()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    return _Model()


def Kept() -> Any:  # noqa: N802
    """A logger that keeps everything, on every rank."""
    from lightning.pytorch.loggers.logger import DummyLogger  # noqa: PLC0415

    class _Kept(DummyLogger):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[tuple[int, dict[str, float]]] = []

        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            self.rows.append((step, metrics))

        def of(self, name: str) -> list[float]:
            return [row[f"starvation/{name}"] for _, row in self.rows if f"starvation/{name}" in row]

        def steps(self, name: str) -> list[int]:
            return [step for step, row in self.rows if f"starvation/{name}" in row]

    return _Kept()


def monitor(**options: Any) -> Any:
    from facefeed.train import StarvationMonitor  # noqa: PLC0415

    return StarvationMonitor(**{"every_n_steps": 10, "on_starved": "ignore", **options})


def trainer(**options: Any) -> Any:
    import lightning  # noqa: PLC0415

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return lightning.Trainer(**{"accelerator": "cpu", "logger": False, "max_epochs": 1, **quiet, **options})


def fitted(clock: Clock, loader: Any, watching: Any, **options: Any) -> Any:
    """What was logged while a model of 10 ms a step went through a loader."""
    logged = Kept()
    fit = trainer(logger=logged, callbacks=[watching], **options)
    fit.fit(Model(lambda: clock.pass_by(STEP)), loader)
    return logged


def warned(work: Callable[[], Any]) -> list[str]:
    """What warnings of ours some work gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(warning.message) for warning in caught if "training waits for data" in str(warning.message)]


# ---- what is logged, on a clock that the test moves


def test_a_starved_loop_is_logged_with_the_share_of_time_that_it_waits(clock: Clock) -> None:
    logged = fitted(clock, DataLoader(Items(clock, READ)), monitor())
    assert logged.of("stall") == pytest.approx([SHARE] * 4)
    assert logged.of("wait_p99_ms") == pytest.approx([30] * 4)
    assert logged.steps("stall") == [9, 19, 29, 39]
    assert logged.of("stall_max") == []  # there is one rank
    assert logged.of("queue_depth") == []  # without workers nothing is made ahead


def test_one_long_wait_among_short_ones_shows_in_the_p99(clock: Clock) -> None:
    logged = fitted(clock, DataLoader(Items(clock, lambda item: 1.0 if item == 15 else 0.0)), monitor())
    assert logged.of("wait_p99_ms") == pytest.approx([0, 1000, 0, 0])
    assert logged.of("stall") == pytest.approx([0, 1 / 1.1, 0, 0])


@pytest.mark.parametrize(("long_waits", "p99_ms"), [({150}, 0), ({150, 160}, 1000)], ids=["one", "two"])
def test_the_p99_of_100_fetches_is_what_99_of_them_stay_within(
    clock: Clock, long_waits: set[int], p99_ms: float
) -> None:
    items = Items(clock, lambda item: 1.0 if item in long_waits else 0.0, length=200)
    logged = fitted(clock, DataLoader(items), monitor(every_n_steps=100))
    assert logged.of("wait_p99_ms")[1] == pytest.approx(p99_ms)


@pytest.mark.parametrize("on_starved", ["warn", "fail"])
def test_a_fed_loop_is_logged_as_0_and_nobody_is_warned(clock: Clock, on_starved: str) -> None:
    logged = []
    loader = DataLoader(Items(clock, 0.0))
    assert warned(lambda: logged.append(fitted(clock, loader, monitor(on_starved=on_starved), max_epochs=3))) == []
    assert logged[0].of("stall") == [0.0] * 12
    assert logged[0].of("wait_p99_ms") == [0.0] * 12


def test_an_epochs_first_batch_is_a_figure_of_its_own_and_no_stall(clock: Clock) -> None:
    items = Items(clock, lambda item: 5.0 if item == 0 else 0.0)
    logged = fitted(clock, DataLoader(items), monitor(), max_epochs=3)
    assert logged.of("first_batch_seconds") == pytest.approx([5.0] * 3)
    assert logged.steps("first_batch_seconds") == [0, 40, 80]
    assert logged.of("stall") == [0.0] * 12


def test_what_runs_between_a_step_and_the_next_fetch_counts_for_nothing(clock: Clock) -> None:
    import lightning  # noqa: PLC0415

    class Slow(lightning.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            clock.pass_by(7.0)

        def on_train_epoch_end(self, *_: Any) -> None:
            clock.pass_by(70.0)

    validated = []

    def validate() -> None:
        validated.append(1)
        clock.pass_by(100.0)

    logged = Kept()
    fit = trainer(logger=logged, callbacks=[monitor(), Slow()], val_check_interval=4, max_epochs=2)
    validation = DataLoader(Items(clock, 50.0, length=2))
    fit.fit(Model(lambda: clock.pass_by(STEP), validate), DataLoader(Items(clock, READ)), validation)
    assert len(validated) == 2 + 2 * 10 * 2  # a sanity check, and ten times an epoch
    assert logged.of("stall") == pytest.approx([SHARE] * 8)
    assert logged.of("first_batch_seconds") == pytest.approx([READ] * 2)


def test_a_stream_without_a_length_of_which_lightning_fetches_a_batch_ahead(clock: Clock) -> None:
    logged = fitted(clock, DataLoader(Stream(Items(clock, READ))), monitor(), max_epochs=2)
    # An epoch's last step finds nothing more to fetch.
    short = 9 * READ / (9 * READ + 10 * STEP)
    assert logged.of("stall") == pytest.approx([SHARE] * 3 + [short] + [SHARE] * 3 + [short])
    # Two batches have to be there before the first step; the fit's first one Lightning fetches before it tells anyone.
    assert logged.of("first_batch_seconds") == pytest.approx([READ, 2 * READ])


def test_a_training_step_that_fetches_its_own_batches(clock: Clock) -> None:
    import lightning  # noqa: PLC0415

    class Fetching(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(1, 1)

        def training_step(self, dataloader_iter: Any) -> torch.Tensor:
            batch, _, _ = next(dataloader_iter)
            clock.pass_by(STEP)
            return self.head(batch).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    logged = Kept()
    trainer(logger=logged, callbacks=[monitor()]).fit(Fetching(), DataLoader(Items(clock, READ)))
    assert logged.of("stall") == pytest.approx([SHARE] * 4)


def test_with_accumulated_gradients_steps_are_batches(clock: Clock) -> None:
    logged = fitted(clock, DataLoader(Items(clock, READ)), monitor(), accumulate_grad_batches=4)
    assert logged.of("stall") == pytest.approx([SHARE] * 4)
    assert logged.steps("stall") == [2, 4, 7, 9]  # Lightning's own step, of the optimizer


def test_without_a_logger_it_still_warns(clock: Clock) -> None:
    fit = trainer(callbacks=[monitor(on_starved="warn")])
    assert len(warned(lambda: fit.fit(Model(lambda: clock.pass_by(STEP)), DataLoader(Items(clock, READ))))) == 1


# ---- what it does about it


def test_the_warning_comes_once_a_fit_and_names_number_beginning_and_remedy(clock: Clock) -> None:
    # The first window is never judged; the second is fed, so the row begins with the third, after 20 steps.
    items = Items(clock, lambda item: 0.0 if 10 <= item < 20 else READ, length=100)
    watching = monitor(on_starved="warn")
    (text,) = warned(lambda: fitted(clock, DataLoader(items), watching))
    assert text == (
        "stall=75.0%: training waits for data, for more of the time than max_stall=5.0% since step 20, and the device "
        "stands still meanwhile; call `profile(loader, step)` of facefeed.loaders.profiler.profile to see why, "
        "and what would help"
    )
    assert len(warned(lambda: fitted(clock, DataLoader(items), watching))) == 1  # the next fit


def test_a_single_starved_window_is_forgiven_and_so_is_the_first(clock: Clock) -> None:
    now_and_then = Items(clock, lambda item: READ if item // 10 % 2 == 0 else 0.0, length=80)
    assert warned(lambda: fitted(clock, DataLoader(now_and_then), monitor(on_starved="warn"))) == []
    at_first = Items(clock, lambda item: READ if item < 20 else 0.0, length=80)
    assert warned(lambda: fitted(clock, DataLoader(at_first), monitor(on_starved="warn"))) == []
    assert len(warned(lambda: fitted(clock, DataLoader(at_first), monitor(on_starved="warn", patience=1)))) == 1


def test_fail_ends_the_run_with_an_error_that_knows_the_metrics(clock: Clock) -> None:
    from facefeed.train.starvation.monitor import StarvedError  # noqa: PLC0415

    model = Model(lambda: clock.pass_by(STEP))
    fit = trainer(callbacks=[monitor(on_starved="fail")])
    with pytest.raises(StarvedError, match=r"stall=75.0%: .* since step 10.*profile\(loader, step\)") as caught:
        fit.fit(model, DataLoader(Items(clock, READ)))
    assert model.steps == 30
    assert caught.value.exit_code == 1
    assert caught.value.details["starvation/stall"] == pytest.approx(SHARE)


def test_up_to_max_stall_nothing_is_wrong(clock: Clock) -> None:
    loader = DataLoader(Items(clock, READ))
    assert warned(lambda: fitted(clock, loader, monitor(on_starved="fail", max_stall=0.76))) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"every_n_steps": 0}, "every_n_steps=0: must be at least 1; try 50"),
        ({"every_n_steps": 2.5}, "every_n_steps=2.5: must be a whole number of at least 1; try 50"),
        ({"patience": 0}, "patience=0: must be at least 1; try 2"),
        ({"max_stall": 5}, "max_stall=5: must be a share of the time between 0 and 1, .*; try 0.05"),
        ({"max_stall": float("nan")}, "max_stall=nan: must be"),
        ({"max_stall": "5%"}, "max_stall='5%': must be"),
        ({"on_starved": "stop"}, "on_starved='stop': must be 'warn', 'fail' or 'ignore'; try 'warn'"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], message: str) -> None:
    from facefeed.pipeline.errors import UsageError  # noqa: PLC0415

    with pytest.raises(UsageError, match=message):
        monitor(**wrong)


# ---- beside the rest of a Trainer


def test_the_users_profiler_still_hears_everything_and_is_left_as_it_was(clock: Clock) -> None:
    from lightning.pytorch.profilers import Profiler  # noqa: PLC0415

    class Own(Profiler):
        def __init__(self) -> None:
            super().__init__()
            self.started: list[str] = []
            self.stopped: list[str] = []

        def start(self, action: str) -> None:
            self.started.append(action)

        def stop(self, action: str) -> None:
            self.stopped.append(action)

    profiler = Own()
    logged = fitted(clock, DataLoader(Items(clock, READ)), monitor(), profiler=profiler)
    assert logged.of("stall") == pytest.approx([SHARE] * 4)
    assert profiler.started.count("[_TrainingEpochLoop].train_dataloader_next") == 40
    assert sorted(profiler.started) == sorted(profiler.stopped)
    assert not {"start", "stop"} & set(vars(profiler))


def test_after_a_run_that_broke_off_the_same_trainer_begins_anew(clock: Clock) -> None:
    logged = Kept()
    fit = trainer(logger=logged, callbacks=[monitor()])

    def fail() -> None:
        raise LookupError("no such face")

    with pytest.raises(LookupError):
        fit.fit(Model(fail), DataLoader(Items(clock, 99.0)))
    assert not {"start", "stop"} & set(vars(fit.profiler))
    fit.fit(Model(lambda: clock.pass_by(STEP)), DataLoader(Items(clock, READ)))
    assert logged.of("stall") == pytest.approx([SHARE] * 4)


def test_two_monitors_in_one_trainer_see_the_same(clock: Clock) -> None:
    logged = Kept()
    fit = trainer(logger=logged, callbacks=[monitor(every_n_steps=20), monitor(every_n_steps=40)])
    fit.fit(Model(lambda: clock.pass_by(STEP)), DataLoader(Items(clock, READ)))
    assert logged.of("stall") == pytest.approx([SHARE] * 3)
    assert not {"start", "stop"} & set(vars(fit.profiler))


def test_a_fit_that_resumes_a_checkpoint_goes_on_with_windows_of_its_own(clock: Clock, tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415

    saving = ModelCheckpoint(tmp_path, save_top_k=-1)
    loader = DataLoader(Items(clock, READ))
    fit = trainer(callbacks=[monitor(), saving], max_epochs=1, enable_checkpointing=True)
    fit.fit(Model(lambda: clock.pass_by(STEP)), loader)
    logged = Kept()
    fit = trainer(logger=logged, callbacks=[monitor(on_starved="warn")], max_epochs=2)
    path = tmp_path / "epoch=0-step=40.ckpt"
    (text,) = warned(lambda: fit.fit(Model(lambda: clock.pass_by(STEP)), loader, ckpt_path=path))
    assert logged.of("stall") == pytest.approx([SHARE] * 4)
    assert logged.steps("stall") == [49, 59, 69, 79]
    assert logged.of("first_batch_seconds") == pytest.approx([READ])
    assert "since step 50" in text  # the steps of the whole training, and the first window after a resume is not judged


def test_a_trainer_that_spawns_its_processes_can_send_the_monitor_to_them() -> None:
    assert pickle.loads(pickle.dumps(monitor(max_stall=0.2))).max_stall == 0.2


# ---- loaders that make batches ahead


@pytest.mark.parametrize("persistent", [True, False])
def test_of_a_torch_loader_with_workers_the_ready_batches_are_counted(clock: Clock, persistent: bool) -> None:
    loader = DataLoader(Items(clock, 0.0), num_workers=1, prefetch_factor=3, persistent_workers=persistent)
    logged = fitted(clock, loader, monitor(), max_epochs=2)
    assert len(logged.of("queue_depth")) == 8
    assert all(0 <= depth <= 3 for depth in logged.of("queue_depth"))


class Handing(DataLoader[Any]):
    """With a worker, and so many seconds of the test's clock for handing over each batch."""

    def __init__(self, clock: Clock, seconds: Callable[[int], float], length: int) -> None:
        super().__init__(TensorDataset(torch.zeros(length, 1)), num_workers=1, prefetch_factor=4)
        self.clock, self.seconds, self.number = clock, seconds, 0
        self.batches: Any = None

    def __iter__(self) -> Any:
        self.batches = super().__iter__()
        kind = type(self.batches)

        def _next_data(batches: Any) -> Any:
            self.clock.pass_by(self.seconds(self.number))
            self.number += 1
            return kind._next_data(batches)[0]

        self.batches.__class__ = type(kind.__name__, (kind,), {"_next_data": _next_data})
        return self.batches

    def until_ready(self) -> None:
        wait_until(lambda: count_ready_batches(self.batches) or self.number >= len(self), "a batch is made")


def test_a_loop_also_waits_while_a_batch_that_is_ready_is_handed_over(clock: Clock) -> None:
    loader = Handing(clock, lambda number: 0.010 if number == 35 else 0.001, 40)

    def step() -> None:
        clock.pass_by(STEP)
        loader.until_ready()

    logged = Kept()
    trainer(logger=logged, callbacks=[monitor()]).fit(Model(step), loader)
    assert logged.of("wait_p99_ms")[1:] == pytest.approx([1, 1, 10])
    handing_seconds = [0.010, 0.010, 0.019]  # seconds in ten steps
    assert logged.of("stall")[1:] == pytest.approx([seconds / (10 * STEP + seconds) for seconds in handing_seconds])


def test_of_a_face_loader_it_is_known_which_batches_were_ready(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from facefeed.loaders import FaceDataLoader  # noqa: PLC0415
    from facefeed.train.starvation.data_wait import QueueDepth  # noqa: PLC0415

    loader = FaceDataLoader(dataset, 64, image_size=16, num_workers=1)  # 6 batches
    ready = iter([0, 2, 0, 1, 3, 0, 0] * 2)  # once more at the end of each epoch
    monkeypatch.setattr("facefeed.loaders.loader.epoch_iterator.count_ready_batches", lambda _: next(ready))
    queue = QueueDepth(SimpleNamespace(train_dataloader=loader, fit_loop=None))
    for _ in range(2):
        for _ in loader:
            queue.fetch_ended()
        assert queue.mean() == pytest.approx(1.0)  # of 0, 2, 0, 1, 3 and 0


def test_of_several_loaders_in_one_nobody_knows_the_ready_batches(clock: Clock) -> None:
    loaders = [DataLoader(Items(clock, 0.0), num_workers=1), DataLoader(Items(clock, 0.0))]
    logged = Kept()

    class First(type(Model(lambda: None))):  # type: ignore[misc]
        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            return super().training_step(batch[0], number)

    trainer(logger=logged, callbacks=[monitor()]).fit(First(), loaders)
    assert logged.of("queue_depth") == []


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from assets_dataset import make_dataset  # noqa: PLC0415

    out = tmp_path_factory.mktemp("starvation") / "out"
    make_dataset(out)
    return out


def test_a_face_loader_in_a_trainer_with_a_csv_log(dataset: Path, tmp_path: Path) -> None:
    from facefeed.loaders import FaceDataLoader  # noqa: PLC0415
    from lightning.pytorch.loggers import CSVLogger  # noqa: PLC0415

    loader = FaceDataLoader(dataset, 16, image_size=32, num_workers=1)  # 22 batches
    log = CSVLogger(tmp_path)
    trainer(logger=log, callbacks=[monitor(every_n_steps=11)], max_epochs=2).fit(Model(lambda: None), loader)
    with Path(log.log_dir, "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    metrics = {
        name: [float(row[f"starvation/{name}"]) for row in rows if row[f"starvation/{name}"]]
        for name in ("stall", "wait_p99_ms", "queue_depth", "first_batch_seconds")
    }
    assert [len(values) for values in metrics.values()] == [4, 4, 4, 2]
    assert all(0 <= share < 1 for share in metrics["stall"])
    assert all(wait > 0 for wait in metrics["wait_p99_ms"])
    assert all(seconds > 0 for seconds in metrics["first_batch_seconds"])
    # Two windows are an epoch, of which the loader itself gives the mean.
    assert sum(metrics["queue_depth"][2:]) / 2 == pytest.approx(loader.stats().queue_depth)


# ---- a device that works on while the host does something else


@dataclass
class Device:
    """A CUDA device on the test's clock: works off what was queued, in order, beside the host."""

    clock: Clock
    free: float = 0.0
    unread: deque[Any] = field(default_factory=deque)

    def queue(self, seconds: float) -> None:
        self.free = max(self.free, self.clock.now) + seconds

    def event(self, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at = device, float("nan")

    def record(self) -> None:
        self.at = max(self.device.free, self.device.clock.now)

    def query(self) -> bool:
        return self.at <= self.device.clock.now

    def elapsed_time(self, later: Event) -> float:
        assert self.query(), "torch would raise"
        assert later.query(), "torch would raise"
        return (later.at - self.at) * 1e3


@pytest.mark.parametrize(
    ("read", "stall"),
    [
        (0.0, 0.0),
        (0.028, 0.0),  # the host waits long, the device never
        (0.050, 21 / 51),  # of each 51 ms the device has work for 30
    ],
)
def test_on_a_device_only_the_time_in_which_it_has_nothing_to_do_is_stall(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, read: float, stall: float
) -> None:
    from facefeed.train.starvation import data_wait  # noqa: PLC0415

    device, mark = Device(clock), data_wait._timestamp
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(data_wait, "_timestamp", lambda _: mark(torch.device("cuda")))
    logged = Kept()

    def step() -> None:
        device.queue(0.030)
        clock.pass_by(0.001)

    fit = trainer(logger=logged, callbacks=[monitor()], max_epochs=2)
    fit.fit(Model(step), DataLoader(Items(clock, read)))
    assert logged.of("stall") == pytest.approx([stall] * len(logged.of("stall")), abs=1e-9)
    assert logged.of("stall")


@pytest.mark.gpu
def test_on_a_real_device_its_own_time_is_measured() -> None:
    cycles = 2_000_000

    class Waiting(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> torch.Tensor:
            torch.cuda._sleep(cycles)  # for the device this is what waiting for the host is: time without a step
            return torch.tensor([float(index)])

    logged = Kept()
    fit = trainer(logger=logged, callbacks=[monitor(every_n_steps=20)], accelerator="gpu", devices=1)
    fit.fit(Model(lambda: torch.cuda._sleep(3 * cycles)), DataLoader(Waiting()))
    assert logged.of("stall")[-1] == pytest.approx(0.25, abs=0.05)


# ---- ranks


def train_on_ranks(folder: str) -> None:
    """Rank 0 has a loader with a worker that nothing waits for, rank 1 one without, that is slow."""
    from facefeed.train.starvation import data_wait  # noqa: PLC0415
    from facefeed.train.starvation.monitor import StarvedError  # noqa: PLC0415

    clock, logged = Clock(), Kept()
    data_wait.clock = clock  # type: ignore[assignment]
    fit = trainer(
        logger=logged, callbacks=[monitor(on_starved="fail")], strategy="ddp", devices=2, use_distributed_sampler=False
    )
    model, error = Model(lambda: clock.pass_by(STEP)), ""
    fast = fit.global_rank == 0
    loader = DataLoader(Items(clock, 0.0), num_workers=1) if fast else DataLoader(Items(clock, READ))
    try:
        fit.fit(model, loader)
    except StarvedError as starved:
        error = str(starved)
    report = {"rows": logged.rows, "steps": model.steps, "error": error}
    Path(folder, f"rank{fit.global_rank}.json").write_text(json.dumps(report))


@pytest.mark.processes
def test_ranks_agree_the_slowest_shows_and_all_stop_at_the_same_step(tmp_path: Path) -> None:
    stage = {"run": f"{__file__}:train_on_ranks", "ranks": 2, "arguments": {"folder": str(tmp_path)}}
    assert in_processes(stage) == [[0, 0]]
    report, other_report = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert report == other_report
    assert report["steps"] == 30
    assert re.search(r"stall=75.0%.* on the slowest rank, which delays all others, .*since step 10", report["error"])
    (_, first), *windows = report["rows"]
    assert first == {"starvation/first_batch_seconds": pytest.approx(READ)}
    assert [step for step, _ in windows] == [9, 19, 29]
    for _, metrics in windows:
        assert metrics["starvation/stall"] == pytest.approx(SHARE / 2)
        assert metrics["starvation/stall_max"] == pytest.approx(SHARE)
        assert metrics["starvation/wait_p99_ms"] == pytest.approx(30)
        assert metrics["starvation/queue_depth"] >= 0  # that of the only rank that knows


# ---- the page


def test_the_example_of_the_guide_runs(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (GUIDES / "monitoring.md").read_text()
    (example,) = (
        block for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "StarvationMonitor" in block
    )
    (tmp_path / "out").symlink_to(dataset)
    monkeypatch.chdir(tmp_path)
    example = example.replace('split="train"', 'split="train", image_size=32, num_workers=0')
    example = example.replace("Trainer(", 'Trainer(accelerator="cpu", enable_progress_bar=False, ')
    exec(textwrap.dedent(example), {"__name__": "__main__"})
    rows = next(tmp_path.rglob("metrics.csv")).read_text()
    assert "starvation/stall" in rows
    for name in re.findall(r"`(starvation/\w+)`", text):
        assert name in rows or name in ("starvation/stall_max", "starvation/queue_depth")
