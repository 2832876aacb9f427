"""`StoreCounts`: requests, retries, bytes and cache hits of reading from a store."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class StoreCounts:
    """Requests, retries, bytes and cache hits of reading from a store. Added up by `+`.

    requests: sent to the store, repeated ones included. retries: how many of these were repeated after an error.
    fetched_bytes: received. hits: blocks that were in the cache when a batch needed them; misses: blocks that it had to
    wait for. hit_share near 1: batches come from the local disk; near 0: from the store.
    """

    requests: int = 0
    retries: int = 0
    fetched_bytes: int = 0
    hits: int = 0
    misses: int = 0

    @property
    def hit_share(self) -> float:
        """Share of the blocks that were in the cache, 0 to 1."""
        blocks = self.hits + self.misses
        return self.hits / blocks if blocks else 0.0

    def __add__(self, other: StoreCounts) -> StoreCounts:
        names = [field.name for field in fields(self)]
        return StoreCounts(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests, {self.fetched_bytes / 1e6:,.0f} MB fetched, "
            f"{self.hit_share:.0%} of {self.hits + self.misses:,} blocks cached, {self.retries:,} retries"
        )


class StoreCounter:
    """Thread-safe counter. Pickled empty: each process counts its own requests."""

    def __init__(self) -> None:
        self._lock, self._counts = threading.Lock(), StoreCounts()

    def __reduce__(self) -> tuple[type[StoreCounter], tuple[()]]:
        return StoreCounter, ()

    def add(
        self, *, requests: int = 0, retries: int = 0, fetched_bytes: int = 0, hits: int = 0, misses: int = 0
    ) -> None:
        """Adds to the counts."""
        added = StoreCounts(requests=requests, retries=retries, fetched_bytes=fetched_bytes, hits=hits, misses=misses)
        with self._lock:
            self._counts += added

    def take(self) -> StoreCounts:
        """Returns the counts since the last call, and resets them."""
        with self._lock:
            taken, self._counts = self._counts, StoreCounts()
        return taken
