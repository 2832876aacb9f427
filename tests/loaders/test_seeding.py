"""What a training run notices of randomness: an image's position in the epoch alone determines its augmentation."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import assets_rows
import numpy as np
import pytest
import torch
from assets_rows import SIDE, OwnNumber, SeedMarker, draws_of_collate, make_small, shown
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.augment import LandmarkBlackout
from facefeed.loaders.seeding import Reseeder, derive_seed
from torchvision.transforms import v2

Pixels = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def noise_of_python(image: Pixels) -> dict[str, Pixels]:
    return {"image": image ^ np.uint8(random.randrange(1, 256))}


def noise_of_numpy(image: Pixels) -> dict[str, Pixels]:
    return {"image": image ^ np.random.randint(0, 256, image.shape, np.uint8)}


def noise_of_torch(image: Pixels) -> dict[str, Pixels]:
    return {"image": image ^ torch.randint(0, 256, image.shape, dtype=torch.uint8).numpy()}


class Torchvision:
    """torchvision's own transforms, in the shape that is wanted here."""

    def __init__(self) -> None:
        self.jitter = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.5, 0.5)])

    def __call__(self, image: Pixels) -> dict[str, Pixels]:
        jittered = self.jitter(torch.from_numpy(image).permute(2, 0, 1))
        return {"image": jittered.permute(1, 2, 0).contiguous().numpy()}


def old_style(image: Pixels, **params: Any) -> Pixels:
    return noise_of_numpy(image)["image"]


class OldStyle(A.ImageOnlyTransform):
    """One's own transform as people write it: it asks numpy and not Albumentations for numbers."""

    def apply(self, img: Pixels, **params: Any) -> Pixels:
        return noise_of_numpy(img)["image"]


class Halves(A.ImageOnlyTransform):
    """Draws 32 bits, of which numpy's generators make two at a time."""

    def apply(self, img: Pixels, **params: Any) -> Pixels:
        return img ^ np.uint8(self.random_generator.integers(1, 256, dtype=np.uint32))


def albumentations() -> Any:
    return A.Compose([
        A.HorizontalFlip(p=0.5),
        A.OneOf([A.RandomBrightnessContrast(p=1.0), A.Sequential([A.GaussNoise(p=1.0), A.Blur(p=0.5)])], p=0.9),
        A.SomeOf([A.Affine(rotate=(-20, 20)), A.CoarseDropout(), A.HueSaturationValue()], n=2),
    ])  # fmt: skip


PIPELINE = A.Compose([A.GaussNoise(p=1.0), A.HorizontalFlip()])


def by_a_pipeline_of_the_module(image: Pixels) -> dict[str, Pixels]:
    return {"image": PIPELINE(image=image)["image"]}


class Wrapped:
    """A pipeline as people put it into a callable of their own."""

    def __init__(self) -> None:
        self.parts = [A.Compose([A.GaussNoise(p=1.0)]), A.HorizontalFlip(p=0.5)]

    def __call__(self, image: Pixels) -> dict[str, Pixels]:
        for part in self.parts:
            image = part(image=image)["image"]
        return {"image": image}


@dataclass(slots=True)
class InSlots:
    """A pipeline in a slot, and an empty slot."""

    pipeline: A.Compose
    unused: Any = field(init=False)

    def __call__(self, image: Pixels) -> dict[str, Pixels]:
        return {"image": self.pipeline(image=image)["image"]}


class InItsClass:
    """A pipeline of the class, which a method of it calls."""

    pipeline = A.Compose([A.GaussNoise(p=1.0)])

    def __call__(self, image: Pixels) -> dict[str, Pixels]:
        return self.noisy(image)

    @classmethod
    def noisy(cls, image: Pixels) -> dict[str, Pixels]:
        return {"image": cls.pipeline(image=image)["image"]}


class ByAMethod:
    """A pipeline of the module, which another method calls."""

    def __call__(self, image: Pixels) -> dict[str, Pixels]:
        return self.noisy(image)

    def noisy(self, image: Pixels) -> dict[str, Pixels]:
        (noisy,) = [PIPELINE(image=each)["image"] for each in (image,)]
        return {"image": noisy}


class Inherited(ByAMethod):
    """Adds nothing."""


def by_a_pipeline_of_another_module(image: Pixels) -> dict[str, Pixels]:
    return {"image": assets_rows.PIPELINE(image=image)["image"]}


