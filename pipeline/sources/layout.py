"""The `Layout` protocol, and the loading and validation of a user's own layout."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints

from ..dataset.schema import COLUMN_KINDS, SPLITS
from ..errors import FacefeedError, UsageError
from ..user_file import describe_error, run_user_file
from .listing import MAX_CLASSES, Entry, Listing
from .media.allowed_roots import resolved_root
from .media.media_files import printable_name
from .metadata.segments import parse_segments

_MAX_INT = 2**63 - 1
LAYOUT_MEMBERS = ("name", "needs", "fits", "read")
_GUIDE = "docs/guides/layouts.md shows how"


class Layout(Protocol):
    """A directory layout of a dataset: lists its inputs with their metadata.

    An implementer promises: the same files give the same listing, in whatever order the file system returns them; no
    media is opened, and nothing is written; every `video_id` is a path below `Listing.root` with / between its parts,
    or an absolute one in an allowed folder outside it, listed once; `label` is a position in `Listing.labels`, or -1;
    `split` is train, val, test or None; `source_id` is the original's `video_id`, or what that would be. `find_media`
    and `find_named` never leave the root and the allowed folders. All but the first two promises are checked, as far as
    the listing allows.
    """

    @property
    def name(self) -> str:
        """Its name on the command line and in messages."""

    @property
    def needs(self) -> str:
        """What SRC must be, for the error message: "a folder with speakers.csv"."""

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout. Called for every source: must be fast and must not raise."""

    def read(self, src: Path, allowed: Sequence[Path]) -> Listing:
        """Lists the inputs of `src`; raises `UsageError` where metadata cannot be parsed, rather than guess.

        `allowed`: real paths of further folders that links and absolute paths may lead into.
        """


def load_layout(file: Path) -> Layout:
    """Runs a Python file and returns the object `layout` that it defines.

    Raises `UsageError` where there is no such file, it cannot be run, or it defines no layout.
    """
    if not file.is_file():
        raise UsageError(f"--layout {file}: no such file; name a Python file that defines `layout`: {_GUIDE}")
    module = run_user_file(file, f"--layout {file}")
    layout: Any = getattr(module, "layout", None)
    if isinstance(layout, type):
        raise UsageError(f"--layout {file}: `layout` is a class; end the file with `layout = {layout.__name__}()`")
    if missing := [name for name in LAYOUT_MEMBERS if not hasattr(layout, name)]:
        what = f"its `layout` lacks {', '.join(missing)}" if layout is not None else "defines no `layout`"
        raise UsageError(f"--layout {file}: {what}; it must be an object with {', '.join(LAYOUT_MEMBERS)}: {_GUIDE}")
    user_layout: Layout = layout
    return user_layout


def read_listing(layout: Layout, src: Path, allowed: Sequence[Path] = ()) -> Listing:
    """Lists `src` by `layout` and validates the listing.

    Raises `UsageError` where the layout does not fit `src`, breaks a promise, or fails.
    """
    try:
        if not layout.fits(src):
            raise UsageError(f"SRC={str(src)!r}: layout {layout.name} needs {layout.needs}; try --layout auto")
        listing = layout.read(src, allowed)
    except (FacefeedError, MemoryError):
        raise
    except Exception as error:
        raise UsageError(
            f"layout {layout.name}: cannot list {src} ({describe_error(error)}); fix the layout"
        ) from error
    if broken := _broken_promise(listing, allowed):
        raise UsageError(f"layout {layout.name}: {broken}; nothing was written; fix the layout")
    return listing


def _broken_promise(listing: Listing, allowed: Sequence[Path]) -> str | None:
    if not isinstance(listing, Listing):
        return f"read returned {type(listing).__name__}; must be a Listing"
    labels = listing.labels
    if not 1 <= len(labels) <= MAX_CLASSES or len(set(labels)) < len(labels):
        return f"labels={labels!r}: must be 1 to {MAX_CLASSES} different names"
    if unknown := set(listing.columns.values()) - set(COLUMN_KINDS):
        return f"columns={listing.columns!r}: the kind {unknown.pop()!r} must be one of {', '.join(COLUMN_KINDS)}"
    seen: set[str] = set()
    for entry in listing.entries:
        broken = _mistyped_field(entry) or _broken_promise_of_entry(entry, listing, allowed)
        broken = broken or _broken_values(entry, listing)
        if broken:
            return f"{entry.video_id!r}: {broken}"
        if entry.video_id in seen:
            return f"lists {entry.video_id!r} more than once; each input may have one label"
        seen.add(entry.video_id)
    return None


