"""What a training loop notices of `FaceDataLoader`: every face once an epoch, a seeded order, workers that agree."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import pytest
import torch
from assets_dataset import NO_ROWS, ROWS, TEST, copy_dataset, make_dataset
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.schema import SPLITS

SIDE = 32


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("loaders") / "out"
    make_dataset(out)
    return out


def prints(batches: Any) -> list[bytes]:
    """Each image of an epoch by its bytes, in order; all images of the synthetic dataset differ."""
    return [image.numpy().tobytes() for images, _ in batches for image in images]


def everything(out: Path, split: str) -> list[bytes]:
    faces = FaceDataset(out, split=split, image_size=SIDE)
    return [faces[position][0].numpy().tobytes() for position in range(len(faces))]


def test_a_batch_is_images_and_labels_as_torch_wants_them(dataset: Path) -> None:
    images, labels = next(iter(FaceDataLoader(dataset, split="val", batch_size=5)))
    assert (images.dtype, images.shape) == (torch.float32, (5, 3, 224, 224))
    assert (labels.dtype, labels.shape) == (torch.int64, (5,))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("shuffle", [None, True, False])
def test_an_epoch_covers_every_face_of_the_split_once(dataset: Path, split: str, shuffle: bool | None) -> None:
    loader = FaceDataLoader(dataset, split=split, batch_size=64, image_size=SIDE, shuffle=shuffle)
    batches = list(loader)
    assert len(batches) == len(loader) == -(-ROWS[split] // 64)
    seen = prints(batches)
    assert len(set(seen)) == ROWS[split]
    assert Counter(seen) == Counter(everything(dataset, split))


def test_images_keep_their_labels_through_the_shuffle(dataset: Path) -> None:
    faces = FaceDataset(dataset, image_size=SIDE)
    wanted = {faces[position][0].numpy().tobytes(): faces[position][1] for position in range(len(faces))}
    for images, labels in FaceDataLoader(dataset, image_size=SIDE, batch_size=50):
        assert [wanted[image.numpy().tobytes()] for image in images] == labels.tolist()


def test_train_is_shuffled_by_its_seed_and_anew_in_each_epoch(dataset: Path) -> None:
    def two_epochs(seed: int) -> list[list[bytes]]:
        loader = FaceDataLoader(dataset, image_size=SIDE, seed=seed)
        return [prints(loader), prints(loader)]

    first, again, other = two_epochs(3), two_epochs(3), two_epochs(4)
    assert first == again
    assert first[0] != other[0]
    assert first[0] != first[1]
    assert first[0] != everything(dataset, "train")


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_other_splits_come_in_the_stored_order(dataset: Path, split: str) -> None:
    loader = FaceDataLoader(dataset, split=split, image_size=SIDE, batch_size=7)
    assert prints(loader) == prints(loader) == everything(dataset, split)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_give_the_batches_that_no_workers_give(dataset: Path, start: str) -> None:
    options: dict[str, Any] = {"image_size": SIDE, "batch_size": 32, "transform": A.Compose([A.VerticalFlip(p=1.0)])}
    alone = FaceDataLoader(dataset, **options)
    shared = FaceDataLoader(dataset, num_workers=2, multiprocessing_context=start, **options)
    # In an epoch's first batch already, a descriptor is open in this process: workers must not share its state.
    next(iter(FaceDataLoader(dataset, **options)))
    assert prints(shared) == prints(alone)


def test_what_torchs_loader_takes_is_handed_on(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, batch_size=100, image_size=SIDE, drop_last=True)
    assert [len(labels) for _, labels in loader] == [100, 100, 100]


@pytest.mark.parametrize("name", ["dataset", "sampler", "batch_sampler", "collate_fn", "generator"])
def test_what_it_makes_itself_is_refused_with_what_to_use(dataset: Path, name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: .*DataLoader\(FaceDataset\(\.\.\.\)\)"):
        FaceDataLoader(dataset, **{name: None})


def test_an_empty_split_gives_no_batch(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("test", TEST), ("train", NO_ROWS)))
    for split in ("train", "val"):
        loader = FaceDataLoader(tmp_path / "out", split=split)
        assert (len(loader), list(loader)) == (0, [])


def passes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> Any:
    """What `python -m facefeed.loaders ARGUMENTS` does: exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["facefeed.loaders", *map(str, arguments)])
    status = 0
    try:
        runpy.run_module("facefeed.loaders", run_name="__main__")
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


def test_the_module_prints_a_line_for_each_split(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, told, errors = passes(capsys, monkeypatch, dataset)
    assert (status, errors) == (0, "")
    lines = told.splitlines()
    assert [line.split()[:3] for line in lines] == [[split, str(ROWS[split]), "faces"] for split in SPLITS]
    assert "184 real, 157 fake" in lines[0]
    assert "float32 (19, 3, 224, 224)" in lines[2]


def test_the_module_says_what_is_wrong_in_one_line(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, told, errors = passes(capsys, monkeypatch, tmp_path / "nothing")
    assert (status, told) == (2, "")
    assert errors.startswith("facefeed: ")
    damaged = copy_dataset(dataset, tmp_path / "out")
    next(iter((damaged / "faces" / "val").iterdir())).write_bytes(b"")
    status, _, errors = passes(capsys, monkeypatch, damaged)
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "facefeed verify" in errors


def test_the_module_without_a_folder_says_how_to_use_it() -> None:
    done = subprocess.run([sys.executable, "-m", "facefeed.loaders"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "usage: python -m facefeed.loaders OUT\n"
