"""Layout `ffpp`: FaceForensics++ (Rössler et al. 2019), with FaceShifter and the DeepFakeDetection set.

    original_sequences/{youtube,actors}/{raw,c23,c40}/videos/033.mp4, 01__kitchen_pan.mp4
    manipulated_sequences/<method>/{raw,c23,c40}/videos/<target>_<source>.mp4
    splits/{train,val,test}.json, or beside the two folders: lists of pairs [["720", "672"], ...]

Where there are no videos, extracted frames are read: `frames/033_097/0001.png` for `videos/033_097.mp4`.

`<target>_<source>` is the target's video with the source's face (Deepfakes, FaceSwap, FaceShifter, DeepFakeDetection),
or with the target's own face moved as the source moves (Face2Face, NeuralTextures). Both people count as being in it.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..image_sequences import video_of_frame
from ..listing import Entry, Listing
from ..media_files import DERIVED_FOLDERS, FRAME_FOLDERS, FoundFile, find_media, list_media, path_exists
from .ffpp_splits import OfficialSplits, read_splits
from .name_matcher import NameMatcher

_ORIGINALS, _FAKES = "original_sequences", "manipulated_sequences"
_GRADES = {"raw": "raw", "c0": "raw", "c23": "c23", "c40": "c40"}  # c0 is an older name of raw
_SWAPS = ("Deepfakes", "FaceSwap", "FaceShifter", "DeepFakeDetection")
_REENACTMENTS = ("Face2Face", "NeuralTextures")
_YOUTUBE = re.compile(r"(\d{3})(?:_(\d{3}))?")
_ACTORS = re.compile(r"(\d\d)(?:_(\d\d))?__(.+?)(?:__[0-9A-Z]{8})?", re.IGNORECASE)
_MENTIONED = re.compile(r"(\d{3})(?:_(\d{3})(?!\d))?(?!\d)")  # where a name goes on as no published one does


class FaceForensics:
    """The whole set, or any folder within it: what lies above SRC still says what its files are.

    A file in an unknown place or of an unknown name keeps the label of its sequences, and its columns stay null; splits
    still keep it together with the people whom its name mentions.
    """

    name = "ffpp"
    needs = f"a folder with {_ORIGINALS} or {_FAKES}, or one within these"

    def fits(self, src: Path) -> bool:
        """See `Layout`."""
        return src.is_dir() and _root(src) is not None

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """See `Layout`. Raises `UsageError` where the official splits cannot be read, or name a video in two."""
        root = _root(src)
        assert root is not None  # it fits
        inner = "" if root == src else src.absolute().relative_to(root).as_posix()
        official = read_splits(root)
        ignored: Counter[str] = Counter()
        found = list(find_media(root, ignored, below=inner, skip=_no_input, allowed=allowed))
        if not any(_is_input(one) for one in found):
            ignored.clear()
            found = list(find_media(root, ignored, below=inner, skip=_no_frames, allowed=allowed))
        named = [_entry(one, official) for one in found if _is_input(one)]
        entries = _linked(named, root)
        ignored["media beside the sequences"] += len(found) - len(entries)
        ignored[".json"] -= 0 if inner else len(official.files)
        on_disk = NameMatcher.from_paths(video_of_frame(entry.video_id) for entry in entries)
        missing = on_disk.missing(_expected(entries, official)).values()
        return Listing(
            layout=self.name, root=root, labels=("real", "fake"), entries=entries,
            missing=sorted(name for name in missing if not inner or name.startswith(f"{inner}/")), ignored=+ignored,
            without_splits=f"take {', '.join(official.files)} away",
        )  # fmt: skip


def _root(src: Path) -> Path | None:
    """The folder that holds the sequences: `src`, or one above it."""
    if path_exists(src / _ORIGINALS) or path_exists(src / _FAKES):
        return src
    here = src.absolute()
    for folder in (here, *here.parents):
        if folder.name in (_ORIGINALS, _FAKES):
            return None if DERIVED_FOLDERS.intersection(here.relative_to(folder).parts) else folder.parent
    return None


def _linked(entries: list[Entry], root: Path) -> list[Entry]:
    """With the originals as they are called on disk, also those beside a part of the set."""
    folders = {posixpath.dirname(entry.source_id) for entry in entries if entry.source_id}
    on_disk = NameMatcher.from_paths(name for folder in sorted(folders) for name in list_media(root, folder))
    return [replace(one, source_id=on_disk.find(one.source_id)) if one.source_id else one for one in entries]


def _is_input(one: FoundFile) -> bool:
    return one.relative.split("/")[0] in (_ORIGINALS, _FAKES)


def _no_input(folder: str) -> str | None:
    """What a folder is counted as where nothing in it is an input."""
    top, _, rest = folder.partition("/")
    if top not in (_ORIGINALS, _FAKES):
        return None if folder == "splits" else f"in {top}/"
    name = rest.rpartition("/")[2]
    return f"in {name}/" if name in DERIVED_FOLDERS else None


def _no_frames(folder: str) -> str | None:
    """The same where extracted frames are inputs."""
    return None if folder.rpartition("/")[2] in FRAME_FOLDERS else _no_input(folder)


@dataclass(frozen=True, slots=True)
class _Name:
    """What a file's name says: of which people, whose video, whose face (None: an original), which recording."""

    people: str
    target: str
    source: str | None
    recording: str

    @classmethod
    def parse(cls, stem: str) -> _Name | None:
        """`033`, `033_097`, `01__kitchen_pan` or `01_02__kitchen_pan__YVGY8LOK`; None for anything else."""
        if found := _YOUTUBE.fullmatch(stem):
            return cls("youtube", found[1], found[2], found[1])
        if found := _ACTORS.fullmatch(stem):
            return cls("actors", found[1], found[2], f"{found[1]}__{found[3]}")
        return None

    def everyone(self) -> list[str]:
        """Target and source; youtube's 03 is not the actor 03."""
        return [f"{self.people}/{number}" for number in (self.target, self.source) if number]


