"""Splits from a file of the user's: DeepfakeBench's dataset JSON, or lists of paths by split.

DeepfakeBench names each clip by the paths of its frames, on the machine that wrote the file:

    {"FaceForensics++": {"FF-DF": {"train": {"c23": {"071_054": {"label": "FF-DF", "frames": ["...", ...]}}}}}}

Which input a clip of the file is, `clip_matching` decides. A frame has the path of its clip's folder, an image that is
no frame its own.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ..dataset.schema import SPLITS
from ..errors import RefusedError, UsageError
from .clip_matching import ClipName, InputClip, Matches, Parts, by_stem, match_clips
from .clips.image_sequences import clip_folder, collecting_folders
from .listing import Listing, parse_split_name
from .media.suffixes import is_image
from .metadata.json_files import read_json

_MAX_NAMED = 3


def with_splits_from(listing: Listing, path: Path, *, allow_leaks: bool) -> Listing:
    """The listing with the splits of a file in place of its own; inputs that the file does not name have none.

    A clip that the file has in val and test is test, as DeepfakeBench validates on its test clips. Warns of inputs that
    the file does not name, and of clips of the file that are no inputs.

    Raises:
        UsageError: the file cannot be read, has no splits, names none of the inputs, names one below no split, or it
            is unclear which of several inputs a clip is.
        RefusedError: it has an input in train and in another split, unless `allow_leaks`: then it is test, or val.

    """
    inputs = _Inputs.of(listing)
    splits_of, keys_without_split = _read(path, inputs.path_in_file)
    named = match_clips(inputs.clips, splits_of)
    if not any(named.values()):
        raise UsageError(
            f"{path}: names none of the {len(inputs.clips):,} inputs (its first: {next(iter(splits_of))!r}, the "
            f"source's: {listing.entries[0].video_id!r}); is it of another dataset?"
        )
    splits_of = _with_other_spellings(splits_of, named, inputs.clips)
    if not allow_leaks:
        _refuse_leaks(path, named, splits_of)
    _refuse_unclear(path, inputs.clips, named, splits_of)
    unnamed = {name: clip for name, clip in inputs.clips.items() if not named[name]}
    _refuse_unsplit(path, unnamed, keys_without_split)
    split_of = {name: _split_of(name, path, clips, splits_of) for name, clips in named.items()}
    entries = [replace(entry, split=split_of[inputs.clip_of[entry.video_id]]) for entry in listing.entries]
    return replace(
        listing, entries=entries, without_splits=f"leave out --splits {path}", missing_split_lists=(), split_lists=(),
        unused_split_warning="", warnings=(*listing.warnings, *_warnings(path, splits_of, named)),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The inputs of a listing: `clips` by path, and the path of each input's clip by its id.

    The images of a folder that is called after no class are frames of one clip, unless their footage differs: then each
    is a clip of its own, as a video is.
    """

    root: Path
    classes: frozenset[str]
    clip_of: Mapping[str, str]
    clips: Mapping[str, InputClip]

    @classmethod
    def of(cls, listing: Listing) -> Self:
        classes = collecting_folders(listing)
        folder_of = {entry.video_id: _clip_of_frame(entry.video_id, classes) for entry in listing.entries}
        footages: dict[str | None, set[str | None]] = defaultdict(set)
        for entry in listing.entries:
            footages[folder_of[entry.video_id]].add(entry.footage)
        clip_of = {
            name: folder if folder and len(footages[folder]) == 1 else name for name, folder in folder_of.items()
        }
        clips = {clip_of[entry.video_id]: InputClip.of(clip_of[entry.video_id], entry) for entry in listing.entries}
        return cls(root=listing.root, classes=classes, clip_of=clip_of, clips=clips)

    def path_in_file(self, given: str, is_frame: bool) -> str:
        """Path of a clip, relative to the root, by that which the file gives, which may be that of a frame.

        is_frame: whether the file says that it is.
        """
        path = posixpath.normpath(given.replace("\\", "/")).removeprefix(f"{self.root.as_posix()}/")
        if path in self.clip_of:
            return self.clip_of[path]
        folder = _clip_of_frame(path, self.classes) or (path.rpartition("/")[0] if is_frame else None)
        return path if folder is None or self._is_photo(ClipName.parse(path)) else folder

    def _is_photo(self, name: ClipName) -> bool:
        return any(name.ends_alike(self.clips[photo].name) for photo in self._photos.get(name.stem, ()))

    @cached_property
    def _photos(self) -> Mapping[str, Sequence[str]]:
        """Of the inputs those images that are no frames, by stem."""
        return by_stem({path: clip.name for path, clip in self.clips.items() if is_image(path)})


