"""Keys and hashes of numbers: the same on every machine, with every version of every library."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def derive_key(*parts: object) -> int:
    """A 64-bit key derived from all parts: the first 8 bytes of a SHA-256 of their text."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def hash_range(count: int, key: int) -> NDArray[np.uint64]:
    """Keyed hashes of the numbers 0 .. `count` - 1, uint64 (count,)."""
    return hash_numbers(np.arange(count, dtype=np.uint64), key)


def hash_numbers(numbers: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Keyed hashes of these numbers, uint64 (numbers,); splitmix64 (Steele et al., OOPSLA 2014)."""
    x = numbers * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x