def _entry(one: FoundFile, official: OfficialSplits) -> Entry:
    *folders, file = one.relative.split("/")
    stem, dot, end = file.rpartition(".")
    if video_of_frame(one.relative) != one.relative:  # its own name is the number of a frame
        stem, dot, end = folders.pop(), "/", file
    label = int(one.relative.startswith(_FAKES))
    group = folders[1] if len(folders) > 1 else None
    grade = folders[2] if len(folders) > 2 else None
    name = _Name.parse(stem)
    known = name if name and _belongs(name, folders) else None
    shown = known.everyone()[-1 if group in _SWAPS else 0] if known else None
    people = name.everyone() if name else _mentioned(stem)
    return Entry(
        video_id=one.relative,
        size_bytes=one.size_bytes,
        mtime_ns=one.mtime_ns,
        label=label,
        split=official.split(name.target, name.source) if name and name.people == "youtube" else None,
        source_id=f"{_ORIGINALS}/{known.people}/{grade}/{folders[3]}/{known.recording}{dot}{end}"
        if known and label
        else None,
        footage=f"{name.people}/{name.recording}".lower() if name else None,
        identity=shown,
        kin=tuple(person for person in people if person != shown),
        dataset="ffpp",
        method=group if label else None,
        compression=_GRADES.get(grade or ""),
        problem=one.problem,
        detail=one.detail,
    )


def _mentioned(stem: str) -> list[str]:
    """Who a name that cannot be read begins with: `033_097_v2`, `033 again`."""
    found = _MENTIONED.match(stem)
    return [f"youtube/{number}" for number in found.groups() if number] if found else []


def _belongs(name: _Name, folders: list[str]) -> bool:
    """Whether a file of this name, or a folder of frames, is what its folders hold in the published set."""
    if len(folders) != 4 or folders[2] not in _GRADES or folders[3] not in {"videos", *FRAME_FOLDERS}:
        return False
    if folders[0] == _ORIGINALS:
        return name.source is None and name.people == folders[1]
    people = "actors" if folders[1] == "DeepFakeDetection" else "youtube"
    return name.source is not None and name.people == people and folders[1] in (*_SWAPS, *_REENACTMENTS)


def _expected(entries: Iterable[Entry], official: OfficialSplits) -> set[str]:
    """What should be there: the originals of the fakes, and what the official splits list of each folder of videos."""
    originals = {video_of_frame(entry.source_id) for entry in entries if entry.source_id}
    folders = {
        (entry.label, video_of_frame(entry.video_id).rpartition("/")[0])
        for entry in entries
        if entry.identity and entry.identity.startswith("youtube/")
    }
    listed = {
        f"{folder}/{stem}.mp4"
        for label, folder in folders
        for pair in official.pairs
        for stem in (("_".join(pair), "_".join(reversed(pair))) if label else pair)
    }
    return originals | listed
