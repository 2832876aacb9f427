"""What a user reads who mistypes an argument: which one, what is wrong, what to use; before any process starts."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from assets_dataset import make_dataset
from assets_rows import make_small
from facefeed.loaders import FaceDataLoader, FaceDataset, Pairs, Quotas
from facefeed.loaders.augment import AlignedMixup
from facefeed.pipeline.errors import UsageError
from torch.utils.data import SequentialSampler, Subset
from torchvision import transforms
from torchvision.transforms import v2


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("mistakes") / "out")


def top_level(image: Any) -> dict[str, Any]:
    return {"image": image}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 2.5}, r"batch_size=2\.5: must be a whole number of at least 1; try 64"),
        ({"batch_size": "8"}, "batch_size='8': must be a whole number of at least 1"),
        ({"batch_size": None}, "batch_size=None: must be a whole number"),
        ({"batch_size": True}, "batch_size=True: must be a whole number"),
        ({"num_workers": 1.5}, r"num_workers=1\.5: must be a whole number of at least 0; try 2"),
        ({"num_workers": -1}, "num_workers=-1: must be at least 0; try 2"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor=0: must be at least 1; try 2"),
        ({"image_size": (64, 48)}, r"image_size=\(64, 48\): must be a whole number of at least 1; try 224"),
        ({"image_size": 64.0}, r"image_size=64\.0: must be a whole number"),
        ({"frames_per_video": "a"}, "frames_per_video='a': must be a whole number of at least 1; try 32"),
        ({"frames_per_video": 1.5}, r"frames_per_video=1\.5: must be a whole number"),
        ({"max_per_video": 1.5}, r"max_per_video=1\.5: must be a whole number of at least 1"),
        ({"window_images": 1e4, "shuffle": "window"}, r"window_images=10000\.0: must be a whole number"),
        ({"seed": None}, "seed=None: must be a whole number of at least 0; try 0"),
        ({"seed": -1}, "seed=-1: must be at least 0; try 0"),
        ({"prefetch_factor": 2}, "prefetch_factor=2: num_workers=0 starts no workers; leave it out"),
        ({"persistent_workers": True}, "persistent_workers=True: num_workers=0 starts no workers"),
        ({"timeout": 30}, "timeout=30: num_workers=0 starts no workers; leave it out"),
        ({"drop_last": "x"}, "drop_last='x': must be True or False"),
        ({"channels_last": None}, "channels_last=None: must be True or False"),
        ({"balance": "quotas"}, "balance='quotas': must be a balance, such as Quotas"),
        ({"balance": {"real": 1}}, "balance={'real': 1}: must be a balance, such as Quotas"),
        ({"balance": Pairs}, "balance=<class .*Pairs'>: must be a balance, such as Quotas"),
        ({"balance": Quotas({"nobody": 1})}, "'nobody': no label is called so; there are real, fake"),
        ({"fields": 3}, "fields=3: must be a tuple of names"),
        ({"transform": [A.HorizontalFlip()]}, r"transform=.*must be one transform; try A\.Compose"),
        ({"transform": 5}, "transform=5: must be callable; try an Albumentations pipeline"),
        ({"transform": lambda: None}, r"transform: is called with an image, uint8 \(H, W, 3\).*wrap it in a function"),
        ({"transform": lambda x, y: x}, r"transform: is called with an image, .*wrap it in a function"),
        ({"transform": v2.RandomHorizontalFlip}, "transform=.*must be callable; try .*v2.Compose"),
        ({"transform": transforms.ColorJitter()}, "ColorJitter of torchvision.transforms takes PIL .* that of .*v2"),
        ({"transform": transforms.Compose([])}, "Compose of torchvision.transforms takes PIL images"),
        ({"transform": torch.nn.Sequential(torch.nn.Sequential(transforms.RandomRotation(9)))},
         "RandomRotation of torchvision.transforms takes PIL .* that of .*v2"),
        ({"transform": torch.nn.Sequential(v2.RandomHorizontalFlip(), transforms.ColorJitter())},
         "ColorJitter of torchvision.transforms takes PIL images"),
        ({"face_transform": [v2.RandomHorizontalFlip()]}, "no transform of Albumentations; .* torchvision's to transf"),
        ({"mask_size": 14}, r"mask_size=14: batches have no mask; give fields=\('image', 'label', 'mask'\)"),
        ({"mask_size": 1.5}, r"mask_size=1\.5: must be a whole number of at least 1; try 14"),
        ({"mask_size": 0}, "mask_size=0: must be at least 1; try 14"),
        ({"mask_size": 300, "fields": ("image", "mask")}, "mask_size=300: must be at most image_size, 224; try 14"),
        ({"face_transform": A.Compose([A.HorizontalFlip()])}, "hull and regions would not follow Compose; give a list"),
        ({"face_transform": A.HorizontalFlip()}, "landmarks, .* would not follow HorizontalFlip; give a list"),
        ({"face_transform": [top_level]}, "face_transform: .*top_level.* is no transform of Albumentations"),
        ({"face_transform": [A.HorizontalFlip]}, "face_transform: .* is no transform of Albumentations"),
        ({"face_transform": [A.RandomCropNearBBox()]}, "face_transform: RandomCropNearBBox needs cropping_bbox=.*take"),
        ({"transform": A.FDA()}, "transform: FDA needs fda_metadata=, .* give transform= a function of the image"),
        ({"sampler": SequentialSampler([1, 2])}, "sampler: use balance="),
        ({"balance": False}, "balance=False: must be a balance"),
        ({"device": "gpu"}, "device='gpu': must be 'cpu' or 'cuda'"),
        ({"device": "meta"}, "device='meta': must be 'cpu' or 'cuda'"),
        ({"timeout": "5"}, "timeout='5': must be a number of seconds"),
        ({"persistent_workers": "no"}, "persistent_workers='no': must be True or False"),
        ({"collate_fn": 5}, "collate_fn=5: must be a function, or None"),
        ({"worker_init_fn": 5}, "worker_init_fn=5: must be a function, or None"),
        ({"rank": "0", "num_replicas": 1}, "rank='0': must be a whole number of at least 0"),
        ({"rank": 0, "num_replicas": 0}, "num_replicas=0: must be at least 1"),
        ({"face_transform": top_level}, "face_transform: is called with image=, landmarks=, .*partner="),
        ({"multiprocessing_context": "fork"}, "multiprocessing_context='fork': .*take 'forkserver'"),
        ({"multiprocessing_context": 7}, "multiprocessing_context=7: must be 'forkserver' or 'spawn'"),
        ({"filters": [("label", "==", "fake")]}, "of label, 0 is real, 1 is fake"),
    ],
    ids=lambda part: part if isinstance(part, str) else next(iter(part)),  # a value may show its address
)  # fmt: skip
def test_a_mistyped_argument_is_named_with_what_to_use(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataLoader(dataset, **{"num_workers": 0, **options})


def test_whole_numbers_and_flags_may_be_numpys(dataset: Path) -> None:
    options: dict[str, Any] = {"batch_size": np.int64(50), "image_size": np.int32(8), "drop_last": np.bool_(True)}
    loader = FaceDataLoader(dataset, num_workers=np.int64(0), seed=np.uint8(3), **options)
    assert [len(labels) for _, labels in loader] == [50, 50]


def test_what_is_no_dataset_is_refused_with_how_to_take_a_part_of_one(dataset: Path) -> None:
    for wrong in (None, "", Subset(FaceDataset(dataset), [1, 2])):
        with pytest.raises(
            UsageError, match=r"dataset=.*must be the folder .*use split=, filters= and frames_per_video"
        ):
            FaceDataLoader(wrong, num_workers=0)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="only FaceDataLoader takes several datasets, as a mixture"):
        FaceDataset([dataset, dataset])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=rf"faces: is a part of the dataset {dataset}; give that"):
        FaceDataset(dataset / "faces")


def test_a_state_that_is_none_is_refused(dataset: Path) -> None:
    with pytest.raises(UsageError, match=r"load_state_dict\(None\): must be what state_dict\(\) gave"):
        FaceDataLoader(dataset, num_workers=0).load_state_dict(None)  # type: ignore[arg-type]
    loader = FaceDataLoader(dataset, num_workers=0)
    with pytest.raises(UsageError, match=r"epoch=0, images='3': no position in epochs of \d+ images: must be whole"):
        loader.load_state_dict({**loader.state_dict(), "images": "3"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda image: None, r"transform returned NoneType: must return an image, uint8 \(H, W, 3\), or a dict"),
        (lambda image: {"image": None}, "transform returned NoneType: must return an image"),
        (lambda image: {"img": image}, "transform returned a dict of img: must return an image, .* or a dict with 'im"),
        (lambda image: image / 255, r"transform returned ndarray float64 \(224, 224, 3\): must be a uint8 array"),
        (lambda image: image.transpose(2, 0, 1), r"returned ndarray uint8 \(3, 224, 224\): must be a uint8 array"),
        (lambda image: image[:0], r"returned ndarray uint8 \(0, 224, 3\): must be a uint8 array"),
        (v2.ToDtype(torch.float32, scale=True), r"Image torch.float32 \(3, 224, 224\): .* uint8 .*leave ToDtype"),
        (v2.Grayscale(), r"returned Image torch.uint8 \(1, 224, 224\): must be an image of v2.*take Grayscale\(3\)"),
        (v2.ToPILImage(), r"transform returned Image: must be an image of v2.*leave .* ToPILImage out"),
    ],
)
def test_what_is_no_result_of_a_transform_is_refused(dataset: Path, wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataset(dataset, transform=wrong)[0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda image: {"image": None}, "face_transform returned NoneType: must return an image"),
        (lambda image: {"image": image / 255}, r"face_transform returned ndarray float64 .* must be a uint8 array"),
        (lambda image: image, "face_transform returned ndarray: must return a dict with 'image'"),
    ],
)
def test_what_is_no_result_of_a_face_transform_is_refused_by_its_name(dataset: Path, wrong: Any, message: str) -> None:
    def face_transform(image: Any, **face: Any) -> Any:
        output = wrong(image)
        return {**face, **output} if isinstance(output, dict) else output

    with pytest.raises(UsageError, match=rf"\A{message}"):
        FaceDataset(dataset, face_transform=face_transform)[0]


def test_a_decorated_function_and_a_flipped_view_are_fine(dataset: Path) -> None:
    def as_albumentations(change: Any) -> Any:
        @functools.wraps(change)
        def changed(image: Any) -> dict[str, Any]:
            return {"image": change(image)}

        return changed

    @as_albumentations
    def flipped(pixels: Any) -> Any:
        return pixels[:, ::-1]

    plain, turned = FaceDataset(dataset)[0][0], FaceDataset(dataset, transform=flipped)[0][0]
    assert (turned == plain.flip(2)).all()


def test_options_of_a_dataset_are_refused_beside_one_whatever_they_are(dataset: Path) -> None:
    for filters in (pc.field("score") > 0.9, [("frame_index", "in", np.arange(3))]):
        with pytest.raises(UsageError, match="filters: belongs to the dataset"):
            FaceDataLoader(FaceDataset(dataset), filters=filters, num_workers=0)


class Relabelled(FaceDataset):
    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        return super().__getitem__(position)[0], 7


class Opened(FaceDataset):
    """With what the loader need not call."""

    def __init__(self, out: Path) -> None:
        super().__init__(out)
        self.opened = True


def test_a_dataset_of_ones_own_is_refused_where_the_loader_would_not_call_what_is_new(dataset: Path) -> None:
    with pytest.raises(UsageError, match=r"Relabelled: __getitem__ of its own would not be called.* torch's DataLoad"):
        FaceDataLoader(Relabelled(dataset), num_workers=0)
    assert Relabelled(dataset)[0][1] == 7
    assert len(FaceDataLoader(Opened(dataset), 107, num_workers=0)) == 1


@pytest.mark.parametrize("name", ["transform", "face_transform", "image_size", "filters", "split"])
def test_what_is_set_after_a_dataset_was_made_is_refused_with_what_to_do(dataset: Path, name: str) -> None:
    faces = FaceDataset(dataset)
    with pytest.raises(UsageError, match=rf"{name}: .* make another FaceDataset\(\.\.\., {name}=\.\.\.\)"):
        setattr(faces, name, top_level)
    assert getattr(faces, name) is getattr(FaceDataset(dataset), name)


def test_an_epoch_without_a_batch_is_logged(dataset: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert len(FaceDataLoader(dataset, 1000, drop_last=True, num_workers=0)) == 0
    assert "drop_last leaves no batch of the 107 faces" in caplog.text


def test_a_grey_image_is_refused_with_what_to_do(dataset: Path) -> None:
    for grey in (lambda image: {"image": image[..., :1]}, lambda image: {"image": image[..., 0]}):
        with pytest.raises(UsageError, match="keep three channels, ToGray too"):
            FaceDataset(dataset, transform=grey)[0]


def test_functions_that_workers_cannot_import_are_refused_before_they_start(dataset: Path) -> None:
    def local(image: Any) -> dict[str, Any]:
        return {"image": image}

    def shade(image: Any, **_: Any) -> Any:
        return image

    nested = A.Compose([A.Lambda(image=shade)])
    modules = torch.nn.Sequential(v2.RandomHorizontalFlip(), v2.Lambda(lambda image: image))
    wrong_ones = [
        ("transform", local), ("transform", nested), ("transform", lambda image: image),
        ("transform", v2.Compose([v2.Lambda(lambda image: image)])), ("transform", modules),
        ("collate_fn", lambda items: items),
    ]  # fmt: skip
    for name, wrong in wrong_ones:
        with pytest.raises(UsageError, match=rf"{name}: workers cannot import .*<.*top level .* or take num_workers=0"):
            FaceDataLoader(dataset, num_workers=1, **{name: wrong})
        FaceDataLoader(dataset, num_workers=0, **{name: wrong})
    FaceDataLoader(dataset, num_workers=1, transform=top_level)


@pytest.mark.processes
def test_functions_of_a_prompt_are_refused_before_workers_look_for_them(dataset: Path) -> None:
    typed = f"""
