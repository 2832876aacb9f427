"""What a training loop notices of `FaceDataLoader`: every face once an epoch, a seeded order, one look at it all."""

from __future__ import annotations

import gc
import pickle
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_dataset import NO_ROWS, ROWS, TEST, copy_dataset, make_dataset
from assets_rows import damage, rows_seen, shown
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.schema import SPLITS
from facefeed.pipeline.errors import CorruptDataError, UsageError

SIDE = 32


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("loaders") / "out"
    make_dataset(out)
    return out


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(out, **{"num_workers": 0, "image_size": SIDE, **options})


def all_images(out: Path, split: str) -> list[bytes]:
    faces = FaceDataset(out, split=split, image_size=SIDE)
    return [faces[position][0].numpy().tobytes() for position in range(len(faces))]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("shuffle", [None, True, False, "full", "window"])
def test_an_epoch_covers_every_face_of_the_split_once(dataset: Path, split: str, shuffle: Any) -> None:
    loader = loader_of(dataset, split=split, shuffle=shuffle, window_images=128)
    batches = list(loader)
    assert len(batches) == len(loader) == -(-ROWS[split] // 64)
    images = shown(batches)
    assert len(set(images)) == ROWS[split]
    assert Counter(images) == Counter(all_images(dataset, split))


def test_images_keep_their_labels_through_the_shuffle(dataset: Path) -> None:
    faces = FaceDataset(dataset, image_size=SIDE)
    expected = {faces[position][0].numpy().tobytes(): faces[position][1] for position in range(len(faces))}
    for images, labels in loader_of(dataset, batch_size=50):
        assert [expected[image.numpy().tobytes()] for image in images] == labels.tolist()


def test_train_is_shuffled_by_its_seed_and_anew_in_each_epoch(dataset: Path) -> None:
    def two_epochs(seed: int) -> list[list[bytes]]:
        loader = loader_of(dataset, seed=seed)
        return [shown(loader), shown(loader)]

    first, repeated, other_seed = two_epochs(3), two_epochs(3), two_epochs(4)
    assert first == repeated
    assert first[0] != other_seed[0]
    assert first[0] != first[1]
    assert first[0] != all_images(dataset, "train")


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_other_splits_come_in_the_stored_order(dataset: Path, split: str) -> None:
    loader = loader_of(dataset, split=split, batch_size=7)
    assert shown(loader) == shown(loader) == all_images(dataset, split)


def test_an_empty_split_gives_no_batch(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("test", TEST), ("train", NO_ROWS)))
    for split in ("train", "val"):
        loader = loader_of(tmp_path / "out", split=split)
        assert (len(loader), list(loader), list(loader)) == (0, [], [])
        assert loader.state_dict()["images"] == 0


def test_two_iterations_at_once_are_not_mixed_up(dataset: Path) -> None:
    loader = loader_of(dataset, fields=("image", "row"))
    first = iter(loader)
    next(first)
    second = rows_seen(loader)
    with pytest.raises(UsageError, match="another iter"):  # a loader has one iteration: the new one ended it
        next(first)
    loader.set_epoch(0)
    assert rows_seen(loader)[-len(second) :] == second


def test_it_is_a_loader_of_torch_and_goes_where_one_goes(dataset: Path) -> None:
    loader = loader_of(dataset, batch_size=10, drop_last=True)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert (loader.batch_size, loader.drop_last, len(loader.dataset)) == (10, True, ROWS["train"])
    assert loader.dataset.labels == ("real", "fake")
    image, label = loader.dataset[0]
    assert (image.shape, type(label)) == ((3, SIDE, SIDE), int)


def test_a_loader_goes_through_pickle(dataset: Path) -> None:
    loader = loader_of(dataset, batch_size=100)
    expected = shown(loader)
    loader.set_epoch(0)
    reloaded = pickle.loads(pickle.dumps(loader_of(dataset, batch_size=100)))
    assert shown(reloaded) == expected


def test_the_newest_state_of_a_folder_is_read_by_a_new_loader_alone(dataset: Path, tmp_path: Path) -> None:
    """A loader keeps to what it opened, so that an epoch never changes under way."""
    copy = copy_dataset(dataset, tmp_path / "out")
    loader = loader_of(copy, batch_size=100)
    expected = shown(loader)
    (copy / "index.arrow").replace(copy / "index.old")
    loader.set_epoch(0)
    assert shown(loader) == expected
    with pytest.raises(UsageError, match="--rebuild-index"):
        loader_of(copy)


def test_damage_that_cannot_be_replaced_is_reported_alike_with_workers_and_without(
    dataset: Path, tmp_path: Path
) -> None:
    copy = copy_dataset(dataset, tmp_path / "out")
    damage(copy, int(Index(copy).rows_where("split", "val")[2]))
    messages = []
    for workers in (0, 1):
        with pytest.raises(CorruptDataError) as error:
            list(loader_of(copy, split="val", on_corrupt="raise", num_workers=workers))
        messages.append(str(error.value))
    assert messages[0].startswith(f"{copy}/faces/val/")
    assert messages[1] == messages[0]


def test_after_an_error_the_workers_end_of_their_own_accord(dataset: Path, tmp_path: Path) -> None:
    copy = copy_dataset(dataset, tmp_path / "out")
    damage(copy, int(Index(copy).rows_where("split", "val")[-1]))
    loader = loader_of(copy, split="val", batch_size=4, on_corrupt="raise", num_workers=1)
    batches: Any = iter(loader)
    with pytest.raises(CorruptDataError):
        list(batches)
    (worker,) = loader._iterator._workers
    del loader, batches
    gc.collect()
    worker.join(60)
    assert worker.exitcode == 0  # else it was waited for in vain, and killed


# ---- python -m facefeed.loaders


def run_module(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> Any:
    """What `python -m facefeed.loaders ARGUMENTS` does: exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["facefeed.loaders", *map(str, arguments)])
    status = 0
    try:
        runpy.run_module("facefeed.loaders", run_name="__main__")
    except SystemExit as exit_error:
        status = exit_error.code
    return status, *capsys.readouterr()


def test_the_module_prints_a_line_for_each_split(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, output, errors = run_module(capsys, monkeypatch, dataset)
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert [line.split()[:3] for line in lines] == [[split, str(ROWS[split]), "faces"] for split in SPLITS]
    assert "184 real, 157 fake" in lines[0]
    assert "float32 (19, 3, 224, 224)" in lines[2]


def test_the_module_says_what_is_wrong_in_one_line(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, output, errors = run_module(capsys, monkeypatch, tmp_path / "nothing")
    assert (status, output) == (2, "")
    assert errors.startswith("facefeed: ")
    damaged = copy_dataset(dataset, tmp_path / "out")
    next(iter((damaged / "faces" / "val").iterdir())).write_bytes(b"")
    status, _, errors = run_module(capsys, monkeypatch, damaged)
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "facefeed verify" in errors


def test_the_module_without_a_folder_says_how_to_use_it() -> None:
    process = subprocess.run([sys.executable, "-m", "facefeed.loaders"], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr == "usage: python -m facefeed.loaders OUT\n"
