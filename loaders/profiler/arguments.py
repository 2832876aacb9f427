"""Checks the arguments of `profile()` before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import Any

import torch

from ...pipeline.errors import UsageError

_MIN_STEPS = 50


def check_arguments(
    loader: Any, step: Any, *, steps: Any, confidence: Any, device: Any, epoch_batches: Any, against: Any,
    verify: bool, quick: bool,
) -> None:  # fmt: skip
    """Raises `UsageError` on the first of the arguments of `profile()` that is out of range or of a wrong type."""
    _check_loader("loader", loader)
    if not callable(step):
        raise UsageError(f"step={step!r}: must be a function of a batch; without a GPU try EmulatedDevice(0.02)")
    if not _is_whole(steps, at_least=_MIN_STEPS):
        raise UsageError(f"steps={steps!r}: must be a whole number of at least {_MIN_STEPS}; try 4000")
    if not (isinstance(confidence, Real) and 0 < float(confidence) < 1):
        raise UsageError(f"confidence={confidence!r}: must be between 0 and 1; try 0.95")
    if epoch_batches is not None and not _is_whole(epoch_batches, at_least=1):
        raise UsageError(f"epoch_batches={epoch_batches!r}: must be a number of batches, or None for the loader's own")
    if not (against is None or isinstance(against, Mapping)):
        raise UsageError(f"against={against!r}: must be loaders by their names, such as {{'torch': loader}}")
    for name, other in (against or {}).items():
        _check_loader(f"against[{name!r}]", other)
    _check_device(device)
    if verify and quick:
        raise UsageError("verify and quick: verify follows advice, which quick does not give; leave one of them out")


def _check_loader(name: str, loader: Any) -> None:
    if isinstance(loader, (str, bytes, os.PathLike)):
        raise UsageError(f"{name}={loader!r}: is a path; give a loader of it, such as FaceDataLoader({loader!r})")
    kind = type(loader).__name__ if name == "loader" else f"{name}: {type(loader).__name__}"
    if isinstance(loader, Iterator):
        raise UsageError(f"{kind}: can be iterated only once; give a loader, or a list of batches")
    if isinstance(loader, Mapping) or not hasattr(loader, "__iter__"):
        raise UsageError(f"{kind}: has no batches to iterate over; give a loader, or a list of batches")


def _check_device(device: Any) -> None:
    try:
        # Allocates nothing, but fails where torch has no such device.
        torch.empty(0, device=torch.device(device or "cpu"))
    except (RuntimeError, TypeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"device={device!r}: cannot be used ({reason}); try 'cuda', or None for the host") from error


def _is_whole(value: Any, *, at_least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= at_least
