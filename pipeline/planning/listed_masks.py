"""Masks of a listing: each fake clip of images gets the folder of masks beside it, and real inputs get none.

In: a listing whose extracted frames are clips already. Out: the same with masks, and without comparisons of real inputs
with an original. The rules are in docs/guides/layouts.md, under "Masks of extracted frames", and in
docs/guides/precompute.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from ..console import plural
from ..dataset.schema import real_class
from ..sources.folder_names import COMPRESSIONS
from ..sources.layouts.table.layout import TableFile
from ..sources.listing import Entry, FoundFile, Listing
from ..sources.media.media_files import FRAME_FOLDERS, find_named, ignored_as_mask, mask_folders
from ..sources.media.suffixes import split_video_suffix

_NamesIn = Callable[[str], Sequence[str]]
"""Names of the folders of masks in a folder, relative to the root."""


def with_masks(listing: Listing, allowed: Sequence[Path]) -> Listing:
    """The listing with the folders of masks that lie beside clips of images, and without masks of real inputs.

    A folder that is the mask of a clip is no input. A table names its masks itself. `allowed`: real paths of further
    folders that links may lead into.
    """
    listing = _without_masks_of_real(listing)
    if listing.layout == TableFile.name:
        return listing
    real = real_class(listing.labels)
    names_in = cache(lambda folder: mask_folders(listing.root / folder))
    masks = {
        entry.video_id: mask
        for entry in listing.clips
        if entry.mask_id is None and entry.label != real and (mask := _mask_of(entry, listing.root, allowed, names_in))
    }
    folders = {mask.relative: mask for mask in masks.values()}
    ignored = Counter(listing.ignored)
    for folder, mask in folders.items():
        ignored[str(ignored_as_mask(folder))] -= mask.num_images
    entries = [entry for entry in listing.entries if entry.video_id not in folders]
    return replace(
        listing, ignored=+ignored,
        entries=[entry.with_mask(masks[entry.video_id]) if entry.video_id in masks else entry for entry in entries],
    )  # fmt: skip


def _without_masks_of_real(listing: Listing) -> Listing:
    real = real_class(listing.labels)
    unused = sum(entry.mask_id is not None and entry.label == real for entry in listing.entries)
    if real is None or not unused:
        return listing
    warning = (
        f"{plural(unused, 'input')} of the class {listing.labels[real]} with a mask: nothing is manipulated in real "
        "inputs, so their masks are not used"
    )
    entries = [entry.without_mask() if entry.label == real else entry for entry in listing.entries]
    return replace(listing, entries=entries, warnings=(*listing.warnings, warning))


def without_comparisons_of_real(listing: Listing, planned: Iterable[Entry]) -> Listing:
    """The listing with `compared=False` for real inputs that name an original, as where the sound alone is another.

    Nothing is manipulated in their picture. `planned`: all inputs of OUT's plan. Those of them that an earlier version
    has planned to compare stay as they were planned, so that their rows are not done again.
    """
    real = real_class(listing.labels)

    def is_needless(entry: Entry) -> bool:
        return entry.compared and entry.source_id is not None and entry.label == real and entry.fake_segments is None

    as_planned = {entry.video_id for entry in planned if is_needless(entry)}
    entries = [
        replace(entry, compared=False) if is_needless(entry) and entry.video_id not in as_planned else entry
        for entry in listing.entries
    ]
    return replace(listing, entries=entries)


def _mask_of(clip: Entry, root: Path, allowed: Sequence[Path], names_in: _NamesIn) -> FoundFile | None:
    found = (find_named(root, folder, allowed) for folder in _folders_of_masks(clip.video_id, names_in))
    return next((mask for mask in found if mask is not None and (mask.num_images or mask.problem)), None)


def _folders_of_masks(clip: str, names_in: _NamesIn) -> Iterator[str]:
    """Where the masks of a clip may lie: `masks` in the place of `frames`, or above the folder of a grade.

    Either folder may be called as the clip's video, `033_097.mp4`.

    >>> list(_folders_of_masks("Deepfakes/c23/frames/033_097", lambda folder: ["masks"]))[::4]
    ['Deepfakes/c23/masks/033_097', 'Deepfakes/masks/033_097']
    """
    parts = clip.split("/")
    positions = [position for position, part in enumerate(parts) if part.lower() in FRAME_FOLDERS]
    if not positions:
        return
    above, (frames, *inner) = parts[: positions[-1]], parts[positions[-1] :]
    is_grade = bool(above) and above[-1].lower() in COMPRESSIONS
    for base in (above, above[:-1]) if is_grade else (above,):
        for name in names_in("/".join(base)):
            for below in (inner, [frames, *inner]):
                folder = "/".join([*base, name, *below])
                stem, suffix = split_video_suffix(folder)
                yield from (folder, stem if suffix else f"{folder}.mp4")
