"""Layout `avdeepfake1m`: AV-Deepfake1M and AV-Deepfake1M++ (Cai et al. 2024, 2025).

    train_metadata.json     [{"file": "id00012/21Uxsk56VDQ/00001/fake_video_fake_audio.mp4", "original":
                             "id00012/21Uxsk56VDQ/00001/real.mp4", "split": "train", "modify_type": "both_modified",
                             "fake_segments": [...], "visual_fake_segments": [[1.2, 1.6]], ...}, ...]
    train/id00012/21Uxsk56VDQ/00001/real.mp4, fake_video_real_audio.mp4, ...
    val_metadata.json, val/...      test/...    whose labels are not published

Labels are those of the picture: where the sound alone was changed it is real. Of a changed picture the visual segments
say which frames are fake. Folders are people of VoxCeleb2.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...errors import UsageError
from ..clips.video_or_frames import find_videos_or_frames
from ..listing import Entry, FoundFile, Listing
from ..media.media_files import path_exists
from ..metadata.json_files import is_json_list, read_records
from ..metadata.segments import Segments, parse_segments, segment_fields
from .names.name_matcher import published_path, refuse_disjoint

_SPLITS = ("train", "val", "test")
_LABELS = {"real": 0, "audio_modified": 0, "visual_modified": 1, "both_modified": 1}
_METHODS = {"audio_modified": "audio", "visual_modified": "video", "both_modified": "audio and video"}


class AVDeepfake1M:
    """The folders train, val and test, or some of them, with the metadata of train and val."""

    name = "avdeepfake1m"
    needs = "a folder with train_metadata.json or val_metadata.json, a list, and the folder train or val"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return any(path_exists(src / split) for split in _tables(src))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos; those that no metadata names get label -1.

        Raises `UsageError` where the metadata is not of the set's form.
        """
        tables = _tables(src)
        records: dict[str, _Record] = {}
        for split, table in tables.items():
            _add_records(records, table, split)
        ignored: Counter[str] = Counter()
        files = find_videos_or_frames(src, ignored, is_input=lambda _: True, allowed=allowed)
        ignored[".json"] -= len(tables)
        folders = {split for split in _SPLITS if path_exists(src / split)}
        people: dict[str, str] = {}
        entries = [_entry(file, records, people) for file in files]
        for split, table in tables.items():
            _refuse_disjoint(table, split, records, entries)
        for entry in entries:
            records.pop(published_path(entry.video_id), None)
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries,
            # A part of the set is on disk in most places: a split whose folder is not there is not missing.
            missing=sorted(path for path in records if path.partition("/")[0] in folders),
            ignored=+ignored,
            uses_splits=len(folders) > 1, without_splits="give one of its folders as SRC",
            giving_labels="its metadata does not name them",
            recognised_by=", ".join([*(table.name for table in tables.values()), *sorted(folders)]),
        )  # fmt: skip


def _tables(src: Path) -> dict[str, Path]:
    """The metadata that is there, by split."""
    tables = {split: src / f"{split}_metadata.json" for split in _SPLITS}
    return {split: table for split, table in tables.items() if is_json_list(table)}


class _Record(NamedTuple):
    """What the metadata says of a video. `path`: below SRC. `segments`: None where the picture is real."""

    path: str
    kind: str
    segments: Segments | None
    source: str | None


def _add_records(records: dict[str, _Record], path: Path, split: str) -> None:
    """Adds the records of a split by the path of their video below SRC; equal paths are one string in memory."""
    consequence = "no label of this set is known; fix it, or use --layout folder"
    names: dict[str, str] = {}
    for record in read_records(path, consequence):
        kind = str(record.get("modify_type")).replace("-", "_") if isinstance(record, dict) else None
        if kind not in _LABELS or "file" not in record:
            raise UsageError(
                f"{path}: {record!r:.80}: must have a file, and a modify_type of {', '.join(_LABELS)}; {consequence}"
            )
        where = f"{path}: {record['file']}"
        segments = parse_segments(record.get("visual_fake_segments", ()), where) if _LABELS[kind] else None
        original = record.get("original") if kind != "real" else None  # of a real one it is the path in VoxCeleb2
        name, source = f"{split}/{record['file']}", f"{split}/{original}" if original else None
        name = names.setdefault(name, name)
        if name in records:
            raise UsageError(f"{path}: names a video twice, {record['file']!r}; fix it, or use --layout folder")
        source = names.setdefault(source, source) if source else None
        records[name] = _Record(name, sys.intern(kind), segments, source)


def _refuse_disjoint(table: Path, split: str, records: Mapping[str, _Record], entries: Sequence[Entry]) -> None:
    part = f"{split}/"
    of_split = [entry for entry in entries if entry.video_id.startswith(part)]
    if not any(published_path(entry.video_id) in records for entry in of_split):
        on_disk = [published_path(entry.video_id) for entry in of_split]
        refuse_disjoint(table, [path for path in records if path.startswith(part)], on_disk)


def _entry(file: FoundFile, records: Mapping[str, _Record], people: dict[str, str]) -> Entry:
    """`people`: names that are entries' already, of which each is one string in memory."""
    folder, _, below = file.relative.partition("/")
    person = below.partition("/")[0] if below.startswith("id") else None
    person = people.setdefault(person, person) if person else None
    split = folder if folder in _SPLITS else None
    record = records.get(published_path(file.relative))
    if record is None:
        return Entry.of_file(file, split=split, identity=person, dataset="avdeepfake1m")
    if record.path == file.relative:
        file = replace(file, relative=record.path)  # which is in memory already
    is_real = record.segments is None
    return Entry.of_file(
        file,
        split=sys.intern(split) if split else None,
        source_id=None if is_real else record.source,
        footage=record.source or (record.path if is_real else None),
        identity=person,
        dataset="avdeepfake1m",
        method=_METHODS.get(record.kind),
        **({"label": 0} if record.segments is None else segment_fields(record.segments, file.relative)),
    )
