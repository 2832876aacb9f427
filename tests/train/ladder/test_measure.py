"""What a rung's process does: a real fit, with the steps that count timed, and what cannot be meant refused."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import albumentations
import pytest
import torch
from assets_clock import Clock
from assets_paths import SUPPORT
from assets_rows import make_small
from facefeed.pipeline.errors import UsageError
from facefeed.train import levers
from facefeed.train.config.options import DataOptions
from facefeed.train.config.recipes import Config
from facefeed.train.ladder.messages import Grid, Reference, RungRequest, Subject
from facefeed.train.ladder.results import Measurement, PeakMemory
from facefeed.train.ladder.rung.worker import reply
from facefeed.train.levers.registry import LADDER_TEXTS

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own advice is none of ours

MODULES = SUPPORT / "train" / "assets_ladder_modules.py"
SMALL = ("model.backbone=test_resnet", "data.image_size=32", "data.batch_size=16", "data.num_workers=0")
FACES = Subject(out="", videos=None, module=None, recipe="quick", changes=SMALL)
OWN = Subject(out=None, videos=None, module=f"{MODULES}:OwnDataModule", recipe="quick")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_small(tmp_path_factory.mktemp("ladder") / "out"))


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a rung does to its process, and this one has to live on with."""
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")
    before = logging.getLogger("lightning.pytorch").level
    yield
    logging.getLogger("lightning.pytorch").setLevel(before)


def measured(request: RungRequest) -> tuple[Measurement, list[tuple[int, int]]]:
    from facefeed.train.ladder.rung.measure import measure  # noqa: PLC0415 (Lightning, which takes seconds)

    progress: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        result = measure(request, Path(folder), lambda *step: progress.append(step))
    return Measurement(**{**result, "memory": PeakMemory(**result["memory"])}), progress


def test_a_rung_trains_on_the_faces_and_says_what_came_of_it(out: str) -> None:
    subject = replace(FACES, out=out)
    rung, progress = measured(RungRequest(subject=subject, task="measure", steps=6))
    assert rung.steps == 6
    assert (rung.steps_per_epoch, rung.samples) == (7, 6 * 16)
    assert rung.seconds > 0
    assert {"val/auc", "val/accuracy", "val/loss"} <= rung.metrics.keys()
    assert rung.loss is not None
    assert 0 < rung.loss < 0.8
    assert rung.memory.host_bytes >= rung.memory.host_before_bytes > 0  # what this process did before may be its peak
    assert (rung.memory.allocated_bytes is None) == (not torch.cuda.is_available())
    assert (rung.energy_joules is None) == (rung.energy_reason is not None)
    assert torch.cuda.is_available() or rung.energy_reason == "trained on no NVIDIA GPU"
    # An epoch's end lies within what is measured, so the warm-up has seen one. At the end, a batch of validation.
    assert progress == [*((step, 13) for step in range(14)), (13, 13)]


def test_a_rung_is_validated_with_the_transform_of_evaluation(out: str, tmp_path: Path) -> None:
    from facefeed.train.datamodule import FaceDataModule  # noqa: PLC0415 (Lightning, which takes seconds)
    from facefeed.train.ladder.rung.batches import RungDataModule  # noqa: PLC0415

    albumentations.save(
        albumentations.Compose([albumentations.InvertImg(p=1.0)]), str(tmp_path / "a.yaml"), data_format="yaml"
    )
    data = DataOptions(image_size=32, batch_size=1000, num_workers=0, eval_transform=str(tmp_path / "a.yaml"))
    rung = RungDataModule(replace(FACES, out=out), Config(recipe="quick", data=data), naive=False)
    (shuffled,), (expected,) = rung.val_dataloader(), FaceDataModule(out, data).val_dataloader()
    assert torch.equal(shuffled["image"][shuffled["row"].argsort()], expected["image"])


