"""Compares contents of files with those of the last run, by hash: which only have a new mtime, or a new name."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from ..sources import Entry
from .content_hash import content_sha256
from .run_state import RunState

_HASHING_THREADS = 8  # network file systems answer several readers faster than one
_HASH_BATCH_INPUTS = 1024

ComparisonProgress = Callable[[int, int], AbstractContextManager[Callable[[int], None]]]
"""Progress hook: given the number of inputs and bytes to compare, a context manager that gives a callback, to be called
with the size in bytes of each compared input."""


def find_unchanged_content(
    run_state: RunState, roots: Sequence[Path], comparing: ComparisonProgress, entries: Sequence[Entry]
) -> set[str]:
    """Ids of those `entries` whose files below the first of `roots` have the SHA-256 that their receipts record.

    Inputs without a recorded hash are left out: unfinished ones, ones that changed while they were decoded, and ones
    from before hashes were recorded. `roots`: folders that inputs may lie in. `comparing`: progress hook.
    """
    hashes = _recorded_hashes(run_state, entries)
    known = [entry for entry in entries if entry.video_id in hashes]
    return {entry.video_id for entry, digest in _digests(known, roots, comparing) if digest == hashes[entry.video_id]}


def find_renamed(
    run_state: RunState,
    added: Sequence[Entry],
    gone: Sequence[Entry],
    roots: Sequence[Path],
    comparing: ComparisonProgress,
) -> dict[str, str]:
    """Ids of `added` inputs that have the size and the SHA-256 of a `gone` one, with its id: renamed or moved ones.

    Hashes nothing where no size is that of a gone input.
    """  # fmt: skip
    hashes = _recorded_hashes(run_state, gone)
    by_size: dict[int, dict[str, str]] = defaultdict(dict)
    for entry in gone:
        if entry.video_id in hashes:
            by_size[entry.size_bytes].setdefault(hashes[entry.video_id], entry.video_id)
    candidates = [entry for entry in added if entry.size_bytes in by_size]
    return {
        entry.video_id: by_size[entry.size_bytes][digest]
        for entry, digest in _digests(candidates, roots, comparing)
        if digest in by_size[entry.size_bytes]
    }


def _recorded_hashes(run_state: RunState, entries: Sequence[Entry]) -> dict[str, str]:
    """SHA-256 of those `entries` of which one is recorded, by id."""
    names = {entry.video_id for entry in entries}
    if not names:
        return {}
    return {
        outcome.video_id: outcome.sha256
        for _, outcome in run_state.outcomes()
        if outcome.sha256 and outcome.video_id in names
    }


def _digests(
    entries: Sequence[Entry], roots: Sequence[Path], comparing: ComparisonProgress
) -> Iterator[tuple[Entry, str | None]]:
    """Each entry with the SHA-256 of its file below the first of `roots`; None where that cannot be read."""
    if not entries:
        return
    cancelled = threading.Event()
    with comparing(len(entries), sum(entry.size_bytes for entry in entries)) as on_compared:
        pool = ThreadPoolExecutor(min(_HASHING_THREADS, len(entries)), "facefeed-hash")
        try:
            for start in range(0, len(entries), _HASH_BATCH_INPUTS):  # bounds the number of futures
                batch = entries[start : start + _HASH_BATCH_INPUTS]
                digests = pool.map(
                    lambda entry: content_sha256(roots[0] / entry.video_id, roots, cancelled=cancelled.is_set), batch
                )
                for entry, digest in zip(batch, digests, strict=True):
                    on_compared(entry.size_bytes)
                    yield entry, digest
        finally:
            cancelled.set()
            pool.shutdown(cancel_futures=True)
