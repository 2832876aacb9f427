"""Content hashes of inputs: whether a file with a new mtime or name holds the bytes that rows were made from.

A receipt stores the SHA-256 of each input; of a clip of images, that of their names and bytes. The hash covers the
whole file: a hash over samples would silently miss some changes. One core hashes more than a gigabyte per second and
decodes a few megabytes per second.
"""

from __future__ import annotations

import hashlib
import stat
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..console import first_names, plural
from ..dataset.schema import unlabelled_name
from ..sources import Entry
from ..video.image_folder import list_frames
from .run_state import RunState

_CHUNK_BYTES = 1 << 20
_HASHING_THREADS = 8  # network file systems answer several readers faster than one
_HASH_BATCH_INPUTS = 1024

ComparisonProgress = Callable[[int, int], AbstractContextManager[Callable[[int], None]]]
"""Progress hook: given the number of inputs and bytes to compare, a context manager that gives a callback, to be called
with the size in bytes of each compared input."""

StatSignature = tuple[int, ...]
_NUM_FIELDS = 5  # of one file


def stat_signature(path: Path, roots: Sequence[Path] = ()) -> StatSignature | None:
    """Device, inode, size, mtime and ctime of a regular file, which change when it is replaced or written to.

    Of a folder, those of its images, one after the other; `roots`: further folders that links to them may lead into.
    None where there is no regular file.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            signatures = [stat_signature(path / name) for name in list_frames(path, roots)]
            return None if not signatures or None in signatures else tuple(chain(*filter(None, signatures)))
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def latest_mtime_ns(signature: StatSignature) -> int:
    """Mtime of the file that a signature is of; of a folder, the latest of its images, as in `Entry`."""
    return max(signature[3::_NUM_FIELDS])


def content_sha256(
    path: Path, roots: Sequence[Path] = (), *, cancelled: Callable[[], bool] = lambda: False
) -> str | None:
    """Hex SHA-256 of a file's bytes; None where they cannot all be read or `cancelled()` becomes true.

    Of a folder, that of the names and hashes of its images; `roots` as in `stat_signature`.
    """
    if path.is_dir():
        return _folder_sha256(path, roots, cancelled)
    if stat_signature(path) is None:  # opening a pipe blocks until there is a writer
        return None
    digest, chunk = hashlib.sha256(), bytearray(_CHUNK_BYTES)
    try:
        with path.open("rb", buffering=0) as file:
            while size_bytes := file.readinto(chunk):
                if cancelled():
                    return None
                digest.update(memoryview(chunk)[:size_bytes])
    except OSError:
        return None
    return digest.hexdigest()


def _folder_sha256(folder: Path, roots: Sequence[Path], cancelled: Callable[[], bool]) -> str | None:
    try:
        names = list_frames(folder, roots)
    except OSError:
        return None
    digest = hashlib.sha256()
    for name in names:
        image_sha256 = content_sha256(folder / name, cancelled=cancelled)
        if image_sha256 is None:
            return None
        digest.update(f"{name}\0{image_sha256}\n".encode())
    return digest.hexdigest() if names else None


def find_unchanged_content(
    run_state: RunState, roots: Sequence[Path], comparing: ComparisonProgress, entries: Sequence[Entry]
) -> set[str]:
    """Ids of those `entries` whose files below the first of `roots` have the SHA-256 that their receipts record.

    Inputs without a recorded hash are left out: unfinished ones, ones that changed while they were decoded, and ones
    from before hashes were recorded. `roots`: folders that inputs may lie in. `comparing`: progress hook.
    """
    outcomes = run_state.known_outcomes({entry.video_id for entry in entries})
    hashes = {outcome.video_id: outcome.sha256 for outcome in outcomes if outcome.sha256}
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

    Only of a gone input with faces, whose rows stay: two downloads that failed have equal bytes, too. Hashes nothing
    where no size is that of one.
    """  # fmt: skip
    outcomes = run_state.with_gone(entry.video_id for entry in gone).known_outcomes({each.video_id for each in gone})
    hashes = {outcome.video_id: outcome.sha256 for outcome in outcomes if outcome.faces and outcome.sha256}
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


class EqualInput(NamedTuple):
    """An input that has the same content as others; `label`: its name. Field names are keys of `--json`."""

    video_id: str
    label: str
    split: str

    def __str__(self) -> str:
        return f"{self.video_id} ({self.label}, {self.split})"


def equal_inputs_json(groups: Sequence[Sequence[EqualInput]], most: int) -> list[dict[str, Any]]:
    """Inputs of equal content as JSON values: the first `most` groups."""
    return [{"inputs": [each._asdict() for each in inputs]} for inputs in groups[:most]]


class EqualContent(NamedTuple):
    """Inputs of OUT with faces and the same SHA-256, in one tuple for each content.

    `conflicting`: with different labels or in different splits; an unknown label is no other one. `repeated`: all
    others, whose faces are in OUT several times.
    """

    conflicting: list[tuple[EqualInput, ...]]
    repeated: list[tuple[EqualInput, ...]]


def _hashes_of_repeated(run_state: RunState) -> set[int]:
    """Hashes of the digests that several inputs with faces have; in eight bytes an input, since few have equals."""
    outcomes = (outcome for _, outcome in run_state.outcomes() if outcome.sha256 and outcome.faces)
    hashes = np.sort(np.fromiter((hash(outcome.sha256) for outcome in outcomes), np.int64))
    return set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())


def find_equal_content(run_state: RunState, labels: Sequence[str]) -> EqualContent:
    """Compares what the receipts record of all inputs in OUT, whichever run did them; nothing is hashed.

    `labels`: their names.
    """
    repeated = _hashes_of_repeated(run_state)
    by_digest: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    for planned, outcome in run_state.outcomes() if repeated else ():
        if outcome.faces and outcome.sha256 and hash(outcome.sha256) in repeated:
            label = next(entry.label for entry in planned.inputs if entry.video_id == outcome.video_id)
            by_digest[outcome.sha256].append((outcome.video_id, label, planned.split))
    names = [*labels, unlabelled_name(labels)]  # -1 is the last
    equal = EqualContent([], [])
    for inputs in (sorted(same) for same in by_digest.values() if len(same) > 1):
        conflict = len({label for _, label, _ in inputs} - {-1}) > 1 or len({split for *_, split in inputs}) > 1
        group = tuple(EqualInput(video_id, names[label], split) for video_id, label, split in inputs)
        (equal.conflicting if conflict else equal.repeated).append(group)
    return EqualContent(sorted(equal.conflicting), sorted(equal.repeated))


def conflicting_content_text(equal: Sequence[Sequence[EqualInput]]) -> str:
    """The `conflicting` inputs as a clause: how many contents, and the first of them by name."""
    return (
        f"{plural(len(equal), 'content')} under several labels or in several splits, in files of equal bytes: "
        f"{_named(equal)}"
    )


def repeated_content_text(equal: Sequence[Sequence[EqualInput]]) -> str:
    """The `repeated` inputs as a clause: how many contents, in how many inputs, and the first of them by name."""
    return (
        f"{plural(len(equal), 'content')} in OUT more than once under one label and in one split, in "
        f"{sum(map(len, equal)):,} files of equal bytes: {_named(equal)}"
    )


def _named(equal: Sequence[Sequence[EqualInput]]) -> str:
    return first_names([" = ".join(map(str, inputs)) for inputs in equal])


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
