"""What a user notices of compiling: graphs and their breaks are counted, names and results stay."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_levers import Foreign, fit, images, weights
from facefeed.train import levers
from facefeed.train.levers.compilation import networks
from facefeed.train.machine import Machine

HERE = Machine(cores=2, compiler="/usr/bin/c++")


class Broken(torch.nn.Module):
    """Prints in the middle, which no graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(192, 4), torch.nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs.flatten(1))
        torch._dynamo.graph_break()
        return self.second(hidden.relu())


@pytest.mark.filterwarnings("ignore")  # the compiler looks at what torch warns of
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.processes)])
def test_a_compiled_network_trains_the_same_and_its_graphs_are_counted(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graphs are the same as torch runs them and as C++ compilers translate them, which takes half a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    if Machine.detect().compiler is None:
        pytest.skip("there is no C++ compiler")
    plain, compiled = Foreign(Broken()), Foreign(Broken())
    fit(plain, "", images(8))
    trainer = fit(compiled, "compile", images(8))
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    metrics = levers.metrics(trainer)["compile"]
    assert metrics["graphs"] == 2
    assert metrics["graph_breaks"] == 1
    (reason,) = metrics["reasons"]
    assert "graph_break" in reason
    assert weights(compiled).keys() == weights(plain).keys()


@pytest.mark.filterwarnings("ignore")
def test_the_smaller_batch_that_ends_an_epoch_is_not_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    if Machine.detect().compiler is None:
        pytest.skip("there is no C++ compiler")

    class Whole(Broken):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(inputs.flatten(1)).relu())

    plain, compiled = Foreign(Whole()), Foreign(Whole())
    fit(plain, "", images(18, 4), max_epochs=2)
    trainer = fit(compiled, "compile", images(18, 4), max_epochs=2)
    assert len(compiled.losses) == 10
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    assert levers.metrics(trainer)["compile"]["graphs"] == 1
    with torch.no_grad():
        for size in (4, 3, 1):
            assert compiled.net(torch.zeros(size, 3, 8, 8)).shape == (size, 2)
    assert levers.metrics(trainer)["compile"]["graphs"] == 2


def test_that_nothing_was_compiled_is_said_only_of_a_fit_that_trained(tmp_path: Path) -> None:
    if Machine.detect().compiler is None:
        pytest.skip("there is no C++ compiler")

    class Elsewhere(Foreign):
        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss: torch.Tensor = self.net.first.weight.sum()
            return loss

    trainer = fit(Elsewhere(Broken()), "", images(4))
    trainer.save_checkpoint(tmp_path / "finished.ckpt")
    with pytest.warns(UserWarning, match="nothing was compiled"):
        fit(Elsewhere(Broken()), "compile", images(4))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="compile")
        fit(Elsewhere(Broken()), "compile", images(4), ckpt_path=tmp_path / "finished.ckpt")


def test_what_is_compiled_are_the_outermost_networks_with_weights() -> None:
    class Many(Foreign):
        def __init__(self) -> None:
            super().__init__(Broken())
            self.heads = torch.nn.ModuleDict({"one": torch.nn.Linear(2, 2), "loss": torch.nn.CrossEntropyLoss()})

    assert [name for name, _ in networks(Many())] == ["net", "heads.one"]


class Bare(Foreign):
    def __init__(self) -> None:
        super().__init__(torch.nn.Identity())
        self.weight = torch.nn.Parameter(torch.zeros(192, 2))


def scripted() -> Any:
    return Foreign(torch.jit.trace(torch.nn.Linear(4, 2), torch.zeros(1, 4)))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize(
    ("make", "machine", "message"),
    [
        (lambda: Foreign(Broken()), Machine(), "there is no C++ compiler"),
        (Bare, HERE, "calls no network that is a part of it"),
        (scripted, HERE, "net is TorchScript"),
        (
            lambda: Foreign(Broken()),
            Machine(("GTX 1080",), (8 << 30,), (6, 1), 2, frozenset({"triton"}), "c++"),
            "GTX 1080 has compute capability 6.1, and Triton needs 7.0",
        ),
    ],
)
def test_what_cannot_be_compiled_is_refused(make: Any, machine: Machine, message: str) -> None:
    (reason,) = levers.refusals(levers.parse("compile"), make(), machine)
    assert message in reason
