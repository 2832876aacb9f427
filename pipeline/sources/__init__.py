"""Sources: a layout turns a folder or a table into a `Listing` of entries.

In: SRC, a folder or a table. Out: a `Listing` of entries with label, split, source, identity and footage.
Must not know: what is in the media, plans, datasets on disk.

| module | what it holds |
|---|---|
| layout, layouts/ | the `Layout` protocol and a user's own; those that ship: each published set, folder, table |
| listing | `FoundFile`, `Entry` and `Listing` |
| packed_records | millions of found files, or of outcomes, in little memory |
| media/ | the search for media files, and the folders that inputs may lie in |
| metadata/ | JSON that comes with a source; when a video is fake; columns of the source's own |
| clips/ | images that are frames of one clip; a clip as a video or as frames; inputs that are cropped already |
| folder_names | class, split and clip that the name of a folder says |
| disjoint_sets | which names belong together, by links between them |
| splits_file, clip_matching | splits from a file in place of the source's own; which of its clips is which input |
| checks/ | for how many inputs originals, recordings and people are known; warnings |

A source goes through them in this order: `list_source` finds the layout, which reads metadata, searches for media and
makes the entries of a listing; frames of one clip get the same `footage`, and a clip that is there as a video and as
frames is used once; checks follow when the caller has added columns and splits. Frames stay entries of their own here:
planning joins them (`planning.image_clips`), which knows what OUT holds.

docs/guides/layouts.md documents what each recognises, and how to write another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from .checks.link_coverage import LinkCoverage
from .checks.listing_checks import listing_warnings, refuse_unlabelled, unknown_real_class
from .clips.compressions import join_compressions
from .clips.image_sequences import collecting_folders, group_frames
from .clips.video_or_frames import each_clip_once
from .clips.whole_frames import without_unlike_comparisons
from .layout import Layout, load_layout, read_listing
from .layouts.avdeepfake1m import AVDeepfake1M
from .layouts.celebdf import CelebDF
from .layouts.class_pairs import FFIW, UADFV
from .layouts.dataset_json import DatasetJson
from .layouts.deeperforensics import DeeperForensics
from .layouts.dfdc import DFDC
from .layouts.dfdc_preview import DFDCPreview
from .layouts.fakeavceleb import FakeAVCeleb
from .layouts.ffpp.layout import FaceForensics
from .layouts.folder import Folder
from .layouts.lavdf import LAVDF
from .layouts.names.class_spelling import misspelt_classes
from .layouts.nearby import refuse_nearby_dataset, refuse_sets_side_by_side, unread_sets
from .layouts.table.layout import TableFile
from .listing import Entry, FoundFile, Listing
from .media.allowed_roots import is_inside, refuse_outside, resolve_allowed_roots
from .media.media_files import digest_of_images, each_folder_listed_once, find_media, find_named
from .media.missing_names import missing_hints
from .media.suffixes import is_media
from .metadata.own_columns import with_columns
from .splits_file import with_splits_from

_PUBLISHED: tuple[Layout, ...] = (
    LAVDF(), AVDeepfake1M(),  # before DFDC, whose metadata.json is an object
    DFDC(), FaceForensics(), CelebDF(), DFDCPreview(), FakeAVCeleb(), DeeperForensics(), UADFV, FFIW,
)  # fmt: skip
_SHIPPED: tuple[Layout, ...] = (TableFile(), DatasetJson(), *_PUBLISHED, Folder())
_BY_NAME = {layout.name: layout for layout in _SHIPPED}
LAYOUTS = ("auto", *_BY_NAME)
_OTHER_TABLES = frozenset([".arrow", ".feather", ".jsonl", ".ods", ".tab", ".tsv", ".txt", ".xls", ".xlsx"])

__all__ = [
    "LAYOUTS",
    "Entry",
    "FoundFile",
    "Layout",
    "LinkCoverage",
    "Listing",
    "detect_layout",
    "digest_of_images",
    "find_media",
    "find_named",
    "is_inside",
    "list_source",
    "listing_warnings",
    "load_layout",
    "misspelt_classes",
    "refuse_unlabelled",
    "resolve_allowed_roots",
    "unknown_real_class",
    "with_columns",
    "with_splits_from",
]


def detect_layout(src: Path) -> str:
    """Name of the first layout that fits `src`; "folder" where none does."""
    return next((layout.name for layout in _SHIPPED if layout.fits(src)), "folder")


def list_source(
    src: Path, layout: str | Layout = "auto", *, allowed: Sequence[Path] = (), adds_to_given_splits: bool = False
) -> Listing:
    """Lists every input below `src` with its metadata; opens no media.

    Images that are frames of one clip get the same `footage`, whatever the layout, and are entries of their own:
    `with_clips` joins them. `allowed`: real paths of further
    folders that links and absolute paths may lead into. `adds_to_given_splits`: whether OUT has inputs whose split was
    given. Then a split that the source names alone is used too: one delivery may be of test videos only.

    Raises `UsageError` where `src` does not exist, does not fit the layout or holds no media, its metadata cannot be
    parsed, it is one level above or below a published set or holds several side by side, or a linked folder or all
    inputs lie outside.
    """
    if not os.access(src, os.F_OK):
        raise UsageError(f"SRC={str(src)!r}: no such file or folder")
    if not os.access(src, os.R_OK | (os.X_OK if src.is_dir() else 0)):
        raise UsageError(f"SRC={str(src)!r}: may not be read by this user; nothing in it can be listed")
    listing = read_listing(_select_layout(src, layout), src, allowed)
    hints = list(missing_hints(listing.root, listing.missing, allowed))
    if not listing.entries and listing.missing:
        raise UsageError(
            f"SRC={str(src)!r}: none of the {len(listing.missing)} files it lists is below {listing.root} "
            f"(the first: {listing.missing[0]!r}); paths are relative to that folder"
            + "".join(f"; {hint}" for hint in hints)
        )
    if not listing.entries:
        ignored = ", ".join(f"{count} {kind}" for kind, count in listing.ignored.most_common(3))
        instead = f" but {ignored}" if ignored else ""
        raise UsageError(
            f"SRC={str(src)!r}: holds no video and no image{instead} (layout {listing.layout}); nothing to do"
        )
    if not adds_to_given_splits or not any(entry.split for entry in listing.entries):
        listing = listing.without_unused_splits()
    refuse_outside(listing)
    _refuse_broken_texts(src, listing)
    unread = unread_sets(listing, src, _PUBLISHED)
    has_own_footage = any(entry.footage is not None for entry in listing.entries)
    entries = group_frames(listing.entries, collecting_folders(listing))
    listing = replace(
        listing,
        entries=entries if has_own_footage else join_compressions(entries),
        footage_from_names=listing.footage_from_names or bool(listing.recognised_by) or not has_own_footage,
        warnings=(*listing.warnings, *hints, *unread),
    )
    return without_unlike_comparisons(each_clip_once(listing))


def _refuse_broken_texts(src: Path, listing: Listing) -> None:
    """Raises `UsageError` where metadata has a text that no cell can store."""
    for entry in listing.entries:
        try:
            entry.check_texts()
        except ValueError as error:
            raise UsageError(f"SRC={str(src)!r}: {error}; fix the metadata") from error


@each_folder_listed_once()
def _select_layout(src: Path, layout: str | Layout) -> Layout:
    if not isinstance(layout, str):
        return layout
    name = detect_layout(src) if layout == "auto" else layout
    if layout == "auto" and src.is_dir():
        refuse_sets_side_by_side(src, _PUBLISHED)
        if name == Folder.name:
            refuse_nearby_dataset(src, _PUBLISHED)
    if name not in _BY_NAME:
        raise UsageError(
            f"layout={layout!r}: must be one of {', '.join(LAYOUTS)}, or your own (FILE.py; from Python, an object)"
        )
    if not src.is_dir() and detect_layout(src) == Folder.name:
        raise UsageError(
            f"SRC={str(src)!r}: no layout reads such a file; must be a folder, a table (.csv with commas, or .parquet) "
            f"or a dataset JSON of DeepfakeBench (.json){_remedy_for_file(src)}"
        )
    return _BY_NAME[name]


def _remedy_for_file(src: Path) -> str:
    if src.suffix.lower() in _OTHER_TABLES:
        return "; save the table as .csv, separated by commas"
    return "; put the file into a folder, and name that" if is_media(src.name) else ""
