"""Layout `deeperforensics`: DeeperForensics-1.0 (Jiang et al. 2020).

    source_videos/M101/BlendShape/camera_down/...mp4          an actor in the studio: real
    manipulated_videos/end_to_end/033_M101.mp4                FaceForensics++'s video 033 with the face of M101
    lists/splits/{train,val,test}.txt                         names of manipulated videos

Every folder of manipulated_videos has the same fakes under another distortion; these are versions of one recording.
The originals of the fakes are those of FaceForensics++, and are not in the set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ...dataset.schema import SPLITS
from ...errors import UsageError
from ..clips.video_or_frames import find_in_folders
from ..folder_names import without_content_folders
from ..listing import Entry, FoundFile, Listing, has_usable_splits
from ..media.media_files import entries_of, list_folders
from .names.flat_frames import FlatFrame, video_of_flat
from .names.name_matcher import NameMatcher, stem_of
from .names.spelling import check_spelling, folders_spelt_as
from .names.split_lists import find_lists, missing_lists

_LABELS = {"source_videos": 0, "manipulated_videos": 1}
_FOLDERS_OF_FAKES = 2  # manipulated_videos and the distortion
_LISTS = "lists/splits"
_LIST_NAMES = {split: f"{split}.txt" for split in SPLITS}
_FAKE = re.compile(r"(\d{3})_([MW]\d{3})", re.IGNORECASE)
_ACTOR = re.compile(r"[MW]\d{3}", re.IGNORECASE)


class DeeperForensics:
    """The two folders, or one of them. Splits are given where two or more lists are there; actors have none."""

    name = "deeperforensics"
    needs = f"a folder with {' or '.join(_LABELS)}"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return bool(folders_spelt_as(src, _LABELS))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos, or the extracted frames.

        Raises `UsageError` where a list cannot be read, or names a video that another one names.
        """
        label_of = folders_spelt_as(src, _LABELS)
        check_spelling(src, list_folders(src), _LABELS, label_of)
        split_of, lists = _read_splits(src)
        ignored: Counter[str] = Counter()
        inputs = find_in_folders(src, label_of, ignored, allowed=allowed)
        entries = entries_of(inputs, lambda file: _entry(file, label_of, split_of))
        ignored[".txt"] -= len(lists)
        folders = {
            video.rpartition("/")[0]
            for entry in entries
            if entry.label == 1 and _FAKE.fullmatch(stem_of(video := _video_of(entry.video_id)).rpartition("/")[2])
        }
        on_disk = NameMatcher.from_paths(_video_of(entry.video_id) for entry in entries)
        flat = filter(None, (_flat_frame(entry.video_id) for entry in entries))
        listed = {f"{folder}/{stem.upper()}.mp4" for folder in folders for stem in split_of}
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries,
            missing=sorted(on_disk.missing(listed).values()), ignored=+ignored,
            missing_split_lists=missing_lists(_LIST_NAMES, lists), split_lists=tuple(lists.values()),
            uses_splits=has_usable_splits(set(split_of.values())),
            collecting_folders=frozenset(frame.collecting_folder for frame in flat),
            without_splits=f"take {', '.join(lists.values())} away",
            recognised_by=", ".join([*label_of, *lists.values()]),
        )  # fmt: skip


def _read_splits(src: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Split by stem, and the lists that were read, by split."""
    split_of: dict[str, str] = {}
    lists = find_lists(src, _LISTS, _LIST_NAMES)
    for split, name in lists.items():
        try:
            lines = (src / name).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{src / name}: cannot be read ({error}); fix it, or take it away") from error
        for stem in (stem_of(line.strip()).rpartition("/")[2] for line in lines if line.strip()):
            if split_of.setdefault(stem, split) != split:
                raise UsageError(
                    f"{src / name}: {stem!r} is in {split_of[stem]}.txt too: a leak; fix it, or take the lists away"
                )
    return split_of, lists


def _flat_frame(relative: str) -> FlatFrame | None:
    """An image directly in the folder of a distortion that is called after a fake: `end_to_end/033_M101_001.png`."""

    def has_video(folders: Sequence[str], stem: str) -> bool:
        return bool(_FAKE.fullmatch(stem)) and len(without_content_folders("/".join(folders))) == _FOLDERS_OF_FAKES

    return FlatFrame.parse(relative, has_video)


def _video_of(relative: str) -> str:
    return video_of_flat(_flat_frame(relative), relative)


def _entry(file: FoundFile, label_of: dict[str, int], split_of: dict[str, str]) -> Entry:
    top, *between, name = _video_of(file.relative).split("/")
    label, stem = label_of[top], stem_of(name)
    if not label:
        # `stem` is that of the actor's folder, where frames lie in it.
        actor = next((part.upper() for part in (*between, stem) if _ACTOR.fullmatch(part)), None)
        return Entry.of_file(file, label=label, identity=actor, dataset="deeperforensics")
    fake = _FAKE.fullmatch(stem)
    return Entry.of_file(
        file,
        label=label,
        split=split_of.get(stem),
        footage=f"deeperforensics/{stem}" if fake else None,
        identity=fake[2].upper() if fake else None,
        related_identities=(f"youtube/{fake[1]}",) if fake else (),
        dataset="deeperforensics",
        method=between[0] if between else None,
    )
