"""Hostile files: strategies that derive them from sound ones, one each for bytes, JSON, and lines of cells.

What a strategy draws is small, so that an example that fails shrinks to the few places that matter.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

LONG = 140_000
"""Characters of a text that is longer than a field of csv may be (131,072)."""

ODD_TEXTS = (
    "", " ", "\0", "a\0b", "..", "../../owned", "/etc/passwd", "\\\\host\\share", "-1", "0", "1e999", "nan", "9" * 5000,
    "1e99999999999999999999", "٣", "\ud800", "\udcff.mp4", "é", "e\u0301", "\u202e", "\x1b[2J",
    "<script>alert(1)</script>",
    "=1+1", "a\nb", "a\r\nb", '"', "'", ",", ";", "\t", "x" * LONG, "\ufeff", "train", "test", "REAL", "true", "null",
)  # fmt: skip
ODD_NUMBERS = (
    0, 1, -1, 2, 0.5, -0.0, 127, 128, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**4000, 1e-320,
    1e308, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
_ODD_BYTES = (
    b"\0", b"\0" * 64, b"\xff", b"\xff" * 8, b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b'"', b"\\u0000", b"\xc3",
    b"[" * 300, b"{", b"}", b"PAR1", b"PK\x03\x04",
)  # fmt: skip
_INTEGER_SIZES = (1, 2, 4, 8)
_MAX_BYTES = 2 << 20


def odd_values() -> st.SearchStrategy[Any]:
    """A value of JSON that a reader may not expect; `deep` ones are written by `json_bytes`."""
    return st.one_of(
        st.sampled_from(ODD_TEXTS), st.sampled_from(ODD_NUMBERS), st.sampled_from([None, True, False]),
        st.sampled_from([[], {}, [None], [[]], {"": None}, [{}], ["a", 1, None], {"a": {"b": [1]}}]), deep(),
    )  # fmt: skip


def deep() -> st.SearchStrategy[str]:
    """Stands for lists or objects that are nested so deep: about as deep as the parser can, above all."""
    depths = st.one_of(st.integers(940, 1000), st.sampled_from([60, 99, 101, 400, 100_000]))
    return st.builds("\x01deep{}{}".format, st.sampled_from("[{"), depths)


_DEEP = re.compile(r'"\\u0001deep([\[{])(\d+)"')


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON of a value in which `deep` ones may stand."""
    return _DEEP.sub(_nested, json.dumps(value, indent=indent))


def _nested(match: re.Match[str]) -> str:
    depth = int(match[2])
    return "[" * depth + "]" * depth if match[1] == "[" else '{"a":' * depth + "1" + "}" * depth


# ---- bytes


@st.composite
def damaged_bytes(draw: st.DrawFn, sound: bytes, *others: bytes) -> bytes:
    """One to four changes to `sound`: flipped, overwritten, cut, removed, repeated, inserted, or of `others`."""
    data = bytearray(sound)
    for change in draw(st.lists(st.sampled_from(_CHANGES), min_size=1, max_size=4)):
        change(draw, data, others or (sound,))
    return bytes(data[:_MAX_BYTES])


def _position(draw: st.DrawFn, data: bytes | bytearray) -> int:
    """Anywhere, and often near an end, where formats have their sizes and tables."""
    last = max(0, len(data) - 1)
    return draw(st.one_of(st.integers(0, min(last, 256)), st.integers(max(0, last - 256), last), st.integers(0, last)))


def _range(draw: st.DrawFn, data: bytes | bytearray) -> slice:
    start = _position(draw, data)
    return slice(start, min(len(data), start + draw(st.sampled_from([1, 2, 4, 8, 30, 200, 5000]))))


