"""Checks of a table's rows: none is a folder of inputs, an image of a clip, or a mask; and no mask lies outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ....errors import UsageError
from ...listing import Entry, FoundFile
from ...media.allowed_roots import allow_root_options, relative_name
from ...media.linked_files import RealPaths
from ...media.media_files import first_media_below, path_exists
from ...media.suffixes import is_image
from .row import Row


def folder_of_others(root: Path, name: str) -> FoundFile | None:
    """What a row calls `name` where that is no input, but a folder of inputs; None where it is none."""
    folder = relative_name(root, name)
    if folder == "." or not path_exists(root / folder) or (below := first_media_below(root / folder)) is None:
        return None
    path = f"{folder}/{below}"
    detail = f"a folder that holds videos, such as {path!r}: name each of them"
    if is_image(path):
        detail = f"a folder of folders, with images in {path.rpartition('/')[0]!r}: name each clip's folder of images"
    return FoundFile(folder, problem="no_frames", detail=detail)


def refuse_images_of_clips(src: Path, entries: Sequence[Entry], real_paths: RealPaths) -> None:
    """Raises `UsageError` where a row is an image of a folder that another row has as one clip."""
    clips = {real_paths.of(entry.video_id) for entry in entries if entry.num_images}
    for entry in entries:
        is_single = not entry.num_images and is_image(entry.video_id)
        if is_single and real_paths.of(entry.video_id.rpartition("/")[0]) in clips:
            raise UsageError(
                f"{src}: names {entry.video_id!r}, and the folder that it lies in, which is one clip of all its "
                "images: each input may have one label: drop one"
            )


def refuse_outside_masks(masks: Mapping[str, Row]) -> None:
    """Raises `UsageError` where there are `masks` outside the allowed roots; with the first row that names each."""
    if not masks:
        return
    name, row = next(iter(masks.items()))
    more = f" (the first of {len(masks):,} such masks)" if len(masks) > 1 else ""
    raise UsageError(
        f"{row.table}: {row.position}: mask {name!r} of {row.path!r} lies outside the folder of {row.table.name}{more} "
        f"and may not be read: admit it with {allow_root_options(row.table.parent, [*masks])}, or leave the cell empty"
    )


def refuse_masks_as_inputs(src: Path, entries: Sequence[Entry], real_paths: RealPaths) -> None:
    """Raises `UsageError` where a row is the mask of a row."""
    masks = {real_paths.of(entry.mask_id) for entry in entries if entry.mask_id}
    if both := next((entry.video_id for entry in entries if real_paths.of(entry.video_id) in masks), None):
        raise UsageError(f"{src}: names {both!r} as a path and as a mask; a mask is no input: drop that row")
