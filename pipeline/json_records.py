"""JSON that others may have written or damaged: whatever it holds becomes plain values, or a `ValueError`.

`parse_json` bounds how deep values are nested: deeper ones end in Python's recursion limit wherever they are walked
through or shown. `record_of` makes a dataclass of an object and checks every value against the type of its field, so
that a number in place of a text is an error of the file, and not of the code that uses it much later. `finite_or_null`
is for JSON that others read.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import reprlib
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

MAX_DEPTH = 100
_MAX_INT = 2**63 - 1  # what numpy and Arrow hold; Python's own numbers may have thousands of digits

Record = TypeVar("Record")
_Converter = Callable[[Any], Any]


def parse_json(text: str | bytes | bytearray) -> Any:
    """The value of a JSON text; raises `ValueError` where it is none, or is nested more than `MAX_DEPTH` deep."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    refuse_deep(value)
    return value


def parse_json_list_by_list(parts: Iterable[bytes], convert: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """The object of a JSON text, each element of some of its lists converted once it is parsed.

    So neither the text nor the plain values of a long list, which take three times its memory, are there all at once.
    `parts`: the text, in parts of any size, but the first of four bytes at least, if there are as many. `convert`: by
    the name of the list, what makes a value of an element. Raises `ValueError` as `parse_json` does, where the text is
    no object, and what `convert` raises.
    """
    cursor = _Cursor(_decoded(parts))
    values: dict[str, Any] = {}
    for _ in cursor.items("{", "}"):
        name = cursor.value()
        if not isinstance(name, str):
            raise ValueError(f"{brief(name)} is no name of a field")
        cursor.skip(":")
        if name in convert and cursor.is_at("["):
            values[name] = [convert[name](cursor.value()) for _ in cursor.items("[", "]")]
        else:
            values[name] = cursor.value()
    cursor.end()
    return values


def _decoded(parts: Iterable[bytes]) -> Iterator[str]:
    """The text of the parts, in any encoding that JSON may have; raises `ValueError` where it is in none."""
    decoder: codecs.IncrementalDecoder | None = None
    num_passed = 0
    for part in chain(parts, [b""]):
        if decoder is None:
            decoder = codecs.getincrementaldecoder(json.detect_encoding(part))("surrogatepass")
        first = num_passed - len(decoder.getstate()[0])  # byte of the text at which the decoder begins
        num_passed += len(part)
        try:
            yield decoder.decode(part, final=not part)
        except UnicodeDecodeError as error:  # its position is in the part
            raise ValueError(f"{error.reason} of {error.encoding} at byte {first + error.start:,}") from None


class _Cursor:
    """A position in a JSON text, of which only what is not parsed yet is in memory; its `parts` are read as needed."""

    def __init__(self, parts: Iterator[str]) -> None:
        self._parts, self._text, self._position, self._depth = parts, "", 0, 0
        self._num_passed = 0  # characters before `_text`
        self._decode = json.JSONDecoder().raw_decode

    def _read_on(self) -> bool:
        """Reads at least as much as is there, so that a long value is tried a few times; False at the end of all."""
        wanted = max(len(self._text) - self._position, 1)
        parts: list[str] = []
        while wanted > 0 and (part := next(self._parts, None)) is not None:
            parts.append(part)
            wanted -= len(part)
        if not any(parts):
            return False
        self._num_passed += self._position
        self._text, self._position = "".join([self._text[self._position :], *parts]), 0
        return True

    def is_at(self, character: str) -> bool:
        """Whether this character is the next one that is no space."""
        self._skip_spaces()
        return self._text.startswith(character, self._position)

    def _skip_spaces(self) -> None:
        while True:
            match = _SPACE.match(self._text, self._position)
            self._position = match.end() if match else self._position
            if self._position < len(self._text) or not self._read_on():
                return

    def skip(self, character: str) -> None:
        """Moves past the character; raises `ValueError` where another one is next."""
        if not self.is_at(character):
            raise ValueError(f"no {character!r} at character {self._num_passed + self._position:,}")
        self._position += 1

    def items(self, first: str, last: str) -> Iterator[None]:
        """Yields before each item of the list or object that begins here; the caller moves past it."""
        self.skip(first)
        self._depth += 1
        if not self.is_at(last):
            yield
            while not self.is_at(last):
                self.skip(",")
                yield
        self._depth -= 1
        self.skip(last)

    def value(self) -> Any:
        """The value that begins here; moves past it."""
        self._skip_spaces()
        while True:
            try:
                value, end = self._decode(self._text, self._position)
            except RecursionError:
                raise ValueError(_TOO_DEEP) from None
            except json.JSONDecodeError as error:
                if self._read_on():
                    continue
                where = self._num_passed + error.pos
                raise ValueError(f"{error.msg} at character {where:,}") from None
            if len(self._text) - end >= _NUMBER_GOES_ON or not self._read_on():
                break
        self._position = end
        refuse_deep(value, MAX_DEPTH - self._depth)
        return value

    def end(self) -> None:
        """Raises `ValueError` where there is more."""
        self._skip_spaces()
        if self._position != len(self._text):
            raise ValueError(f"more than one value, from character {self._num_passed + self._position:,} on")


def refuse_deep(value: Any, max_depth: int = MAX_DEPTH) -> None:
    """Raises `ValueError` where lists and objects are nested deeper; `max_depth`: less within other ones."""
    level = [value]
    for _ in range(max_depth):
        level = [
            inner
            for outer in level
            if type(outer) in _CONTAINERS
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _CONTAINERS
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def brief(value: object) -> str:
    """`repr` of a value for a message: at most 200 characters, however long or deep the value is."""
    text = _BRIEF.repr(value)
    return text if len(text) <= _MAX_BRIEF else f"{text[:_MAX_BRIEF]}..."


def record_of(cls: type[Record], data: object) -> Record:
    """The dataclass `cls` with the values of an object, each of its field's type; a list becomes a tuple where that is.

    Raises `ValueError` on a value of another type, on fields that are missing or that `cls` does not have, and where
    `cls` refuses the values. Whole numbers have 64 bits.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{brief(data)} is no object")
    converters, required = _fields_of(cast("Hashable", cls))
    values = {}
    for name, value in data.items():
        if name not in converters:
            raise ValueError(f"has the unknown field {brief(name)}")
        try:
            values[name] = converters[name](value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if missing := required - values.keys():
        raise ValueError(f"lacks {', '.join(sorted(missing))}")
    return cls(**values)


_CONTAINERS = {dict, list}
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER_GOES_ON = 3  # characters after a number, such as "e-", of which more must be seen: 1.5 may become 1.5e-3
_TOO_DEEP = f"lists and objects are nested more than {MAX_DEPTH} deep"
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 3
_BRIEF.maxstring = _BRIEF.maxother = 80
_MAX_BRIEF = 200


@cache
def _fields_of(cls: type) -> tuple[dict[str, _Converter], set[str]]:
    """Converters by field, and the names of the fields without a default."""
    assert is_dataclass(cls)
    hints = get_type_hints(cls)
    required = {field.name for field in fields(cls) if field.default is field.default_factory is MISSING}
    return {field.name: _converter(hints[field.name]) for field in fields(cls)}, required


def _converter(hint: Any) -> _Converter:
    """A function that returns a value of the type `hint` as it is stored, and raises ValueError on any other value."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    make = _GENERICS.get(get_origin(hint))
    return make(get_args(hint)) if make else partial(record_of, cast("type[Any]", hint))


def _union(arguments: tuple[Any, ...]) -> _Converter:
    converters = [_converter(each) for each in arguments if each is not types.NoneType]
    convert = partial(_any_of, converters) if converters[1:] else converters[0]
    return partial(_unless_null, convert) if types.NoneType in arguments else convert


def _tuple(arguments: tuple[Any, ...]) -> _Converter:
    if arguments[1:] == (...,):
        inner = _converter(arguments[0])
        return lambda value: tuple(_list_of(inner, value))
    return partial(_tuple_of, [_converter(each) for each in arguments])


def _any_value(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise ValueError(f"{brief(value)} is no text")
    return value


def _integer(value: Any) -> Any:
    if type(value) is not int or not -_MAX_INT <= value <= _MAX_INT:
        raise ValueError(f"{brief(value)} is no whole number of 64 bits")
    return value


def _number(value: Any) -> Any:
    return value if type(value) is float else _integer(value)


def _boolean(value: Any) -> Any:
    if type(value) is not bool:
        raise ValueError(f"{brief(value)} is neither true nor false")
    return value


def _unless_null(convert: _Converter, value: Any) -> Any:
    return None if value is None else convert(value)


def _one_of(allowed: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, str | int) or value not in allowed:
        raise ValueError(f"{brief(value)} is none of {', '.join(map(str, allowed))}")
    return allowed[allowed.index(value)]  # the one text for all records, of which there may be millions


def _any_of(converters: list[_Converter], value: Any) -> Any:
    for convert in converters[:-1]:
        try:
            return convert(value)
        except ValueError:
            continue
    return converters[-1](value)


def _list_of(inner: _Converter, value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"{brief(value)} is no list")
    return [inner(each) for each in value]


def _tuple_of(inner: list[_Converter], value: Any) -> tuple[Any, ...]:
    if type(value) is not list or len(value) != len(inner):
        raise ValueError(f"{brief(value)} is no list of {len(inner)}")
    return tuple(convert(each) for convert, each in zip(inner, value, strict=True))


def _dict_of(inner: _Converter, value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise ValueError(f"{brief(value)} is no object")
    return {key: inner(each) for key, each in value.items()}


_SCALARS: dict[Any, _Converter] = {Any: _any_value, str: _text, int: _integer, float: _number, bool: _boolean}
_GENERICS: dict[Any, Callable[[tuple[Any, ...]], _Converter]] = {
    Literal: lambda allowed: partial(_one_of, allowed),
    Union: _union,
    types.UnionType: _union,
    list: lambda arguments: partial(_list_of, _converter(arguments[0])),
    Sequence: lambda arguments: partial(_list_of, _converter(arguments[0])),
    tuple: _tuple,
    dict: lambda arguments: partial(_dict_of, _converter(arguments[1])),
    Mapping: lambda arguments: partial(_dict_of, _converter(arguments[1])),
}


def finite_or_null(value: Any) -> Any:
    """A value of which JSON is to be written, with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite_or_null(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
