"""Checks the arguments of `profile()` before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ...pipeline.errors import UsageError
from ..loader.epoch_iterator import EpochIterator
from ..real_numbers import as_float
from ..validation import check_options
from .estimate.bounds import MAX_CONFIDENCE

_MODULES_OF_ITERATORS = ("builtins", "itertools", "torch.utils.data.dataloader", EpochIterator.__module__)
"""Whose iterators end for good; one of another module may begin anew, as those of DALI do."""


def check_arguments(
    loader: Any, step: Any, *, confidence: Any, device: Any, against: Any, verify: bool, quick: bool
) -> None:
    """Raises `UsageError` on the first of these arguments of `profile()` that is out of range or of a wrong type."""
    _check_loader("", loader)
    if not callable(step):
        raise UsageError(f"step={step!r}: must be a function of a batch; without a GPU try EmulatedDevice(0.02)")
    number = as_float(confidence)
    if not 0 < number < 1:
        raise UsageError(f"confidence={confidence!r}: must be between 0 and 1; try 0.95")
    if number > MAX_CONFIDENCE:
        raise UsageError(
            f"confidence={confidence!r}: must be at most {MAX_CONFIDENCE}, the highest that the resampled bounds "
            "resolve; try 0.99"
        )
    check_options(device=device)
    if not (against is None or isinstance(against, Mapping)):
        raise UsageError(f"against={against!r}: must be loaders by their names, such as {{'torch': loader}}")
    for name, other in (against or {}).items():
        _check_loader(f"against={name!r}: ", other)
    if verify and quick:
        raise UsageError("verify and quick: verify follows advice, which quick does not give; leave one of them out")


def _check_loader(where: str, loader: Any) -> None:
    if isinstance(loader, (str, bytes, os.PathLike)):
        raise UsageError(f"{where}{loader!r}: is a path; give a loader of it, such as FaceDataLoader({loader!r})")
    kind = f"{where}{type(loader).__name__}"
    if isinstance(loader, Iterator) and type(loader).__module__ in _MODULES_OF_ITERATORS:
        raise UsageError(f"{kind}: can be iterated only once; give a loader, or a list of batches")
    if isinstance(loader, Mapping) or not hasattr(loader, "__iter__"):
        raise UsageError(f"{kind}: has no batches to iterate over; give a loader, or a list of batches")
