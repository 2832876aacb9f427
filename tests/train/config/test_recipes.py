"""What a user notices of recipes and of `--set`: whole configs, values of the right type, and advice that helps."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.train.config.options import DataOptions
from facefeed.train.config.recipes import RECIPES, Config
from facefeed.train.config.settings import differences, flat_settings, flatten, with_overrides


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_returns_a_whole_config_that_says_which_it_is(name: str) -> None:
    config = RECIPES[name]()
    assert config.recipe == name
    assert config == RECIPES[name]()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", RECIPES)
def test_the_levers_of_a_recipe_go_together(name: str) -> None:
    from facefeed.train import levers  # noqa: PLC0415
    from facefeed.train.config.options import ModelOptions  # noqa: PLC0415
    from facefeed.train.machine import Machine  # noqa: PLC0415
    from facefeed.train.model.face_classifier import FaceClassifier  # noqa: PLC0415

    packages = frozenset({"bitsandbytes", "timm", "torchao", "triton"})
    gpus = Machine(gpus=("A", "A"), gpu_memory_bytes=(1, 1), compute_capability=(8, 0), packages=packages, compiler="c")
    module = FaceClassifier(ModelOptions(backbone="test_resnet"))
    assert levers.refusals(levers.parse(RECIPES[name]().levers), module, gpus) == []


def test_the_names_of_recipes_are_there_without_what_is_heavy() -> None:
    code = "import sys, facefeed.train.cli; print({'torch', 'lightning', 'timm'} & {*sys.modules})"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout == "set()\n"


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("epochs=3", "epochs", 3),
        ("epochs = 1_000", "epochs", 1000),
        ("steps=50", "steps", 50),
        ("steps=none", "steps", None),
        ("data.num_workers=0", "data.num_workers", 0),
        ("data.num_workers=None", "data.num_workers", None),
        ("data.transform=a=b.yaml", "data.transform", "a=b.yaml"),
        ("model.learning_rate=3e-4", "model.learning_rate", 3e-4),
        ("model.drop_rate=0", "model.drop_rate", 0.0),
        ("model.pretrained=true", "model.pretrained", True),
        ("model.pretrained=off", "model.pretrained", False),
        ("model.loss=focal", "model.loss", "focal"),
        ("levers=bf16,accumulate:4", "levers", "bf16,accumulate:4"),
        ("levers=", "levers", ""),
        ("data.crop=deepfakebench", "data.crop", "deepfakebench"),
        ("data.crop=none", "data.crop", None),
        ('data.crop={"margin": 0.3, "size": 299}', "data.crop", {"margin": 0.3, "size": 299}),
    ],
)
def test_a_value_is_read_as_the_type_of_its_setting(override: str, key: str, value: object) -> None:
    actual = flat_settings(with_overrides(RECIPES["quick"](), [override]))[key]
    assert actual == value
    assert type(actual) is type(value)


def test_several_are_set_at_once_and_all_others_stay() -> None:
    before = flat_settings(RECIPES["baseline"]())
    after = flat_settings(
        with_overrides(RECIPES["baseline"](), ["epochs=3", "model.backbone=vit", "model.loss=bce", "data.seed=7"])
    )
    changed = {"epochs": 3, "model.backbone": "vit", "model.loss": "bce", "data.seed": 7}
    assert after == {**before, **changed}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["epoch=3"], r"epoch: no such setting; did you mean epochs\?"),
        (["backbone=vit"], r"backbone: no such setting; did you mean model\.backbone\?"),
        (["model.lr=1"], r"model\.lr: no such setting; "),
        (["data.batchsize=1"], r"did you mean data\.batch_size"),
        (["zzz=1"], r"zzz: no such setting; there are model\.backbone, .*, save_every_minutes"),
        (["epochs"], "epochs: must be key=value; try epochs=5"),
        (["epochs=many"], "epochs=many: must be a whole number; try epochs=5"),
        (["epochs=2.5"], "epochs=2.5: must be a whole number; try epochs=5"),
        (["epochs="], "epochs=: must be a whole number"),
        (["epochs=none"], "epochs=none: must be a whole number"),
        (["steps=x"], "steps=x: must be a whole number or none; try steps=none"),
        (["model.learning_rate=fast"], "model.learning_rate=fast: must be a number; try model.learning_rate=0.0005"),
        (["model.pretrained=maybe"], "model.pretrained=maybe: must be true or false; try model.pretrained=false"),
        (["model.loss=mse"], "model.loss=mse: must be one of bce, ce, focal; try model.loss=ce"),
        (["recipe=fast"], "recipe: names the function that the values come from; give --recipe"),
        (["model.classes=a,b"], "model.classes: are the dataset's own"),
        (["epochs=1", "epochs=2"], "epochs: is set twice"),
        (["epochs=0"], "epochs=0: must be at least 1; try 10"),
        (["seed=4294967296"], "seed=4294967296: must be at most 4294967295"),
        (["model.learning_rate=nan"], "learning_rate=nan: must be"),
        (["data.crop=dfb"], "crop='dfb': must be 'deepfakebench', 'ffpp', 'sbi', or like"),
        (
            ["data.crop={margin: 0.3, size: 299}"],
            """crop='{margin: .*: must be 'deepfakebench', .* or like {"margin":""",
        ),
        (['data.crop={"margin": -1, "size": 299}'], "crop: margin=-1: must be from 0 to 8"),
        (["data.crop"], "data.crop: must be key=value; try data.crop=none"),
        (["levers=bf17"], "bf17: there is no lever 'bf17'; try bf16"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_could(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_overrides(RECIPES["quick"](), overrides)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 2.0}, {"steps": 0}, {"seed": -1}, {"save_every_minutes": True}, {"save_every_minutes": 0}]
)
def test_a_config_is_checked_when_it_is_made(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=f"^{name}="):
        Config(recipe="own", **wrong)  # type: ignore[arg-type]


def test_a_config_that_went_through_json_differs_from_itself_in_nothing() -> None:
    config = RECIPES["fast"]()
    stored = flatten(json.loads(json.dumps(dataclasses.asdict(config))))
    assert differences(stored, flat_settings(config)) == []
    changed = flat_settings(with_overrides(config, ["model.drop_rate=0.1", "steps=5"]))
    assert differences(stored, changed) == ["model.drop_rate: 0.0 there, 0.1 here", "steps: none there, 5 here"]


def test_a_crop_of_ones_own_is_the_same_from_the_command_line_and_in_python() -> None:
    crop = {"margin": 0.3, "size": 299, "align": "arcface"}
    named = with_overrides(RECIPES["quick"](), [f"data.crop={json.dumps(crop)}"])
    assert named.data == DataOptions(batch_size=16, image_size=112, crop=crop)
    stored = flatten(json.loads(json.dumps(dataclasses.asdict(named))))
    assert differences(stored, flat_settings(named)) == []
    wider = flat_settings(with_overrides(named, ['data.crop={"margin": 0.4, "size": 299}']))
    assert differences(stored, wider) == [f'data.crop: {json.dumps(crop)} there, {{"margin": 0.4, "size": 299}} here']
