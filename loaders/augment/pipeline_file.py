"""Reads a pipeline from a file that `A.save(pipeline, path, data_format="yaml")` wrote, and describes it as text."""

from __future__ import annotations

import hashlib
import inspect
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import albumentations
import yaml

from ...pipeline.errors import UsageError
from ...pipeline.json_records import brief
from .albumentations_internals import registered_class
from .compose import FaceCompose

_REMEDY: Final = 'write it with albumentations.save(pipeline, "FILE.yaml", data_format="yaml")'
_PACKAGE: Final = Path(__file__).parent
_CLASS_KEY: Final = "__class_fullname__"
_MISSING_P_WARNING: Final = re.compile(r"Transform (?:\S+\.)?(\S+) has no 'p' parameter")
_PYDANTIC_NOISE: Final = re.compile(
    r"\d+ validation errors? for InitSchema|\[type=.*?\]$|For further information visit \S+", re.MULTILINE
)
_SHOWN_SEPARATELY: Final = (_CLASS_KEY, "p", "transforms")
_UNSET_VALUES: Final[tuple[Any, ...]] = (None, {}, ())
_MAX_VALUES: Final = 10_000
_MAX_DEPTH: Final = 50


def read_pipeline(path: Path) -> Any:
    """The `FaceCompose` or `albumentations.Compose` that a YAML file holds.

    A bare name, such as `self_blend.yaml`, of which the working folder has no file, is one that comes with facefeed.
    Reads plain data only, and instantiates only transforms registered with Albumentations, ours included. Raises
    `UsageError` where the file does not exist, is not YAML, or holds no pipeline; where it names a transform or an
    argument that does not exist, or where the value of an argument is invalid.
    """
    stored = _load_yaml(path)
    pipeline = stored.get("transform") if isinstance(stored, dict) else None
    if not isinstance(pipeline, dict):
        raise UsageError(f"{path}: holds no pipeline of Albumentations; {_REMEDY}")
    _refuse_probabilities(pipeline, path)
    for leaf in _stored_leaves(pipeline):  # one by one, so that an error can name the transform
        _deserialise(leaf if isinstance(leaf, dict) else {}, path)
    pipeline = _deserialise(pipeline, path)
    if not isinstance(pipeline, albumentations.Compose):
        name = type(pipeline).__name__
        raise UsageError(
            f"{path}: holds {name} alone; must be a FaceCompose or a Compose: try FaceCompose([{name}(...)])"
        )
    _refuse_ignored_arguments(stored["transform"], pipeline, path)
    return pipeline


def dataset_arguments(path: Path) -> dict[str, Any]:
    """The pipeline in a file as the keyword argument of `FaceDataset` that takes it."""
    pipeline = read_pipeline(path)
    return {"face_transform" if isinstance(pipeline, FaceCompose) else "transform": pipeline}


def sha256_of(path: Path) -> str:
    """The SHA-256 of what the file says that `read_pipeline` reads for `path`, in hexadecimal; comments do not count.

    Raises `UsageError` where the file cannot be read.
    """
    return hashlib.sha256(yaml.safe_dump(_load_yaml(path)).encode()).hexdigest()


def _deserialise(stored: dict[str, Any], path: Path) -> Any:
    """The transform that `stored` describes; raises `UsageError` with its name."""
    name = stored.get(_CLASS_KEY)
    if not isinstance(name, str):
        raise UsageError(f"{path}: holds something that is no transform; {_REMEDY}")
    location = f"{path}: {name.rpartition('.')[2]}"
    try:
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            transform = albumentations.from_dict({"transform": stored})
    except KeyError as error:
        raise UsageError(
            f"{location}: neither Albumentations {albumentations.__version__} nor facefeed has it"
        ) from error
    except TypeError as error:
        raise UsageError(f"{location}: {_unknown_argument(name, stored) or _one_line(error)}") from error
    except Exception as error:  # whatever a constructor raises on a wrong argument
        raise UsageError(f"{location}: {_one_line(error)}") from error
    for warning in caught_warnings:
        if lacking := _MISSING_P_WARNING.match(str(warning.message)):  # else 0.5, also for Resize, whose default is 1
            raise UsageError(
                f"{path}: {lacking[1]} has no p, the probability with which it is applied; for always write p: 1.0"
            )
    return transform


def _unknown_argument(name: str, arguments: Iterable[str]) -> str | None:
    """The first of these arguments that the transform of that name does not have, and those that it has."""
    known = [each for each in inspect.signature(registered_class(name)).parameters if each != "self"]
    unknown = [each for each in arguments if each not in (*known, _CLASS_KEY)]
    return f"has no argument {unknown[0]!r}; it has {', '.join(known)}" if unknown else None


def _refuse_ignored_arguments(stored: dict[str, Any], transform: Any, path: Path) -> None:
    """Raises `UsageError` on an argument, such as a misspelt one, that a transform at any depth does not take.

    Albumentations ignores them with a warning, also those of parent classes, which it writes itself: an argument whose
    value it would write again loses nothing.
    """
    if isinstance(transform, albumentations.BaseCompose):
        for child_stored, child in zip(stored["transforms"], transform.transforms, strict=True):
            _refuse_ignored_arguments(child_stored, child, path)
        return
    ignored = getattr(transform, "invalid_args", [])
    written = _as_saved(transform) if ignored else {}
    lost = [name for name in ignored if name not in written or written[name] != stored[name]]
    if lost:
        name = stored[_CLASS_KEY]
        raise UsageError(f"{path}: {name.rpartition('.')[2]}: {_unknown_argument(name, lost)}")