def test_all_rungs_see_the_same_and_another_round_something_else(out: str) -> None:
    subject = replace(FACES, out=out)
    losses = [
        measured(RungRequest(subject=subject, task="measure", levers=lever_texts, steps=1, repeat=repeat))[0].loss
        for lever_texts, repeat in (((), 0), (("clip:1000",), 0), ((), 1))
    ]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_the_best_weights_are_kept_where_they_are_removed_with_the_rung(out: str, tmp_path: Path) -> None:
    request = RungRequest(subject=replace(FACES, out=out), task="measure", levers=("best:val/loss",), steps=1)
    assert "val/loss" in reply(request, tmp_path, lambda *_: None)["metrics"]
    assert list(tmp_path.rglob("best.ckpt"))


def test_a_users_module_gets_images_and_labels(out: str) -> None:
    subject = Subject(out=out, videos=None, module=f"{MODULES}:FaceBatchModule", recipe="quick", changes=SMALL[1:])
    result, _ = measured(RungRequest(subject=subject, task="measure", steps=2))
    assert result.metrics.keys() == {"valid_acc"}


def test_metrics_of_training_are_not_shown_as_those_of_validation(out: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs.py"
    logs.write_text(
        "from assets_ladder_modules import FaceBatchModule, OwnDataModule\n\nclass LogsTraining:\n"
        "    def training_step(self, batch, number):\n        self.log_dict({'acc': 1.0, 'auc': 1.0})\n"
        "        return super().training_step(batch, number)\n\n"
        "class Validated(LogsTraining, FaceBatchModule):\n    pass\n\n"
        "class NotValidated(LogsTraining, OwnDataModule):\n    pass\n"
    )
    validated = Subject(out=out, videos=None, module=f"{logs}:Validated", recipe="quick", changes=SMALL[1:])
    result, _ = measured(RungRequest(subject=validated, task="measure", steps=2))
    assert result.metrics.keys() == {"valid_acc"}
    not_validated = replace(OWN, module=f"{logs}:NotValidated")
    assert measured(RungRequest(subject=not_validated, task="measure", data="own", steps=3))[0].metrics == {}


def test_a_users_module_with_its_own_batches_is_trained_on_them() -> None:
    result, _ = measured(RungRequest(subject=OWN, task="measure", data="own", steps=3))
    assert (result.steps, result.samples, result.steps_per_epoch) == (3, 24, 12)
    assert result.metrics == {}
    assert result.devices == 1


def test_the_loss_of_accumulated_batches_is_that_of_a_batch() -> None:
    single, accumulated = (
        measured(RungRequest(subject=OWN, task="measure", data="own", levers=lever_texts, steps=4))[0]
        for lever_texts in ((), ("accumulate:4",))
    )
    assert single.loss is not None
    assert accumulated.loss == pytest.approx(single.loss)


def reference_of(measurement: Measurement) -> Reference:
    return Reference(
        warm_up_steps=measurement.warm_up_steps, steps=measurement.steps,
        steps_per_epoch=measurement.steps_per_epoch, devices=measurement.devices,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "samples", "updates"),
    [
        (3, (96, 32), (12, 3)),
        (None, (2 * 96, 96), (24, 6)),
        (7, ((12 + 8) * 8, 8 * 8), (20, 5)),  # an epoch's end is within what is measured
    ],
)
def test_a_rung_that_accumulates_sees_the_samples_of_the_base_in_fewer_updates(
    steps: int | None, samples: tuple[int, int], updates: tuple[int, int]
) -> None:
    request = RungRequest(subject=OWN, task="measure", data="own", steps=steps, grid=Grid(group=4))
    base, _ = measured(request)
    accumulated, _ = measured(replace(request, levers=("accumulate:4",), reference=reference_of(base)))
    assert {(rung.trained_samples, rung.samples) for rung in (base, accumulated)} == {samples}
    assert (base.updates, accumulated.updates) == updates


