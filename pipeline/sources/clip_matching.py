"""Which clip of a file of splits is which input, by their paths alone.

An input that the file names by its path is that clip, and no other. Of what is left over, a clip is an input whose path
ends alike: folders for videos and frames, and what is above the set, do not count. Of several, it is the one whose path
agrees the furthest; what this leaves over is matched again. In FaceForensics++, where folders may have other names, a
clip is else the only input of its method and name. Inputs of one film, as in two grades of compression, are the same
clips.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Self

from .folder_names import COMPRESSIONS, VIDEO_FOLDERS, class_of_folder
from .layouts.ffpp.layout import FaceForensics
from .layouts.ffpp.names import METHOD_OF_FOLDER, PEOPLE, VideoName
from .layouts.names.spelling import spelling_key
from .listing import Entry
from .media.suffixes import is_media

_NEUTRAL_FOLDERS = {*VIDEO_FOLDERS, *COMPRESSIONS, *PEOPLE}
_SAME = {"original_sequences": "original"}  # as FaceForensics++ is called on Kaggle
_METHOD_OF_FOLDER = {spelling_key(folder): method for folder, method in METHOD_OF_FOLDER.items()}

Parts = tuple[str, ...]
Matches = Mapping[str, Sequence[str]]
"""The clips that each input may be; both by their paths."""
MethodAndName = tuple[str, str]
"""Of a clip of FaceForensics++; the method of originals is empty."""


@dataclass(frozen=True, slots=True)
class ClipName:
    """Path of a clip as paths are compared: folders and stem in lower case, from the left.

    `folders_and_stem`: without folders for videos and frames. `parts`: also without those for compressions and people,
    and the same for all spellings of a folder.
    """

    folders_and_stem: Parts
    parts: Parts

    @classmethod
    def parse(cls, path: str) -> Self:
        """Of the path of a video, an image or a folder."""
        *folders, name = path.lower().split("/")
        while folders and name in _NEUTRAL_FOLDERS:  # of frames, below the folder called after their clip
            *folders, name = folders
        stem = name.rpartition(".")[0] if is_media(name) else name
        keys = (spelling_key(_SAME.get(folder, folder)) for folder in folders if folder not in _NEUTRAL_FOLDERS)
        return cls(
            folders_and_stem=(*(folder for folder in folders if folder not in VIDEO_FOLDERS), stem),
            parts=(*filter(None, keys), stem),
        )

    @property
    def stem(self) -> str:
        """The last part."""
        return self.parts[-1]

    def without_compression(self) -> str | None:
        """The path that all compressions of a clip have, as below `c23` and `raw`; None outside such folders."""
        *folders, stem = self.folders_and_stem
        kept = [folder for folder in folders if folder not in COMPRESSIONS]
        return "/".join((*kept, stem)) if len(kept) < len(folders) else None

    def ends_alike(self, other: ClipName) -> bool:
        """Whether the parts of one are the last ones of the other."""
        length = min(len(self.parts), len(other.parts))  # of thousands of clips with one stem, each pair is compared
        return self.parts[-length:] == other.parts[-length:]

    def closeness(self, other: ClipName) -> tuple[int, bool, int]:
        """How far the two agree; the greater, the further."""
        common = _num_common(self.folders_and_stem, other.folders_and_stem)
        return _num_common(self.parts, other.parts), self.parts == other.parts, common

    def method_and_name(self) -> MethodAndName | None:
        """Of FaceForensics++, where both the folder and the name are those of a clip of it; else None."""
        folder = self.parts[-2] if len(self.parts) > 1 else ""
        method = _METHOD_OF_FOLDER.get(folder)
        name = VideoName.parse(self.stem)
        if name is None or not name.is_of(method) or (method is None and class_of_folder(folder) != 0):
            return None
        return method or "", self.stem


@dataclass(frozen=True, slots=True)
class InputClip:
    """A clip of the source.

    `film`: the same for all versions of a clip. `method_and_name`: where its layout knows it as one of FaceForensics++.
    """

    name: ClipName
    film: str
    method_and_name: MethodAndName | None

    @classmethod
    def of(cls, path: str, entry: Entry) -> Self:
        """The clip at `path`; `entry`: the clip, or one of its frames."""
        name = ClipName.parse(path)
        is_known = entry.dataset == FaceForensics.name and entry.identity
        film = entry.footage or name.without_compression() or path
        return cls(name, film, (entry.method or "", name.stem) if is_known else None)


def match_clips(inputs: Mapping[str, InputClip], clips: Collection[str]) -> Matches:
    """The clips that each of `inputs` may be, by its path."""
    named: dict[str, Sequence[str]] = {path: [path] if path in clips else [] for path in inputs}
    names = {clip: ClipName.parse(clip) for clip in clips}
    rest = {path: inputs[path].name for path, given in named.items() if not given}
    left = {clip: name for clip, name in names.items() if clip not in inputs}
    while closest := _closest(rest, left):
        named |= closest
        used = {clip for given in closest.values() for clip in given}
        rest = {path: name for path, name in rest.items() if path not in closest}
        left = {clip: name for clip, name in left.items() if clip not in used}
    named |= _by_method_and_name(inputs, names, named)
    versions: dict[tuple[str, Parts], set[str]] = defaultdict(set)
    for path, clip in inputs.items():
        versions[clip.film, clip.name.parts].update(named[path])
    return {path: named[path] or sorted(versions[clip.film, clip.name.parts]) for path, clip in inputs.items()}


def by_stem(names: Mapping[str, ClipName]) -> dict[str, list[str]]:
    """The paths of clips by their stem."""
    paths: dict[str, list[str]] = defaultdict(list)
    for path, name in names.items():
        paths[name.stem].append(path)
    return paths


def _closest(inputs: Mapping[str, ClipName], clips: Mapping[str, ClipName]) -> dict[str, list[str]]:
    """The clips that end as an input, or the other way round, where neither agrees further with another one."""
    clips_of_stem = by_stem(clips)
    pairs = [
        (name.closeness(clips[clip]), path, clip)
        for path, name in inputs.items()
        for clip in clips_of_stem.get(name.stem, ())
        if name.ends_alike(clips[clip])
    ]
    closest_of_input = {path: closeness for closeness, path, _ in sorted(pairs)}
    closest_of_clip = {clip: closeness for closeness, _, clip in sorted(pairs)}
    named: dict[str, list[str]] = defaultdict(list)
    for closeness, path, clip in pairs:
        if closeness == closest_of_input[path] == closest_of_clip[clip]:
            named[path].append(clip)
    return named


def _by_method_and_name(
    inputs: Mapping[str, InputClip], clips: Mapping[str, ClipName], named: Matches
) -> dict[str, list[str]]:
    """The clips of the method and name of an input of FaceForensics++, where one input and one clip alone have them.

    `named`: the matches by path; what is in them is no other's.
    """
    inputs_of, clips_of = defaultdict[MethodAndName, list[str]](list), defaultdict[MethodAndName, list[str]](list)
    for path, clip in inputs.items():
        if clip.method_and_name:
            inputs_of[clip.method_and_name].append(path)
    for path, name in clips.items():
        if key := name.method_and_name():
            clips_of[key].append(path)
    used = {clip for given in named.values() for clip in given}
    return {
        path: clips_of[key]
        for key, paths in inputs_of.items()
        if len({inputs[path].name.parts for path in paths}) == len({clips[clip].parts for clip in clips_of[key]}) == 1
        and not any(named[path] for path in paths)
        and used.isdisjoint(clips_of[key])
        for path in paths
    }


def _num_common(one: Parts, other: Parts) -> int:
    """Number of equal parts from the end on."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(one), reversed(other), strict=False)))
