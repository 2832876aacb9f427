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
        """See `Layout`."""
        return any(path_exists(src / folder) for folder in _FOLDERS)

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """See `Layout`. Raises `UsageError` where the list cannot be read, or contradicts the folders."""
        test = _test_list(src / _LIST) if path_exists(src / _LIST) else None
        ignored: Counter[str] = Counter()
        found = list(find_media(src, ignored, skip=_no_input, allowed=allowed))
        if not any(map(_is_input, found)):
            ignored.clear()
            found = list(find_media(src, ignored, skip=_no_frames, allowed=allowed))
        tested = None if test is None else {stem_of(name) for name in test}
        named = [_entry(one, tested) for one in found if _is_input(one)]
        on_disk = NameMatcher.from_paths(entry.video_id for entry in named)
        entries = [replace(one, source_id=on_disk.find(one.source_id)) if one.source_id else one for one in named]
        ignored["media beside the folders"] += len(found) - len(entries)
        ignored[".txt"] -= test is not None
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries,
            missing=_missing(entries, test or set()), ignored=+ignored,
            without_splits=f"rename {_LIST} or take it out of SRC",
        )  # fmt: skip


def dataset_root(src: Path) -> Path | None:
    """The folder above, where `src` is one of the three, or `videos` in it."""
    here = src.absolute()
    inner = here.parent if here.name == "videos" else here
    return inner.parent if inner.name in _FOLDERS else None


def _missing(entries: list[Entry], test: Set[str]) -> list[str]:
    """Videos that the list or a fake's name tells of, each once."""
    on_disk = NameMatcher.from_paths(video_of_frame(entry.video_id) for entry in entries)
    in_videos = on_disk.missing(_in_videos(name) for name in test)
    listed = {stem: name for stem, name in on_disk.missing(test).items() if stem_of(_in_videos(name)) in in_videos}
    originals = on_disk.missing(video_of_frame(entry.source_id) for entry in entries if entry.source_id)
    return sorted((originals | listed).values())


def _is_input(one: FoundFile) -> bool:
    return one.relative.split("/")[0] in _FOLDERS


def _no_input(folder: str) -> str | None:
    """What a folder is counted as where nothing in it is an input."""
    top, _, rest = folder.partition("/")
    if top not in _FOLDERS:
        return f"in {top}/"
    name = rest.rpartition("/")[2]
    return f"in {name}/" if name in DERIVED_FOLDERS else None


def _no_frames(folder: str) -> str | None:
    """The same where extracted frames are inputs."""
    return None if folder.rpartition("/")[2] in FRAME_FOLDERS else _no_input(folder)


def _in_videos(name: str) -> str:
    folder, _, file = name.partition("/")
    return f"{folder}/videos/{file}"


def _entry(one: FoundFile, tested: Set[str] | None) -> Entry:
    video = PurePosixPath(video_of_frame(one.relative))
    folder = video.parts[0]
    plain = f"{folder}/{video.name}"
    known = str(video) in (plain, _in_videos(plain))
    real = _REAL.fullmatch(video.stem) if folder == "Celeb-real" else None
    fake = _FAKE.fullmatch(video.stem) if folder == "Celeb-synthesis" else None
    original = f"{fake[1]}_{fake[3]}" if known and fake else None
    recording = original or (video.stem if real else None)
    return Entry(
        video_id=one.relative,
        size_bytes=one.size_bytes,
        mtime_ns=one.mtime_ns,
        label=_FOLDERS[folder],
        split=None if tested is None else "test" if known and stem_of(plain) in tested else "train",
        source_id=_original(PurePosixPath(one.relative), original) if original else None,
        footage=f"Celeb-real/{recording}".lower() if recording and is_image(one.relative) else None,
        identity=real[1].lower() if real else fake[2].lower() if fake else None,
        kin=(fake[1].lower(),) if fake and fake[1].lower() != fake[2].lower() else (),
        dataset="celebdf",
        problem=one.problem,
        detail=one.detail,
    )


def _original(path: PurePosixPath, name: str) -> str:
    """What the original would be called with the fake's own suffix, or its same frame."""
    if is_image(path.name):
        return str(PurePosixPath("Celeb-real", *path.parts[1:-2], name, path.name))
    return str(PurePosixPath("Celeb-real", *path.parts[1:-1], f"{name}{path.suffix}"))


def _test_list(path: Path) -> set[str]:
    """The videos of the official test set; raises `UsageError` where a line is none, or contradicts its folder."""
    way_out = f"no line of the list can be trusted; mend it, or take {_LIST} out of SRC"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {way_out}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no text ({error}); {way_out}") from error
    listed = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = re.fullmatch(r"\s*([01])\s+(\S.*?)\s*", line)
        if found is None:
            raise UsageError(
                f"{path}: line {number}: {line[:60]!r}: must be like '1 YouTube-real/00170.mp4'; {way_out}"
            )
        label, name = 1 - int(found[1]), found[2]
        if label != _FOLDERS.get(name.split("/")[0], label):
            says = ("real", "fake")[label]
            raise UsageError(
                f"{path}: line {number}: {line.strip()!r} says {says} (in this list 1 means real, 0 fake), but the "
                f"folder holds the others; {way_out}"
            )
        listed.add(name)
    return listed