@pytest.mark.parametrize(
    ("grid", "steps", "steps_per_epoch", "expected"),
    [
        (Grid(), 20, 100, {1: (9, 20)}),
        (Grid(ranks=8, group=8), 20, 1000, {1: (72, 160), 2: (36, 80), 8: (9, 20)}),
        (Grid(ranks=4, group=16), 20, None, {1: (48, 80), 4: (12, 20)}),
        (
            Grid(ranks=4, group=4),
            None,
            10,
            {1: (38, 10), 4: (11, 3)},
        ),  # from 3 epochs and 8 batches to the same of the next
        (Grid(ranks=2, group=2), 8, 13, {1: (19, 17), 2: (10, 9)}),  # from an epoch and 6 batches to two and 10
        (Grid(ranks=1, group=64), 20, 10, {1: (10, 20)}),  # an epoch's end is an update too
    ],
)
def test_rungs_of_several_ranks_see_as_many_samples_in_fewer_steps(
    grid: Grid, steps: int | None, steps_per_epoch: int | None, expected: dict[int, tuple[int, int]]
) -> None:
    from facefeed.train.ladder.rung.schedule import Epoch, MeasuredLength, window  # noqa: PLC0415

    def epoch(ranks: int) -> Epoch:
        steps = None if steps_per_epoch is None else -(-steps_per_epoch // ranks)
        return Epoch(steps=steps, workers=2, prefetched=4, ranks=ranks)

    warm_up_steps, measured_steps = window(MeasuredLength(steps=steps, grid=grid), epoch(1))
    reference = Reference(warm_up_steps=warm_up_steps, steps=measured_steps, steps_per_epoch=steps_per_epoch, devices=1)
    length = MeasuredLength(steps=steps, grid=grid, reference=reference)
    assert {ranks: window(length, epoch(ranks)) for ranks in expected} == expected


def test_an_epoch_is_measured_whole_if_that_is_asked_for_after_one_whose_end_warms_up() -> None:
    result, progress = measured(RungRequest(subject=OWN, task="measure", data="own", steps=None))
    assert result.is_whole_epoch
    assert result.steps == 12
    assert progress[-1] == (24, 24)


def test_an_epoch_without_an_end_is_refused_instead_of_measured_as_a_step(tmp_path: Path) -> None:
    endless = tmp_path / "endless.py"
    endless.write_text(
        "import itertools\nimport torch\nfrom assets_ladder_modules import OwnDataModule\n\n"
        "class Batches(torch.utils.data.IterableDataset):\n"
        "    def __iter__(self):\n        return itertools.repeat((torch.ones(4),))\n\n"
        "class Endless(OwnDataModule):\n"
        "    def train_dataloader(self):\n        return torch.utils.data.DataLoader(Batches(), 8)\n"
    )
    subject = replace(OWN, module=f"{endless}:Endless")
    body = reply(RungRequest(subject=subject, task="measure", data="own", steps=None), tmp_path, lambda *_: None)
    assert body["failed"] == "--steps epoch: the module's loader has no length; take --steps 20"
    result, _ = measured(RungRequest(subject=subject, task="measure", data="own", steps=2))
    assert (result.steps, result.epoch_seconds) == (2, None)


def test_what_goes_wrong_in_the_module_is_reported_by_its_name(tmp_path: Path) -> None:
    subject = replace(OWN, module=f"{MODULES}:Breaks")
    body = reply(RungRequest(subject=subject, task="measure", data="own", steps=20), tmp_path, lambda *_: None)
    assert re.fullmatch(r"ValueError: step 3 is one too many \(assets_ladder_modules\.py:\d+\)", body["failed"]), body


def test_a_module_that_stops_at_once_fails_its_rung_with_a_sentence(tmp_path: Path) -> None:
    stops = tmp_path / "stops.py"
    stops.write_text(
        "from assets_ladder_modules import OwnDataModule\n\nclass Stops(OwnDataModule):\n"
        "    def on_train_batch_end(self, *_):\n        self.trainer.should_stop = True\n"
    )
    subject = replace(OWN, module=f"{stops}:Stops")
    body = reply(RungRequest(subject=subject, task="measure", data="own", steps=20), tmp_path, lambda *_: None)
    assert body["failed"].startswith("the fit ended by itself before its warm-up was over, so no step was measured; ")


def test_what_cannot_be_meant_is_distinguished_from_what_breaks(tmp_path: Path) -> None:
    nowhere = replace(OWN, module="nowhere.py:Net")
    refused, failed = (
        reply(RungRequest(subject=nowhere, task=task), tmp_path, lambda *_: None)  # type: ignore[arg-type]
        for task in ("probe", "measure")
    )
    assert "nowhere.py does not exist" in refused["refused"]
    assert failed["failed"] == refused["refused"]


@pytest.mark.parametrize(("text", "devices"), [("", 1), ("bf16,clip:1", 1), ("ddp", "auto"), ("fsdp", "auto")])
def test_rungs_that_share_the_work_do_so_over_all_devices_and_the_others_have_one(text: str, devices: Any) -> None:
    from facefeed.train.ladder.rung.measure import _arguments  # noqa: PLC0415 (Lightning, which takes seconds)

    parsed = levers.parse(text)
    arguments = _arguments(RungRequest(subject=OWN, task="measure", data="own", steps=3), parsed)
    for lever in parsed:
        arguments |= lever.arguments()
    assert arguments.get("devices", "auto") == devices  # Lightning's own default is all that there are


@pytest.mark.parametrize(
    ("steps", "ranks", "of_all_rungs", "batches"),
    [(20, 1, 1, 20), (20, 4, 4, 5), (20, 1, 8, 24), (20, 8, 8, 3), (2, 2, 2, 8), (None, 3, 3, 6)],
)
def test_all_ranks_of_a_rung_validate_together_as_many_batches_as_one_does_alone(
    steps: int | None, ranks: int, of_all_rungs: int, batches: int
) -> None:
    from facefeed.train.ladder.rung.measure import _limit_validation  # noqa: PLC0415 (Lightning, which takes seconds)

    trainer = SimpleNamespace(world_size=ranks)
    request = RungRequest(subject=OWN, task="measure", steps=steps, grid=Grid(ranks=of_all_rungs))
    _limit_validation(trainer, request)
    assert trainer.limit_val_batches == batches


def test_a_rung_validates_on_that_many_batches_of_several(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from facefeed.train.ladder.rung import measure  # noqa: PLC0415 (Lightning, which takes seconds)

    monkeypatch.setattr(measure, "_MIN_VALIDATION_BATCHES", 3)
    subject = replace(FACES, out=out, changes=(*SMALL[:2], "data.batch_size=2", SMALL[3]))
    _, progress = measured(RungRequest(subject=subject, task="measure", steps=1))
    trained = progress[-1][1]
    assert len(progress) == 1 + trained + 3


# ---- the clock


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def __len__(self) -> int:
        return 30

    def __getitem__(self, _: int) -> torch.Tensor:
        self.clock.pass_by(self.seconds)
        return torch.ones(4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    from facefeed.train.ladder.rung import stopwatch  # noqa: PLC0415
    from facefeed.train.starvation import data_wait  # noqa: PLC0415

    fake_clock = Clock()
    monkeypatch.setattr(data_wait, "clock", fake_clock)
    monkeypatch.setattr(stopwatch, "clock", fake_clock)
    return fake_clock


def timed(clock: Clock, tmp_path: Path, *, item_seconds: float, accumulated: int = 1, **length: Any) -> Any:
    """A fit whose first steps compile for 5 s, whose others take 10 ms, and whose checkpoint takes 2 s to save.

    Where batches are accumulated, nothing compiles, and an optimizer step takes 1 s.
    """
    import lightning  # noqa: PLC0415
    from facefeed.train.ladder.rung.schedule import MeasuredLength  # noqa: PLC0415
    from facefeed.train.ladder.rung.stopwatch import Stopwatch  # noqa: PLC0415
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
            clock.pass_by(5.0 if self.global_step < 2 and accumulated == 1 else 0.010)
            return self.head(batch).mean()  # type: ignore[no-any-return]

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            clock.pass_by(1.0 if accumulated > 1 else 0.0)

        def validation_step(self, batch: torch.Tensor, number: int) -> None:
            clock.pass_by(60.0)

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            clock.pass_by(2.0)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    watch = Stopwatch(MeasuredLength(grid=Grid(group=accumulated), **length))
    loader = torch.utils.data.DataLoader(Slow(clock, item_seconds), 2)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=100,
        check_val_every_n_epoch=100,
        accumulate_grad_batches=accumulated,
        callbacks=[watch, ModelCheckpoint(tmp_path)],
        **quiet,
    )
    trainer.fit(Model(), loader, torch.utils.data.DataLoader(Slow(Clock(), 0.0), 2))
    return watch


def test_the_warm_up_is_left_out_and_an_epochs_end_is_measured_apart(clock: Clock, tmp_path: Path) -> None:
    watch = timed(clock, tmp_path, item_seconds=0.005, steps=8)
    assert watch.warm_up_seconds == pytest.approx(2 * 5.0 + 3 * 0.010 + 5 * 0.010)
    assert (watch.steps, watch.samples, watch.steps_per_epoch) == (8, 16, 15)
    assert watch.seconds == pytest.approx(8 * 0.020)
    assert watch.ending_seconds == pytest.approx(2.0)
    assert watch.stall_share == pytest.approx(0.5)


def test_where_an_epochs_end_is_measured_the_warm_up_has_seen_one(clock: Clock, tmp_path: Path) -> None:
    watch = timed(clock, tmp_path, item_seconds=0.0, steps=12)
    assert watch.seconds == pytest.approx(12 * 0.010 + 0)
    assert watch.warm_up_seconds == pytest.approx(2 * 5.0 + 13 * 0.010)


@pytest.mark.parametrize(
    ("accumulated", "steps", "measured", "optimizer_steps"),
    [
        (4, 5, 8, 2),  # batches 8 to 16 of an epoch of 15 batches would pass its end: those of the next epoch
        (6, 5, 6, 1),
        (32, 5, 15, 1),  # an epoch's end is an optimizer step too
        (4, None, 15, 4),
        (4, 20, 23, 6),  # an epoch, with its short last group, and two groups
    ],
)
def test_steps_of_the_optimizer_are_measured_as_often_as_batches_are_accumulated(
    clock: Clock, tmp_path: Path, accumulated: int, steps: int | None, measured: int, optimizer_steps: int
) -> None:
    watch = timed(clock, tmp_path, item_seconds=0.0, accumulated=accumulated, steps=steps)
    assert (watch.steps, watch.seconds) == (measured, pytest.approx(measured * 0.010 + optimizer_steps))


def test_a_slow_loaders_fit_is_short(clock: Clock, tmp_path: Path) -> None:
    watch = timed(clock, tmp_path, item_seconds=100.0, slow=True)
    assert (watch.steps, watch.seconds) == (1, pytest.approx(200.0 + 5.0))
    assert watch.warm_up_seconds == pytest.approx(200.0 + 5.0)


def test_samples_of_an_epochs_last_step_are_those_that_all_ranks_have() -> None:
    from facefeed.train.ladder.rung.schedule import MeasuredLength  # noqa: PLC0415
    from facefeed.train.ladder.rung.stopwatch import Stopwatch  # noqa: PLC0415

    watch, of_other_rank = Stopwatch(MeasuredLength()), 2
    watch._wait_timer = SimpleNamespace(step_ended=lambda: None)
    watch._measured_steps = 3
    strategy = SimpleNamespace(root_device="cpu", reduce=lambda count, reduce_op: count + of_other_rank)
    trainer = SimpleNamespace(world_size=2, is_last_batch=False, strategy=strategy)
    watch.on_train_batch_end(trainer, None, None, torch.zeros(4, 3, 8, 8), 0)
    trainer.is_last_batch = True
    watch.on_train_batch_end(trainer, None, None, torch.zeros(3, 3, 8, 8), 1)
    assert watch.samples == watch.trained_samples == 2 * 4 + 3 + of_other_rank


def test_the_stall_of_a_rung_is_that_of_the_rank_that_waits_longest() -> None:
    """All others wait for it, and would say that they are fed."""
    from facefeed.train.ladder.rung.energy import EnergyMeter  # noqa: PLC0415
    from facefeed.train.ladder.rung.schedule import MeasuredLength  # noqa: PLC0415
    from facefeed.train.ladder.rung.stopwatch import Stopwatch  # noqa: PLC0415

    def reduce(number: torch.Tensor, reduce_op: str) -> torch.Tensor:
        return number.clamp(min=0.6) if reduce_op == "max" else number

    watch, cpu = Stopwatch(MeasuredLength()), torch.device("cpu")
    watch._wait_timer = SimpleNamespace(pop_window=lambda: SimpleNamespace(stall=0.01))
    watch._energy_meter = EnergyMeter(None)
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=cpu, reduce=reduce), global_step=3)
    watch._stop(trainer, SimpleNamespace(device=cpu))
    assert watch.stall_share == 0.6


