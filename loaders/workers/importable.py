"""Checks, before worker processes start, that they can import all that will be sent to them."""

from __future__ import annotations

import ast
import io
import pickle
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from ...pipeline.errors import UsageError


def check_importable(**parts: Any) -> None:
    """Raises `UsageError` where a part cannot be pickled, or refers to functions that workers cannot import.

    These are lambdas, and functions defined in a notebook, at a prompt, or below `if __name__ == "__main__":`.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is not None and getattr(main, "__spec__", None) is None and not Path(file).is_file():
        raise UsageError(f"num_workers: workers cannot import the script from {file}; save it, or take num_workers=0")
    for name, part in parts.items():
        try:
            _ImportablePickler(name).dump(part)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise UsageError(f"{name}: cannot be sent to workers: {error}; fix that, or take num_workers=0") from error


def is_reduced_by_multiprocessing(item: Any) -> bool:
    """Whether multiprocessing itself sends an object to a worker: tensors, locks, whatever processes share."""
    is_of_torch = type(item).__module__.split(".")[0] in ("torch", "multiprocessing")
    return is_of_torch and not isinstance(item, torch.nn.Module)


class _ImportablePickler(pickle.Pickler):
    """Checks the functions and classes of an object as pickle visits them; discards the output."""

    def __init__(self, name: str) -> None:
        super().__init__(_NullStream())
        self._name = name

    def reducer_override(self, item: Any) -> Any:
        """Called by pickle for each object that it visits."""
        if is_reduced_by_multiprocessing(item):
            return int, ()  # only while a worker starts
        if isinstance(item, (FunctionType, type)):
            if "<" in item.__qualname__:  # <lambda>, <locals>
                raise UsageError(
                    f"{self._name}: workers cannot import {item.__qualname__}; write it at the top level of a module, "
                    "or take num_workers=0"
                )
            if item.__module__ == "__main__" and (why := _why_not_importable(item.__qualname__)):
                raise UsageError(
                    f"{self._name}: workers cannot import {item.__qualname__} {why}; move it to a module, or take "
                    "num_workers=0"
                )
        return NotImplemented


def _why_not_importable(name: str) -> str:
    """Why a worker cannot import this name of the main module; empty where it can."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if file is None:
        return "from a notebook or a prompt"
    if spec is not None and spec.name.split(".")[-1] == "__main__":
        return "from a package's __main__"
    try:
        top = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    blocks = [statement.body for statement in top if isinstance(statement, ast.If)]
    inside = {node.name for block in blocks for node in block if isinstance(node, _DEFINITIONS)}
    outside = {node.name for node in top if isinstance(node, _DEFINITIONS)}
    guarded = name.split(".", maxsplit=1)[0] in inside - outside
    return "from below `if __name__ == '__main__':`" if guarded else ""


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _NullStream(io.RawIOBase):
    def write(self, data: Any) -> int:
        return len(data)