def _flip(draw: st.DrawFn, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[_position(draw, data)] ^= draw(st.integers(1, 255))


def _set_integer(draw: st.DrawFn, data: bytearray, _: Sequence[bytes]) -> None:
    """Sizes and offsets are integers: the least, the largest, and those about the sign."""
    size = draw(st.sampled_from(_INTEGER_SIZES))
    value = draw(st.sampled_from([0, 1, -1, -2, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1, 1 << (8 * size - 4)]))
    start = _position(draw, data)
    data[start : start + size] = (value % (1 << 8 * size)).to_bytes(size, draw(st.sampled_from(["big", "little"])))


def _cut(draw: st.DrawFn, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_position(draw, data) :]


def _remove(draw: st.DrawFn, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_range(draw, data)]


def _repeat(draw: st.DrawFn, data: bytearray, _: Sequence[bytes]) -> None:
    where = _range(draw, data)
    data[where.stop : where.stop] = data[where] * draw(st.sampled_from([1, 2, 50]))


def _insert(draw: st.DrawFn, data: bytearray, _: Sequence[bytes]) -> None:
    start = _position(draw, data)
    data[start:start] = draw(st.sampled_from(_ODD_BYTES))


def _splice(draw: st.DrawFn, data: bytearray, others: Sequence[bytes]) -> None:
    other = draw(st.sampled_from(others))
    data[_range(draw, data)] = other[_range(draw, other)]


_CHANGES: tuple[Callable[[st.DrawFn, bytearray, Sequence[bytes]], None], ...] = (
    _flip, _flip, _set_integer, _set_integer, _cut, _remove, _repeat, _insert, _splice,
)  # fmt: skip


# ---- JSON


@st.composite
def damaged_json(draw: st.DrawFn, sound: Any) -> bytes:
    """JSON like `sound`, with values of other types, without some, under other names, twice, or in an odd encoding."""
    document = {"": copy.deepcopy(sound)}
    for _ in range(draw(st.integers(1, 3))):
        _change_value(draw, document)
    text = json_text(document.get(""), indent=draw(st.sampled_from([None, None, None, 1])))
    return draw(_encoded(text))


def _change_value(draw: st.DrawFn, document: dict[str, Any]) -> None:
    places = list(places_of(document))
    parent, key = places[draw(st.integers(0, len(places) - 1))]
    change = draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename", "graft", "wrap"]))
    if change == "remove" and parent is not document:
        del parent[key]
    elif change == "rename" and isinstance(parent, dict) and parent is not document:
        parent[draw(st.sampled_from(ODD_TEXTS))] = parent.pop(key)
    elif change == "graft":
        other, at = places[draw(st.integers(0, len(places) - 1))]
        parent[key] = copy.deepcopy(other[at])
    elif change == "wrap":
        parent[key] = draw(st.sampled_from([[parent[key]], {"a": parent[key]}]))
    else:
        parent[key] = draw(odd_values())


def places_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value within `value`, as its container and its key or position."""
    if isinstance(value, dict | list):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from places_of(inner)


@st.composite
def _encoded(draw: st.DrawFn, text: str) -> bytes:
    """As bytes, one time in two as they should not be."""
    how = draw(st.sampled_from(["", "", "", "", "bom", "utf-16", "crlf", "behind", "cut", "twice", "bytes"]))
    if how == "utf-16":
        return text.encode("utf-16", "surrogatepass")
    if how == "crlf":
        text = text.replace("\n", "\r\n")
    elif how == "behind":
        text += draw(st.sampled_from(["{}", "\0", "]", "// x", "\n\n"]))
    elif how == "twice" and (names := re.findall(r'"[^"\\]{1,40}":', text)):
        name = draw(st.sampled_from(sorted(set(names))))
        text = text.replace("{", "{" + name + json_text(draw(odd_values())) + ",", 1)
    data = ("\ufeff" if how == "bom" else "").encode() + text.encode("utf-8", "surrogatepass")
    if how == "cut":
        return data[: draw(st.integers(0, len(data)))]
    return draw(damaged_bytes(data)) if how == "bytes" else data


# ---- lines of cells


@st.composite
def damaged_lines(draw: st.DrawFn, sound: str, separator: str = ",") -> bytes:
    """Lines like those of `sound`, with other cells, more or fewer of them, and other ends or encodings."""
    rows = [line.split(separator) for line in sound.splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        _change_row(draw, rows)
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\n", "\u2028", ""]))
    text = "".join(separator.join(row) + end for row in rows)
    how = draw(st.sampled_from(["", "", "", "bom", "utf-16", "latin-1", "bytes"]))
    if how in ("utf-16", "latin-1"):
        return text.encode(how, "surrogatepass" if how == "utf-16" else "replace")
    data = ("\ufeff" if how == "bom" else "").encode() + text.encode("utf-8", "surrogatepass")
    return draw(damaged_bytes(data)) if how == "bytes" else data


def _change_row(draw: st.DrawFn, rows: list[list[str]]) -> None:
    if not rows:
        return
    number = draw(st.integers(0, len(rows) - 1))
    row = rows[number]
    cell = draw(st.integers(0, len(row) - 1))
    change = draw(st.sampled_from(["cell", "cell", "cell", "quoted", "drop", "add", "double", "remove", "swap"]))
    odd = draw(st.sampled_from(ODD_TEXTS))
    if change == "cell":
        row[cell] = odd
    elif change == "quoted":
        row[cell] = '"' + odd.replace('"', '""') + '"'
    elif change == "drop" and len(row) > 1:
        del row[cell]
    elif change == "add":
        row.insert(cell, odd)
    elif change == "double":
        rows.insert(number, [*row])
    elif change == "remove":
        del rows[number]
    elif change == "swap":
        row[cell], row[0] = row[0], row[cell]
