"""What our transforms share: a stable name in files, the face, and arguments that are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from albumentations import BasicTransform

from ...pipeline.errors import UsageError
from .albumentations_internals import EVERY_TARGET
from .points import FacePoints, face_in


class Named:
    """Files name the class by the package, wherever in it the module lies."""

    @classmethod
    def get_class_fullname(cls) -> str:
        """`facefeed.loaders.augment.<class>` for ours; a user's subclass keeps its own module."""
        package = __name__.rpartition(".")[0]
        return f"{package if cls.__module__.startswith(f'{package}.') else cls.__module__}.{cls.__name__}"


class FaceTransform(Named, BasicTransform):  # type: ignore[misc]  # Albumentations has no types
    """A transform that knows the face; works within `FaceCompose`.

    `p`: how often it is applied, 0..1. Draws from Albumentations' generators alone, so a seed repeats it.
    """

    looks_at_mask = True
    """Whether what it does may depend on the mask; where it is False, none is read for its sake."""

    _targets = EVERY_TARGET

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=share("p", p))

    def face(self, data: Mapping[str, Any]) -> FacePoints:
        """The face where it lies now. Raises `UsageError` outside of a `FaceCompose`."""
        return face_in(data, type(self).__name__)

    def one_of(self, weights: Mapping[str, float], among: Iterable[str]) -> str | None:
        """One name, drawn by its weight from those that are in `among`; None where none of them is."""
        names = [name for name in among if weights.get(name, 0) > 0]
        if not names:
            return None
        drawn: str = self.py_random.choices(names, [weights[name] for name in names])[0]
        return drawn


def share(name: str, value: float) -> float:
    """`value` as a float; raises `UsageError` outside 0..1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise UsageError(f"{name}={value!r}: must be a number from 0 to 1; try 0.5")
    return float(value)


def at_least(least: float, name: str, value: float, *, above: bool = False, trial: float) -> float:
    """`value` as a float; raises `UsageError` below `least`, or at it where it must be `above`."""
    if not _is_number(value) or not (value > least if above else value >= least) or value == float("inf"):
        raise UsageError(
            f"{name}={value!r}: must be a number {'above' if above else 'of at least'} {least:g}; try {trial:g}"
        )
    return float(value)


def weights_of(given: Mapping[str, float], names: Iterable[str], *, trial: Mapping[str, float]) -> dict[str, float]:
    """Weights by name, as floats; raises `UsageError` on another name, a negative weight, or no weight above 0."""
    known = tuple(names)
    if not isinstance(given, Mapping) or not given:
        raise UsageError(f"weights={given!r}: must map names to numbers; try {dict(trial)}")
    for name, weight in given.items():
        if name not in known:
            raise UsageError(f"weights: {name!r} is none of {', '.join(known)}")
        if not _is_number(weight) or not 0 <= weight < float("inf"):
            raise UsageError(f"weights: {name}={weight!r} must be a number of at least 0; try 1")
    if not any(given.values()):
        raise UsageError(f"weights={dict(given)}: one must be above 0; try {dict(trial)}")
    return {name: float(weight) for name, weight in given.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
