"""Layout `lavdf`: Localized Audio Visual DeepFake (LAV-DF; Cai et al. 2022).

    metadata.json       [{"file": "test/000001.mp4", "n_fakes": 1, "fake_periods": [[4.1, 4.6]], "original":
                         "test/051254.mp4", "modify_video": true, "modify_audio": false, "split": "test", ...}, ...]
    train/, dev/, test/     videos; dev is val

Labels are those of the picture: where the sound alone was changed it is real. Of a changed picture the periods say
which frames are fake.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import UsageError
from ..clips.video_or_frames import find_videos_or_frames
from ..listing import Entry, FoundFile, Listing, has_usable_splits, parse_split_name
from ..media.media_files import path_exists
from ..metadata.json_files import is_json_list, read_records
from ..metadata.segments import Segments, parse_segments, segment_fields
from .names.name_matcher import published_path, refuse_disjoint

_TABLES = ("metadata.json", "metadata.min.json")
_FOLDERS = ("train", "dev", "test")


class LAVDF:
    """The folders train, dev and test, or some of them, with the metadata; other media get label -1."""

    name = "lavdf"
    needs = f"a folder with {_TABLES[0]}, a list, and {', '.join(_FOLDERS)}"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return _table(src) is not None and any(path_exists(src / folder) for folder in _FOLDERS)

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos.

        Raises `UsageError` where the metadata is not of the set's form.
        """
        table = _table(src) or src / _TABLES[0]
        records = _records(table)
        ignored: Counter[str] = Counter()
        files = find_videos_or_frames(src, ignored, is_input=lambda _: True, allowed=allowed)
        ignored[".json"] -= 1
        folders = {file.relative.partition("/")[0] for file in files}
        entries = [_entry(file, records.get(published_path(file.relative))) for file in files]
        on_disk = {published_path(entry.video_id) for entry in entries}
        refuse_disjoint(table, records, on_disk)
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries,
            missing=sorted(records.keys() - on_disk), ignored=+ignored,
            # A split of one part alone is drawn.
            uses_splits=has_usable_splits({parse_split_name(folder) for folder in folders}),
            without_splits=f"take `split` out of {table.name}", giving_labels=f"{table.name} does not name them",
            recognised_by=f"{table.name}, {', '.join(folder for folder in _FOLDERS if path_exists(src / folder))}",
        )  # fmt: skip


def _table(src: Path) -> Path | None:
    """The metadata, a list: DFDC's file of that name is an object."""
    return next((src / name for name in _TABLES if is_json_list(src / name)), None)


class _Record(NamedTuple):
    """What the metadata says of a video: `segments` is None where the picture is real."""

    split: str | None
    source: str | None
    segments: Segments | None
    has_fake_audio: bool


def _records(path: Path) -> dict[str, _Record]:
    """Records by the path of their video."""
    consequence = "no label of this set is known; fix it, or use --layout folder"
    kinds = {"file": str, "modify_video": bool, "modify_audio": bool, "fake_periods": list}
    records: dict[str, _Record] = {}
    for record in read_records(path, consequence):
        if not isinstance(record, dict) or not all(isinstance(record.get(key), kind) for key, kind in kinds.items()):
            needed = ", ".join(f"{key} ({kind.__name__})" for key, kind in kinds.items())
            raise UsageError(f"{path}: {record!r:.80}: must have {needed}; {consequence}")
        name = _as_listed(record["file"])
        if name in records:
            raise UsageError(f"{path}: names a video twice, {name!r}; {consequence}")
        records[name] = _Record(
            split=parse_split_name(str(record.get("split"))),
            source=_as_listed(record["original"]) if isinstance(record.get("original"), str) else None,
            segments=parse_segments(record["fake_periods"], f"{path}: {record['file']}")
            if record["modify_video"]
            else None,
            has_fake_audio=record["modify_audio"],
        )
    return records


def _as_listed(name: str) -> str:
    """A path as it is on disk, without a dot in front and with slashes."""
    return posixpath.normpath(name.replace("\\", "/"))


def _entry(file: FoundFile, record: _Record | None) -> Entry:
    if record is None:
        return Entry.of_file(file, dataset="lavdf")
    if record.segments is None:
        method = "audio" if record.has_fake_audio else None
        return Entry.of_file(
            file, label=0, split=record.split, footage=record.source or published_path(file.relative), method=method,
            dataset="lavdf",
        )  # fmt: skip
    return Entry.of_file(
        file,
        split=record.split,
        source_id=record.source,
        footage=record.source,  # as of versions of which the sound alone was changed
        dataset="lavdf",
        method="audio and video" if record.has_fake_audio else "video",
        **segment_fields(record.segments, file.relative),
    )
