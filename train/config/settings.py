"""A config's values by name, `model.backbone`, as text: set on the command line, kept as JSON, compared."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...pipeline.errors import UsageError
from .recipes import Config

_FIXED = {
    "recipe": "names the function that the values come from; give --recipe",
    "model.classes": "are the dataset's own; they cannot be set",
}
_NONE = "none"


def with_set(config: Config, given: Sequence[str]) -> Config:
    """The config with some values replaced, each given as "key=value".

    Keys are those of `flat`; values are read as the type of their field: `none` where it may be None, on and off as
    true and false. Raises `UsageError` on a key that is not there, naming near ones, and on a value that is not of the
    type or that the config refuses.
    """
    hints = dict(_settable(type(config)))
    values: dict[str, Any] = {}
    for one in given:
        key, equals, text = (part.strip() for part in one.partition("="))
        if key in _FIXED:
            raise UsageError(f"{key}: {_FIXED[key]}")
        if key not in hints:
            raise UsageError(f"{key}: no such setting; {_near(key, [name for name in hints if name not in _FIXED])}")
        if not equals:
            raise UsageError(f"{one}: must be key=value; try {key}={_text(flat(config)[key])}")
        if key in values:
            raise UsageError(f"{key}: is set twice; leave one out")
        values[key] = _value(key, text, hints[key], flat(config)[key])
    changed: Config = _replaced(config, values)
    return changed


def flat(config: Config) -> dict[str, Any]:
    """All values by their full names, in the order of the fields."""
    return flattened(asdict(config))


def flattened(config: dict[str, Any]) -> dict[str, Any]:
    """The same of a config that was read back as JSON."""
    return dict(_flattened(config))


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What two flat configs do not share, a line each: "model.backbone: resnet18 there, resnet50 here"."""
    return [
        f"{key}: {_text(before.get(key))} there, {_text(now.get(key))} here"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]


def _settable(kind: type) -> Iterator[tuple[str, Any]]:
    """Full names and types of what can be set."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        if is_dataclass(hint := hints[one.name]):
            assert isinstance(hint, type)
            yield from ((f"{one.name}.{name}", inner) for name, inner in _settable(hint))
        else:
            yield one.name, hint


def _flattened(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", inner) for name, inner in _flattened(value))
        else:
            yield key, list(value) if isinstance(value, tuple) else value


def _replaced(config: Any, values: dict[str, Any]) -> Any:
    """The dataclass with values replaced in it and in those it holds."""
    own = {key: value for key, value in values.items() if "." not in key}
    for key in dict.fromkeys(key.partition(".")[0] for key in values if "." in key):
        inner = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{key}.")}
        own[key] = _replaced(getattr(config, key), inner)
    return replace(config, **own)


def _near(key: str, known: list[str]) -> str:
    """What may have been meant: near spellings, also of the last part alone."""
    last = {name: name.rpartition(".")[2] for name in known}
    near = get_close_matches(key, known, n=3)
    near += [name for name in known if last[name] in get_close_matches(key.rpartition(".")[2], last.values(), n=3)]
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(near))}?"
    return f"there are {', '.join(known)}"


def _value(key: str, text: str, hint: Any, such_as: Any) -> Any:
    """The text as a value of the field's type."""
    kinds = [kind for kind in _kinds(hint) if kind is not type(None)]
    if text.lower() == _NONE and len(kinds) < len(_kinds(hint)):
        return None
    rules = []
    for kind in kinds:
        read, rule = _reader(kind)
        try:
            return read(text)
        except (KeyError, ValueError):
            rules.append(rule)
    if len(kinds) < len(_kinds(hint)):
        rules.append(_NONE)
    raise UsageError(f"{key}={text}: must be {' or '.join(rules)}; try {key}={_text(such_as)}")


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


_BOOLS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def _reader(kind: Any) -> tuple[Any, str]:
    """How a text is read as a type, and the rule in words."""
    if kind is bool:
        return lambda text: _BOOLS[text.lower()], "true or false"
    if get_origin(kind) is Literal:
        words = {str(word): word for word in get_args(kind)}
        return words.__getitem__, f"one of {', '.join(words)}"
    return {
        int: (lambda text: int(text.replace("_", "")), "a whole number"),
        float: (float, "a number"),
        str: (str, "a text"),
    }[kind]


def _text(value: Any) -> str:
    """A value as one would set it."""
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
