"""Layout `celebdf`: Celeb-DF, versions 1 and 2 (Li et al. 2020), and Celeb-DF++ (Li et al. 2025).

    Celeb-real/id0_0000.mp4, YouTube-real/00000.mp4
    Celeb-synthesis/id0_id1_0000.mp4                        id0's video 0000 with the face of id1
    Celeb-synthesis/FaceSwap/GHOST/id0_id1_0000.mp4         Celeb-DF++: a folder for each kind of fake and method
    Celeb-synthesis/FaceReenact/LIA/id0_id1_0000.mp4        id0's video 0000 and id1: who is seen is not published
    Celeb-synthesis/TalkingFace/FLOAT/id0_0000_driven_by_id1.mp4
    List_of_testing_videos.txt                              "1 YouTube-real/00170.mp4": the TEST set; 1 means real

Nothing on disk tells versions 1 and 2 apart safely, so all are called celebdf.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from ...errors import UsageError
from ..clips.video_or_frames import find_in_folders
from ..folder_names import without_content_folders
from ..listing import Entry, FoundFile, Listing
from ..media.media_files import entries_of, is_linked_folder, list_folders
from ..media.suffixes import is_image
from .names.flat_frames import FlatFrame, video_of_flat
from .names.name_matcher import NameMatcher, path_of_original, published_path, stem_of
from .names.spelling import by_spelling, check_spelling, folders_spelt_as
from .names.split_lists import find_lists

_LABELS = {"Celeb-real": 0, "YouTube-real": 0, "Celeb-synthesis": 1}
_FOLDERS = {name: name for name in _LABELS}
_KINDS = {name: name for name in ("FaceSwap", "FaceReenact", "TalkingFace")}
_LIST = "List_of_testing_videos.txt"
_REAL = re.compile(r"(id\d+)_\d+", re.IGNORECASE)
_FAKE = re.compile(r"(id\d+)_(id\d+)_(\d+)", re.IGNORECASE)
_DRIVEN = re.compile(r"(id\d+_\d+)_driven_by_.*", re.IGNORECASE)
_FORMS = {"Celeb-real": (_REAL,), "YouTube-real": (re.compile(r"\d{5}"),), "Celeb-synthesis": (_FAKE, _DRIVEN)}
_MAX_WITHIN = 2  # folders of Celeb-DF++: a kind of fake and a method
_PERSON = re.compile(r"id\d+", re.IGNORECASE)

Originals = Mapping[str, Mapping[str, Sequence[str]]]
"""Paths of the videos in Celeb-real, or of their frames, by the two parts of `_Video.key`."""


class CelebDF:
    """The three folders, or some of them; files may also lie in folders within each, such as `videos`.

    Where there are no videos, extracted frames are read: `Celeb-real/frames/id0_0000/001.png`.

    With the list, what it names is test and everything else train: the official protocol has no val. Without it, splits
    are drawn. Names are compared whatever their suffix and case, folders also whatever their hyphens.
    """

    name = "celebdf"
    needs = f"a folder with {', '.join(_LABELS)}"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return bool(folders_spelt_as(src, _FOLDERS))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos, or the extracted frames.

        Raises `UsageError` where the list of test videos cannot be read, contradicts the folders, names none of the
        files or is of another version of the set, where a folder or the list is nearly called as published, or where
        two folders have a video of one name.
        """
        published_name = _folders_of_set(src)
        test_list = find_lists(src, "", {"test": _LIST}).get("test")
        test_names = None if test_list is None else _test_list(src / test_list)
        ignored: Counter[str] = Counter()

        def skip(folder: str) -> str | None:
            return None if _top(folder) in published_name else f"in {_top(folder)}/"

        inputs = find_in_folders(src, published_name, ignored, skip=skip, allowed=allowed)
        video_of = {file: _Video.parse(file, published_name) for file in inputs if not is_linked_folder(file)}
        videos = [*video_of.values()]
        _refuse_two_of_a_name(src, videos)
        if test_names is not None:
            _refuse_list_of_others(src / str(test_list), test_names, [video.published for video in videos])
        test_stems = None if test_names is None else {stem_of(name) for name in test_names}
        real_folder = next((name for name, known in published_name.items() if known == "Celeb-real"), "Celeb-real")
        on_disk, has_versions = _originals_of(videos), any(video.kind or video.flat for video in videos)
        entries = entries_of(
            inputs, lambda file: video_of[file].entry(test_stems, on_disk, real_folder, has_versions=has_versions)
        )
        ignored[".txt"] -= test_names is not None
        listed = NameMatcher.from_paths(video.published for video in videos).missing(test_names or ())
        originals = NameMatcher.from_paths(_path_of_video(entry.video_id) for entry in entries).missing(
            _path_of_video(entry.source_id) for entry in entries if entry.source_id
        )
        flat = (video.flat for video in videos if video.flat)
        found_by = [*published_name, *([_LIST] if test_names is not None else [])]
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries,
            missing=sorted((listed | originals).values()), ignored=+ignored, footage_from_names=True,
            without_splits=f"take {_LIST} out of SRC", recognised_by=", ".join(found_by),
            missing_split_lists=() if test_list else (_LIST,),
            collecting_folders=frozenset(frame.collecting_folder for frame in flat),
        )  # fmt: skip


