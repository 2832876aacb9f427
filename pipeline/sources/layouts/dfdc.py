"""Layout `dfdc`: parts with a `metadata.json` each, after the DeepFake Detection Challenge (Dolhansky et al. 2020).

    dfdc_train_part_0/metadata.json, dfdc_train_part_0/aagfhgtpmv.mp4        also below train/, or in a folder that is
                                                                             called alike, as archives are unzipped
    test/metadata.json, or test/labels.csv with test/videos/aalscayrfi.mp4   also in SRC itself
    validation/labels.csv, validation/aalscayrfi.mp4                         the public validation set

Metadata maps a file's name to its label (REAL or FAKE; in the test set `is_fake`), its split, and the original a fake
was made of. `labels.csv`, as the test set is published, has the columns filename and label, of which 1 means fake.
Where SRC holds two of parts for training, the validation set and the test set, these are the splits.
"""

from __future__ import annotations

import csv
import os
import posixpath
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...console import first_names
from ...errors import UsageError
from ..clips.image_sequences import FramePath
from ..clips.video_or_frames import find_videos_or_frames
from ..folder_names import CONTENT_NAMES
from ..listing import Entry, FoundFile, Listing, has_usable_splits, parse_split_name, refuse_duplicates
from ..media.linked_files import LISTED_ALREADY, RealPaths, each_file_once
from ..media.media_files import find_named, printable_name
from ..metadata.json_files import read_json
from .dfdc_folders import TABLE, copied_names, find_parts, find_tables, given_split, refuse_unread_metadata
from .names.name_matcher import published_path, stem_of

_LABELS = {"REAL": 0, "FAKE": 1}