class InATransform(A.ImageOnlyTransform):
    """A pipeline within a transform, as `SelfBlend` has one."""

    def __init__(self) -> None:
        super().__init__(p=1.0)
        self.pipeline = A.Compose([A.GaussNoise(p=1.0)])

    def apply(self, img: Pixels, **params: Any) -> Pixels:
        noisy: Pixels = self.pipeline(image=img)["image"]
        return noisy


def noisy(image: Pixels, **params: Any) -> Pixels:
    return by_a_pipeline_of_the_module(image)["image"]


HOLDERS: dict[str, Callable[[], Callable[..., Any]]] = {
    "slots": lambda: InSlots(A.Compose([A.GaussNoise(p=1.0)])),
    "class": InItsClass,
    "method": ByAMethod,
    "base class": Inherited,
    "another module": lambda: by_a_pipeline_of_another_module,
    "a transform": lambda: A.Compose([A.OneOf([InATransform()], p=1.0)]),
    "Albumentations' Lambda": lambda: A.Compose([A.Lambda(image=noisy)]),
}


class OneOfThem:
    """A container as people write it: it decides by `random` itself which of Albumentations' transforms to apply."""

    def __init__(self) -> None:
        self.transforms = [A.GaussNoise(p=1.0), A.Affine(rotate=(-20, 20), p=1.0), A.RandomBrightnessContrast(p=1.0)]

    def __call__(self, image: Pixels) -> dict[str, Pixels]:
        return {"image": random.choice(self.transforms)(image=image)["image"]}


class OneOfThemInAlbumentations(A.Compose):
    """The same as a subclass."""

    def __call__(self, *args: Any, **data: Any) -> dict[str, Any]:
        result: dict[str, Any] = random.choice(self.transforms)(**data)
        return result


TRANSFORMS: dict[str, Callable[[], dict[str, Any]]] = {
    "albumentations": lambda: {"transform": albumentations()},
    "one transform": lambda: {"transform": A.GaussNoise(p=1.0)},
    "halves of numbers": lambda: {"transform": A.Compose([Halves(p=1.0)])},
    "of the face": lambda: {"face_transform": [A.Affine(rotate=(-20, 20), p=1.0), LandmarkBlackout(p=0.8)]},
    "both": lambda: {"face_transform": [A.HorizontalFlip()], "transform": albumentations()},
    "random": lambda: {"transform": noise_of_python},
    "numpy": lambda: {"transform": noise_of_numpy},
    "torch": lambda: {"transform": noise_of_torch},
    "torchvision": lambda: {"transform": Torchvision()},
    "face and foreign": lambda: {"face_transform": [A.GaussNoise(p=1.0)], "transform": noise_of_numpy},
    "function within": lambda: {"transform": A.Compose([A.Lambda(image=old_style)])},
    "pipeline in a function": lambda: {"transform": by_a_pipeline_of_the_module},
    "pipeline in an object": lambda: {"transform": Wrapped()},
    "pipeline in a partial": lambda: {"transform": partial(Wrapped())},
    "own container": lambda: {"transform": OneOfThem()},
    "own subclass of a container": lambda: {"transform": OneOfThemInAlbumentations(OneOfThem().transforms)},
    "own class within": lambda: {"transform": A.Compose([OldStyle(p=1.0), A.HorizontalFlip()])},
}
each_transform = pytest.mark.parametrize("name", TRANSFORMS)