def dataset_root(src: Path) -> Path | None:
    """Root of the dataset where `src` is one of its three folders, or `videos` in one; else None."""
    here = src.absolute()
    inner = here.parent if here.name == "videos" else here
    return inner.parent if by_spelling([inner.name], _FOLDERS) else None


def _folders_of_set(src: Path) -> dict[str, str]:
    """The folders of the set by their names on disk; raises `UsageError` where one in it is nearly called so."""
    published_name = folders_spelt_as(src, _FOLDERS)
    check_spelling(src, list_folders(src), _LABELS, published_name)
    for folder, known in published_name.items():
        if known == "Celeb-synthesis":
            kinds = list_folders(src / folder)
            check_spelling(src / folder, kinds, _KINDS, by_spelling(kinds, _KINDS))
    return published_name


def _top(relative: str) -> str:
    return relative.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Video:
    """A video, or an extracted frame of one.

    published: its path as the set and its list have it. kind, method: the folders of Celeb-DF++, or None. within: all
    folders between that of the set and the name, whether the set has them or not. flat: of a frame that lies in a
    folder of several videos.
    """

    file: FoundFile
    folder: str
    published: str
    kind: str | None
    method: str | None
    within: tuple[str, ...]
    flat: FlatFrame | None

    @classmethod
    def parse(cls, file: FoundFile, published_name: dict[str, str]) -> _Video:
        top, *within, name = published_path(_path_of_video(file.relative)).split("/")
        folder = published_name[top]
        kind, method = _kind_and_method(within) if folder == "Celeb-synthesis" else (None, None)
        return cls(
            file=file,
            folder=folder,
            published="/".join(filter(None, (folder, kind, method, name))),
            kind=kind,
            method=method,
            within=tuple(within),
            flat=_flat_frame(file.relative),
        )

    @property
    def key(self) -> tuple[str, str]:
        """The same for a copy with another suffix or case: of a frame, its video and its own name."""
        return stem_of(self.published), self.frame

    @property
    def frame(self) -> str:
        """Name of an extracted frame without its suffix, and its number alone where it lies flat; empty of a video."""
        name = self.flat.end[1:] if self.flat else PurePosixPath(self.file.relative).name
        return stem_of(name) if is_image(self.file.relative) else ""

    def entry(self, test_stems: Set[str] | None, on_disk: Originals, real_folder: str, *, has_versions: bool) -> Entry:
        """Its metadata.

        test_stems: of the list, or None. on_disk: originals by their `key`. real_folder: `Celeb-real` as it is spelled
        on disk. has_versions: whether several inputs may be of one video whose name each begins with: in
        Celeb-DF++, of whose fakes only swaps have a known original, and where frames lie flat.
        """
        stem = PurePosixPath(self.published).stem
        real = _REAL.fullmatch(stem) if self.folder == "Celeb-real" else None
        fake = _FAKE.fullmatch(stem) if self.folder == "Celeb-synthesis" else None
        is_swap = self.kind in (None, "FaceSwap")
        original = f"{fake[1]}_{fake[3]}" if fake and is_swap else None
        identity = real[1].lower() if real else fake[2].lower() if fake and is_swap else None
        people = [] if self.folder == "YouTube-real" else dict.fromkeys(map(str.lower, _PERSON.findall(stem)))
        is_test = test_stems is not None and stem_of(self.published) in test_stems
        return Entry.of_file(
            self.file,
            label=_LABELS[self.folder],
            split=None if test_stems is None else "test" if is_test else "train",
            source_id=self._original(original, on_disk, real_folder) if original else None,
            footage=self._recording(stem) if has_versions or is_image(self.file.relative) else None,
            identity=identity,
            related_identities=tuple(person for person in people if person != identity),
            dataset="celebdf",
            method=self.method,
        )

    def _recording(self, stem: str) -> str | None:
        """The video in Celeb-real that it is, or whose name its own begins with; None of other names."""
        if self.folder == "Celeb-real":
            name = stem if _REAL.fullmatch(stem) else None
        elif self.folder == "Celeb-synthesis":
            fake, driven = _FAKE.fullmatch(stem), _DRIVEN.fullmatch(stem)
            name = f"{fake[1]}_{fake[3]}" if fake else driven[1] if driven else None
        else:
            return None if is_image(self.file.relative) and not self.flat else self.published.lower()
        return f"Celeb-real/{name}".lower() if name else None

    def _original(self, name: str, on_disk: Originals, real_folder: str) -> str:
        """Path of the original or its frame of the same number; where it is not there, the one that it would have.

        Of several, the one with the fake's own suffix is meant. A frame whose number is not there would be in the
        folder of the others.
        """
        suffix, original = PurePosixPath(self.file.relative).suffix, on_disk.get(f"celeb-real/{name}".lower(), {})
        if there := original.get(self.frame):
            return next((other for other in there if PurePosixPath(other).suffix == suffix), there[0])
        others = next((paths for frame, paths in original.items() if frame), ())
        if self.frame and others and not self.flat and not _flat_frame(others[0]):
            return f"{posixpath.dirname(others[0])}/{posixpath.basename(self.file.relative)}"
        top, *parts = self.file.relative.split("/")
        usual = "/".join([top, *(part for part in parts if part not in self.within)])
        if self.flat:
            return "/".join([real_folder, *usual.split("/")[1:-1], f"{name}{self.flat.end}"])
        return path_of_original(usual, real_folder, name)


