"""What a user notices of JSON that is damaged: the field and the value that are wrong, however odd they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest
from assets_memory import peak_bytes
from facefeed.pipeline.json_records import MAX_DEPTH, brief, parse_json, parse_json_list_by_list, record_of
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True, kw_only=True)
class Inner:
    size_bytes: int
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    seconds: float = 0.0
    is_done: bool = False
    note: str | None = None
    inner: list[Inner] = field(default_factory=list)
    pair: tuple[float, float] = (0.0, 0.0)
    segments: tuple[tuple[float, float], ...] | None = None
    values: tuple[str | int | float | None, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise ValueError(f"seconds={self.seconds}: must be at least 0")


scalars = st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False) | st.text()
outers = st.builds(
    Outer,
    name=st.text(),
    seconds=st.floats(0, allow_nan=False) | st.integers(0, 9),
    is_done=st.booleans(),
    note=st.none() | st.text(),
    inner=st.lists(st.builds(Inner, size_bytes=st.integers(0, 2**63 - 1), kind=st.sampled_from(["a", "b"]))),
    pair=st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
    segments=st.none() | st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), max_size=3).map(tuple),
    values=st.lists(scalars.filter(lambda value: not isinstance(value, bool)), max_size=3).map(tuple),
    counts=st.dictionaries(st.text(), st.integers(0, 9), max_size=3),
    config=st.dictionaries(st.text(), scalars, max_size=3),
)


@given(outers)
def test_a_record_is_read_as_it_was_written(outer: Outer) -> None:
    assert record_of(Outer, parse_json(json.dumps(asdict(outer)))) == outer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 5}, r"^name: 5 is no text"),
        ({"name": None}, r"^name: None is no text"),
        ({"seconds": "1"}, r"^seconds: '1' is no whole number"),
        ({"seconds": True}, r"^seconds: True is no whole number"),
        ({"seconds": -1}, r"^seconds=-1: must be at least 0"),
        ({"is_done": 1}, r"^is_done: 1 is neither true nor false"),
        ({"note": []}, r"^note: \[\] is no text"),
        ({"inner": {}}, r"^inner: \{\} is no list"),
        ({"inner": [5]}, r"^inner: 5 is no object"),
        ({"inner": [{"size_bytes": 1.5}]}, r"^inner: size_bytes: 1\.5 is no whole number of 64 bits"),
        ({"inner": [{"size_bytes": 2**63}]}, r"^inner: size_bytes: 9223372036854775808 is no whole number of 64 bits"),
        ({"inner": [{"size_bytes": 1, "kind": "c"}]}, r"^inner: kind: 'c' is none of a, b"),
        ({"inner": [{"size_bytes": 1, "kind": []}]}, r"^inner: kind: \[\] is none of a, b"),
        ({"inner": [{}]}, r"^inner: lacks size_bytes"),
        ({"pair": [1]}, r"^pair: \[1\] is no list of 2"),
        ({"segments": [[0, 1], 5]}, r"^segments: 5 is no list of 2"),
        ({"values": [{}]}, r"^values: \{\} is no"),
        ({"counts": {"a": "b"}}, r"^counts: 'b' is no whole number"),
        ({"counts": []}, r"^counts: \[\] is no object"),
        ({"colour": 1}, r"^has the unknown field 'colour'"),
    ],
)
def test_a_wrong_value_is_named_with_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record_of(Outer, {"name": "n", **changes})


@pytest.mark.parametrize("data", [None, [], "text", 5, [["name", "n"]]])
def test_what_is_no_object_is_no_record(data: Any) -> None:
    with pytest.raises(ValueError, match="is no object"):
        record_of(Outer, data)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, *range(940, 1000), 100_000])
@pytest.mark.parametrize("form", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_deep_json_is_refused_before_anybody_walks_through_it(depth: int, form: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        parse_json(form[0] * depth + "1" + form[1] * depth)


@pytest.mark.parametrize("form", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_json_that_is_as_deep_as_it_may_be_is_read(form: tuple[str, str]) -> None:
    assert parse_json(form[0] * MAX_DEPTH + "1" + form[1] * MAX_DEPTH)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000,
        10**4000,
        [["x" * 90] * 100] * 100,
        {"a" * 900: {"b": ["c" * 90] * 9}},
        parse_json("[" * 100 + "]" * 100),
        "\ud800",
    ],
)
def test_a_value_is_shown_in_a_line(value: Any) -> None:
    shown = brief(value)
    assert len(shown) <= 203
    assert shown.isprintable()


_TEXTS = [
    "{}", ' { } ', '{"a": 1}', '{"units": []}', '{"units": [ ]}', '{"units": [1, [2], {"units": [3]}]}',
    '\n{ "a" : {"units": [0]} , "units" : [ "x" , null ] , "b" : [1] }\t', '{"units": 7}', '{"units": {"c": 1}}',
    '{"units": [1], "units": [2]}', '{"u\\u006eits": ["\u00e9", "\\ud800"]}', '{"a": NaN, "units": [Infinity]}',
    '{"units": [12345, -1.5e-3, 0.25, true, "\\ud83d\\ude00", {"long name": [1.25E+2]}], "a": -Infinity}',
]  # fmt: skip


def _parts(text: str, size: int = 1 << 20, encoding: str = "utf-8") -> list[bytes]:
    """The encoded text in parts of so many bytes, the first of four at least."""
    data = text.encode(encoding)
    first = max(size, 4)
    return [data[:first], *(data[start : start + size] for start in range(first, len(data), size))]


@pytest.mark.parametrize("text", _TEXTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
def test_an_object_is_the_same_where_its_lists_are_read_element_by_element(text: str, encoding: str, size: int) -> None:
    seen: list[object] = []
    parts = _parts(text, size, encoding)
    found = parse_json_list_by_list(parts, {"units": lambda value: seen.append(value) or value})
    assert repr(found) == repr(json.loads(text))
    assert repr(seen[-1:]) == repr(found["units"][-1:] if isinstance(found.get("units"), list) else [])


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "[]", "7", "{", "{]", '{"units"', '{"units": ', '{"units": [', '{"units": [1', '{"units": [1,',
        '{"units": [1,]}', '{"units": [1 2]}', '{"units": [1}}', '{"a": 1,}', '{"a": 1 "b": 2}', '{"a" 1}', "{7: 1}",
        '{"a": 1} 2', '{"a": 1}}', '{"units": ' + "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2) + "}",
        '{"units": [' + "[" * 100_000 + "]}", '{"a": \u00a01}',
    ],
)  # fmt: skip
def test_what_is_no_object_is_an_error_where_its_lists_are_read_element_by_element(text: str, size: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any: the reader names the file)
        parse_json_list_by_list(_parts(text, size), {"units": str})


@pytest.mark.parametrize("text", ['{"a": %s}', '{"units": %s}', '{"units": [%s]}', '{"units": {"b": %s}}'])
@pytest.mark.parametrize("depth", [MAX_DEPTH - 3, MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH])
def test_an_object_may_be_as_deep_where_its_lists_are_read_element_by_element(text: str, depth: int) -> None:
    text = text % ("[" * depth + "]" * depth)
    expected: object = None
    with suppress(ValueError):
        expected = parse_json(text)
    found: object = None
    with suppress(ValueError):
        found = parse_json_list_by_list(_parts(text), {"units": lambda value: value})
    assert found == expected


@pytest.mark.parametrize("size", [4, 7, 1 << 20])
def test_bytes_that_are_no_text_are_named_by_their_place_in_the_file(size: int) -> None:
    begin = '{"units": ["\u00e9\u00e9\u00e9\u00e9", "'.encode()
    data = begin + b'\xc3"]}'
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    with pytest.raises(ValueError, match=f"^invalid continuation byte of utf-8 at byte {len(begin)}$"):
        parse_json_list_by_list(parts, {"units": str})


def test_a_text_of_which_no_element_is_long_is_never_in_memory_as_a_whole() -> None:
    num_bytes = 0

    def parts() -> Iterator[bytes]:
        nonlocal num_bytes
        yield b'{"units": ['
        for _ in range(1000):
            part = b'"' + b"x" * 10_000 + b'", '
            num_bytes += len(part)
            yield part
        yield b'""]}'

    assert peak_bytes(lambda: parse_json_list_by_list(parts(), {"units": len})) < num_bytes / 10
