"""The Python examples of the pages run, and give what they state."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import albumentations
import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
import torch
from accelerate import Accelerator
from assets_dataset import make_dataset
from assets_docs import DOCS, GUIDES, PAGES, README, blocks, name_of
from assets_train import small_dataset
from facefeed.data.recipe import draw_clips
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.faces import FaceDetector
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.landmarks import Landmarker
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute

RUN_HERE = {README, *(GUIDES / f"{name}.md" for name in (
    "detectors", "ladder", "landmarks", "levers", "loading", "precompute", "profiling", "quickstart", "training",
)), DOCS / "sample.md"}  # fmt: skip
RUN_ELSEWHERE = {GUIDES / "layouts.md", GUIDES / "monitoring.md"}  # by the tests of these parts
TRAINS = [GUIDES / f"{name}.md" for name in ("ladder", "levers", "training")]


def run(block: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Runs a block as a script whose workers are this process."""
    seen = {"__name__": "__main__"} if names is None else names
    exec(re.sub(r'(FaceDataLoader\(\s*"out")', r"\1, num_workers=0", block), seen)
    return seen


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset in the folder that the examples run in."""
    make_dataset(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "out"


def test_the_examples_of_every_page_are_run() -> None:
    assert {name_of(page) for page in PAGES if blocks("python", page)} == {
        name_of(page) for page in RUN_HERE | RUN_ELSEWHERE
    }


@pytest.mark.parametrize("page", [README, GUIDES / "quickstart.md"], ids=name_of)
@pytest.mark.usefixtures("out")
def test_the_first_examples_give_the_shapes_they_state(page: Path) -> None:
    seen: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("python", page):
        run(block, seen)
    if page == README:
        assert seen["faces"].column_names == ["video_id", "pts_seconds", "label", "image"]
    assert seen["images"].shape[1:] == (3, 224, 224)
    assert (seen["images"].dtype, seen["labels"].dtype) == (torch.float32, torch.int64)


def test_the_loaders_examples_run(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(2, 2)
    seen: dict[str, Any] = {
        "__name__": "__main__", "A": albumentations, "pc": pc, "accelerator": Accelerator(cpu=True), "model": model,
        "optimizer": torch.optim.SGD(model.parameters()), "pipeline": albumentations.Compose([]),
    }  # fmt: skip
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": "0"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)  # as torchrun does
    for block in blocks("python", GUIDES / "loading.md"):
        if "transformers" in block:
            continue  # has a test of its own
        run(block.replace('"method", "in", ["Deepfakes", "FaceSwap"]', '"label", "in", [0, 1]'), seen)
    assert seen["images"].shape[1:] == (3, 224, 224)
    assert isinstance(seen["loader"], FaceDataLoader)
    assert seen["state"]["images"] >= 0
    assert (out.parent / "pipeline.yaml").is_file()


@pytest.mark.filterwarnings("ignore")  # the Trainer's own advice
@pytest.mark.usefixtures("out")
def test_the_hugging_face_trainer_resumes_the_example_at_the_next_unused_image() -> None:
    (block,) = (block for block in blocks("python", GUIDES / "loading.md") if "transformers" in block)
    for text, shorter in {
        "batch_size=64, image_size=112": "batch_size=40, image_size=32",
        'fields=("image", "label")': 'fields=("image", "label", "row")',
        "outputs = model(": 'rows.append(inputs["row"].tolist()); outputs = model(',
        "save_steps=500": "save_steps=2, use_cpu=True, disable_tqdm=True",
    }.items():
        block = block.replace(text, shorter)
    steps: list[list[int]] = []
    run(block.replace("num_train_epochs=2", "max_steps=2"), {"__name__": "__main__", "rows": steps})
    loader = run(block, {"__name__": "__main__", "rows": steps})["loader"]
    assert len(steps) == 2 * len(loader)
    for epoch in (steps[: len(loader)], steps[len(loader) :]):
        assert sorted(chain(*epoch)) == loader.dataset.rows.tolist()


def test_the_examples_of_precompute_run(
    make_source: Callable[..., Path], tmp_path: Path, small_options: Options, cluster_address: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    make_source("real/a.mp4", root=tmp_path / "videos")
    monkeypatch.chdir(tmp_path)
    fakes, whole_job = blocks("python", GUIDES / "precompute.md")
    assert "0.01" in str(run(fakes)["changed"])
    detector, with_it = blocks("python", GUIDES / "detectors.md")

    def precompute_here(*args: Any, detector: Any = None) -> Any:
        return precompute(*args, options=small_options, detector=detector or seen["LeftHalf"](), scheduler=address)

    seen, address = run(detector), cluster_address
    monkeypatch.setattr("facefeed.pipeline.precompute.precompute", precompute_here)
    run(with_it, seen)
    run(whole_job)
    assert capsys.readouterr().out.splitlines()[-1].startswith("5 ")


def test_the_example_of_a_detector_of_ones_own_works_in_worker_processes(
    make_source: Callable[..., Path], tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    block = next(block for block in blocks("python", GUIDES / "detectors.md") if "def detect" in block)
    detector: FaceDetector = run(block)["LeftHalf"]()
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    summary = precompute(source, out, options=small_options, detector=detector, scheduler=cluster_address)
    assert summary.manifest.config["detector"] == "left-half-1"
    rows = ds.dataset(out / "faces").to_table(columns=["frame_index", "box_xyxy"]).sort_by("frame_index")
    assert rows["box_xyxy"].to_pylist() == [[0, 0, 80, 120]] * 5


def test_the_example_of_a_landmarker_of_ones_own_works_in_worker_processes(
    make_source: Callable[..., Path], tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    (block,) = blocks("python", GUIDES / "landmarks.md")
    landmarker: Landmarker = run(block)["BoxLandmarker"]()
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    settings: dict[str, Any] = {"detector": FixedBoxDetector([(0, 0, 0.5, 1)]), "scheduler": cluster_address}
    summary = precompute(source, out, options=small_options, landmarker=landmarker, **settings)
    assert summary.manifest.config["hull"] == "box-1"
    rows = ds.dataset(out / "faces").to_table(columns=["hull", "hull_method"]).to_pylist()
    assert [row["hull_method"] for row in rows] == ["box"] * 5
    assert np.ptp(rows[0]["hull"], axis=0).tolist() == pytest.approx([80 / 3, 40]), "a third of the box"


@pytest.mark.filterwarnings("ignore")  # Lightning's own advice
@pytest.mark.parametrize("page", TRAINS, ids=name_of)
def test_the_examples_of_training_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_dataset(tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    examples = blocks("python", page)
    assert examples
    for example in examples:
        small = example.replace(", image_size=64", ", image_size=32, num_workers=0")
        small = small.replace(
            '"data.image_size=64"', '"data.image_size=32", "data.num_workers=0", "model.backbone=test_resnet"'
        )
        small = small.replace('backbone="resnet18"', 'backbone="test_resnet"')
        small = small.replace('split="train"', 'split="train", image_size=32, num_workers=0')
        exec(small, {"__name__": "__main__"})


@pytest.mark.usefixtures("out")
def test_the_profilers_example_runs_and_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("python", GUIDES / "profiling.md")
    run(block.replace("batch_size=16", "batch_size=1").replace("steps=200", "steps=50, quick=True"))
    assert "device waits" in capsys.readouterr().out


def test_the_samples_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = [clip for clip in draw_clips(0) if clip.shot.size == (320, 240)]
    monkeypatch.setattr("facefeed.data.sample.draw_clips", lambda seed: few)
    for block in blocks("python", DOCS / "sample.md"):
        run(block)
    assert (tmp_path / "DIR" / "sample.json").is_file()
