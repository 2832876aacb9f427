"""Splits from a file of the user's: DeepfakeBench's dataset JSON, or lists of paths by split.

DeepfakeBench names each clip by the paths of its frames, on the machine that wrote the file:

    {"FaceForensics++": {"FF-DF": {"train": {"c23": {"071_054": {"label": "FF-DF", "frames": ["...", ...]}}}}}}

A clip is an input whose path ends alike: folders for videos and frames, and what is above the set, do not count. A
frame has the path of its clip's folder, an image that is no frame its own. In FaceForensics++, where folders may have
other names, a clip is else the only input of its method and name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..dataset.schema import SPLITS
from ..errors import RefusedError, UsageError
from .clips.image_sequences import clip_folder, collecting_folders
from .folder_names import COMPRESSIONS, VIDEO_FOLDERS, class_of_folder
from .layouts.ffpp.layout import FaceForensics
from .layouts.ffpp.names import METHOD_OF_FOLDER, PEOPLE, VideoName
from .layouts.names.spelling import spelling_key
from .listing import Entry, Listing, parse_split_name
from .media.suffixes import is_image, is_media
from .metadata.json_files import read_json

_NEUTRAL_FOLDERS = {*VIDEO_FOLDERS, *COMPRESSIONS, *PEOPLE}
_SAME = {"original_sequences": "original"}  # as FaceForensics++ is called on Kaggle
_METHOD_OF_FOLDER = {spelling_key(folder): method for folder, method in METHOD_OF_FOLDER.items()}
_MAX_NAMED = 3

Parts = tuple[str, ...]
MethodAndName = tuple[str, str]
"""Of a clip of FaceForensics++; the method of originals is empty."""


def with_splits_from(listing: Listing, path: Path, *, allow_leaks: bool) -> Listing:
    """The listing with the splits of a file in place of its own; inputs that the file does not name have none.

    A clip that the file has in val and test is test, as DeepfakeBench validates on its test clips. Warns of inputs that
    the file does not name, and of clips of the file that are no inputs.

    Raises:
        UsageError: the file cannot be read, has no splits, names none of the inputs, or names one below no split.
        RefusedError: it has a clip in train and in another split, unless `allow_leaks`: then it is test, or val.

    """
    classes = collecting_folders(listing)
    inputs = _parts_of_inputs(listing.entries, classes)
    splits_of, keys_without_split = _read(path, partial(_parts_in_file, classes=classes, photos=_photos(inputs)))
    if not allow_leaks:
        _refuse_leaks(path, splits_of)
    clips = {inputs[entry.video_id]: _as_ffpp_clip(entry, inputs[entry.video_id]) for entry in listing.entries}
    named = _matched(clips, splits_of)
    if not any(named.values()):
        first = "/".join(next(iter(splits_of)))
        raise UsageError(
            f"{path}: names none of the {len(inputs):,} inputs (its first: {first!r}, the source's: "
            f"{listing.entries[0].video_id!r}); is it of another dataset?"
        )
    unnamed = {parts: clips[parts] for parts, alike in named.items() if not alike}
    _refuse_unsplit(path, unnamed, keys_without_split)
    entries = [
        replace(entry, split=_split_of(entry, path, named[inputs[entry.video_id]], splits_of))
        for entry in listing.entries
    ]
    return replace(
        listing, entries=entries, without_splits=f"leave out --splits {path}", missing_split_lists=(), split_lists=(),
        unused_split_warning="", warnings=(*listing.warnings, *_warnings(path, splits_of, named)),
    )  # fmt: skip


def _matched(inputs: Mapping[Parts, MethodAndName | None], clips: Collection[Parts]) -> dict[Parts, list[Parts]]:
    """The clips of the file that each input may be: by their paths, else by method and name where one alone has them.

    By method and name, no clip belongs to two inputs.
    """
    by_stem = _by_stem(clips)
    named = {parts: _alike(parts, by_stem) for parts in inputs}
    used = {other for alike in named.values() for other in alike}
    clips_of, inputs_of = defaultdict[MethodAndName, list[Parts]](list), defaultdict[MethodAndName, list[Parts]](list)
    for other in clips:
        if key := _named_as_ffpp_clip(other):
            clips_of[key].append(other)
    for parts, key in inputs.items():
        if key:
            inputs_of[key].append(parts)
    for key, same in inputs_of.items():
        others = clips_of.get(key, [])
        if len(same) == len(others) == 1 and not named[same[0]] and others[0] not in used:
            named[same[0]] = others
    return named


def _as_ffpp_clip(entry: Entry, parts: Parts) -> MethodAndName | None:
    """Method and name of a clip that the layout knows as one of FaceForensics++; None of any other input."""
    return (entry.method or "", parts[-1]) if entry.dataset == FaceForensics.name and entry.identity else None


def _named_as_ffpp_clip(parts: Parts) -> MethodAndName | None:
    """Method and name of a clip of a file, where both its folder and its name are those of FaceForensics++."""
    folder, stem = (parts[-2] if len(parts) > 1 else ""), parts[-1]
    method = _METHOD_OF_FOLDER.get(folder)
    name = VideoName.parse(stem)
    if name is None or not name.is_of(method) or (method is None and class_of_folder(folder) != 0):
        return None
    return method or "", stem


def _by_stem(clips: Iterable[Parts]) -> dict[str, list[Parts]]:
    by_stem: dict[str, list[Parts]] = defaultdict(list)
    for parts in clips:
        by_stem[parts[-1]].append(parts)
    return by_stem


def _alike(parts: Parts, by_stem: Mapping[str, list[Parts]]) -> list[Parts]:
    """The clips whose path ends as the input's, or the other way round."""
    return [other for other in by_stem.get(parts[-1], ()) if _ends_alike(parts, other)]


