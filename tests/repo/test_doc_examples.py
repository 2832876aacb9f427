"""The Python examples of the pages run, and give what they state."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import albumentations
import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
import torch
from assets_dataset import make_dataset
from assets_docs import DOCS, GUIDES, PAGES, README, blocks, name_of
from assets_mixtures import make_one
from assets_train import small_dataset
from click.testing import CliRunner
from facefeed.data.recipe import draw_clips
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.faces import FaceDetector
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.landmarks import Landmarker
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute

RUN_HERE = {README, *(GUIDES / f"{name}.md" for name in (
    "added-columns", "augmentations", "clips", "detectors", "device", "ladder", "landmarks", "levers", "loading",
    "mixtures", "precompute", "profiling", "quickstart", "training",
)), DOCS / "sample.md"}  # fmt: skip
# By the tests of these parts.
RUN_ELSEWHERE = {GUIDES / f"{name}.md" for name in ("clusters", "layouts", "loops", "monitoring", "stores")}
TRAINS = [GUIDES / f"{name}.md" for name in ("ladder", "levers", "training")]


def run(block: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Runs a block as a script whose workers are this process."""
    seen = {"__name__": "__main__"} if names is None else names
    exec(re.sub(r'(FaceDataLoader\(\s*(?:"out"|\[[^]]*\]))', r"\1, num_workers=0", block), seen)
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


def test_the_examples_of_added_columns_add_read_and_join_them(out: Path) -> None:
    definition, *others = blocks("python", GUIDES / "added-columns.md")
    Path("quality.py").write_text(definition)
    seen = run(definition)
    for block in others:
        run(block, seen)
    assert seen["summary"].indexed == ["brightness", "contrast"]
    assert next(iter(seen["loader"]))["brightness"].shape == (64,)
    assert seen["rows"].count("face_id").fetchall() == [(Manifest.read(out).rows,)]
    assert {"image", "contrast"} <= set(seen["rows"].columns)
    again = CliRunner().invoke(main, ["add", "out", "quality.py:Quality", "--json"])
    assert json.loads(again.stdout)["rows_before"] == Manifest.read(out).rows


def test_the_loaders_examples_run(out: Path) -> None:
    seen: dict[str, Any] = {"__name__": "__main__", "A": albumentations, "pc": pc}
    for block in blocks("python", GUIDES / "loading.md"):
        run(block.replace('"method", "in", ["Deepfakes", "FaceSwap"]', '"label", "in", [0, 1]'), seen)
    assert seen["images"].shape[1:] == (3, 224, 224)
    assert isinstance(seen["loader"], FaceDataLoader)
    assert seen["state"]["images"] >= 0
    assert (seen["masks"].shape[1:], seen["masks"].dtype) == ((14, 14), torch.float32)
    assert seen["noisy"](np.zeros((4, 4, 3), np.uint8)).max() < 8
    assert (out.parent / "pipeline.yaml").is_file()


def test_the_examples_of_clips_give_the_shapes_they_state_and_train_a_model(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, model = blocks("python", GUIDES / "clips.md")
    seen: dict[str, Any] = {"__name__": "__main__"}
    run(first.replace("batch_size=4", "batch_size=2"), seen)
    assert (seen["clips"].shape, seen["clips"].dtype) == ((2, 16, 3, 112, 112), torch.float32)
    assert (seen["labels"].shape, seen["labels"].dtype) == ((2,), torch.int64)
    run(model)
    assert re.search(r"loss \d\.\d\d epoch 0: 96 images in 2 batches", capsys.readouterr().out)


def test_the_examples_of_mixtures_give_each_dataset_its_share_and_map_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ffpp", "celebdf"):
        make_one(tmp_path / name, 90)
    make_one(tmp_path / "dfdc", 30)
    monkeypatch.chdir(tmp_path)
    first, mapping = blocks("python", GUIDES / "mixtures.md")
    seen = run(first)
    shares = torch.bincount(torch.cat([batch["dataset_index"] for batch in seen["loader"]])[:64])
    assert shares.tolist() == [32, 16, 16]
    assert seen["state"]["epoch"] == 1
    shutil.rmtree(tmp_path / "dfdc")
    make_one(tmp_path / "dfdc", 30, labels=("0", "1"))
    assert run(mapping, seen)["loader"].dataset.labels == ("real", "fake")


@pytest.mark.usefixtures("out")
def test_the_examples_of_the_device_transform_and_decode_there() -> None:
    seen: dict[str, Any] = {"__name__": "__main__"}
    first, *others = blocks("python", GUIDES / "device.md")
    run(first, seen)
    assert (seen["images"].shape[1:], seen["images"].dtype) == ((3, 224, 224), torch.float32)
    for block in others:
        run(block, seen)
        batch = next(iter(seen["loader"]))
        images = batch["image"] if isinstance(batch, dict) else batch[0]
        assert images.shape == (64, 3, 224, 224)


@pytest.mark.usefixtures("out")
def test_the_examples_of_augmentations_give_masks_and_transforms() -> None:
    blend, xray, mouth, background = map(run, blocks("python", GUIDES / "augmentations.md"))
    masks = [next(iter(seen["loader"]))["mask"] for seen in (blend, xray)]
    assert masks[0].shape[1:] == (224, 224)
    assert not masks[1].equal(masks[0])
    assert [len(mouth["mouths"]), len(background["face_alone"]), len(background["control"])] == [2, 1, 1]


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
    monkeypatch.setattr("facefeed.data.sample.draw_clips", lambda seed, groups: few)
    for block in blocks("python", DOCS / "sample.md"):
        run(block)
    assert (tmp_path / "DIR" / "sample.json").is_file()
