"""Batches as nested containers of tensors: dicts, lists and tuples."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any

import torch


def iter_tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Yields every tensor in nested dicts, lists and tuples."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, (dict, UserDict, list, tuple)):
        for value in batch.values() if isinstance(batch, (dict, UserDict)) else batch:
            yield from iter_tensors(value)


def rebuild(batch: Any, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Any:
    """The batch in new dicts, lists and (named) tuples, with `change` applied to each tensor; all else is shared.

    Those of a class of their own keep it, and their further attributes. One that cannot be changed or made anew gives a
    plain dict, list or tuple where there is a `change`, and is shared where there is none.
    """
    if isinstance(batch, torch.Tensor):
        return batch if change is None else change(batch)
    if isinstance(batch, (dict, UserDict)):
        values = {name: rebuild(value, change) for name, value in batch.items()}
        try:
            rebuilt = copy.copy(batch)
            for name, value in values.items():
                rebuilt[name] = value
        except TypeError:
            return batch if change is None else values
        return rebuilt
    if isinstance(batch, (list, tuple)):
        items = [rebuild(value, change) for value in batch]
        try:
            return _with_items(batch, items)
        except TypeError:
            return batch if change is None else (tuple(items) if isinstance(batch, tuple) else items)
    return batch


def _with_items(batch: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    if isinstance(batch, list):
        rebuilt = copy.copy(batch)
        rebuilt[:] = items
        return rebuilt
    try:  # not by its constructor, which may take other arguments
        made = tuple.__new__(type(batch), items)
    except TypeError:  # of torch's own, such as torch.return_types.max
        return type(batch)(items)
    if hasattr(batch, "__dict__"):
        vars(made).update(vars(batch))
    return made
