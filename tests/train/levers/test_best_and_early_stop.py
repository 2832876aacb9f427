"""What a user notices of what is watched: the best weights kept, an early end, the same run twice, memory reported."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from assets_levers import Foreign, fit, images, perceptron, small, weights
from facefeed.train import levers
from facefeed.train.levers import LeverError
from facefeed.train.levers.best_and_early_stop import ModelCheckpoint, mode
from torch.utils.data import DataLoader

NAN = float("nan")


class Told(Foreign):
    """Logs metrics in validation that are given to it, epoch by epoch."""

    def __init__(self, name: str, *metrics: float) -> None:
        super().__init__(perceptron())
        self.name, self.metrics = name, metrics

    def validation_step(self, batch: Any, _: int) -> None:
        self.log(self.name, self.metrics[self.current_epoch])


def watched(module: Any, text: str, folder: Path, **options: Any) -> Any:
    options = {"enable_checkpointing": "best" in text, "default_root_dir": folder, "max_epochs": 6, **options}
    return fit(module, text, images(4), val=images(4), num_sanity_val_steps=0, **options)


@pytest.mark.parametrize(("name", "best"), [("val/auc", 0.9), ("val/log_loss", 0.2)])
def test_the_best_weights_are_kept_whichever_way_is_better(name: str, best: float, tmp_path: Path) -> None:
    module = Told(name, 0.5, 0.9, 0.2, 0.4, 0.6, 0.3)
    trainer = watched(module, f"best:{name}", tmp_path)
    saved = Path(trainer.checkpoint_callback.best_model_path)
    assert saved.name == "best.ckpt"
    assert [file.name for file in saved.parent.iterdir()] == ["best.ckpt"]
    assert float(trainer.checkpoint_callback.best_model_score) == pytest.approx(best)
    assert torch.load(saved, weights_only=True)["epoch"] == module.metrics.index(best)


def test_a_metric_that_is_nan_is_never_the_best(tmp_path: Path) -> None:
    assert not watched(Told("val/auc", *[NAN] * 6), "best:val/auc", tmp_path).checkpoint_callback.best_model_path
    assert not list(tmp_path.rglob("best.ckpt"))
    module = Told("val/auc", NAN, 0.5, NAN, 0.6, NAN, 0.4)
    trainer = watched(module, "best:val/auc", tmp_path)
    assert torch.load(trainer.checkpoint_callback.best_model_path, weights_only=True)["epoch"] == 3


class TwoRanks:
    """The strategy of two ranks, each of which has a thread."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2, timeout=60)
        self._decisions: list[bool] = []

    def reduce_boolean_decision(self, decision: bool) -> bool:
        self._decisions.append(decision)
        self._barrier.wait()
        return all(self._decisions[-2:])


def test_ranks_agree_on_the_best_where_one_has_nan(tmp_path: Path) -> None:
    """Else one would wait for the other in the collectives of the save."""
    trainer: Any = SimpleNamespace(strategy=TwoRanks())
    ranks = [ModelCheckpoint(tmp_path, monitor="val_acc", mode="max") for _ in range(2)]
    values = [torch.tensor(0.5), torch.tensor(NAN)]
    with ThreadPoolExecutor(2) as pool:
        is_best = pool.map(lambda rank, value: rank.check_monitor_top_k(trainer, value), ranks, values)
        assert list(is_best) == [False, False]


@pytest.mark.parametrize(
    ("text", "metrics", "epochs"),
    [
        ("early_stop:val_loss:2", (0.5, 0.4, 0.45, 0.6, 0.1, 0.0), 4),
        ("early_stop:val_loss", (0.5, 0.6, 0.7, 0.8, 0.1, 0.0), 4),
        ("early_stop:val_auc:1", (0.5, 0.6, 0.7, 0.6, 0.9, 1.0), 4),
        ("early_stop:val_auc", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), 6),
        ("early_stop:val_loss:5", (0.5, float("nan"), 0.1, 0.1, 0.1, 0.1), 2),
    ],
)
def test_it_stops_once_nothing_got_better_for_long_enough(
    text: str, metrics: tuple[float, ...], epochs: int, tmp_path: Path
) -> None:
    trainer = watched(Told(text.split(":")[1], *metrics), text, tmp_path)
    assert trainer.current_epoch == epochs