# ---- what can run here


def test_every_lever_can_run_here_or_says_why_not(out: str) -> None:
    from facefeed.train.ladder.rung.probe import probe  # noqa: PLC0415

    answer = probe(RungRequest(subject=replace(FACES, out=out), task="probe", levers=LADDER_TEXTS))
    assert answer["refusals"].keys() == {"", *LADDER_TEXTS}
    assert answer["refusals"][""] == answer["refusals"]["accumulate:4"] == []
    assert (answer["batches"][""], answer["batches"]["accumulate:4"]) == ((1, 1), (1, 4))
    if not torch.cuda.is_available():
        assert all(answer["refusals"][text] for text in ("fp16", "tf32", "zero:2", "fsdp", "ddp"))
    assert (answer["recipe"], answer["own_data"]) == ("quick", False)
    assert answer["parameters"] > 1000


def test_a_recipes_own_levers_are_one_more_rung(out: str) -> None:
    from facefeed.train.ladder.rung.probe import probe  # noqa: PLC0415

    subject = replace(FACES, out=out, changes=(*SMALL, "levers=clip:1,channels_last"))
    answer = probe(RungRequest(subject=subject, task="probe", levers=("bf16",)))
    assert answer["recipe_levers"] == "clip:1,channels_last"
    assert answer["refusals"].keys() == {"", "bf16", "clip:1,channels_last"}