def loader_of(out: Path, name: str, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(
        out,
        **{"num_workers": 0, "image_size": SIDE, "batch_size": 12, "dtype": "uint8", **TRANSFORMS[name](), **options},
    )


@each_transform
def test_the_same_seed_gives_the_same_images_and_other_seeds_and_epochs_give_others(dataset: Path, name: str) -> None:
    loader = loader_of(dataset, name)
    first, second = shown(loader), shown(loader)
    assert shown(loader_of(dataset, name)) == first
    loader.set_epoch(1)
    assert shown(loader) == second
    assert len(set(first) & set(second)) < 20
    assert len(set(first) & set(shown(loader_of(dataset, name, seed=1)))) < 20


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_pipeline_is_seeded_wherever_a_callable_of_ones_own_holds_it(dataset: Path, holder: str) -> None:
    options: dict[str, Any] = {"num_workers": 0, "image_size": SIDE, "batch_size": 12, "dtype": "uint8"}
    first, second = (shown(FaceDataLoader(dataset, transform=HOLDERS[holder](), **options)) for _ in range(2))
    assert first == second


@each_transform
def test_an_augmentation_depends_on_the_position_in_the_step_alone(dataset: Path, name: str) -> None:
    all_images = shown(loader_of(dataset, name))
    loader = loader_of(dataset, name)
    loader.load_state_dict({**loader.state_dict(), "images": 60})
    assert shown(loader) == all_images[60:]
    parts = [list(loader_of(dataset, name, batch_size=4, rank=rank, num_replicas=3)) for rank in range(3)]
    steps = zip(*parts, strict=True)
    assert [image for step in steps for image in shown(step)] == all_images


@each_transform
def test_a_run_leaves_the_generators_of_the_training_script_alone(dataset: Path, name: str) -> None:
    def draw_numbers() -> tuple[Any, ...]:
        return random.random(), np.random.random(), torch.rand(1).item()

    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    expected = [draw_numbers() for _ in range(4)]
    batches = iter(loader_of(dataset, name))
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    assert draw_numbers() == expected[0]
    next(batches)
    assert draw_numbers() == expected[1]
    next(batches)
    assert draw_numbers() == expected[2]
    list(batches)
    assert draw_numbers() == expected[3]


def test_starting_an_epoch_draws_no_number_of_the_training_script(dataset: Path) -> None:
    """Else the validation in between would change the dropout of the steps after it."""
    loader = loader_of(dataset, "albumentations")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    iter(loader)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("transform", [A.Compose([A.ColorJitter(p=1.0)]), LandmarkBlackout()], ids=["jitter", "ours"])
def test_transforms_with_generators_of_their_own_need_no_seeds_of_the_global_ones(transform: Any) -> None:
    reseeder = Reseeder([transform])
    random.seed(5)
    expected = random.random()
    random.seed(5)
    with reseeder.activated():
        reseeder.reseed(3)
        assert random.random() == expected


@each_transform
def test_what_the_training_script_draws_changes_no_image(dataset: Path, name: str) -> None:
    expected = shown(loader_of(dataset, name))
    random.seed(99)
    np.random.seed(99)
    torch.manual_seed(99)
    images = []
    for batch in loader_of(dataset, name):
        images += shown([batch])
        random.random()
        np.random.random(3)
        torch.rand(2)
    assert images == expected


@pytest.mark.parametrize("name", ["albumentations", "numpy", "of the face"])
def test_images_of_a_batch_are_augmented_each_in_its_own_way(dataset: Path, name: str) -> None:
    """With one and the same image everywhere, only the randomness is left."""
    single_image: dict[str, Any] = {
        "filters": [("video_id", "=", "real/anna.mp4"), ("frame_index", "=", 0)],
        "batch_size": 1,
    }
    loader = loader_of(dataset, name, **single_image)
    epochs = [shown(loader)[0] for _ in range(12)]
    assert len(set(epochs)) > 8
    ranks = [shown(loader_of(dataset, name, rank=rank, num_replicas=12, **single_image))[0] for rank in range(12)]
    assert len(set(ranks)) > 8


def test_flips_are_uniform(dataset: Path) -> None:
    def half_left(image: Pixels) -> dict[str, Pixels]:
        halves = image.copy()
        halves[:, :16], halves[:, 16:] = 0, 255
        return {"image": halves}

    loader = FaceDataLoader(
        dataset, num_workers=0, image_size=SIDE, dtype="uint8", face_transform=marking(half_left), batch_size=16,
        transform=A.HorizontalFlip(p=0.5),
    )  # fmt: skip
    flipped = [bool(image[0, 0, 0]) for _ in range(10) for images, _ in loader for image in images]
    assert len(flipped) == 1070
    assert 470 < sum(flipped) < 600  # four standard deviations of a fair coin
    assert 450 < sum(previous != current for previous, current in itertools.pairwise(flipped)) < 620


def marking(mark: Callable[[Pixels], dict[str, Pixels]]) -> Callable[..., dict[str, Any]]:
    return lambda image, **face: {**face, **mark(image)}


def test_two_loaders_may_share_a_transform(dataset: Path) -> None:
    shared = albumentations()
    options: dict[str, Any] = {"num_workers": 0, "image_size": SIDE, "batch_size": 12, "dtype": "uint8"}
    first, second = (FaceDataLoader(dataset, split=split, transform=shared, **options) for split in ("train", "val"))
    expected = shown(loader_of(dataset, "albumentations"))
    assert shown(first) == expected
    list(second)
    first.set_epoch(0)
    assert shown(first) == expected


def test_seeds_of_neighbouring_positions_are_uncorrelated() -> None:
    keys = [derive_seed(seed, epoch, step, place) for seed in range(3) for epoch in range(5) for step in range(20)
            for place in range(40)]  # fmt: skip
    assert len(set(keys)) == len(keys)
    bits = np.array([[key >> bit & 1 for bit in range(64)] for key in keys])
    assert abs(bits.mean(0) - 0.5).max() < 0.03
    flips = bits[1:] != bits[:-1]
    assert abs(flips.mean(0) - 0.5).max() < 0.03
    assert derive_seed(0, 1) != derive_seed(1, 0)


def test_derived_seeds_never_change() -> None:
    assert [derive_seed(0), derive_seed(1, 2, 3, 4)] == GOLDEN


GOLDEN = [0xE220A8397B1DCDAF, 3705391937491829246]  # the first is splitmix64's own first output for 0


def test_under_torchs_own_loader_workers_and_epochs_draw_other_numbers(dataset: Path) -> None:
    faces = FaceDataset(dataset, image_size=SIDE, transform=A.Compose([OwnNumber(p=1.0)]))
    torch.manual_seed(3)
    loader = torch.utils.data.DataLoader(faces, 20, num_workers=2, multiprocessing_context="forkserver")
    epochs = [[tuple(image[:, 0, 0].tolist()) for images, _ in loader for image in images] for _ in range(2)]
    assert len(set(epochs[0])) > 100
    assert len(set(epochs[0]) & set(epochs[1])) < 20


@pytest.mark.processes
def test_what_workers_seed_themselves_by_differs_by_seed_rank_epoch_and_worker_and_repeats(
    dataset: Path, tmp_path: Path
) -> None:
    def worker_seeds(seed: int, rank: int) -> list[str]:
        loader = loader_of(
            dataset, "albumentations", seed=seed, rank=rank, num_replicas=2, num_workers=2, persistent_workers=False,
            worker_init_fn=SeedMarker(tmp_path),
        )  # fmt: skip
        seeds = []
        for _ in range(2):
            list(loader)
            seeds += [(tmp_path / str(worker)).read_text() for worker in range(2)]
        return seeds

    runs = {(seed, rank): worker_seeds(seed, rank) for seed, rank in ((0, 0), (0, 1), (1, 0))}
    assert len({seed for seeds in runs.values() for seed in seeds}) == 12
    assert worker_seeds(0, 1) == runs[0, 1]


# ---- a collate_fn of one's own


def draw_numbers(out: Path, epochs: int = 1, **options: Any) -> list[tuple[float, ...]]:
    options = {"num_workers": 0, "image_size": 8, "batch_size": 20, "collate_fn": draws_of_collate, **options}
    loader = FaceDataLoader(out, **options)
    return [batch for _ in range(epochs) for batch in loader]


def test_a_collate_fn_draws_other_numbers_in_every_batch_epoch_rank_and_seed(dataset: Path) -> None:
    ranks = [draw_numbers(dataset, num_workers=1, batch_size=10, rank=rank, num_replicas=2) for rank in range(2)]
    assert set(itertools.chain(*ranks[0])).isdisjoint(itertools.chain(*ranks[1]))
    all_draws = [*draw_numbers(dataset, epochs=2), *draw_numbers(dataset, seed=1), *ranks[1]]
    for numbers in zip(*all_draws, strict=True):
        assert len(set(numbers)) == len(all_draws) == 24
    assert ranks[1] == draw_numbers(dataset, batch_size=10, rank=1, num_replicas=2)  # without workers


def test_a_collate_fn_draws_the_same_in_every_run(dataset: Path) -> None:
    random.seed(1)
    first = draw_numbers(dataset)
    random.seed(2)
    assert draw_numbers(dataset) == first


def test_a_collate_fn_leaves_the_callers_own_numbers_alone(dataset: Path) -> None:
    def numbers() -> tuple[float, ...]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    def seed() -> None:
        random.seed(5)
        np.random.seed(5)
        torch.manual_seed(5)

    seed()
    expected = numbers()
    seed()
    draw_numbers(dataset)
    assert numbers() == expected
