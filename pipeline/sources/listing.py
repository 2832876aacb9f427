"""What a layout hands on: entries, and how files below a root are found without ever leaving it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ..errors import Reason, UsageError
from ..schema import SPLITS

VIDEO_SUFFIXES = frozenset(
    [
        ".3g2",
        ".3gp",
        ".asf",
        ".avi",
        ".flv",
        ".gif",
        ".h264",
        ".hevc",
        ".m2ts",
        ".m4v",
        ".mjpeg",
        ".mkv",
        ".mov",
        ".mp4",
        ".mpeg",
        ".mpg",
        ".mts",
        ".ogv",
        ".ts",
        ".webm",
        ".wmv",
    ]
)
IMAGE_SUFFIXES = frozenset([".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"])
MEDIA_SUFFIXES = VIDEO_SUFFIXES | IMAGE_SUFFIXES

_SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
                "test": "test", "testing": "test"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One input as its layout describes it; `problem` is set where it must not even be opened.

    `label` is an index into the listing's labels or -1; `source_id` and `identity` are what splits must not cut.
    """

    video_id: str
    size_bytes: int = 0
    mtime_ns: int = 0
    label: int = -1
    split: str | None = None
    source_id: str | None = None
    identity: str | None = None
    dataset: str | None = None
    method: str | None = None
    compression: str | None = None
    problem: Reason | None = None
    detail: str | None = None


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Everything one source holds. `missing` names what metadata lists and the disk has not; no failure.

    `ignored` counts files by suffix that are no media; `root` is the folder that every `video_id` is relative to.
    """

    layout: str
    root: Path
    labels: tuple[str, ...]
    entries: list[Entry]
    missing: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below the root: its path relative to it, and what the disk says of it."""

    relative: str
    size_bytes: int = 0
    mtime_ns: int = 0
    problem: Reason | None = None
    detail: str | None = None


def find_media(root: Path, ignored: Counter[str]) -> Iterator[FoundFile]:
    """Every media file below `root` in a stable order; links are followed only where they stay below it."""
    real_root = root.resolve()
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(root / folder) as scan:
                children = sorted(scan, key=lambda child: child.name)
        except OSError as error:
            yield FoundFile(printable(folder), problem="unreadable", detail=f"folder: {error.strerror}")
            continue
        deeper = []
        for child in children:
            relative = f"{folder}/{child.name}" if folder else child.name
            if child.name.startswith("."):
                continue
            if child.is_symlink() and not _stays_below(root / relative, real_root):
                if _is_media(child.name) or _is_folder(child):
                    yield FoundFile(printable(relative), problem="outside_root", detail="a link out of the source")
            elif _is_folder(child):
                # A link to a folder below the root would list the same files twice, or for ever.
                if not child.is_symlink():
                    deeper.append(relative)
            elif not _is_media(child.name):
                ignored[Path(child.name).suffix.lower() or "(no suffix)"] += 1
            else:
                yield _examine(relative, child.stat)
        pending += reversed(deeper)


def find_named(root: Path, name: str) -> FoundFile | None:
    """The file that metadata calls `name`, or None where it is not on disk; never one outside `root`."""
    if "\0" in name or printable(name) != name:
        return None  # no file can be called that
    if Path(name).is_absolute():
        detail = "metadata names an absolute path; make it relative to the source"
        return FoundFile(name, problem="outside_root", detail=detail)
    normal = os.path.normpath(name)
    path = root / normal
    if normal.split("/")[0] == ".." or not _stays_below(path, root.resolve()):
        return FoundFile(name, problem="outside_root", detail="metadata names a path outside the source")
    try:
        if not path.is_file():
            return None
    except OSError as error:  # a name that is too long, a folder that may not be entered
        return FoundFile(normal, problem="unreadable", detail=error.strerror)
    return _examine(normal, path.stat)


def refuse_twice(where: Path, entries: Sequence[Entry]) -> None:
    """Raises `UsageError` where two of the sorted `entries` are the same file."""
    for one, other in pairwise(entries):
        if one.video_id == other.video_id:
            raise UsageError(f"{where}: names {one.video_id!r} more than once; each input may have one label: drop one")


def split_name(name: str) -> str | None:
    """`train`, `val` or `test` for the names people use; None for any other."""
    return _SPLIT_NAMES.get(name.strip().lower())


def trusted_splits(names: set[str | None]) -> bool:
    """A given split is used only if it names two or more (DFDC says `train` for everything)."""
    return len(names & set(SPLITS)) >= 2


def _examine(relative: str, stat: Callable[[], os.stat_result]) -> FoundFile:
    name = printable(relative)
    try:
        found = stat()
    except OSError as error:
        return FoundFile(name, problem="unreadable", detail=error.strerror)
    problem: Reason | None = None if name == relative else "unreadable"
    detail = "the file's name is not UTF-8; rename it" if problem else None
    return FoundFile(name, found.st_size, found.st_mtime_ns, problem, detail)


def _is_media(name: str) -> bool:
    return Path(name).suffix.lower() in MEDIA_SUFFIXES


def _is_folder(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_dir()
    except OSError:  # a loop of links, or one into a folder that may not be entered
        return False


def _stays_below(path: Path, real_root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(real_root)


def printable(name: str) -> str:
    """The name itself where it is text; else with its odd bytes written out in hexadecimal."""
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a surrogate pair, as JSON can hold it
        return name.encode("utf-8", "backslashreplace").decode("utf-8")
