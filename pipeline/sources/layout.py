"""What a layout must promise, and how a user's own is loaded and held to it."""

from __future__ import annotations

import importlib.util
import posixpath
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ..dataset.schema import SPLITS
from ..errors import FacefeedError, UsageError
from .allowed_roots import resolved_root
from .listing import MAX_CLASSES, Entry, Listing
from .media_files import printable_name

_MEMBERS = ("name", "needs", "fits", "read")
_GUIDE = "pipeline/sources/README.md shows how"


class Layout(Protocol):
    """One way in which a dataset lies on disk.

    An implementer promises: the same files give the same listing, whatever order the disk names them in; no media is
    opened, and nothing is written; every `video_id` is a path below `Listing.root` with / between its parts, or an
    absolute one in an allowed folder outside it, listed once; `label` is a position in `Listing.labels`, or -1; `split`
    is train, val, test or None; `source_id` is the original's `video_id`, or what that would be. `find_media` and
    `find_named` keep to the root and to what is allowed. All but the first two of these are checked, as far as the
    listing alone tells.
    """

    @property
    def name(self) -> str:
        """What it is called, on the command line and in messages."""

    @property
    def needs(self) -> str:
        """What SRC must be, for the message where it is not: "a folder with speakers.csv"."""

    def fits(self, src: Path) -> bool:
        """Whether `src` is laid out so. It is asked of every source: quick, and no error."""

    def read(self, src: Path, allowed: Sequence[Path]) -> Listing:
        """Lists what `src` holds; raises `UsageError` where metadata cannot be understood: no guess is better.

        `allowed`: real paths of further folders that links and absolute paths may lead into.
        """


def load_layout(file: Path) -> Layout:
    """The object called `layout` that a Python file defines; the file is run.

    Raises `UsageError` where there is no such file, it cannot be run, or it defines no layout.
    """
    module = _run(file)
    layout: Any = getattr(module, "layout", None)
    if isinstance(layout, type):
        raise UsageError(f"--layout {file}: `layout` is a class; end the file with `layout = {layout.__name__}()`")
    if lacking := [name for name in _MEMBERS if not hasattr(layout, name)]:
        what = f"its `layout` lacks {', '.join(lacking)}" if layout is not None else "defines no `layout`"
        raise UsageError(f"--layout {file}: {what}; it must be an object with {', '.join(_MEMBERS)}: {_GUIDE}")
    found: Layout = layout
    return found


def _run(file: Path) -> ModuleType:
    if not file.is_file():
        raise UsageError(f"--layout {file}: no such file; name a Python file that defines `layout`: {_GUIDE}")
    name = f"facefeed_layout_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their own module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"--layout {file}: cannot be run ({_told(error, file)}); mend the file") from error
    return module


def read_listing(layout: Layout, src: Path, allowed: Sequence[Path] = ()) -> Listing:
    """What `layout` lists of `src`, held to the layout's promises.

    Raises `UsageError` where `src` is not what it needs, a promise is broken, or its code fails.
    """
    try:
        if not layout.fits(src):
            raise UsageError(f"SRC={str(src)!r}: layout {layout.name} needs {layout.needs}; try --layout auto")
        listing = layout.read(src, allowed)
    except FacefeedError:
        raise
    except Exception as error:
        raise UsageError(f"layout {layout.name}: cannot list {src} ({_told(error)}); mend the layout") from error
    if broken := _broken_promise(listing, allowed):
        raise UsageError(f"layout {layout.name}: {broken}; nothing was written; mend the layout")
    return listing


def _told(error: Exception, file: Path | None = None) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if file is None or frame.filename == str(file)]
    where = f" in line {mine[-1].lineno} of {Path(mine[-1].filename).name}" if mine else ""
    return f"{type(error).__name__}: {error}{where}"


def _broken_promise(listing: Listing, allowed: Sequence[Path]) -> str | None:
    if not isinstance(listing, Listing):
        return f"read returned {type(listing).__name__}; must be a Listing"
    labels = listing.labels
    if not 1 <= len(labels) <= MAX_CLASSES or len(set(labels)) < len(labels):
        return f"labels={labels!r}: must be 1 to {MAX_CLASSES} different names"
    seen: set[str] = set()
    for entry in listing.entries:
        if entry.video_id in seen:
            return f"lists {entry.video_id!r} more than once; each input may have one label"
        seen.add(entry.video_id)
        if broken := _broken_entry(entry, listing, allowed):
            return f"{entry.video_id!r}: {broken}"
    return None


def _broken_entry(entry: Entry, listing: Listing, allowed: Sequence[Path]) -> str | None:
    labels = listing.labels
    if entry.problem is None and (broken := _broken_name(entry.video_id, allowed)):  # else it is never opened
        return broken
    if not -1 <= entry.label < len(labels):
        return f"label={entry.label!r}: must be -1 or a position in {labels!r}"
    if entry.split not in (None, *SPLITS):
        return f"split={entry.split!r}: must be one of {', '.join(SPLITS)}, or None"
    if (
        entry.source_id
        and entry.source_id[0] == "/"
        and Path(entry.source_id).is_relative_to(resolved_root(listing.root))
    ):
        return f"source_id={entry.source_id!r}: must be a path below the root, as the original's video_id is"
    if not isinstance(entry.kin, tuple):
        return f"kin={entry.kin!r}: must be a tuple of names"
    return None


def _broken_name(video_id: str, allowed: Sequence[Path]) -> str | None:
    outside = video_id[:1] == "/" and not any(Path(video_id).is_relative_to(folder) for folder in allowed)
    if not video_id or outside or video_id[:3] == "../" or posixpath.normpath(video_id) != video_id:
        return "must be a path below the root, without . and .. in it"
    return None if printable_name(video_id) == video_id else "must be text"
