"""Damage inside an index."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa


def flip_bit(path: Path, column: str, *, batch: int = 0, of_dictionary: bool = False) -> None:
    """Flips a bit of one cell of a column in one batch of an index, of its code, or of one of its dictionary."""
    content = pa.py_buffer(path.read_bytes())
    values = pa.ipc.open_file(content).get_batch(batch).column(column)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary if of_dictionary else values.indices
    cells = values.buffers()[-1]
    damaged = bytearray(content)
    damaged[cells.address - content.address + cells.size // 2] ^= 1
    path.unlink()
    path.write_bytes(damaged)
