"""What the README shows is what happens."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from assets_dataset import make_dataset
from assets_paths import ROOT
from assets_train import small_dataset
from click.testing import CliRunner
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.schema import face_schema
from facefeed.pipeline.errors import REASONS
from facefeed.pipeline.faces import FaceDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute

README, PROFILER, TRAIN = (ROOT / name for name in ("README.md", "loaders/profiler/README.md", "train/README.md"))


def blocks(language: str, page: Path = README) -> list[str]:
    """Fenced blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_the_python_examples_run_and_give_the_shapes_they_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("python"):
        exec(textwrap.dedent(block).replace("num_workers=4", "num_workers=0"), seen)
    assert seen["faces"].column_names == ["video_id", "pts_seconds", "label", "image"]
    assert seen["images"].shape[1:] == (3, 224, 224)
    assert str(seen["images"].dtype) == "torch.float32"
    assert str(seen["labels"].dtype) == "torch.int64"


def test_the_example_of_a_detector_of_ones_own_works_in_worker_processes(
    make_source: Callable[..., Path], tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    (block,) = (block for block in blocks("python") if "def detect" in block)
    seen: dict[str, Any] = {"__name__": "__main__"}
    exec(block, seen)
    detector: FaceDetector = seen["WholeFrame"]()
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    summary = precompute(source, out, options=small_options, detector=detector, scheduler=cluster_address)
    assert summary.manifest.config["detector"] == "whole-frame-1"
    rows = ds.dataset(out / "faces").to_table(columns=["frame_index", "box_xyxy"]).sort_by("frame_index")
    assert rows["box_xyxy"].to_pylist() == [[0, 0, 160, 120]] * 5


@pytest.mark.filterwarnings("ignore")  # Lightning's own advice
@pytest.mark.parametrize("name", ["checkpoints", "run", "levers"])
def test_the_training_guides_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_dataset(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    examples = [
        block for block in blocks("python", TRAIN) if re.search(rf"facefeed\.train(\.| import ){name}\b", block)
    ]
    assert examples
    for example in examples:
        small = example.replace(", image_size=64", ", image_size=32, num_workers=0")
        small = small.replace(
            '"data.image_size=64"', '"data.image_size=32", "data.num_workers=0", "model.backbone=test_resnet"'
        )
        small = small.replace('backbone="resnet18"', 'backbone="test_resnet"')
        small = small.replace('split="train"', 'split="train", image_size=32, num_workers=0')
        exec(small, {"__name__": "__main__"})


def test_the_profilers_example_runs_and_says_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_dataset(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("python", PROFILER)
    given = block.replace("batch_size=16", "batch_size=1, num_workers=0").replace("steps=200", "steps=50, quick=True")
    exec(given, {"__name__": "__main__"})
    assert "device waits" in capsys.readouterr().out


def test_every_option_of_the_profiler_is_in_its_guide() -> None:
    shown = CliRunner().invoke(main, ["profile", "--help"]).output
    options = set(re.findall(r"^  (--[a-z-]+)", shown, flags=re.MULTILINE))
    assert set(re.findall(r"--[a-z][a-z-]+", PROFILER.read_text())) <= options
    assert {"--verify", "--against", "--quick", "--self-test", "--max-stall"} <= options


def test_every_option_and_command_that_the_readme_names_exists() -> None:
    text = README.read_text()
    for command in set(re.findall(r"facefeed (sample|precompute|verify|profile)\b", text)):
        shown = CliRunner().invoke(main, [command, "--help"]).output
        for line in re.findall(rf"facefeed {command} [^\n`]*", text):
            for option in re.findall(r"(--[a-z-]+)", line):
                assert option in shown, (command, option)


def test_the_readme_explains_every_reason_for_failure() -> None:
    text = README.read_text()
    assert [reason for reason in REASONS if f"`{reason}`" not in text] == []


def test_nothing_in_the_readme_waits_to_be_filled_in() -> None:
    assert re.findall(r"@[A-Z]+@|^[A-Z]+$", README.read_text() + PROFILER.read_text(), flags=re.MULTILINE) == []


@pytest.mark.parametrize("name", ["inspect", "augment", "profile", "ladder"])
def test_every_command_writes_its_page_where_page_says_else_where_it_is_given(name: str) -> None:
    command = entry_points(group="facefeed.commands")[name].load()
    pages = {tuple(one.opts): str(one.default) for one in command.params if str(one.default).endswith(".html")}
    assert pages == {("--page",): f"{name}.html"}
    assert f"`{name}.html`" in README.read_text()


COLUMNS = ROOT / "pipeline/COLUMNS.md"


def type_text(given: pa.DataType) -> str:
    """A column's type as people read it."""
    if pa.types.is_fixed_size_list(given):
        return f"{type_text(given.value_type)}[{given.list_size}]"
    if pa.types.is_list(given):
        return f"list of {type_text(given.value_type)}"
    if pa.types.is_struct(given):
        return f"struct of {', '.join(field.name for field in given)}: each {type_text(given[0].type)}"
    return {"float": "float32", "double": "float64"}.get(str(given), str(given))


def test_the_guide_to_columns_says_what_the_schema_says() -> None:
    rows = [
        f"| `{field.name}` | {type_text(field.type)}{' or null' if field.nullable else ''} "
        f"| {field.metadata[b'description'].decode().replace('<', '&lt;')} |"
        for field in face_schema(["real", "fake"])
    ]
    assert [line for line in COLUMNS.read_text().splitlines() if line.startswith("| `")] == rows
    assert "pipeline/COLUMNS.md" in README.read_text()
