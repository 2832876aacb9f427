"""What a user of another GPU than an A100 notices of a recipe: it runs, and says what it runs with."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from assets_fit import config
from assets_train import small_dataset
from facefeed.train import levers
from facefeed.train.config.fitting import fit_to_machine
from facefeed.train.config.recipes import RECIPES
from facefeed.train.config.settings import with_overrides
from facefeed.train.machine import Machine
from facefeed.train.run.runner import train
from rich.console import Console

PACKAGES = frozenset({"bitsandbytes", "timm", "torchao", "triton"})


def card(name: str, capability: tuple[int, int], count: int = 1, compiler: str | None = "c++") -> Machine:
    return Machine((name,) * count, (16 << 30,) * count, capability, 8, PACKAGES, compiler)


V100, T4, P100, A100 = (
    card(name, capability)
    for name, capability in (("V100", (7, 0)), ("T4", (7, 5)), ("P100", (6, 0)), ("A100", (8, 0)))
)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (V100, "fp16,channels_last,fused,compile,clip:1"),
        (T4, "fp16,channels_last,fused,compile,clip:1"),
        (P100, "channels_last,fused,clip:1"),
        (card("T4", (7, 5), compiler=None), "fp16,channels_last,fused,clip:1"),
    ],
)
def test_the_default_recipe_falls_back_to_what_the_card_has_and_says_so(machine: Machine, expected: str) -> None:
    from facefeed.train.config.options import ModelOptions  # noqa: PLC0415
    from facefeed.train.model.face_classifier import FaceClassifier  # noqa: PLC0415

    fitted, notes = fit_to_machine(RECIPES["fast"](), machine)
    assert fitted.levers == expected
    (note,) = notes
    for part in (machine.gpus[0], "tf32 left out", expected):
        assert part in note
    module = FaceClassifier(ModelOptions(backbone="test_resnet"))
    assert levers.refusals(levers.parse(fitted.levers), module, machine) == []


def test_where_a_recipe_runs_as_it_is_there_is_no_note() -> None:
    for machine, name in ((A100, "fast"), (T4, "small-gpu"), (Machine(), "quick"), (V100, "baseline")):
        assert fit_to_machine(RECIPES[name](), machine) == (RECIPES[name](), ())


def test_levers_that_a_user_names_are_left_to_be_refused() -> None:
    overridden = with_overrides(RECIPES["fast"](), ["levers=bf16,clip:1"])
    assert fit_to_machine(overridden, V100) == (overridden, ())


def test_a_recipe_that_was_given_its_ranks_falls_back_as_well() -> None:
    overridden = with_overrides(RECIPES["multi-gpu"](), [f"levers=ddp:4:2,{RECIPES['fast']().levers}"])
    fitted, _ = fit_to_machine(overridden, card("V100", (7, 0), count=4))
    assert fitted.levers == "ddp:4:2,fp16,channels_last,fused,compile,clip:1"


@pytest.mark.parametrize("before", [V100, P100, A100, card("A100", (8, 0), compiler=None)])
@pytest.mark.parametrize("now", [V100, P100, A100, Machine()])
def test_a_run_that_goes_on_on_another_card_keeps_its_levers_and_says_so(before: Machine, now: Machine) -> None:
    begun, _ = fit_to_machine(RECIPES["fast"](), before)
    fitted, notes = fit_to_machine(RECIPES["fast"](), now, begun_levers=begun.levers)
    assert fitted == begun
    new, its_notes = fit_to_machine(RECIPES["fast"](), now)
    kept = f"recipe fast: levers={begun.levers}, with which the run began; a new run would have {new.levers} here"
    assert notes == (its_notes if new == begun else (kept,))


def test_a_run_keeps_its_levers_on_other_ranks_too() -> None:
    before = with_overrides(RECIPES["multi-gpu"](), [f"levers=ddp:4,{RECIPES['fast']().levers}"])
    begun, _ = fit_to_machine(before, card("V100", (7, 0), count=4))
    fitted, _ = fit_to_machine(RECIPES["multi-gpu"](), card("A100", (8, 0), count=2), begun_levers=begun.levers)
    assert fitted.levers == "ddp,fp16,channels_last,fused,compile,clip:1"


@pytest.mark.parametrize("begun_levers", ["", "bf16,clip:1", "fp16,channels_last,fused,compile,clip:2"])
def test_levers_that_are_not_those_of_the_recipe_do_not_take_their_place(begun_levers: str) -> None:
    assert fit_to_machine(RECIPES["fast"](), A100, begun_levers=begun_levers) == (RECIPES["fast"](), ())
    overridden = with_overrides(RECIPES["fast"](), ["levers=bf16,clip:1"])
    fast_on_v100 = "fp16,channels_last,fused,compile,clip:1"
    assert fit_to_machine(overridden, A100, begun_levers=fast_on_v100) == (overridden, ())


def test_multi_gpu_is_fast_on_all_gpus() -> None:
    assert RECIPES["multi-gpu"]().levers == f"ddp,{RECIPES['fast']().levers}"
    assert RECIPES["multi-gpu"]().model == RECIPES["fast"]().model


def test_on_several_gpus_a_recipe_for_one_says_that_the_others_are_idle() -> None:
    eight = card("A100", (8, 0), count=8)
    fitted, (note,) = fit_to_machine(RECIPES["fast"](), eight)
    assert fitted == RECIPES["fast"]()
    assert note.startswith("8 GPUs, of which this run uses one")
    assert "--recipe multi-gpu" in note
    assert fit_to_machine(RECIPES["multi-gpu"](), eight)[1] == ()


@pytest.mark.filterwarnings("ignore")
def test_notes_on_the_config_are_shown_and_kept_with_it(tmp_path: Path) -> None:
    output, run = io.StringIO(), tmp_path / "run"
    out = small_dataset(tmp_path / "out")
    train(out, config(steps=1), run, console=Console(file=output, soft_wrap=True), notes=["fp16 instead of bf16"])
    assert output.getvalue().splitlines()[0] == "fp16 instead of bf16"
    assert json.loads((run / "config.json").read_text())["notes"] == ["fp16 instead of bf16"]
