"""Randomness of a transform that follows from the image's place alone, at the price of a reseed, not of a set-up."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

_MASK = (1 << 64) - 1
_INCREMENT = 0xDA3E39CB94B95BDB | 1  # PCG64's stream: any odd number


def mixed(*numbers: int) -> int:
    """64 bits from some numbers; splitmix64 (Steele et al., OOPSLA 2014) over each in turn."""
    x = 0
    for number in numbers:
        x = (x + number + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        x ^= x >> 31
    return x


class Reseeder:
    """Makes transforms, or a collate_fn, repeat: before each image, or batch, all generators are set by its key.

    Albumentations' transforms, and ours, share two generators that are handed to them, also where another callable
    holds them. Any other callable, within a pipeline too, is taken to draw from the global generators of `random`,
    numpy and torch: these are set, and put back afterwards.
    """

    def __init__(self, transforms: list[Callable[..., Any]]) -> None:
        self._numpy = np.random.Generator(np.random.PCG64(0))
        self._python = random.Random(0)  # noqa: S311 (no secrets here)
        self._state: dict[str, Any] = dict(self._numpy.bit_generator.state)
        self._seeded: list[Any] = [found for one in transforms for found in with_generators(one)]
        self._foreign = not all(_draws_from_its_own(one) for one in transforms)

    def reseed(self, key: int) -> None:
        """Sets every generator by a key of 64 bits; call within `guarded`."""
        if self._seeded:
            self._state["state"] = {"state": key << 64 | mixed(key), "inc": _INCREMENT}
            self._state["has_uint32"] = 0
            self._numpy.bit_generator.state = self._state
            self._python.seed(key)
        if self._foreign:
            random.seed(key)
            np.random.seed(key & 0xFFFFFFFF)
            torch.default_generator.manual_seed(key)  # torch.manual_seed would look for accelerators each time

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Around some images: hands out the generators, and leaves the global ones as they were found."""
        for one in self._seeded:  # each time: another loader may share it
            one.set_random_state(self._numpy, self._python)
        if not self._foreign:
            yield
            return
        python, legacy, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)
            torch.set_rng_state(torchs)


def with_generators(transform: Any) -> list[Any]:
    """What holds generators of its own (Albumentations' way) in a callable: itself, or what it refers to.

    Looked for in the attributes of objects, in what functions close over and which of their module's names they use;
    not in installed libraries.
    """
    found: list[Any] = []
    seen: set[int] = set()
    todo = [transform]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, np.ndarray, torch.Tensor)):
            continue
        seen.add(id(one))
        if hasattr(one, "set_random_state"):
            found.append(one)
        elif one is transform or isinstance(one, _HOLDERS) or not _of_library(one):
            todo += _referred(one)
    return found


def _referred(one: Any) -> list[Any]:
    if isinstance(one, (list, tuple, set, frozenset)):
        return list(one)
    if isinstance(one, dict):
        return list(one.values())
    if isinstance(one, partial):
        return [one.func, *one.args, *one.keywords.values()]
    if isinstance(one, MethodType):
        return [one.__self__, one.__func__]
    if isinstance(one, FunctionType):
        names = inspect.getclosurevars(one)
        return [*names.nonlocals.values(), *names.globals.values(), *(one.__defaults__ or ())]
    call = vars(type(one)).get("__call__")
    return [*getattr(one, "__dict__", {}).values(), *([] if call is None else [call])]


_HOLDERS = (list, tuple, set, frozenset, dict, partial, MethodType)


def _of_library(one: Any) -> bool:
    name = (one if isinstance(one, FunctionType) else type(one)).__module__.partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return name in sys.stdlib_module_names or "site-packages" in file


def _draws_from_its_own(transform: Any) -> bool:
    """Whether a transform, and all within it, are Albumentations' or ours, which draw from what they are handed."""
    if inner := getattr(transform, "transforms", None):
        return all(_draws_from_its_own(one) for one in inner)
    kind = type(transform)
    return kind.__module__.split(".")[0] in ("albumentations", "facefeed") and kind.__name__ != "Lambda"
