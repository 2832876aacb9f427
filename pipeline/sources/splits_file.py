"""Splits from a file of the user's: DeepfakeBench's dataset JSON, or lists of paths by split.

DeepfakeBench names each clip by the paths of its frames, on the machine that wrote the file:

    {"FaceForensics++": {"FF-DF": {"train": {"c23": {"071_054": {"label": "FF-DF", "frames": ["...", ...]}}}}}}

A clip is an input whose path ends alike: folders for videos and frames, and what is above the set, do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..dataset.schema import SPLITS
from ..errors import RefusedError, UsageError
from .clips.image_sequences import video_of_frame
from .layouts.names.spelling import spelling_key
from .listing import Entry, Listing, parse_split_name
from .media.media_files import FRAME_FOLDERS, is_media
from .metadata.json_files import read_json

_NEUTRAL_FOLDERS = {"videos", *FRAME_FOLDERS, "raw", "c0", "c23", "c40", "youtube", "actors"}
_SAME = {"original_sequences": "original"}  # as FaceForensics++ is called on Kaggle
_MAX_NAMED = 3

Parts = tuple[str, ...]


def with_splits_from(listing: Listing, path: Path, *, allow_leaks: bool) -> Listing:
    """The listing with the splits of a file in place of its own; inputs that the file does not name have none.

    A clip that the file has in val and test is test, as DeepfakeBench validates on its test clips.

    Raises:
        UsageError: the file cannot be read, has no splits, or names none of the inputs.
        RefusedError: it has a clip in train and in another split, unless `allow_leaks`: then it is test, or val.

    """
    splits_of = _read(path)
    if not allow_leaks:
        _refuse_leaks(path, splits_of)
    by_stem: dict[str, list[Parts]] = defaultdict(list)
    for parts in splits_of:
        by_stem[parts[-1]].append(parts)
    entries = [replace(entry, split=_split_of(entry, path, splits_of, by_stem)) for entry in listing.entries]
    if not any(entry.split for entry in entries):
        first = "/".join(next(iter(splits_of)))
        raise UsageError(
            f"{path}: names none of the {len(entries):,} inputs (its first: {first!r}, the source's: "
            f"{entries[0].video_id!r}); is it of another dataset?"
        )
    return replace(listing, entries=entries, without_splits=f"leave out --splits {path}")


def _split_of(
    entry: Entry, path: Path, splits_of: dict[Parts, set[str]], by_stem: dict[str, list[Parts]]
) -> str | None:
    """Split of the clip whose path ends as the input's, or the other way round; None where the file has none."""
    parts = _clip_parts(video_of_frame(entry.video_id))
    alike = [other for other in by_stem.get(parts[-1], ()) if _ends_alike(parts, other)]
    splits = {_strictest(splits_of[other]) for other in alike}
    if len(splits) > 1:
        named = ", ".join("/".join(other) for other in alike[:_MAX_NAMED])
        raise UsageError(f"{path}: has several clips that {entry.video_id!r} may be, in different splits: {named}")
    return next(iter(splits), None)


def _ends_alike(one: Parts, other: Parts) -> bool:
    length = min(len(one), len(other))
    return one[-length:] == other[-length:]


def _strictest(splits: set[str]) -> str:
    return next(split for split in ("test", "val", "train") if split in splits)


def _refuse_leaks(path: Path, splits_of: dict[Parts, set[str]]) -> None:
    leaks = [parts for parts, splits in splits_of.items() if "train" in splits and len(splits) > 1]
    if leaks:
        named = ", ".join(f"{'/'.join(parts)!r}" for parts in leaks[:_MAX_NAMED])
        raise RefusedError(
            f"{path}: {len(leaks):,} clips are in train and in val or test: {named}; a model would be tested on what "
            "it was trained on: fix the file, or accept it with --allow-leaks, which takes them for test or val"
        )


def _clip_parts(path: str) -> Parts:
    """Folders and stem in lower case, from the left, without folders for videos and frames."""
    *folders, name = path.replace("\\", "/").lower().split("/")
    keys = (_SAME.get(folder, folder) for folder in folders if folder not in _NEUTRAL_FOLDERS)
    stem = name.rpartition(".")[0] if is_media(name) else name
    return (*filter(None, map(spelling_key, keys)), stem)


def _read(path: Path) -> dict[Parts, set[str]]:
    """Splits of each clip."""
    data = read_json(path, "name one of DeepfakeBench's dataset JSONs as --splits")
    splits_of: dict[Parts, set[str]] = defaultdict(set)
    for split, clip in _clips(data, None):
        splits_of[_clip_parts(clip)].add(split)
    if not splits_of:
        raise UsageError(
            f"--splits {path}: has no clips below {', '.join(SPLITS)}; must be DeepfakeBench's dataset JSON, or map "
            "each split to a list of paths"
        )
    return splits_of


def _clips(data: Any, split: str | None) -> Iterator[tuple[str, str]]:
    """Split and path of each clip, at whatever depth."""
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        here = parse_split_name(key) or split
        if here and isinstance(value, list):
            yield from ((here, name) for name in value if isinstance(name, str))
        elif here and isinstance(value, dict) and isinstance(frames := value.get("frames"), list):
            first = next((frame for frame in frames if isinstance(frame, str)), None)
            yield here, first.replace("\\", "/").rpartition("/")[0] if first else key
        else:
            yield from _clips(value, here)