def _with_other_spellings(
    splits_of: Mapping[str, set[str]], named: Matches, inputs: Mapping[str, InputClip]
) -> dict[str, set[str]]:
    """Splits of each clip; those of an input's path include those of its other spellings, which are no clips then.

    Such as `real/c7/frames` beside `real/c7`, where no other input is called so.
    """
    merged = {clip: set(splits) for clip, splits in splits_of.items()}
    spelled: dict[Parts, list[str]] = defaultdict(list)
    for clip in splits_of:
        if clip in inputs:
            spelled[inputs[clip].name.folders_and_stem].append(clip)
    for clip in splits_of.keys() - {clip for clips in named.values() for clip in clips}:
        if paths := spelled.get(ClipName.parse(clip).folders_and_stem):
            splits = merged.pop(clip)
            for path in paths:
                merged[path] |= splits
    return merged


def _split_of(name: str, path: Path, clips: Sequence[str], splits_of: Mapping[str, set[str]]) -> str | None:
    """Split of the clips that an input may be; None where there are none."""
    splits = {_strictest(splits_of[clip]) for clip in clips}
    if len(splits) > 1:
        raise UsageError(
            f"{path}: has several clips that {name!r} may be, in different splits: {', '.join(clips[:_MAX_NAMED])}"
        )
    return next(iter(splits), None)


def _refuse_unclear(
    path: Path, inputs: Mapping[str, InputClip], named: Matches, splits_of: Mapping[str, set[str]]
) -> None:
    """Raises `UsageError` where a clip may be each of several inputs whose paths differ in what does not count.

    Not where there is a clip for each of them, and all in one split.
    """
    names_of: dict[tuple[str, Parts], list[str]] = defaultdict(list)
    for name, clips in named.items():
        for clip in clips:
            names_of[clip, inputs[name].name.parts].append(name)
    for (first, _), names in names_of.items():
        films = {inputs[name].film for name in names}
        clips_of = {clip for name in names for clip in named[name]}
        splits = {_strictest(splits_of[clip]) for clip in clips_of}
        if len(films) > 1 and (len(clips_of) < len(films) or len(splits) > 1):
            raise UsageError(
                f"{path}: {first!r} may be each of the inputs {', '.join(map(repr, names[:_MAX_NAMED]))}, whose "
                "splits would be unclear; name each of them by its path in SRC"
            )


def _refuse_unsplit(path: Path, unnamed: Mapping[str, InputClip], keys_without_split: Mapping[str, str]) -> None:
    """Raises `UsageError` where the file names one of the inputs without a split below a key that is no split."""
    for clips in match_clips(unnamed, keys_without_split).values():
        if clips:
            raise UsageError(
                f"{path}: has {clips[0]!r} below {keys_without_split[clips[0]]!r}, where nothing is called "
                f"{', '.join(SPLITS)}; its split would be drawn: correct the name of the split, or take these clips "
                "out of the file"
            )


def _warnings(path: Path, splits_of: Collection[str], named: Matches) -> Iterator[str]:
    if unnamed := [name for name, clips in named.items() if not clips]:
        yield (
            f"{path}: names {len(named) - len(unnamed):,} of {len(named):,} clips of SRC; the splits of "
            f"the others are drawn (the first: {unnamed[0]!r})"
        )
    used = {clip for clips in named.values() for clip in clips}
    if absent := [clip for clip in splits_of if clip not in used]:
        yield f"{path}: {len(absent):,} of its {len(splits_of):,} clips are not in SRC (the first: {absent[0]!r})"


def _strictest(splits: set[str]) -> str:
    return next(split for split in ("test", "val", "train") if split in splits)


def _refuse_leaks(path: Path, named: Matches, splits_of: Mapping[str, set[str]]) -> None:
    matched = dict.fromkeys(clip for clips in named.values() for clip in clips)
    leaks = [clip for clip in matched if "train" in splits_of[clip] and len(splits_of[clip]) > 1]
    if leaks:
        raise RefusedError(
            f"{path}: {len(leaks):,} clips are in train and in val or test: "
            f"{', '.join(map(repr, leaks[:_MAX_NAMED]))}; a model would be tested on what it was trained on: fix the "
            "file, or accept it with --allow-leaks, which takes them for test or val"
        )


def _clip_of_frame(path: str, classes: frozenset[str]) -> str | None:
    """Path of the clip that an image is a frame of, by its folder's name; None of any other file."""
    return clip_folder(path.rpartition("/")[0], classes) if is_image(path) else None


def _read(path: Path, path_of: Callable[[str, bool], str]) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Splits of each clip, and the keys above each clip that is below none."""
    data = read_json(path, "name one of DeepfakeBench's dataset JSONs as --splits")
    splits_of: dict[str, set[str]] = defaultdict(set)
    keys_without_split: dict[str, str] = {}
    for split, keys, clip, is_frame in _clips(data, None, ()):
        if split:
            splits_of[path_of(clip, is_frame)].add(split)
        else:
            keys_without_split[path_of(clip, is_frame)] = "/".join(keys)
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
