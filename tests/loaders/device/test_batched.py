"""What the batched transforms do to images, and that each image depends on its own numbers alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from assets_device import default_dtype
from facefeed.loaders.device import BatchedBrightnessContrast, BatchedCrop, BatchedFlip
from facefeed.loaders.device.seeded_transform import uniform_numbers
from facefeed.pipeline.errors import UsageError

TRANSFORMS: list[Any] = [BatchedFlip(), BatchedBrightnessContrast(), BatchedCrop(scale=(0.3, 1.0))]


def images(count: int, dtype: torch.dtype = torch.float32, height: int = 20, width: int = 30) -> torch.Tensor:
    """Noise in channels-last memory, as workers write it."""
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, height, width, 3), np.uint8))
    pixels = pixels.movedim(-1, 1)
    return pixels if dtype == torch.uint8 else pixels.to(dtype) / 255


def numbers(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
def test_an_image_is_the_same_to_the_bit_in_every_batch(transform: Any, dtype: torch.dtype) -> None:
    batch, drawn = images(33, dtype), torch.from_numpy(uniform_numbers(np.arange(33, dtype=np.uint64), transform.draws))
    whole = transform(batch, drawn)
    assert (whole.shape, whole.dtype) == (batch.shape, dtype)
    assert not torch.equal(whole, batch)
    for part in (slice(0, 1), slice(5, 6), slice(3, 20), [32, 7, 0]):
        assert torch.equal(transform(batch[part], drawn[part]), whole[part])


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
def test_bytes_become_what_floats_become_but_for_rounding(transform: Any) -> None:
    drawn = torch.from_numpy(uniform_numbers(np.arange(9, dtype=np.uint64), transform.draws))
    floats, whole_numbers = transform(images(9), drawn), transform(images(9, torch.uint8), drawn)
    torch.testing.assert_close(whole_numbers.float() / 255, floats, rtol=0, atol=0.5001 / 255)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
def test_a_default_dtype_of_the_training_script_changes_no_image(transform: Any, dtype: torch.dtype) -> None:
    batch = images(9, width=300)
    drawn = torch.from_numpy(uniform_numbers(np.arange(9, dtype=np.uint64), transform.draws))
    expected = transform(batch, drawn)
    with default_dtype(dtype):
        assert torch.equal(transform(batch, drawn), expected)


def test_a_flip_mirrors_left_and_right_with_its_probability() -> None:
    batch = images(3)
    flipped = BatchedFlip(p=0.25)(batch, numbers((0.24,), (0.25,), (0.9,)))
    assert torch.equal(flipped[0], batch[0].flip(-1))
    assert torch.equal(flipped[1:], batch[1:])


def test_brightness_and_contrast_move_values_by_their_shares_and_stay_in_range() -> None:
    grey = torch.full((4, 3, 2, 2), 0.5)
    drawn = numbers((0.0, 1.0, 0.5), (0.0, 0.5, 1.0), (0.0, 0.0, 0.0), (0.9, 1.0, 1.0))
    changed = BatchedBrightnessContrast(brightness=0.3, contrast=0.2, p=0.5)(grey, drawn)
    assert changed[:, 0, 0, 0].tolist() == pytest.approx([0.6, 0.8, 0.1, 0.5])
    strong = BatchedBrightnessContrast(brightness=1.0, p=1.0)(grey.repeat(1, 1, 9, 9), drawn)
    assert 0 <= float(strong.min()) < float(strong.max()) <= 1


def test_a_crop_shows_the_part_that_its_numbers_name() -> None:
    ramp = torch.linspace(0, 1, 101).repeat(3, 101, 1)[None].repeat(3, 1, 1, 1)  # as bright as x
    drawn = numbers((0.0, 0.0, 0.5), (0.0, 1.0, 0.5), (1.0, 0.3, 0.7))
    left, right, whole = BatchedCrop(scale=(0.5, 1.0))(ramp, drawn)
    assert (float(left.min()), float(left.max())) == pytest.approx((0.0, 0.5), abs=0.01)
    assert (float(right.min()), float(right.max())) == pytest.approx((0.5, 1.0), abs=0.01)
    torch.testing.assert_close(whole, ramp[0], rtol=0, atol=1e-5)


def test_the_numbers_are_uniform_and_differ_between_places() -> None:
    drawn = uniform_numbers(np.arange(20_000, dtype=np.uint64), 2)
    assert (drawn.dtype, drawn.shape) == (np.float32, (20_000, 2))
    assert 0 <= drawn.min() < 0.001
    assert 0.999 < drawn.max() < 1
    assert drawn.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.01)
    assert abs(float(np.corrcoef(drawn.T)[0, 1])) < 0.02


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BatchedFlip(p=1.5), r"BatchedFlip: p=1\.5: must be a number from 0 to 1"),
        (lambda: BatchedFlip(p="0.5"), r"BatchedFlip: p='0\.5': must be a number"),  # type: ignore[arg-type]
        (lambda: BatchedBrightnessContrast(contrast=-1), "contrast=-1: must be a number from 0"),
        (lambda: BatchedBrightnessContrast(brightness=[0.1, 0.2]), r"brightness=\[0\.1"),  # type: ignore[arg-type]
        (lambda: BatchedCrop(scale=(0.9, 0.5)), "must be two shares of the side"),
        (lambda: BatchedCrop(scale=0.5), r"scale=0\.5: must be two shares"),  # type: ignore[arg-type]
        (lambda: BatchedCrop(scale=(0.5, 0.6, 0.7)), "must be two shares"),  # type: ignore[arg-type]
        (lambda: BatchedCrop(scale="ab"), "scale='ab': must be two shares"),  # type: ignore[arg-type]
    ],
)
def test_values_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