def _broken_promise_of_entry(entry: Entry, listing: Listing, allowed: Sequence[Path]) -> str | None:
    labels = listing.labels
    if entry.problem is None and (
        broken := _invalid_video_id(entry.video_id, allowed)
    ):  # inputs with a problem are never opened
        return broken
    if not -1 <= entry.label < len(labels):
        return f"label={entry.label!r}: must be -1 or a position in {labels!r}"
    if entry.split not in (None, *SPLITS):
        return f"split={entry.split!r}: must be one of {', '.join(SPLITS)}, or None"
    return _broken_reference(entry, listing, allowed)


def _mistyped_field(entry: Entry) -> str | None:
    """What is wrong with a value that no plan could hold, or that would be another one when it is read again."""
    for name, value, allowed in zip(_FIELD_TYPES, _field_values(entry), _FIELD_TYPES.values(), strict=True):
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            return f"{name}={value!r}: must be {' or '.join(_TYPE_NAMES[each] for each in allowed)}"
    if entry.related_identities and not all(isinstance(name, str) for name in entry.related_identities):
        return f"related_identities={entry.related_identities!r}: must be a tuple of names"
    if not all(map(_is_storable, entry.values)):
        return f"values={entry.values!r}: must be texts, numbers (whole ones of 64 bits) or None"
    return None if entry.fake_segments is None else _broken_segments(entry.fake_segments)


def _is_storable(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _MAX_INT
    return value is None or isinstance(value, str)


def _broken_segments(segments: Any) -> str | None:
    try:
        is_same = parse_segments(segments, "") == segments
    except UsageError:
        is_same = False
    return (
        None if is_same else f"fake_segments={segments!r}: must be (start, end) in seconds each, in the order of time"
    )


def _types_of(hint: Any) -> tuple[type, ...]:
    """The types of a field's values; those of a `Literal` are texts."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(each for argument in get_args(hint) for each in _types_of(argument))
    return (str,) if get_origin(hint) is Literal else (get_origin(hint) or hint,)


_FIELD_TYPES = {name: _types_of(hint) for name, hint in get_type_hints(Entry).items()}
_field_values = attrgetter(*_FIELD_TYPES)  # several times as fast as a getattr for each
_TYPE_NAMES = {str: "text", int: "a whole number", bool: "True or False", tuple: "a tuple", NoneType: "None"}


def _broken_reference(entry: Entry, listing: Listing, allowed: Sequence[Path]) -> str | None:
    if (
        entry.source_id
        and entry.source_id[0] == "/"
        and Path(entry.source_id).is_relative_to(resolved_root(listing.root))
    ):
        return f"source_id={entry.source_id!r}: must be a path below the root, as the original's video_id is"
    if entry.mask_id is not None and _invalid_video_id(entry.mask_id, allowed):
        return f"mask_id={entry.mask_id!r}: must be a path below the root, without . and .. in it"
    return None


def _broken_values(entry: Entry, listing: Listing) -> str | None:
    is_complete = len(entry.values) in (0, len(listing.columns))
    return None if is_complete else f"values={entry.values!r}: must be one for each of {list(listing.columns)}"


def _invalid_video_id(video_id: str, allowed: Sequence[Path]) -> str | None:
    outside = video_id[:1] == "/" and not any(Path(video_id).is_relative_to(folder) for folder in allowed)
    if not video_id or outside or video_id[:3] == "../" or posixpath.normpath(video_id) != video_id:
        return "must be a path below the root, without . and .. in it"
    return None if printable_name(video_id) == video_id else "must be text"
