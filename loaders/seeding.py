"""Randomness that depends only on an image's position in the epoch, at the cost of a reseed per image."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

_UINT64_MASK = (1 << 64) - 1
_PCG64_INCREMENT = 0xDA3E39CB94B95BDB | 1  # selects PCG64's stream: any odd number


def derive_seed(*numbers: int) -> int:
    """Hashes integers to a seed of 64 bits; splitmix64 (Steele et al., OOPSLA 2014) over each in turn."""
    x = 0
    for number in numbers:
        x = (x + number + 0x9E3779B97F4A7C15) & _UINT64_MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _UINT64_MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _UINT64_MASK
        x ^= x >> 31
    return x


class Reseeder:
    """Makes transforms, or a collate_fn, reproducible: seeds all their generators before each image, or batch.

    Albumentations' transforms, and ours, share two generators that this object passes to them, also where another
    callable holds them. Any other callable, including those within a pipeline, is assumed to draw from the global
    generators of `random`, numpy and torch: these are seeded, and restored afterwards.
    """

    def __init__(self, transforms: list[Callable[..., Any]]) -> None:
        self._numpy = np.random.Generator(np.random.PCG64(0))
        self._python = random.Random(0)  # noqa: S311 (no secrets here)
        self._state: dict[str, Any] = dict(self._numpy.bit_generator.state)
        self._owners: list[Any] = [owner for transform in transforms for owner in generator_owners(transform)]
        self._uses_global_generators = not all(_uses_own_generators(transform) for transform in transforms)

    def reseed(self, seed: int) -> None:
        """Seeds every generator with 64 bits; call within `activated`."""
        if self._owners:
            self._state["state"] = {"state": seed << 64 | derive_seed(seed), "inc": _PCG64_INCREMENT}
            self._state["has_uint32"] = 0
            self._numpy.bit_generator.state = self._state
            self._python.seed(seed)
        if self._uses_global_generators:
            random.seed(seed)
            np.random.seed(seed & 0xFFFFFFFF)
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would look for accelerators each time

    @contextmanager
    def activated(self) -> Iterator[None]:
        """Passes this object's generators to the transforms; on exit restores the state of the global generators."""
        for owner in self._owners:  # on every entry: another loader may share the transform
            owner.set_random_state(self._numpy, self._python)
        if not self._uses_global_generators:
            yield
            return
        python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
            torch.set_rng_state(torch_state)


def generator_owners(transform: Any) -> list[Any]:
    """Objects with generators of their own (a `set_random_state` method, as Albumentations') that a callable uses.

    Searches the callable itself, attributes of objects and of their classes, slots, methods, closures of functions, and
    the globals and attributes of modules that functions name; of what installed libraries define, only attributes of
    objects with generators. Albumentations' compositions pass theirs on to their transforms: these are searched alone.
    """
    owners: list[Any] = []
    seen: set[int] = set()
    passed_on: set[int] = set()
    pending = [transform]
    while pending:
        candidate = pending.pop()
        if id(candidate) in seen or isinstance(candidate, (type, ModuleType, np.ndarray, torch.Tensor)):
            continue
        seen.add(id(candidate))
        if hasattr(candidate, "set_random_state"):
            if id(candidate) not in passed_on:
                owners.append(candidate)
            if _is_from_library(type(candidate).set_random_state):
                passed_on |= {id(child) for child in getattr(candidate, "transforms", ())}
            pending += _references(candidate)
        elif candidate is transform or isinstance(candidate, _CONTAINERS) or not _is_from_library(candidate):
            pending += _references(candidate)
    return owners


def _references(holder: Any) -> list[Any]:
    """Objects that a container, callable or instance refers to."""
    if isinstance(holder, (list, tuple, set, frozenset)):
        return list(holder)
    if isinstance(holder, dict):
        return list(holder.values())
    if isinstance(holder, partial):
        return [holder.func, *holder.args, *holder.keywords.values()]
    if isinstance(holder, MethodType):
        return [holder.__self__, holder.__func__]
    if isinstance(holder, FunctionType):
        return _references_of_function(holder)
    references = list(getattr(holder, "__dict__", {}).values())
    for cls in type(holder).__mro__:
        if not _is_from_library(cls):
            references += [_class_attribute(value, holder) for value in vars(cls).values()]
    return references


def _class_attribute(value: Any, holder: Any) -> Any:
    """What an object refers to by an attribute of its class: the function of a method, the content of a slot."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    if isinstance(value, MemberDescriptorType):
        try:
            return value.__get__(holder)
        except AttributeError:  # an empty slot
            return None
    return value


def _references_of_function(function: FunctionType) -> list[Any]:
    """Defaults and closure of a function, the globals that it names, and the attributes of modules that it names."""
    references = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            references.append(cell.cell_contents)
    names = _names_in(function.__code__)
    scopes, seen = [function.__globals__], set()
    while scopes:
        scope = scopes.pop()
        for value in [scope[name] for name in names if name in scope]:
            if not isinstance(value, ModuleType):
                references.append(value)
            elif value.__name__ not in seen and not _is_from_library(value):
                seen.add(value.__name__)
                scopes.append(vars(value))
    return references


def _names_in(code: CodeType) -> set[str]:
    """Names of globals and attributes in a function, and in functions and comprehensions within it."""
    return {*code.co_names}.union(*(_names_in(part) for part in code.co_consts if isinstance(part, CodeType)))


_CONTAINERS = (list, tuple, set, frozenset, dict, partial, MethodType)


def _is_from_library(candidate: Any) -> bool:
    """Whether Python, an installed package or facefeed has a module, function or class, or defines an object's class.

    Objects of facefeed's own classes may hold a user's.
    """
    if isinstance(candidate, ModuleType):
        module = candidate.__name__
    elif isinstance(candidate, (FunctionType, type)):
        module = candidate.__module__
    else:
        module = type(candidate).__module__
    name = (module or "").partition(".")[0]  # generated functions may have no module
    if name == "facefeed":
        return isinstance(candidate, (ModuleType, type))
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return name in sys.stdlib_module_names or "site-packages" in file


def _uses_own_generators(transform: Any) -> bool:
    """Whether a transform, and all within it, are Albumentations' or ours, which draw from the generators they own.

    A user's container of such transforms counts as drawing itself, say which of them to apply.
    """
    cls = type(transform)
    if cls.__module__.split(".")[0] not in ("albumentations", "facefeed") or cls.__name__ == "Lambda":
        return False
    if all(base.__name__ != "BaseCompose" for base in cls.__mro__):  # `ColorJitter.transforms` are functions
        return True
    return all(_uses_own_generators(child) for child in transform.transforms)