def _split_of(entry: Entry, path: Path, alike: list[Parts], splits_of: dict[Parts, set[str]]) -> str | None:
    """Split of the clips that an input may be; None where there are none."""
    splits = {_strictest(splits_of[other]) for other in alike}
    if len(splits) > 1:
        named = ", ".join("/".join(other) for other in alike[:_MAX_NAMED])
        raise UsageError(f"{path}: has several clips that {entry.video_id!r} may be, in different splits: {named}")
    return next(iter(splits), None)


def _refuse_unsplit(
    path: Path, unnamed: Mapping[Parts, MethodAndName | None], keys_without_split: Mapping[Parts, str]
) -> None:
    """Raises `UsageError` where the file names one of the inputs without a split below a key that is no split."""
    for alike in _matched(unnamed, keys_without_split).values():
        if alike:
            keys = keys_without_split[alike[0]]
            raise UsageError(
                f"{path}: has {'/'.join(alike[0])!r} below {keys!r}, where nothing is called {', '.join(SPLITS)}; its "
                "split would be drawn: correct the name of the split, or take these clips out of the file"
            )


def _warnings(path: Path, splits_of: Collection[Parts], named: Mapping[Parts, list[Parts]]) -> Iterator[str]:
    if unnamed := ["/".join(parts) for parts, alike in named.items() if not alike]:
        yield (
            f"{path}: names {len(named) - len(unnamed):,} of {len(named):,} clips of SRC; the splits of "
            f"the others are drawn (the first: {unnamed[0]!r})"
        )
    used = {other for alike in named.values() for other in alike}
    if absent := ["/".join(parts) for parts in splits_of if parts not in used]:
        yield f"{path}: {len(absent):,} of its {len(splits_of):,} clips are not in SRC (the first: {absent[0]!r})"


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


def _parts_of_inputs(entries: Sequence[Entry], classes: frozenset[str]) -> dict[str, Parts]:
    """Parts of each input, by its id; of a frame those of its clip.

    The images of a folder that is called after no class are frames of one clip, unless their footage differs.
    """
    clip_of = {entry.video_id: _clip_of_frame(entry.video_id, classes) for entry in entries}
    footages: dict[str | None, set[str | None]] = defaultdict(set)
    for entry in entries:
        footages[clip_of[entry.video_id]].add(entry.footage)
    return {name: _clip_parts(clip if clip and len(footages[clip]) == 1 else name) for name, clip in clip_of.items()}


def _photos(inputs: Mapping[str, Parts]) -> dict[str, list[Parts]]:
    """Of the inputs those images that are no frames, by stem."""
    return _by_stem(parts for name, parts in inputs.items() if is_image(name) and parts == _clip_parts(name))


def _parts_in_file(path: str, is_frame: bool, classes: frozenset[str], photos: Mapping[str, list[Parts]]) -> Parts:
    """Parts of a path of the file; of a frame those of its clip. `is_frame`: whether the file says that it is one."""
    own, path = _clip_parts(path), path.replace("\\", "/")
    clip = _clip_of_frame(path, classes) or (path.rpartition("/")[0] if is_frame else None)
    return own if clip is None or _alike(own, photos) else _clip_parts(clip)


def _clip_of_frame(path: str, classes: frozenset[str]) -> str | None:
    """Path of the clip that an image is a frame of, by its folder's name; None of any other file."""
    return clip_folder(path.rpartition("/")[0], classes) if is_image(path) else None


def _clip_parts(path: str) -> Parts:
    """Folders and stem in lower case, from the left, without folders for videos and frames."""
    *folders, name = path.replace("\\", "/").lower().split("/")
    while folders and (not name or name in _NEUTRAL_FOLDERS):  # of frames, below the folder called after their clip
        *folders, name = folders
    keys = (_SAME.get(folder, folder) for folder in folders if folder not in _NEUTRAL_FOLDERS)
    stem = name.rpartition(".")[0] if is_media(name) else name
    return (*filter(None, map(spelling_key, keys)), stem)


def _read(path: Path, parts_of: Callable[[str, bool], Parts]) -> tuple[dict[Parts, set[str]], dict[Parts, str]]:
    """Splits of each clip, and the keys above each clip that is below none."""
    data = read_json(path, "name one of DeepfakeBench's dataset JSONs as --splits")
    splits_of: dict[Parts, set[str]] = defaultdict(set)
    keys_without_split: dict[Parts, str] = {}
    for split, keys, clip, is_frame in _clips(data, None, ()):
        if split:
            splits_of[parts_of(clip, is_frame)].add(split)
        else:
            keys_without_split[parts_of(clip, is_frame)] = "/".join(keys)
    if not splits_of:
        raise UsageError(
            f"--splits {path}: has no clips below {', '.join(SPLITS)}; must be DeepfakeBench's dataset JSON, or map "
            "each split to a list of paths"
        )
    return splits_of, keys_without_split


def _clips(data: Any, split: str | None, keys: Parts) -> Iterator[tuple[str | None, Parts, str, bool]]:
    """Split, the keys above, and path of each clip, at whatever depth; whether that is the path of a frame of it."""
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        here = parse_split_name(key) or split
        if isinstance(value, list):
            yield from ((here, (*keys, key), name, False) for name in value if isinstance(name, str))
        elif isinstance(value, dict) and isinstance(frames := value.get("frames"), list):
            first = next((frame for frame in frames if isinstance(frame, str)), None)
            yield here, keys, first or key, first is not None
        else:
            yield from _clips(value, here, (*keys, key))
