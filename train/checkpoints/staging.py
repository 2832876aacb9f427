"""A copy of a checkpoint's contents in host memory, which training cannot change while it is written."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

TensorCopier = Callable[[str, Tensor], Any]
"""Returns what stands for a tensor; called with its name, of keys and indices with `/` between."""


def copied(contents: Any, copy_tensor: TensorCopier, name: str = "") -> Any:
    """Returns a deep copy of nested dicts and lists, in which `copy_tensor` copies the tensors."""
    if isinstance(contents, Tensor):
        return copy_tensor(name, contents)
    if isinstance(contents, dict):
        duplicate = copy.copy(contents)  # with its class and attributes: a state dict's has versions of its modules
        for key, item in contents.items():
            duplicate[key] = copied(item, copy_tensor, f"{name}/{key}")
        return duplicate
    if type(contents) in (list, tuple):
        return type(contents)(copied(item, copy_tensor, f"{name}/{index}") for index, item in enumerate(contents))
    return copy.deepcopy(contents)


def copied_to_host(contents: Any) -> Any:
    """Returns a deep copy of nested dicts and lists, with every tensor on the CPU.

    Tensors that share memory as the weights of tied layers do, with one place, shape and layout, share it in the copy.
    Raises `RuntimeError` of torch's allocator where host memory is short.
    """
    return copied(contents, HostCopier())


class HostCopier:
    """A `TensorCopier` to the CPU; tensors that share memory share it in the copy."""

    def __init__(self) -> None:
        self._copies: dict[Any, Tensor] = {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Returns the copy, the same one for tensors of one place, shape and layout."""
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided:
            return tensor.detach().to("cpu", copy=True)
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in self._copies:
            self._copies[key] = tensor.detach().to("cpu", copy=True)
        return self._copies[key]
