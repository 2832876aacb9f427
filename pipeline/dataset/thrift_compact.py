"""Thrift's compact protocol, as far as Parquet's footers and page headers use it.

Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)

# Parquet's footers nest 9 deep; damage must not end in Python's recursion limit.
_MAX_DEPTH = 16
_MAX_INTEGER_BITS = 64
_LONG_LIST = 15  # in place of the length of a list that has as many elements or more


class CompactReader:
    """Reads structs as dicts of field id to value: `int`, `bytes` (text), a list or a dict.

    `None` stands for single bytes, doubles and booleans, which nobody asks for. Reads no further than `data`
    goes, and in time linear in its length, whatever it holds. Raises `ValueError` for what the protocol does not
    allow, `IndexError` at the end of `data`.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def varint(self) -> int:
        """Reads one unsigned LEB128 integer."""
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift >= _MAX_INTEGER_BITS:
                raise ValueError("a number that is too long")

    def struct(self, depth: int = 0) -> dict[int, object]:
        """Reads the struct that begins here."""
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        fields: dict[int, object] = {}
        field_id = 0
        while (head := self.data[self.position]) != _STOP:
            self.position += 1
            field_id = field_id + (head >> 4) if head >> 4 else self._integer()
            kind = head & 0x0F
            # A boolean has no bytes of its own: its kind is its value.
            fields[field_id] = None if kind in {_TRUE, _FALSE} else self._value(kind, depth + 1)
        self.position += 1
        return fields

    def _integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int, depth: int) -> object:
        if kind in {_I16, _I32, _I64}:
            return self._integer()
        if kind == _BINARY:
            return self._binary()
        if kind == _STRUCT:
            return self.struct(depth)
        if kind == _LIST:
            return self._list(depth)
        if kind not in {_BYTE, _TRUE, _FALSE, _DOUBLE}:
            raise ValueError(f"unexpected Thrift type {kind}")
        self.position += 8 if kind == _DOUBLE else 1
        return None

    def _binary(self) -> bytes:
        size = self.varint()
        start = self.position
        self.position = start + size
        return self.data[start : self.position]

    def _list(self, depth: int) -> list[object]:
        head = self.data[self.position]
        self.position += 1
        length = self.varint() if head >> 4 == _LONG_LIST else head >> 4
        if depth > _MAX_DEPTH or self.position + length > len(self.data):  # an element takes at least a byte
            raise ValueError("a list that is nested too deeply or longer than the data")
        return [self._value(head & 0x0F, depth + 1) for _ in range(length)]