def test_what_cannot_be_together_is_left_out_of_a_set_with_the_reason() -> None:
    from facefeed.train.ladder.rung.probe import combine  # noqa: PLC0415

    combination = combine(RungRequest(subject=OWN, task="combine", levers=("bf16", "clip:1", "fp16", "clip:1,bf16")))
    assert combination["levers"] == ("bf16", "clip:1")
    assert "fp16" in combination["left_out"]["fp16"]


def test_a_set_takes_of_levers_that_were_measured_together_those_that_it_lacks() -> None:
    from facefeed.train.ladder.rung.probe import combine  # noqa: PLC0415

    texts = ("bf16", "bf16,clip:1", "clip:1,accumulate:2,bf16")
    combination = combine(RungRequest(subject=OWN, task="combine", levers=texts))
    assert combination == {"levers": ("bf16", "clip:1", "accumulate:2"), "left_out": {}}


@pytest.mark.parametrize(
    ("module", "has_out", "message"),
    [
        ("nowhere.py:Net", False, "nowhere.py does not exist; name an existing file"),
        (f"{MODULES}:Nothing", False, "no LightningModule of the name 'Nothing'; it has"),
        (f"{MODULES}:NoModule", False, "no LightningModule of the name 'NoModule'"),
        (f"{MODULES}:RequiresArgument", False, "a constructor without arguments"),
        (f"{MODULES}", False, "must be PATH:CLASS"),
        (__file__ + "c:Net", False, "must be PATH:CLASS"),
        (f"{MODULES}:OwnDataModule", True, "brings its own batches; leave OUT out"),
        (f"{MODULES}:FaceBatchModule", False, "give OUT"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused_with_the_reason(
    out: str, module: str, has_out: bool, message: str
) -> None:
    from facefeed.train.ladder.rung.probe import probe  # noqa: PLC0415

    subject = replace(OWN, module=module, out=out if has_out else None)
    with pytest.raises(UsageError, match=message):
        probe(RungRequest(subject=subject, task="probe"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("model.backbone=resnet50", "brings its own model; leave it out"),
        ("data.batch_size=8", "brings its own data; leave it out"),
        ("init_from=last.ckpt", "brings its own weights; leave it out"),
        ("levers=bf16,clip:1", "brings its own batches, .*; take --levers bf16,clip:1"),
        ("epochs=3", "no rung depends on it; leave it out"),
        ("steps=5", "no rung depends on it; .* take --steps"),
        ("save_every_minutes=1", "no rung depends on it"),
    ],
)
def test_a_setting_that_no_rung_of_a_module_with_its_own_batches_depends_on_is_refused(
    change: str, reason: str
) -> None:
    from facefeed.train.ladder.rung.probe import probe  # noqa: PLC0415

    with pytest.raises(UsageError, match=f"--set {change}: .*{reason}"):
        probe(RungRequest(subject=replace(OWN, changes=(change,)), task="probe"))
    assert probe(RungRequest(subject=replace(OWN, changes=("seed=1",)), task="probe"))["own_data"]


def test_rungs_begin_with_the_weights_of_init_from_and_a_file_that_does_not_fit_is_refused(
    out: str, tmp_path: Path
) -> None:
    from facefeed.train.ladder.rung.probe import probe  # noqa: PLC0415
    from facefeed.train.ladder.rung.subject import create_module, load_config  # noqa: PLC0415

    subject, file = replace(FACES, out=out), tmp_path / "weights.pt"
    weights = {name: value + 1 for name, value in create_module(subject, load_config(subject)).state_dict().items()}
    torch.save(weights, file)
    warm = replace(subject, changes=(*SMALL, f"init_from={file}"))
    loaded = create_module(warm, load_config(warm)).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in weights.items())
    file.unlink()
    with pytest.raises(UsageError, match=r"weights\.pt: No such file"):
        probe(RungRequest(subject=warm, task="probe"))


@pytest.mark.parametrize(
    ("batch_size", "message"),
    [
        (1000, r"data.batch_size=1000: the split train has \d+ images, .*take --set data.batch_size=\d+ or less"),
        (7, "data.batch_size=7: cannot hold .*take --set data.batch_size=6 or data.balance=none"),
    ],
)
def test_a_batch_size_that_no_rung_can_have_is_refused_before_any_is_measured(
    out: str, batch_size: int, message: str
) -> None:
    from facefeed.train.ladder.rung.probe import probe  # noqa: PLC0415

    subject = replace(FACES, out=out, changes=(*SMALL[:2], f"data.batch_size={batch_size}"))
    with pytest.raises(UsageError, match=message):
        probe(RungRequest(subject=subject, task="probe"))


def test_a_module_that_another_module_hides_is_not_taken_for_it(tmp_path: Path) -> None:
    from facefeed.train.ladder.rung.probe import probe  # noqa: PLC0415

    file = tmp_path / "json.py"
    file.write_text("")
    with pytest.raises(UsageError, match=r"json.py: a module of that name is there already, .*; rename the file"):
        probe(RungRequest(subject=replace(OWN, module=f"{file}:Net"), task="probe"))


def test_a_text_that_is_no_levers_is_refused() -> None:
    from facefeed.train.ladder.rung.probe import probe  # noqa: PLC0415

    with pytest.raises(UsageError, match="bf17"):
        probe(RungRequest(subject=OWN, task="probe", levers=("bf17",)))