class DFDC:
    """A folder of parts, or one part. Files that no metadata names are listed too, with label -1."""

    name = "dfdc"
    needs = f"a folder with metadata.json or {TABLE}, or with dfdc_train_part_*/metadata.json"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return src.is_dir() and bool(find_parts(src) or find_tables(src))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos of all parts.

        Raises `UsageError` where a `metadata.json` is not JSON of DFDC's form, an original is an absolute path,
        metadata name a file and a link to it with different values, or lie in a folder that is not called as one of the
        set and would leave its files without labels.
        """
        tables = find_tables(src)
        parts = [part for part in find_parts(src) if part / TABLE not in tables]  # which says the same, and more
        ignored: Counter[str] = Counter()
        files = find_videos_or_frames(src, ignored, is_input=lambda _: True, allowed=allowed)
        ignored[".json"] -= len(parts)
        ignored[".csv"] -= len(tables)
        split_of = _splits_of_folders(src, parts, tables)
        records = _records(src, parts, tables, {file.relative for file in files}, split_of)
        use_folders = has_usable_splits({*split_of.values()})
        records, uses_splits = _with_splits(records, use_folders=use_folders)
        entries, missing = _entries(src, files, records, allowed)
        refuse_duplicates(src, entries)
        listing = Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries, missing=missing, ignored=+ignored,
            uses_splits=uses_splits, footage_from_names=True, clips_in_root=src in split_of,
            without_splits="name the folders of training, validation and test set one after the other"
            if use_folders
            else "take `split` out of each metadata.json",
            giving_labels=f"no metadata.json or {TABLE} names them, or gives them a label",
            recognised_by=first_names(
                [file.relative_to(src).as_posix() for file in (*(part / "metadata.json" for part in parts), *tables)], 2
            ),
        )  # fmt: skip
        listing = _each_file_once(listing, {file.relative for file in files})
        copies = copied_names(entry.video_id for entry in listing.entries)
        entries = [_linked(entry, copies) for entry in listing.entries]
        unlabelled = [entry.video_id for entry in entries if entry.label < 0 and not entry.problem]
        refuse_unread_metadata(src, {*parts, *(table.parent for table in tables)}, unlabelled)
        return replace(listing, entries=entries, warnings=_copies_warning(copies))


def _each_file_once(listing: Listing, found: Collection[str]) -> Listing:
    """The listing without files that metadata name by a link too; `found`: files of SRC, without links to these.

    A file that metadata name by a link alone is listed by that: it has the label. Originals that are named by a link
    are the files that it leads to.
    """
    links = [entry.video_id for entry in listing.entries if entry.video_id not in found and not entry.problem]
    originals = {entry.source_id for entry in listing.entries if entry.source_id} - {*found}
    if not links and not any(os.path.lexists(listing.root / original) for original in originals):
        return listing
    real_paths = RealPaths(listing.root)
    linked = {real_paths.of(link) for link in links}
    unnamed = {entry.video_id for entry in listing.entries if entry.label < 0 and entry.video_id in found}
    entries = [
        entry
        for entry in listing.entries
        if entry.video_id not in unnamed or real_paths.of(entry.video_id) not in linked
    ]
    ignored = listing.ignored + Counter({LISTED_ALREADY: len(listing.entries) - len(entries)})
    ignored -= Counter({LISTED_ALREADY: sum((listing.root / link).is_symlink() for link in links)})
    return each_file_once(listing.root, replace(listing, entries=entries, ignored=ignored), real_paths)


def _linked(entry: Entry, copies: Collection[str]) -> Entry:
    """The entry with `footage` where its video is one of `copies`, so that both of that name are in one split."""
    stem = posixpath.basename(stem_of(published_path(entry.video_id)))
    return replace(entry, footage=f"{DFDC.name}/{stem}") if stem in copies else entry


def _copies_warning(copies: Collection[str]) -> tuple[str, ...]:
    if not copies:
        return ()
    return (
        f"videos of train_sample_videos that are in other parts too: {len(copies):,} ({first_names(sorted(copies))}); "
        "each is used twice, in one split: take train_sample_videos out",
    )


class _Record(NamedTuple):
    """What the metadata say of one file.

    `prefix`: the part's folder, with a slash; `name`: relative to it; `split`: the folder's, or that of the file.
    """

    prefix: str
    name: str
    metadata: dict[str, Any]
    split: str | None


def _splits_of_folders(src: Path, parts: Sequence[Path], tables: Sequence[Path]) -> dict[Path, str]:
    """Split of each folder of `parts` and `tables`."""
    split_of = {part: given_split(part, src) or "train" for part in parts}
    split_of |= {table.parent: given_split(table.parent, src) or "test" for table in tables}
    return split_of


def _with_splits(records: Sequence[_Record], *, use_folders: bool) -> tuple[list[_Record], bool]:
    """The records, of which each has its folder's split, with the split that each is given; and whether it is used.

    `use_folders`: whether the folders are of two or more splits. Else that of the metadata holds, where it names two or
    more. One split alone is that of the folder of a validation or test set, or what the metadata says.
    """
    if use_folders:
        return [*records], True
    own = [parse_split_name(str(record.metadata.get("split"))) for record in records]
    uses_splits = has_usable_splits({*own})
    return [
        record._replace(split=split if uses_splits or (split and record.split == "train") else record.split)
        for record, split in zip(records, own, strict=True)
    ], uses_splits


def _records(
    src: Path, parts: Sequence[Path], tables: Sequence[Path], on_disk: Collection[str], split_of: Mapping[Path, str]
) -> list[_Record]:
    """The records of all parts and tables, with the splits of their folders."""
    records = []
    for part in parts:
        records += [
            _Record(_prefix(part, src), name, metadata, split_of[part])
            for name, metadata in sorted(_metadata(part).items())
        ]
    for table in tables:
        prefix = _prefix(table.parent, src)
        labels = _table_labels(table, on_disk, prefix)
        records += [_Record(prefix, name, {"label": label}, split_of[table.parent]) for name, label in labels.items()]
    return records


def _entries(
    src: Path, files: Sequence[FoundFile], records: Sequence[_Record], allowed: Sequence[Path]
) -> tuple[list[Entry], list[str]]:
    """The inputs, sorted, files without a record among them; and the paths of records without a file."""
    on_disk = {file.relative: file for file in files}
    names = frozenset(on_disk)  # which loses what has a record
    frames_of: dict[str, list[FoundFile]] = defaultdict(list)
    for file in on_disk.values():
        if frame := FramePath.parse(file.relative, in_root=True):
            frames_of[stem_of(published_path(frame.video))].append(file)
    prefixes: dict[str, set[str]] = defaultdict(set)
    for prefix, name, *_ in records:
        prefixes[posixpath.normpath(name)].add(prefix)
    entries: list[Entry] = []
    missing: list[str] = []
    for prefix, name, metadata, split in records:
        path = posixpath.join(prefix, name)  # an absolute name stays one, and is refused
        media_file = on_disk.pop(path, None) or find_named(src, path, allowed)
        in_videos = on_disk.get(f"{prefix}videos/{name}")
        named = [file for file in (media_file, in_videos) if file]
        videos = [file for file in named if not file.num_images]
        frames = () if videos else frames_of.get(stem_of(published_path(path)), ())
        inputs = videos[:1] or frames or named[:1]
        if not inputs:
            missing.append(path)
            continue
        original = _in_videos(_original(src, prefix, name, metadata, prefixes), names)
        for file in inputs:
            on_disk.pop(file.relative, None)
            source = _frame_of(original, file, frames_of, names) if frames else original
            entries.append(_entry(file, metadata, source, split))
    entries += [Entry.of_file(file, dataset=DFDC.name) for file in on_disk.values()]
    return sorted(entries, key=lambda entry: entry.video_id), missing


def _table_labels(path: Path, on_disk: Collection[str], prefix: str) -> dict[str, str]:
    """File, relative to the table's folder, -> REAL or FAKE.

    Raises `UsageError` where the table cannot be read, or a label is not 0 or 1.
    """
    consequence = "no label of this table is known; fix it, or use --layout folder"
    labels = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read ({error}); {consequence}") from error
    for row in rows:
        name, label = (row["filename"] or "").strip(), (row["label"] or "").strip()
        if label not in ("0", "1"):
            raise UsageError(f"{path}: label {label!r} of {name!r}: must be 0 or 1; {consequence}")
        in_videos = f"videos/{name}"
        labels[name if f"{prefix}{name}" in on_disk else in_videos] = ("REAL", "FAKE")[int(label)]
    return labels


def _prefix(part: Path, src: Path) -> str:
    return "" if part == src else f"{part.relative_to(src).as_posix()}/"


def _original(src: Path, prefix: str, name: str, metadata: dict[str, Any], prefixes: dict[str, set[str]]) -> str | None:
    """Path of the original: in the fake's own part, unless only the metadata of another part lists it."""
    given = metadata.get("original")
    if not isinstance(given, str) or not given:
        return None
    if given.startswith("/"):
        raise UsageError(
            f"{src / prefix / 'metadata.json'}: original {given!r} of {name!r}: is an absolute path, so nothing would "
            "keep the fake in its original's split; write it relative to that part"
        )
    original = posixpath.normpath(given)
    candidates = prefixes.get(original, {prefix})
    return printable_name(posixpath.normpath(f"{prefix if prefix in candidates else min(candidates)}{original}"))