@pytest.mark.parametrize("text", ["best:val/acu", "early_stop:val/acu"])
def test_a_metric_that_nobody_logs_is_refused_with_those_that_are(text: str, tmp_path: Path) -> None:
    with pytest.raises(LeverError, match=f"{text}: nobody logs 'val/acu'; what is logged: train_loss, val/auc"):
        watched(Told("val/auc", *[0.5] * 6), text, tmp_path)


def test_a_module_without_validation_is_refused_alike_after_an_epoch() -> None:
    with pytest.raises(LeverError, match=r"early_stop:val_loss:2: nobody logs 'val_loss'; what is logged: train_loss"):
        fit(Foreign(perceptron()), "early_stop:val_loss:2", images(4))


@pytest.mark.parametrize("val", [None, images(4)])
def test_it_stops_by_a_metric_of_training_with_and_without_a_validation(val: Any) -> None:
    module = Foreign(perceptron(), lambda parameters: torch.optim.SGD(parameters, 0.0))
    trainer = fit(module, "early_stop:train_loss:2", images(4), val=val, num_sanity_val_steps=0, max_epochs=6)
    assert trainer.current_epoch == 3


def test_a_validation_without_batches_is_none() -> None:
    with pytest.raises(LeverError, match=r"early_stop:val_loss: nobody logs 'val_loss'; what is logged: train_loss"):
        fit(Foreign(perceptron()), "early_stop:val_loss", images(4), val=[])


def test_checkpoints_that_are_switched_off_are_no_place_for_the_best() -> None:
    with pytest.raises(LeverError, match="enable_checkpointing=False: the lever best:val/auc writes checkpoints"):
        levers.trainer(Told("val/auc", 0.5), levers.parse("best:val/auc"), enable_checkpointing=False)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("val/loss", "min"), ("val/log_loss", "min"), ("logloss", "min"), ("val/video_auc", "max"), ("eer", "min"),
        ("accuracy", "max"), ("top-1-error", "min"), ("career_score", "max"), ("val/accuracy_method_mae", "max"),
        ("val/accuracy_face-loss", "max"), ("val/accuracy_method_swap/mae", "max"),
        *((f"val/{name}", "min") for name in (
            "nll", "ce", "bce", "brier", "ece", "mape", "hter", "acer", "apcer", "bpcer", "far", "frr", "fpr", "fnr",
        )),
        ("brier-score", "min"), ("val/FRR_at_far", "min"), ("bpcer@apcer=0.1", "min"), ("val@night/loss", "min"),
        ("val/faces", "max"), ("reduced_force", "max"), ("tpr_at_fpr_0.01", "max"), ("val/tar@far=1e-3", "max"),
        ("val/accuracy_far", "max"), ("top@1_error", "min"), ("val_at_1_eer", "min"), ("video@mean_loss", "min"),
        ("val/recall_far", "max"), ("val_far", "min"), ("tpr_at_0.01_fpr", "max"), ("tar_at_1e-3_far", "max"),
        ("tpr@1%_fpr", "max"), ("frr_at_1e-3_far", "min"), ("tpr_fpr_0.01", "max"), ("val/tar_1e-3_far", "max"),
        ("fpr_tpr_0.95", "min"), ("fnr_fpr_0.01", "min"), ("tpr_95_fpr", "min"), ("val/tpr_0.95_fpr", "min"),
        ("tpr_bpcer_0.01", "max"), ("tpr_0.01_fpr", "max"),
    ],
)  # fmt: skip
def test_the_name_of_a_metric_says_which_way_is_better(metric: str, expected: str) -> None:
    assert mode(metric) == expected


