"""A pipeline in a file, as `A.save(pipeline, path, data_format="yaml")` writes it: read it, and put it in words."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import albumentations
import yaml

from ...pipeline.errors import UsageError
from .compose import FaceCompose

_REMEDY: Final = 'write it with albumentations.save(pipeline, "FILE.yaml", data_format="yaml")'
_NAME: Final = "__class_fullname__"
_IGNORED: Final = "not valid for transform"
_ORNAMENTS: Final = re.compile(
    r"\d+ validation errors? for InitSchema|\[type=.*?\]$|For further information visit \S+", re.MULTILINE
)
_SAID_ELSEWHERE: Final = (_NAME, "p", "transforms")
_UNSET: Final[tuple[Any, ...]] = (None, {}, ())


def read_pipeline(path: Path) -> Any:
    """The `FaceCompose` or `albumentations.Compose` that a YAML file holds.

    Only plain data is read from the file, and only transforms that Albumentations knows are made, ours among them.
    Raises `UsageError` where the file is not there, is no YAML, or holds no pipeline; where it names a transform or an
    argument that does not exist, or an argument's value does not fit.
    """
    stored = _plain(path)
    pipeline = stored.get("transform") if isinstance(stored, dict) else None
    if not isinstance(pipeline, dict):
        raise UsageError(f"{path}: holds no pipeline of Albumentations; {_REMEDY}")
    for leaf in _leaves(pipeline):  # one by one, so that an error can name the transform
        _made(leaf if isinstance(leaf, dict) else {}, path)
    pipeline = _made(pipeline, path)
    if not isinstance(pipeline, albumentations.Compose):
        name = type(pipeline).__name__
        raise UsageError(
            f"{path}: holds {name} alone; must be a FaceCompose or a Compose: try FaceCompose([{name}(...)])"
        )
    return pipeline


def transforms_in(path: Path) -> dict[str, Any]:
    """The pipeline in a file, under the name of the argument of `FaceDataset` that takes it."""
    pipeline = read_pipeline(path)
    return {"face_transform" if isinstance(pipeline, FaceCompose) else "transform": pipeline}


def _made(stored: dict[str, Any], path: Path) -> Any:
    """What a stored transform says, or a `UsageError` that names it."""
    name = stored.get(_NAME)
    if not isinstance(name, str):
        raise UsageError(f"{path}: holds something that is no transform; {_REMEDY}")
    told = f"{path}: {name.rpartition('.')[2]}"
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made = albumentations.from_dict({"transform": stored})
    except KeyError as error:
        raise UsageError(f"{told}: neither Albumentations {albumentations.__version__} nor facefeed has it") from error
    except Exception as error:  # whatever its constructor may raise of a wrong argument
        raise UsageError(f"{told}: {_words(error)}") from error
    for one in warned:
        if _IGNORED in str(one.message):  # Albumentations would go on without the argument
            raise UsageError(f"{path}: {one.message}")
    return made


def _leaves(stored: Any) -> Iterator[Any]:
    inner = stored.get("transforms") if isinstance(stored, dict) else None
    if not isinstance(inner, list):
        yield stored
    else:
        yield from (leaf for one in inner for leaf in _leaves(one))


def _plain(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {_REMEDY}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is no YAML of plain data ({_words(error)}); {_REMEDY}") from error


def _words(error: Exception) -> str:
    """An error's message on one line, without pydantic's own ornaments."""
    return " ".join(_ORNAMENTS.sub("", str(error)).split())


@dataclass(frozen=True)
class Line:
    """One transform in words: how deep it lies, its name, how often it is applied, and what is not as by default."""

    depth: int
    name: str
    chance: str
    arguments: list[str]


def in_words(transform: Any, depth: int = 0) -> list[Line]:
    """A pipeline, a line a transform, outermost first."""
    stored, usual = transform.to_dict_private(), _by_default(type(transform))
    told = [
        f"{name} {_value(value)}"
        for name, value in stored.items()
        if name not in _SAID_ELSEWHERE and value not in _UNSET and value != usual.get(name, _UNSET)
    ]
    inner = getattr(transform, "transforms", [])
    lines = [Line(depth, type(transform).__name__, f"{100 * stored['p']:.3g}%", told)]
    return lines + [line for one in inner for line in in_words(one, depth + 1)]


def _by_default(kind: Any) -> dict[str, Any]:
    """What a transform of this kind stores when nothing is asked of it."""
    if issubclass(kind, albumentations.Compose):
        return {"is_check_shapes": True}
    try:
        stored: dict[str, Any] = kind().to_dict_private()
    except (TypeError, ValueError):  # something has to be asked of it
        return {name: one.default for name, one in inspect.signature(kind.__init__).parameters.items()}
    return stored


def _value(value: Any) -> str:
    """A value as a person writes it: numbers short, mappings as name:value."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_value, value))})"
    if isinstance(value, dict):
        return " ".join(f"{name}:{_value(one)}" for name, one in value.items())
    return str(value)
