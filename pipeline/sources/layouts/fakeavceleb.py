"""Layout `fakeavceleb`: FakeAVCeleb (Khalid et al. 2021).

    RealVideo-RealAudio/African/men/id00076/00109.mp4
    FakeVideo-RealAudio/African/men/id00076/00109_id00166_wFVNyWPdmB8.mp4      made from id00076's video 00109
    RealVideo-FakeAudio/..., FakeVideo-FakeAudio/...
    meta_data.csv           source,target1,target2,method,category,type,race,gender,path,

Labels are those of the picture: RealVideo-FakeAudio is real. In meta_data.csv the folder stands in a column of its own,
before or after the file's name, and in some copies without a header.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import UsageError
from ..clips.video_or_frames import find_in_folders
from ..listing import Entry, FoundFile, Listing
from ..media.media_files import entries_of, list_folders, path_exists
from ..media.suffixes import is_media
from .names.name_matcher import NameMatcher, path_of_original, published_path, stem_of
from .names.spelling import by_spelling, check_spelling, folders_spelt_as

_ORIGINALS = "RealVideo-RealAudio"
_LABELS = {_ORIGINALS: 0, "RealVideo-FakeAudio": 0, "FakeVideo-RealAudio": 1, "FakeVideo-FakeAudio": 1}
_FOLDERS = {name: name for name in _LABELS}
_TABLE = "meta_data.csv"
_RECORDING = re.compile(r"(\d+)(?:_|$)")
_PERSON = re.compile(r"id\d+")
_KEEP_THE_FACE = {"real", "rtvc", "wav2lip"}  # the other methods swap it


class FakeAVCeleb:
    """The four folders, or some of them, with or without the table of methods and people."""

    name = "fakeavceleb"
    needs = f"a folder with {', '.join(_LABELS)}"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return bool(folders_spelt_as(src, _LABELS))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos of the four folders.

        Raises `UsageError` where `meta_data.csv` cannot be read, or a folder is nearly called as published.
        """
        label_of = folders_spelt_as(src, _LABELS)
        check_spelling(src, list_folders(src), _LABELS, label_of)
        rows = _read_table(src / _TABLE) if path_exists(src / _TABLE) else {}
        ignored: Counter[str] = Counter()
        inputs = find_in_folders(src, label_of, ignored, allowed=allowed)
        names = NameMatcher.from_paths(file.relative for file in inputs)
        entries = entries_of(inputs, lambda file: _entry(file, label_of, rows, names))
        ignored[".csv"] -= bool(rows)
        on_disk = NameMatcher.from_paths(published_path(entry.video_id) for entry in entries)
        originals = {published_path(entry.source_id) for entry in entries if entry.source_id}
        expected = {row.path for row in rows.values()} | originals
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries,
            missing=sorted(on_disk.missing(expected).values()), ignored=+ignored,
            recognised_by=", ".join([*label_of, *([_TABLE] if rows else [])]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table: where its video lies, how it was made, and who is in it beside the folder's person."""

    path: str
    method: str
    people: tuple[str, ...]


def _read_table(path: Path) -> dict[str, _Row]:
    """Rows by folder and stem; raises `UsageError` where the table is no text, or has no row of the set's form."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            cells = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read ({error}); fix it, or take it out of SRC") from error
    rows = {stem_of(row.path): row for row in map(_parse_row, cells) if row}
    if not rows:
        raise UsageError(
            f"{path}: has no row with the folder and the name of a video, so no method is known; fix it, or take it "
            "out of SRC"
        )
    return rows


def _parse_row(cells: Sequence[str]) -> _Row | None:
    """None for the header, and for rows without a video."""
    name = next((cell for cell in cells if is_media(cell) and "/" not in cell), None)
    folder = next((cell for cell in cells if "/" in cell and any(f"{known}/" in cell for known in _LABELS)), None)
    if name is None or folder is None or len(cells) < 4:
        return None
    inner = folder[min(at for known in _LABELS if (at := folder.find(known)) >= 0) :].strip("/")
    return _Row(f"{inner}/{name}", cells[3], tuple(cell for cell in cells[:3] if _PERSON.fullmatch(cell)))


def _entry(file: FoundFile, label_of: dict[str, int], rows: dict[str, _Row], on_disk: NameMatcher) -> Entry:
    video = published_path(file.relative)
    top, *between, name = video.split("/")
    stem = Path(name).stem  # that of the person's folder, where frames lie in it
    person = next((part for part in reversed([*between, stem]) if _PERSON.fullmatch(part)), None)
    published_top = by_spelling([top], _FOLDERS)[top]
    row = rows.get(stem_of("/".join([published_top, *between, name])))
    is_original = published_top == _ORIGINALS
    recording = _RECORDING.match(stem)
    method = None if is_original else row.method if row else None
    shows_person = is_original or (row is not None and row.method in _KEEP_THE_FACE)
    people = dict.fromkeys([*([person] if person else []), *(row.people if row else _PERSON.findall(name))])
    identity = person if shows_person else None
    originals = next(iter(by_spelling(label_of, {_ORIGINALS: 0})), _ORIGINALS)
    return Entry.of_file(
        file,
        label=label_of[top],
        source_id=on_disk.find(path_of_original(file.relative, originals, recording[1]))
        if recording and person and not is_original
        else None,
        footage=None if person is None or not recording else f"fakeavceleb/{person}/{recording[1]}",
        identity=identity,
        related_identities=tuple(other for other in people if other != identity),
        dataset="fakeavceleb",
        method=method,
    )
