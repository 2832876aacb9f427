"""Layout `deepfakebench`: one of DeepfakeBench's dataset JSONs (Yan et al. 2023), as DF40 has them too.

    FSGAN.json      {"FSGAN": {"FSGAN_Fake": {"train": {"c23": {"000_003": {"label": "FSGAN_Fake", "frames":
                     ["FaceForensics++/manipulated_sequences/FSGAN/frames/000_003/000.png", ...]}}}, ...}}

Each clip is a folder of frames, detected in as a whole. Paths are looked for below the JSON's folder and the three
above it, and in `datasets/rgb` there, where DeepfakeBench keeps its frames.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ...dataset.schema import REAL_NAMES, SPLITS
from ...errors import UsageError
from ...json_records import brief
from ..folder_names import COMPRESSIONS, FAKE_NAMES
from ..listing import Entry, Listing, has_usable_splits, parse_split_name
from ..media.linked_files import LISTED_ALREADY, RealPaths
from ..media.media_files import find_named, path_exists
from ..media.shared_files import shared_files_warning
from ..metadata.json_files import read_json

_FRAMES_ROOT = "datasets/rgb"
_LEVELS = 4  # the JSON's own folder, and three above it
_TRIED_CLIPS = 100
_STRICTEST = ("test", "val", "train")


@dataclass(frozen=True, slots=True)
class _Clip:
    """A clip of the file; `folder`: of its frames, empty where it has none. `name`: the keys above it."""

    name: str
    folder: str
    label: str
    split: str
    dataset: str
    compression: str | None


class DatasetJson:
    """The clips of a dataset JSON: label, split, class as method, compression."""

    name = "deepfakebench"
    needs = "one of DeepfakeBench's dataset JSONs"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return src.is_file() and src.suffix.lower() == ".json"

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the clips.

        A clip in val and test is test, as DeepfakeBench validates on its test clips. Raises `UsageError` where the file
        is not of that form, has a clip in train and in another split or in two classes, or none of its clips is found.
        """
        all_clips = list(_clips(src, read_json(src, "name one of DeepfakeBench's dataset JSONs")))
        clips = [clip for clip in all_clips if clip.folder]
        if not clips:
            raise UsageError(f"{src}: has no clips with frames; must be one of DeepfakeBench's dataset JSONs")
        root = _root_of(src, clips)
        folders = sorted({posixpath.normpath(clip.folder) for clip in clips})
        real_paths = RealPaths(root, allowed)
        found = {folder: find_named(root, folder, allowed) for folder in folders}
        real_paths.join_clips(filter(None, found.values()))
        own_names = real_paths.own_or_first(folders)  # a clip may be named by links too
        by_folder: dict[str, list[_Clip]] = {}
        for clip in clips:
            by_folder.setdefault(own_names[real_paths.of(posixpath.normpath(clip.folder))], []).append(clip)
        entries: list[Entry] = []
        missing = [clip.name for clip in all_clips if not clip.folder]
        for folder, same in sorted(by_folder.items()):
            clip, file = _joined(src, same), found[folder]
            if file is None:
                missing.append(folder)
                continue
            method = _method(src, clip.label)
            entries.append(Entry.of_file(
                file, label=int(method is not None), split=clip.split, dataset=clip.dataset, method=method,
                compression=clip.compression,
            ))  # fmt: skip
        return Listing(
            layout=self.name, root=root, labels=("real", "fake"), entries=entries, missing=sorted(missing),
            ignored=+Counter({LISTED_ALREADY: len(folders) - len(by_folder)}),
            uses_splits=has_usable_splits({clip.split for clip in clips}),
            without_splits=f"give the folder of the set as SRC, and no {src.name}", recognised_by=src.name,
            warnings=shared_files_warning(entries, [*filter(None, found.values())], ("real", "fake")),
        )  # fmt: skip


def _clips(src: Path, data: Any, keys: tuple[str, ...] = ()) -> Iterator[_Clip]:
    """Every object with frames, at whatever depth, and what the keys above it say.

    Raises `UsageError` on one without a label, or below no split: it would be left out.
    """
    if not isinstance(data, dict):
        return
    frames, label = data.get("frames"), data.get("label")
    splits = [split for key in keys if (split := parse_split_name(key))]
    if isinstance(frames, list):
        name = "/".join(keys)
        if not isinstance(label, str):
            raise UsageError(f"{src}: {name!r} has the label {brief(label)}; must be the name of a class")
        if not splits:
            raise UsageError(f"{src}: {name!r} is below no split; one of the keys must be {', '.join(SPLITS)}")
        first = next((frame for frame in frames if isinstance(frame, str)), "")
        compression = next((COMPRESSIONS[key.lower()] for key in keys if key.lower() in COMPRESSIONS), None)
        folder = first.replace("\\", "/").rpartition("/")[0]
        yield _Clip(name, folder, label, splits[0], keys[0], compression)
        return
    for key, value in data.items():
        yield from _clips(src, value, (*keys, key))


def possible_roots(src: Path) -> list[Path]:
    """The folders that the paths in a dataset JSON may start from, in the order in which they are tried."""
    return [root for parent in islice(src.parents, _LEVELS) for root in (parent, parent / _FRAMES_ROOT)]


def _root_of(src: Path, clips: Sequence[_Clip]) -> Path:
    """The folder that the paths of the clips start from; raises `UsageError` where none of them is found."""
    for folder in possible_roots(src):
        if any(path_exists(folder / clip.folder) for clip in clips[:: max(1, len(clips) // _TRIED_CLIPS)]):
            return folder
    raise UsageError(
        f"SRC={str(src)!r}: none of its clips is below {src.parent} or the folders above it (the first: "
        f"{clips[0].folder!r}); copy the JSON into the folder that its paths start from"
    )


def _joined(src: Path, same: Sequence[_Clip]) -> _Clip:
    """One clip of those of one folder."""
    splits, labels = {clip.split for clip in same}, sorted({clip.label for clip in same})
    folders = sorted({clip.folder for clip in same})
    named = repr(folders[0]) if len(folders) == 1 else f"{', '.join(map(repr, folders))}, which are one by links,"
    if len({_method(src, label) for label in labels}) > 1:
        raise UsageError(f"{src}: has {named} as {' and '.join(labels)}; each clip may have one label")
    if "train" in splits and len(splits) > 1:
        raise UsageError(
            f"{src}: has {named} in {' and '.join(sorted(splits))}; a model would be tested on what it was "
            "trained on: fix the file, or give the set's own folder with --splits FILE.json --allow-leaks"
        )
    return replace(same[0], split=next(split for split in _STRICTEST if split in splits))


def _method(src: Path, name: str) -> str | None:
    """None for a label with the word "real", as FF-real and DFDC_Real; every other class is a way to fake.

    Where words say both, the last one holds: `which-is-real_Fake`. Raises `UsageError` where "real" is only a part of a
    word, and none says fake.
    """
    words = re.split(r"[\W_]+", name.lower())
    named = [0 if word in REAL_NAMES else 1 for word in words if word in REAL_NAMES | FAKE_NAMES]
    if not named and "real" in name.lower():
        raise UsageError(f"{src}: the label {name!r} may be real or fake; call it {name}_Real or {name}_Fake")
    return None if named and named[-1] == 0 else name