def _in_videos(original: str | None, names: Collection[str]) -> str | None:
    """The original in the folder `videos` of its part, where it is there alone."""
    if original is None or original in names:
        return original
    folder, name = posixpath.split(original)
    in_videos = posixpath.join(folder, "videos", name)
    return in_videos if in_videos in names else original


def _frame_of(
    original: str | None, file: FoundFile, frames_of: Mapping[str, Sequence[FoundFile]], names: Collection[str]
) -> str | None:
    """The original's frame of the same number, of an extracted frame.

    frames_of: frames by the stem of their video. names: all files; where a frame is none of them, the one that it would
    be in the folder of the original's other frames.
    """
    frame = FramePath.parse(file.relative, in_root=True)
    if original is None or frame is None:
        return original
    folder, name = posixpath.split(original)
    inner = "".join(name for name in frame.above[-1:] if name.lower() in CONTENT_NAMES)
    usual = posixpath.join(folder, inner, f"{posixpath.splitext(name)[0]}{frame.suffix}", frame.below)
    others = () if usual in names else frames_of.get(stem_of(published_path(original)), ())
    other = FramePath.parse(others[0].relative, in_root=True) if others else None
    return "/".join([*other.above, other.clip, frame.below]) if other else usual


def _entry(media_file: FoundFile, metadata: dict[str, Any], original: str | None, split: str | None) -> Entry:
    label = _label(metadata)
    problem_detail = (
        f"metadata says label {metadata.get('label')!r}; DFDC knows REAL and FAKE" if label is None else None
    )
    if problem_detail and not media_file.problem:
        media_file = replace(media_file, problem="unknown_label", detail=problem_detail)
    return Entry.of_file(
        media_file, label=-1 if label is None else label, split=split, source_id=original, dataset="dfdc"
    )


def _label(metadata: dict[str, Any]) -> int | None:
    label = metadata.get("label")
    if label is None and metadata.get("is_fake") in (0, 1):
        return int(metadata["is_fake"])
    return _LABELS.get(label.upper()) if isinstance(label, str) else None


def _metadata(part: Path) -> dict[str, dict[str, Any]]:
    path = part / "metadata.json"
    consequence = "no label of this part is known; fix it, or use --layout folder"
    data = read_json(path, consequence)
    if not isinstance(data, dict) or not all(isinstance(value, dict) for value in data.values()):
        raise UsageError(f"{path}: must map each file's name to an object; {consequence}")
    return data
