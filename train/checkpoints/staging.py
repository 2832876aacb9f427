"""A copy of a checkpoint's contents in host memory, which training cannot change while it is written."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


def copied_to_host(contents: Any) -> Any:
    """Returns a deep copy of nested dicts and lists, with every tensor on the CPU.

    Tensors that share memory as the weights of tied layers do, with one place, shape and layout, share it in the copy.
    Raises `RuntimeError` of torch's allocator where host memory is short.
    """
    return _copied(contents, {})


def _copied(value: Any, copies: dict[Any, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return _copied_tensor(value, copies)
    if isinstance(value, dict):
        copied = copy.copy(value)  # with its class and attributes: a state dict's has versions of its modules
        for key, item in value.items():
            copied[key] = _copied(item, copies)
        return copied
    if type(value) in (list, tuple):
        return type(value)(_copied(item, copies) for item in value)
    return copy.deepcopy(value)


def _copied_tensor(tensor: Tensor, copies: dict[Any, Tensor]) -> Tensor:
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided:
        return tensor.detach().to("cpu", copy=True)
    key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
    if key not in copies:
        copies[key] = tensor.detach().to("cpu", copy=True)
    return copies[key]