from facefeed.loaders import FaceDataLoader
def mine(image): return {{"image": image}}
try: FaceDataLoader({str(dataset)!r}, num_workers=1, transform=mine)
except Exception as error: print(error)
"""
    output = subprocess.run(
        [sys.executable, "-"], input=typed, capture_output=True, text=True, check=True, timeout=120
    ).stdout  # fmt: skip
    assert output.startswith(
        "num_workers: workers cannot import the script from <stdin>; save it, or take num_workers=0"
    )


GUARDED = """
import functools
import threading
from facefeed.loaders import FaceDataLoader

def found(image): return {"image": image}

class Locked:
    def __init__(self): self.lock = threading.Lock()
    def __call__(self, image): return {"image": image}

if __name__ == "__main__":
    def hidden(image): return {"image": image}
    for transform in (functools.partial(hidden), Locked(), found):
        try: print("made", FaceDataLoader(OUT, num_workers=1, transform=transform).num_workers)
        except Exception as error: print(error)
"""


@pytest.mark.processes
def test_what_a_script_defines_is_found_by_workers_or_refused(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GUARDED.replace("OUT", repr(str(dataset))))
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__main__.py").write_text(GUARDED.replace("OUT", repr(str(dataset))))
    script, package = (
        subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
        ).stdout.splitlines()
        for arguments in (("train.py",), ("-m", "package"))
    )
    assert script[0].startswith("transform: workers cannot import hidden from below `if __name__ == '__main__':`")
    assert script[1].startswith("transform: cannot be sent to workers: cannot pickle '_thread.lock' object")
    assert script[2] == "made 1"
    assert package[2].startswith("transform: workers cannot import found from a package's __main__")


def test_mixup_of_three_classes_is_refused(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", labels=("real", "fake", "edited"))
    with pytest.raises(UsageError, match="AlignedMixup: needs two classes, and there are real, fake, edited: between"):
        FaceDataLoader(tmp_path / "out", balance=Pairs(), face_transform=[AlignedMixup()], num_workers=0)


def nothing(_: Any) -> None:
    """A collate_fn without a `return`."""


def test_a_collate_fn_that_returns_nothing_is_named(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, 2, num_workers=0, collate_fn=nothing)
    with pytest.raises(UsageError, match="collate_fn returned None; return the batch"):
        next(iter(loader))
