"""Settings of a `Config` by dotted name, such as `model.backbone`: parsing, overriding, flattening, comparing."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...pipeline.errors import UsageError
from .recipes import Config

_NOT_SETTABLE = {
    "recipe": "names the function that the values come from; give --recipe",
    "model.classes": "are the dataset's own; they cannot be set",
}
_NONE = "none"


def with_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """Returns the config with overrides applied, each of the form "key=value".

    Keys are those of `flat_settings`; values are parsed as the type of their field: `none` if it may be None, on and
    off as true and false, a mapping in JSON. Raises `UsageError` on an unknown key, suggesting similar ones, and on a
    value that is not of the type or that the config refuses.
    """
    hints = dict(_typed_names(type(config)))
    values: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if key in _NOT_SETTABLE:
            raise UsageError(f"{key}: {_NOT_SETTABLE[key]}")
        if key not in hints:
            raise UsageError(
                f"{key}: no such setting; {_suggestion(key, [name for name in hints if name not in _NOT_SETTABLE])}"
            )
        if not equals:
            raise UsageError(f"{override}: must be key=value; try {key}={_format_value(flat_settings(config)[key])}")
        if key in values:
            raise UsageError(f"{key}: is set twice; leave one out")
        values[key] = _parse_value(key, text, hints[key], flat_settings(config)[key])
    changed: Config = _replace(config, values)
    return changed


def flat_settings(config: Config) -> dict[str, Any]:
    """Returns all values by their dotted names, in the order of the fields."""
    return flatten(asdict(config))


def flatten(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the same for a config as a nested dict, such as one loaded from JSON."""
    return dict(_flat_items(config))


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describes differences of two flat configs, a line each: "model.backbone: resnet18 there, resnet50 here"."""
    return [
        f"{key}: {_format_value(before.get(key))} there, {_format_value(now.get(key))} here"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]


def _typed_names(type_: type) -> Iterator[tuple[str, Any]]:
    """Yields the dotted names and types of all fields."""
    hints = get_type_hints(type_)
    for field in fields(type_):
        if is_dataclass(hint := hints[field.name]):
            assert isinstance(hint, type)
            yield from ((f"{field.name}.{name}", nested) for name, nested in _typed_names(hint))
        else:
            yield field.name, hint


def _flat_items(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields dotted names and values; the config's own values that are dicts are its sections."""
    for key, value in config.items():
        settings = {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
        for name, item in settings.items():
            yield name, list(item) if isinstance(item, tuple) else item


def _replace(config: Any, values: dict[str, Any]) -> Any:
    """Returns the dataclass with values replaced in it and in nested ones."""
    replacements = {key: value for key, value in values.items() if "." not in key}
    for key in dict.fromkeys(key.partition(".")[0] for key in values if "." in key):
        nested = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{key}.")}
        replacements[key] = _replace(getattr(config, key), nested)
    return replace(config, **replacements)


def _suggestion(key: str, known: list[str]) -> str:
    """Suggests keys of similar spelling, also by the last part alone."""
    last = {name: name.rpartition(".")[2] for name in known}
    similar = get_close_matches(key, known, n=3)
    similar += [name for name in known if last[name] in get_close_matches(key.rpartition(".")[2], last.values(), n=3)]
    if similar:
        return f"did you mean {' or '.join(dict.fromkeys(similar))}?"
    return f"there are {', '.join(known)}"


def _parse_value(key: str, text: str, hint: Any, example: Any) -> Any:
    """Parses a text as a value of the field's type."""
    types_ = [type_ for type_ in _union_members(hint) if type_ is not type(None)]
    if text.lower() == _NONE and len(types_) < len(_union_members(hint)):
        return None
    rules = []
    for type_ in types_:
        parse, rule = _parser(type_)
        try:
            return parse(text)
        except (KeyError, ValueError):
            rules.append(rule)
    if len(types_) < len(_union_members(hint)):
        rules.append(_NONE)
    raise UsageError(f"{key}={text}: must be {' or '.join(rules)}; try {key}={_format_value(example)}")


def _union_members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


_BOOLS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def _parser(type_: Any) -> tuple[Any, str]:
    """Returns a parser of texts for a type, and the rule in words."""
    if type_ is bool:
        return lambda text: _BOOLS[text.lower()], "true or false"
    if get_origin(type_) is Literal:
        words = {str(word): word for word in get_args(type_)}
        return words.__getitem__, f"one of {', '.join(words)}"
    if get_origin(type_) is Mapping:
        return _parse_mapping, 'a mapping in JSON such as {"margin": 0.3, "size": 299}'
    return {
        int: (lambda text: int(text.replace("_", "")), "a whole number"),
        float: (float, "a number"),
        str: (str, "a text"),
    }[type_]


def _parse_mapping(text: str) -> dict[str, Any]:
    mapping = json.loads(text)
    if not isinstance(mapping, dict):
        raise ValueError(f"{text}: not a mapping")
    return mapping


def _format_value(value: Any) -> str:
    """Formats a value as `--set` would take it."""
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