def _originals_of(videos: Iterable[_Video]) -> Originals:
    on_disk: dict[str, dict[str, list[str]]] = {}
    for video in videos:
        if video.folder == "Celeb-real":
            stem, frame = video.key
            on_disk.setdefault(stem, {}).setdefault(frame, []).append(video.file.relative)
    return on_disk


def _flat_frame(relative: str) -> FlatFrame | None:
    """An image in one of the set's own folders that is called after a video: `Celeb-real/id0_0000_001.png`."""
    return FlatFrame.parse(
        relative, lambda folders, stem: any(form.fullmatch(stem) for form in _forms_in("/".join(folders)))
    )


@lru_cache(maxsize=1024)
def _forms_in(folder: str) -> Sequence[re.Pattern[str]]:
    """The forms of the names that the set's videos have in a folder; none in one that is not the set's own."""
    top, *within = without_content_folders(folder) or ("",)
    is_own = not within or (bool(by_spelling(within[:1], _KINDS)) and len(within) <= _MAX_WITHIN)
    known = by_spelling([top], _FOLDERS).get(top, "") if is_own else ""
    return _FORMS.get(known, ())


def _path_of_video(relative: str) -> str:
    return video_of_flat(_flat_frame(relative), relative)


def _kind_and_method(within: Sequence[str]) -> tuple[str | None, str | None]:
    """The folders of Celeb-DF++ among those that a fake lies in; None for each that is not there."""
    kinds = by_spelling(within, _KINDS)
    for position, name in enumerate(within):
        if name in kinds:
            return kinds[name], next(iter(within[position + 1 :]), None)
    return None, None


def _refuse_two_of_a_name(src: Path, videos: Sequence[_Video]) -> None:
    """Raises `UsageError` where two folders have a video of one published name: which is the set's is unknown."""
    first: dict[str, _Video] = {}
    for video in videos:
        other = first.setdefault(stem_of(video.published), video)
        if other.within != video.within:
            raise UsageError(
                f"{src}: {other.file.relative!r} and {video.file.relative!r} would both be {video.published!r}; take "
                f"one of them out, or have the fakes as published, below Celeb-synthesis/{'|'.join(_KINDS)}/METHOD"
            )


def _refuse_list_of_others(path: Path, listed: Set[str], on_disk: Sequence[str]) -> None:
    """Raises `UsageError` where the list names none of the files, or has those of a folder of the set in other folders.

    So a list of Celeb-DF v2 has the fakes of Celeb-DF++, which are below FaceSwap and the like there.
    """
    remedy = "so that all would be train; use the list of this version, or take it out of SRC so that splits are drawn"
    if set(map(stem_of, listed)).isdisjoint(map(stem_of, on_disk)):
        raise UsageError(f"{path}: names none of the {len(on_disk):,} files, {remedy}")
    for folder in _LABELS:
        names, files = ([name for name in given if _top(name) == folder] for given in (sorted(listed), on_disk))
        if names and files and _folders(names).isdisjoint(_folders(files)):
            raise UsageError(
                f"{path}: names none of the {len(files):,} files in {folder}, which lie in other folders than it says "
                f"(its first: {names[0]!r}, on disk: {files[0]!r}), {remedy}"
            )


def _folders(paths: Iterable[str]) -> set[str]:
    return {posixpath.dirname(path).lower() for path in paths}


def _test_list(path: Path) -> set[str]:
    """Names of the official test videos, below the folders of the set, whatever is above these in the list.

    Raises `UsageError` where a line is invalid, or contradicts its folder.
    """
    remedy = f"no line of the list can be trusted; fix it, or take {_LIST} out of SRC"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no text ({error}); {remedy}") from error
    listed = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = re.fullmatch(r"\s*([01])\s+(\S.*?)\s*", line)
        if match is None:
            raise UsageError(f"{path}: line {number}: {line[:60]!r}: must be like '1 YouTube-real/00170.mp4'; {remedy}")
        label, parts = 1 - int(match[1]), match[2].replace("\\", "/").split("/")
        start = next((position for position, part in enumerate(parts) if by_spelling([part], _FOLDERS)), 0)
        folder, _, file = published_path("/".join(parts[start:])).partition("/")
        folder = by_spelling([folder], _FOLDERS).get(folder, folder)
        if label != _LABELS.get(folder, label):
            label_name = ("real", "fake")[label]
            raise UsageError(
                f"{path}: line {number}: {line.strip()!r} says {label_name} (in this list 1 means real, 0 fake), but "
                f"the folder holds the others; {remedy}"
            )
        listed.add(f"{folder}/{file}")
    return listed
