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
    """The batch in new dicts, lists and (named) tuples, with `change` applied to each tensor; all else is shared."""
    if isinstance(batch, torch.Tensor):
        return batch if change is None else change(batch)
    if isinstance(batch, (dict, UserDict)):
        rebuilt = copy.copy(batch)
        for name, value in batch.items():
            rebuilt[name] = rebuild(value, change)
        return rebuilt
    if isinstance(batch, (list, tuple)):
        items = [rebuild(value, change) for value in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch
