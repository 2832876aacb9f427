"""What a model is fed: ImageNet's statistics, to the last bit the same by whichever way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from assets_device import default_dtype
from assets_random import examples
from facefeed.loaders.normalise import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    _statistics,
    normalise,
    normalise_into,
    normalise_unit,
)
from hypothesis import given
from hypothesis import strategies as st

MEAN, STD = np.array(IMAGENET_MEAN), np.array(IMAGENET_STD)


def pixels(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(len(shape)).integers(0, 256, (*shape, 3), np.uint8))


def test_the_statistics_are_those_of_imagenet() -> None:
    assert IMAGENET_MEAN == (0.485, 0.456, 0.406)
    assert IMAGENET_STD == (0.229, 0.224, 0.225)


def test_every_value_is_what_the_formula_gives() -> None:
    ramp = torch.arange(256, dtype=torch.uint8).repeat(3, 1).T.reshape(1, 256, 3)
    normalised = normalise(ramp)[:, 0].numpy()
    expected = ((np.arange(256) / 255)[None] - MEAN[:, None]) / STD[:, None]
    assert abs(normalised - expected).max() < 5e-7


@examples(30)
@given(st.lists(st.integers(0, 3), max_size=2), st.integers(1, 40), st.integers(1, 40))
def test_one_image_or_many_come_alike(leading: list[int], height: int, width: int) -> None:
    images = pixels(*leading, height, width)
    normalised = normalise(images)
    assert (normalised.shape, normalised.dtype) == ((*leading, 3, height, width), torch.float32)
    for image, result in zip(
        images.reshape(-1, height, width, 3), normalised.reshape(-1, 3, height, width), strict=True
    ):
        single = torch.empty((height, width, 3))
        normalise_into(single, image)
        assert torch.equal(single.permute(2, 0, 1), result)


def test_memory_is_channels_last_and_the_bytes_are_left_alone() -> None:
    images = pixels(2, 8, 9)
    before = images.clone()
    normalised = normalise(images)
    assert normalised.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, before)


def test_views_that_are_not_contiguous_are_taken() -> None:
    images = pixels(4, 12, 12)
    view = images[::2, 2:10, 1:9].flip(2)
    assert torch.equal(normalise(view), normalise(view.contiguous()))


def test_it_goes_back_to_the_very_bytes() -> None:
    images = pixels(3, 16, 16)
    normalised = normalise(images).permute(0, 2, 3, 1).numpy()
    assert (((normalised * STD + MEAN) * 255).round().astype(np.uint8) == images.numpy()).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_a_default_dtype_of_the_training_script_changes_no_value(dtype: torch.dtype) -> None:
    images = torch.linspace(0, 1, 256).expand(3, 4, 256)
    expected = normalise_unit(images)
    _statistics.cache_clear()
    try:
        with default_dtype(dtype):
            normalised = normalise_unit(images)
    finally:
        _statistics.cache_clear()
    assert normalised.dtype == torch.float32
    assert torch.equal(normalised, expected)


@pytest.mark.gpu
def test_on_a_device_it_is_the_same_within_rounding() -> None:
    images = pixels(4, 33, 47)
    normalised = normalise(images.cuda())
    assert normalised.is_cuda
    assert normalised.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(normalised.cpu(), normalise(images), rtol=0, atol=1e-6)
