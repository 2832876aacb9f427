"""Reads the position in an epoch from a state that a loader saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...pipeline.errors import UsageError

STATE_VERSION = 2  # 1 counted steps, 2 counts images


def saved_position(
    state: Any, *, identity: Mapping[str, Any], global_batch: int, needs_batch: str | None, num_images: int,
    unit_size: Callable[[], int], num_steps: Callable[[int, int], int],
) -> tuple[int, int]:  # fmt: skip
    """The epoch of a state, and how many of its images, over all ranks, were delivered.

    Args:
        state: what `EpochSampler.state` gave.
        identity: what the order depends on.
        global_batch: images of a step, over all ranks.
        needs_batch: by what the order depends on it, or None.
        num_images: of an epoch.
        unit_size: images that belong together.
        num_steps: of so many images, in steps of so many.

    Raises:
        UsageError: the state is none, or of another order.

    """
    if not isinstance(state, Mapping):
        raise UsageError(f"load_state_dict({state!r}): must be what state_dict() gave")
    if state.get("version") not in (1, STATE_VERSION):
        raise UsageError(
            f"load_state_dict: version={state.get('version')!r}: this facefeed reads 1 and {STATE_VERSION}"
        )
    for name, own in identity.items():
        if state.get(name) != own:
            raise UsageError(
                f"load_state_dict: the state has {name}={state.get(name)!r}, this loader {own!r}; make the loader "
                "with the same data and settings, or start the epoch anew"
            )
    if type(saved_batch := state.get("global_batch")) is not int or saved_batch < 1:
        raise UsageError(
            f"load_state_dict: global_batch={saved_batch!r}: must be a whole number of at least 1, as state_dict() "
            "gives; was the state changed?"
        )
    if needs_batch is not None and saved_batch != global_batch:
        raise UsageError(
            f"load_state_dict: the state has global_batch={saved_batch}, this loader "
            f"{global_batch}; with {needs_batch} the order depends on it; take the same batch_size x ranks, or "
            "start the epoch anew"
        )
    if state["version"] == 1:
        counted, images = "step", _images_of_steps(state.get("step"), saved_batch, num_images, num_steps)
    else:
        counted, images = "images", _whole_units(state.get("images"), unit_size)
    epoch = state.get("epoch")
    if type(epoch) is not int or epoch < 0 or images is None or not 0 <= images <= num_images:
        raise UsageError(
            f"load_state_dict: epoch={epoch!r}, {counted}={state.get(counted)!r}: no position in epochs of "
            f"{num_images} images: must be whole numbers within them, as state_dict() gives; was the state changed?"
        )
    return epoch, images


def _images_of_steps(step: Any, global_batch: int, num_images: int, num_steps: Callable[[int, int], int]) -> int | None:
    """Images of the steps, of its own batch size, that a state of version 1 counts; None where there are none such."""
    if type(step) is not int or step < 0 or step > num_steps(num_images, global_batch):
        return None
    return min(step * global_batch, num_images)


def _whole_units(images: Any, unit_size: Callable[[], int]) -> int | None:
    return images if type(images) is int and images % unit_size() == 0 else None