class Drawing(Foreign):
    """Has dropout, a shuffled loader, and draws by Python's own dice."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Sequential(small(), torch.nn.Dropout(0.5), torch.nn.Linear(2, 2)))
        for layer in self.net[2:]:
            torch.nn.init.ones_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
        self.drawn: list[float] = []

    def train_dataloader(self) -> Any:
        return DataLoader(images().dataset, 4, shuffle=True)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        self.drawn.append(random.random())
        assert torch.are_deterministic_algorithms_enabled()
        return super().training_step(batch, number)


def run(text: str) -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    module = Drawing()
    fit(module, text, module.train_dataloader(), max_epochs=2)
    return module.losses, module.drawn, weights(module)


def test_two_runs_are_the_same_bit_for_bit_and_another_seed_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")  # Lightning leaves them behind
    random.seed(5)
    torch.manual_seed(5)
    losses, drawn, trained = run("deterministic:3")
    second_run = run("deterministic:3")
    assert (losses, drawn) == second_run[:2]
    assert all(torch.equal(weight, second_run[2][name]) for name, weight in trained.items())
    assert run("deterministic:4")[0] != losses
    assert not torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"]


def test_the_setting_ends_with_an_error_too() -> None:
    class Failing(Foreign):
        def training_step(self, *_: Any) -> Any:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fit(Failing(perceptron()), "deterministic")
    assert not torch.are_deterministic_algorithms_enabled()


_MEMORY = """
import subprocess, sys
from facefeed.train.levers import peak_memory
before = peak_memory()
held = b"x" * (300 << 20)
del held
alone = peak_memory()
script = "import sys; held = b'x' * (200 << 20); print(flush=True); sys.stdin.read(1)"
child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
both = peak_memory()
child.communicate(b"x")
after = peak_memory()
from facefeed.train.run.throughput import Throughput
Throughput().on_fit_start(None, None)
second_training = peak_memory()
peaks = (before, alone, both, after, second_training)
print(*(peak["host_bytes"] for peak in peaks), both["allocated_bytes"])
"""


@pytest.mark.processes
def test_the_peak_of_memory_counts_children_and_does_not_go_down_before_another_training() -> None:
    completed = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    *sizes, allocated = completed.stdout.split()
    before, alone, both, after, second_training = map(int, sizes)
    assert alone >= before + (290 << 20)
    assert both >= alone + (200 << 20)
    assert after >= both
    assert second_training <= after - (200 << 20)
    assert (allocated == "None") == (not torch.cuda.is_available())


_RANK = "import sys; memory = b'x' * (200 << 20); print(flush=True); sys.stdin.read(1)"
_STARTS_A_RANK = f"""
import os, subprocess, sys
from facefeed.train.levers import peak_memory
before = peak_memory()["host_bytes"]
start = [sys.executable, "-c", {_RANK!r}]
for rank in ("1", "0"):
    environment = {{**os.environ, "LOCAL_RANK": rank}}
    child = subprocess.Popen(start, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(peak_memory()["host_bytes"] - before)
    child.communicate(b"x")
"""


@pytest.mark.processes
def test_the_peak_of_memory_of_the_first_rank_counts_its_workers_but_not_the_ranks_that_it_started() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    completed = subprocess.run(
        [sys.executable, "-c", _STARTS_A_RANK], capture_output=True, text=True, check=True, env=environment
    )
    with_a_rank, with_a_worker = map(int, completed.stdout.split())
    assert with_a_rank < 100 << 20 < 200 << 20 <= with_a_worker


def test_the_state_of_adamw_is_8_bytes_a_weight_and_a_count() -> None:
    module = Foreign(perceptron())
    (optimizer,) = fit(module, "", images(4)).optimizers
    numbers = sum(parameter.numel() for parameter in module.parameters())
    assert levers.optimizer_state_bytes(optimizer) == 8 * numbers + 4 * len(list(module.parameters()))
