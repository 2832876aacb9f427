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
_MENTIONED = re.compile(r"(\d{3})(?:_(\d{3})(?!\d))?(?!\d)")  # a prefix of names that are not in the published form


class FaceForensics:
    """The whole set, or any folder within it: the folders above SRC are taken into account.

    A file in an unknown place or of an unknown name keeps the label of its sequences, and its columns stay null; splits
    still keep it together with the people whom its name mentions.
    """

    name = "ffpp"
    needs = f"a folder with {_ORIGINALS} or {_FAKES}, or one within these"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return src.is_dir() and _root(src) is not None

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos, or the extracted frames.

        Raises `UsageError` where the official splits cannot be read, or list a video in two splits.
        """
        root = _root(src)
        assert root is not None  # since `fits` is true
        inner = "" if root == src else src.absolute().relative_to(root).as_posix()
        official = read_splits(root)
        ignored: Counter[str] = Counter()
        files = list(find_media(root, ignored, below=inner, skip=_skip_derived, allowed=allowed))
        if not any(map(_is_input, files)):
            ignored.clear()
            files = list(find_media(root, ignored, below=inner, skip=_skip_all_but_frames, allowed=allowed))
        named = [_entry(file, official) for file in files if _is_input(file)]
        entries = _with_originals_on_disk(named, root)
        ignored["media beside the sequences"] += len(files) - len(entries)
        ignored[".json"] -= 0 if inner else len(official.files)
        on_disk = NameMatcher.from_paths(video_of_frame(entry.video_id) for entry in entries)
        missing = on_disk.missing(_expected(entries, official)).values()
        return Listing(
            layout=self.name, root=root, labels=("real", "fake"), entries=entries,
            missing=sorted(name for name in missing if not inner or name.startswith(f"{inner}/")), ignored=+ignored,
            without_splits=f"take {', '.join(official.files)} away",
        )  # fmt: skip


def _root(src: Path) -> Path | None:
    """The folder that contains the sequences: `src`, or one above it; None where there is none."""
    if path_exists(src / _ORIGINALS) or path_exists(src / _FAKES):
        return src
    here = src.absolute()
    for folder in (here, *here.parents):
        if folder.name in (_ORIGINALS, _FAKES):
            return None if DERIVED_FOLDERS.intersection(here.relative_to(folder).parts) else folder.parent
    return None


def _with_originals_on_disk(entries: list[Entry], root: Path) -> list[Entry]:
    """Replaces each `source_id` by the original's name on disk, also where SRC is only a part of the set."""
    folders = {posixpath.dirname(entry.source_id) for entry in entries if entry.source_id}
    on_disk = NameMatcher.from_paths(name for folder in sorted(folders) for name in list_media(root, folder))
    return [replace(entry, source_id=on_disk.find(entry.source_id)) if entry.source_id else entry for entry in entries]


def _is_input(file: FoundFile) -> bool:
    return file.relative.split("/")[0] in (_ORIGINALS, _FAKES)


def _skip_derived(folder: str) -> str | None:
    """Name to count the files of a folder under where none is an input; None for a folder with inputs."""
    top, _, rest = folder.partition("/")
    if top not in (_ORIGINALS, _FAKES):
        return None if folder == "splits" else f"in {top}/"
    name = rest.rpartition("/")[2]
    return f"in {name}/" if name in DERIVED_FOLDERS else None


def _skip_all_but_frames(folder: str) -> str | None:
    """Like `_skip_derived`, but folders of extracted frames have inputs."""
    return None if folder.rpartition("/")[2] in FRAME_FOLDERS else _skip_derived(folder)


@dataclass(frozen=True, slots=True)
class _VideoName:
    """Parsed file name: the set of people, target and source (None: an original), and the recording."""

    people: str
    target: str
    source: str | None
    recording: str

    @classmethod
    def parse(cls, stem: str) -> _VideoName | None:
        """`033`, `033_097`, `01__kitchen_pan` or `01_02__kitchen_pan__YVGY8LOK`; None for anything else."""
        if match := _YOUTUBE.fullmatch(stem):
            return cls("youtube", match[1], match[2], match[1])
        if match := _ACTORS.fullmatch(stem):
            return cls("actors", match[1], match[2], f"{match[1]}__{match[3]}")
        return None

    def identities(self) -> list[str]:
        """Identities of target and source; qualified, since youtube's 03 is not the actor 03."""
        return [f"{self.people}/{number}" for number in (self.target, self.source) if number]


def _entry(media_file: FoundFile, official: OfficialSplits) -> Entry:
    *folders, file = media_file.relative.split("/")
    stem, dot, end = file.rpartition(".")
    is_extracted_frame = video_of_frame(media_file.relative) != media_file.relative
    if is_extracted_frame:  # its folder has the name of the video
        stem, dot, end = folders.pop(), "/", file
    label = int(media_file.relative.startswith(_FAKES))
    group = folders[1] if len(folders) > 1 else None
    grade = folders[2] if len(folders) > 2 else None
    name = _VideoName.parse(stem)
    known = name if name and _is_published(name, folders) else None
    identity = known.identities()[-1 if group in _SWAPS else 0] if known else None
    people = name.identities() if name else _mentioned_identities(stem)
    return Entry(
        video_id=media_file.relative,
        size_bytes=media_file.size_bytes,
        mtime_ns=media_file.mtime_ns,
        label=label,
        split=official.split(name.target, name.source) if name and name.people == "youtube" else None,
        source_id=f"{_ORIGINALS}/{known.people}/{grade}/{folders[3]}/{known.recording}{dot}{end}"
        if known and label
        else None,
        footage=f"{name.people}/{name.recording}".lower() if name else None,
        identity=identity,
        kin=tuple(person for person in people if person != identity),
        dataset="ffpp",
        method=group if label else None,
        compression=_GRADES.get(grade or ""),
        problem=media_file.problem,
        detail=media_file.detail,
    )


def _mentioned_identities(stem: str) -> list[str]:
    """Identities at the start of a name that cannot be parsed: `033_097_v2`, `033 again`."""
    match = _MENTIONED.match(stem)
    return [f"youtube/{number}" for number in match.groups() if number] if match else []


def _is_published(name: _VideoName, folders: list[str]) -> bool:
    """Whether the published set has a file, or folder of frames, of this form of name in these folders."""
    if len(folders) != 4 or folders[2] not in _GRADES or folders[3] not in {"videos", *FRAME_FOLDERS}:
        return False
    if folders[0] == _ORIGINALS:
        return name.source is None and name.people == folders[1]
    people = "actors" if folders[1] == "DeepFakeDetection" else "youtube"
    return name.source is not None and name.people == people and folders[1] in (*_SWAPS, *_REENACTMENTS)


def _expected(entries: Iterable[Entry], official: OfficialSplits) -> set[str]:
    """Videos that should be on disk: originals of the fakes, and what the official splits list for each folder."""
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