def _as_saved(transform: Any) -> dict[str, Any]:
    """What `albumentations.save` writes of a transform; nothing of one that it refuses."""
    file = io.StringIO()
    try:
        albumentations.save(transform, file, data_format="yaml")
    except Exception:  # besides `NotImplementedError`, what YAML raises on values that it has no form of
        return {}
    saved: dict[str, Any] = yaml.safe_load(file.getvalue())["transform"]
    return saved


def _refuse_probabilities(stored: Any, path: Path) -> None:
    """Raises `UsageError` on a group whose p is none: Albumentations checks those of single transforms alone."""
    if not isinstance(stored, dict) or not isinstance(stored.get("transforms"), list):
        return
    p = stored.get("p", 1.0)
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
        name = str(stored.get(_CLASS_KEY)).rpartition(".")[2]
        raise UsageError(f"{path}: {name}: p {brief(p)} is no probability; must be a number from 0 to 1")
    for child in stored["transforms"]:
        _refuse_probabilities(child, path)


def _stored_leaves(stored: Any) -> Iterator[Any]:
    children = stored.get("transforms") if isinstance(stored, dict) else None
    if not isinstance(children, list):
        yield stored
    else:
        yield from (leaf for child in children for leaf in _stored_leaves(child))


def is_packaged(path: Path) -> bool:
    """Whether `read_pipeline` reads, for `path`, a file that comes with facefeed."""
    return not path.exists() and str(path) in _packaged_files()


def _packaged_files() -> dict[str, Path]:
    return {file.name: file for file in _PACKAGE.glob("*.yaml")}


def _located(path: Path) -> Path:
    """The file of that path or, where there is none, the packaged one of that bare name."""
    packaged = _packaged_files()
    if is_packaged(path):
        return packaged[str(path)]
    if path.exists():
        return path
    raise UsageError(
        f"{path}: No such file; {_REMEDY}, or name one that comes with facefeed: {', '.join(sorted(packaged))}"
    )


def _load_yaml(path: Path) -> Any:
    path = _located(path)
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
        _refuse_bomb(stored)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {_REMEDY}") from error
    except Exception as error:  # besides its own, YAML raises what Python does on dates and numbers that are none
        raise UsageError(f"{path}: is no YAML of plain data ({_one_line(error)}); {_REMEDY}") from error
    return stored


def _refuse_bomb(stored: Any) -> None:
    """Raises `ValueError` on more values or levels than a pipeline has.

    By references a few lines make billions of values, or one that holds itself.
    """
    level, count = [stored], 1
    for _ in range(_MAX_DEPTH):
        level = [inner for outer in level for inner in _values_in(outer)]
        count += len(level)
        if not level:
            return
        if count > _MAX_VALUES:
            break
    raise ValueError(f"more than {_MAX_VALUES:,} values, or {_MAX_DEPTH} levels")


def _values_in(stored: Any) -> Iterable[Any]:
    if isinstance(stored, dict):
        return stored.values()
    return stored if isinstance(stored, list | tuple | set) else ()


def _one_line(error: Exception) -> str:
    """An error's message on one line, without the parts that pydantic adds."""
    return " ".join(_PYDANTIC_NOISE.sub("", str(error)).split())


@dataclass(frozen=True)
class TransformLine:
    """One transform as text: nesting depth, class name, probability, and arguments that differ from the defaults."""

    depth: int
    name: str
    probability: str
    arguments: list[str]


def describe_pipeline(transform: Any, depth: int = 0) -> list[TransformLine]:
    """One line for each transform of a pipeline, outermost first."""
    stored, defaults = transform.to_dict_private(), _default_arguments(type(transform))
    not_shown = (*_SHOWN_SEPARATELY, *getattr(transform, "invalid_args", ()))
    arguments = [
        f"{name} {_format_value(value)}"
        for name, value in stored.items()
        if name not in not_shown and value not in _UNSET_VALUES and value != defaults.get(name, _UNSET_VALUES)
    ]
    children = transform.transforms if isinstance(transform, albumentations.BaseCompose) else []
    lines = [TransformLine(depth, type(transform).__name__, f"{100 * stored['p']:.3g}%", arguments)]
    return lines + [line for child in children for line in describe_pipeline(child, depth + 1)]


def _default_arguments(cls: Any) -> dict[str, Any]:
    """The serialised arguments of a transform that was created without any."""
    if issubclass(cls, albumentations.Compose):
        return {"is_check_shapes": True}
    try:
        stored: dict[str, Any] = cls().to_dict_private()
    except (TypeError, ValueError):  # it has required arguments
        return {name: parameter.default for name, parameter in inspect.signature(cls.__init__).parameters.items()}
    return stored


def _format_value(value: Any) -> str:
    """A value as text: floats in short form, mappings as name:value."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_format_value, value))})"
    if isinstance(value, dict):
        return " ".join(f"{name}:{_format_value(item)}" for name, item in value.items())
    return str(value)
