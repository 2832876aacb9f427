"""`SeededTransform`: applies a `device_transform`, so that each image depends on its own seed alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from ..normalise import normalise_unit
from ..sampling.hashing import hash_numbers
from ..seeding import Reseeder

DeviceTransform = Callable[..., Any]


class SeededTransform:
    """Applies a `device_transform` to batches on their device; the images of a clip get the same draws.

    A transform with `draws` is called once for the batch; see `BatchedTransform`. Any other is called for each image,
    or clip, alone, with all global generators seeded for it and restored afterwards.

    Args:
        transform: one, or several to apply in turn.
        device: of the images.
        dtype: of the loader; "float32": transforms get values in 0..1, which are normalised afterwards; "uint8":
            transforms get uint8, and their output is delivered unchanged.

    """

    def __init__(
        self, transform: DeviceTransform | Sequence[DeviceTransform], device: torch.device, dtype: str
    ) -> None:
        self._steps = steps_of(transform)
        self._device, self._dtype = device, dtype
        self._reseeders = [Reseeder([step]) for step in self._steps]
        for step in self._steps:
            if isinstance(step, torch.nn.Module):
                step.to(device)

    @torch.no_grad()
    def __call__(self, images: torch.Tensor, seeds: NDArray[np.uint64], frames: int) -> torch.Tensor:
        """Transforms uint8 images (N x `frames`, H, W, 3) with seeds (N,); returns (N x `frames`, C, H', W')."""
        images = images.movedim(-1, -3)
        if self._dtype == "float32":
            images = images.to(torch.float32).div_(255)
        for number, step in enumerate(self._steps):
            step_seeds = hash_numbers(seeds, number)
            if hasattr(step, "draws"):
                images = self._apply_to_batch(step, images, step_seeds, frames)
            else:
                images = self._apply_to_each(step, self._reseeders[number], images, step_seeds, frames)
        return normalise_unit(images) if self._dtype == "float32" else images

    def _apply_to_batch(
        self, step: DeviceTransform, images: torch.Tensor, seeds: NDArray[np.uint64], frames: int
    ) -> torch.Tensor:
        numbers = np.repeat(uniform_numbers(seeds, step.draws), frames, axis=0)  # type: ignore[attr-defined]
        given = torch.from_numpy(numbers).to(self._device, non_blocking=True)
        return self._checked(step, step(images, given), len(images))

    def _apply_to_each(
        self, step: DeviceTransform, reseeder: Reseeder, images: torch.Tensor, seeds: NDArray[np.uint64], frames: int
    ) -> torch.Tensor:
        outputs = []
        with reseeder.activated(), _device_generator(self._device) as seed_device:
            for item, seed in zip(torch.split(images, frames), seeds.tolist(), strict=True):
                reseeder.reseed(seed)
                seed_device(seed)
                outputs.append(self._checked(step, step(item), len(item)))
        if len(sizes := {output.shape[1:] for output in outputs}) > 1:
            raise UsageError(
                f"device_transform {name_of(step)} returned images of sizes {sorted(map(tuple, sizes))} for one batch: "
                "it needs one; resize last"
            )
        return torch.cat(outputs)

    def _checked(self, step: DeviceTransform, output: Any, count: int) -> torch.Tensor:
        """The output of a transform of `count` images; raises `UsageError` where it is no such batch."""
        is_batch = isinstance(output, torch.Tensor) and output.ndim == 4 and len(output) == count
        if is_batch and (self._dtype == "uint8" or (output.is_floating_point() and output.shape[1] == 3)):
            return output  # type: ignore[no-any-return]
        kind = type(output).__name__
        if isinstance(output, torch.Tensor):
            kind = f"{output.dtype} {tuple(output.shape)}"
        wanted, remedy = "(N, C, H, W)", ""
        if self._dtype == "float32":
            wanted = "float (N, 3, H, W) in 0..1"
            remedy = ", which the loader normalises; for other types and channels give dtype='uint8'"
        raise UsageError(
            f"device_transform {name_of(step)} returned {kind} for {count} images: must return {wanted}{remedy}"
        )


def steps_of(transform: DeviceTransform | Sequence[DeviceTransform]) -> list[DeviceTransform]:
    """The transforms of a `device_transform`, in order."""
    return list(transform) if isinstance(transform, (list, tuple)) else [transform]  # type: ignore[list-item]


def name_of(step: DeviceTransform) -> str:
    """How messages name a transform."""
    return getattr(step, "__name__", type(step).__name__)


def uniform_numbers(seeds: NDArray[np.uint64], draws: int) -> NDArray[np.float32]:
    """Numbers that each follow from one seed and its place: float32 (seeds, draws), uniform in [0, 1)."""
    numbers = np.empty((len(seeds), draws), np.float32)
    for place in range(draws):
        # 24 bits: as many as float32 holds exactly, so that nothing is rounded up to 1.
        numbers[:, place] = (hash_numbers(seeds, place + 1) >> np.uint64(40)) * np.float32(2**-24)
    return numbers


@contextmanager
def _device_generator(device: torch.device) -> Iterator[Callable[[int], Any]]:
    """Yields what seeds the device's global generator, whose state is restored afterwards; nothing on the CPU."""
    if device.type != "cuda":
        yield lambda _seed: None
        return
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    state = generator.get_state()
    try:
        yield generator.manual_seed
    finally:
        generator.set_state(state)
