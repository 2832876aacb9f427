"""Layout `celebdf`: Celeb-DF, versions 1 and 2 (Li et al. 2020).

    Celeb-real/id0_0000.mp4, YouTube-real/00000.mp4
    Celeb-synthesis/id0_id1_0000.mp4        id0's video 0000 with the face of id1
    List_of_testing_videos.txt              "1 YouTube-real/00170.mp4": the TEST set, in which 1 means real

Nothing on disk tells the two versions apart safely, so both are called celebdf.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ...errors import UsageError
from ..image_sequences import video_of_frame
from ..listing import Entry, Listing
from ..media_files import DERIVED_FOLDERS, FRAME_FOLDERS, FoundFile, find_media, is_image, path_exists
from .name_matcher import NameMatcher, stem_of

_FOLDERS = {"Celeb-real": 0, "YouTube-real": 0, "Celeb-synthesis": 1}
_LIST = "List_of_testing_videos.txt"
_REAL = re.compile(r"(id\d+)_\d+", re.IGNORECASE)
_FAKE = re.compile(r"(id\d+)_(id\d+)_(\d+)", re.IGNORECASE)


class CelebDF:
    """The three folders, or some of them; files may also lie in a folder `videos` within each.

    Where there are no videos, extracted frames are read: `Celeb-real/frames/id0_0000/001.png`.

    With the list, what it names is test and everything else train: the official protocol has no val. Without it, splits
    are drawn. Names are compared whatever their suffix and case.
    """

    name = "celebdf"
    needs = f"a folder with {', '.join(_FOLDERS)}"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return any(path_exists(src / folder) for folder in _FOLDERS)

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos, or the extracted frames.

        Raises `UsageError` where the list of test videos cannot be read, or contradicts the folders.
        """
        test_names = _test_list(src / _LIST) if path_exists(src / _LIST) else None
        ignored: Counter[str] = Counter()
        files = list(find_media(src, ignored, skip=_skip_derived, allowed=allowed))
        if not any(map(_is_input, files)):
            ignored.clear()
            files = list(find_media(src, ignored, skip=_skip_all_but_frames, allowed=allowed))
        test_stems = None if test_names is None else {stem_of(name) for name in test_names}
        named = [_entry(file, test_stems) for file in files if _is_input(file)]
        on_disk = NameMatcher.from_paths(entry.video_id for entry in named)
        entries = [
            replace(entry, source_id=on_disk.find(entry.source_id)) if entry.source_id else entry for entry in named
        ]
        ignored["media beside the folders"] += len(files) - len(entries)
        ignored[".txt"] -= test_names is not None
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries,
            missing=_missing(entries, test_names or set()), ignored=+ignored,
            without_splits=f"rename {_LIST} or take it out of SRC",
        )  # fmt: skip


def dataset_root(src: Path) -> Path | None:
    """Root of the dataset where `src` is one of its three folders, or `videos` in one; else None."""
    here = src.absolute()
    inner = here.parent if here.name == "videos" else here
    return inner.parent if inner.name in _FOLDERS else None


def _missing(entries: list[Entry], test_names: Set[str]) -> list[str]:
    """Videos that the list or the name of a fake mentions but that are not on disk, each once."""
    on_disk = NameMatcher.from_paths(video_of_frame(entry.video_id) for entry in entries)
    in_videos = on_disk.missing(_in_videos(name) for name in test_names)
    listed = {
        stem: name for stem, name in on_disk.missing(test_names).items() if stem_of(_in_videos(name)) in in_videos
    }
    originals = on_disk.missing(video_of_frame(entry.source_id) for entry in entries if entry.source_id)
    return sorted((originals | listed).values())


def _is_input(file: FoundFile) -> bool:
    return file.relative.split("/")[0] in _FOLDERS


def _skip_derived(folder: str) -> str | None:
    """Name to count the files of a folder under where none is an input; None for a folder with inputs."""
    top, _, rest = folder.partition("/")
    if top not in _FOLDERS:
        return f"in {top}/"
    name = rest.rpartition("/")[2]
    return f"in {name}/" if name in DERIVED_FOLDERS else None


def _skip_all_but_frames(folder: str) -> str | None:
    """Like `_skip_derived`, but folders of extracted frames have inputs."""
    return None if folder.rpartition("/")[2] in FRAME_FOLDERS else _skip_derived(folder)


def _in_videos(name: str) -> str:
    folder, _, file = name.partition("/")
    return f"{folder}/videos/{file}"


def _entry(file: FoundFile, test_stems: Set[str] | None) -> Entry:
    video = PurePosixPath(video_of_frame(file.relative))
    folder = video.parts[0]
    plain = f"{folder}/{video.name}"
    known = str(video) in (plain, _in_videos(plain))
    real = _REAL.fullmatch(video.stem) if folder == "Celeb-real" else None
    fake = _FAKE.fullmatch(video.stem) if folder == "Celeb-synthesis" else None
    original = f"{fake[1]}_{fake[3]}" if known and fake else None
    recording = original or (video.stem if real else None)
    return Entry(
        video_id=file.relative,
        size_bytes=file.size_bytes,
        mtime_ns=file.mtime_ns,
        label=_FOLDERS[folder],
        split=None if test_stems is None else "test" if known and stem_of(plain) in test_stems else "train",
        source_id=_original(PurePosixPath(file.relative), original) if original else None,
        footage=f"Celeb-real/{recording}".lower() if recording and is_image(file.relative) else None,
        identity=real[1].lower() if real else fake[2].lower() if fake else None,
        kin=(fake[1].lower(),) if fake and fake[1].lower() != fake[2].lower() else (),
        dataset="celebdf",
        problem=file.problem,
        detail=file.detail,
    )


def _original(path: PurePosixPath, name: str) -> str:
    """Path of the original, with the fake's own suffix, or of its frame with the same number."""
    if is_image(path.name):
        return str(PurePosixPath("Celeb-real", *path.parts[1:-2], name, path.name))
    return str(PurePosixPath("Celeb-real", *path.parts[1:-1], f"{name}{path.suffix}"))


def _test_list(path: Path) -> set[str]:
    """Names of the official test videos; raises `UsageError` where a line is invalid, or contradicts its folder."""
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
        label, name = 1 - int(match[1]), match[2]
        if label != _FOLDERS.get(name.split("/")[0], label):
            label_name = ("real", "fake")[label]
            raise UsageError(
                f"{path}: line {number}: {line.strip()!r} says {label_name} (in this list 1 means real, 0 fake), but "
                f"the folder holds the others; {remedy}"
            )
        listed.add(name)
    return listed
