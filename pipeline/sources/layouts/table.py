"""Layout `table`: a CSV or Parquet file, one row per input: `path,label[,split,source,mask,identity,footage,...]`.

A path that is a folder of images is one clip. Paths, sources and masks are relative to the table's own folder. Where
there is a column `footage`, rows of one footage stay in one split, and a row without one forms a group of its own.
`whole_frame` says which inputs are cropped already.
`fake_segments`, such as [[1.2, 3.4]] in seconds, says which frames of a video have its label; the others are real.
Beside `emotions.csv`, `emotions.classes.txt` may name the classes, one a line, in the order of their numbers;
`real: live` says which of them is stored as real.
"""

from __future__ import annotations

import codecs
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...console import first_names
from ...dataset.schema import real_class
from ...errors import UsageError
from ...json_records import parse_json
from ..listing import Entry, FoundFile, Listing, has_usable_splits, parse_split_name, refuse_duplicates
from ..media.allowed_roots import allow_root_options, relative_name, resolved_root
from ..media.linked_files import RealPaths, each_file_once
from ..media.media_files import find_named, is_image
from ..metadata.own_columns import Value, typed_values
from ..metadata.segments import parse_segments
from .class_names import EMPTY_CELLS, ClassNames, class_file, misspelt_labels, misspelt_warnings

_MIN_SIMILARITY = 0.8  # 0..1: `labels` and `splitt` are misspelt columns, `label_id` is not
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
_START_BYTES = 256
_REQUIRED = ("path", "label")
_OPTIONAL = ("split", "source", "mask", "identity", "footage", "method", "compression", "dataset", "fake_segments",
             "whole_frame")  # fmt: skip


class TableFile:
    """Labels real and fake become 0 and 1; others follow in sorted order, or the file of classes gives all numbers.

    Without fake, the class of real, or the only one called alike, such as original, is 0.

    A label that is empty, -1, "unknown" or in `EMPTY_CELLS` is -1, unless the file of classes lists it. Of the other
    columns, but path, the latter are empty.
    """

    name = "table"
    needs = "a .csv or .parquet file"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return src.is_file() and src.suffix.lower() in {".csv", ".parquet"}

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the rows of the table.

        Raises `UsageError` on a table that cannot be parsed, lacks a column or has one misspelt, names a path twice, a
        folder and an image in it, a file and a link to it with different values, a mask as an input or outside the
        allowed roots, an input or a folder without images as a source of an input, an unknown split, or a class that
        the file of classes lacks.
        """
        rows, own_columns = _rows(src)
        labels = {row["label"] for row in rows}
        classes = ClassNames.of_table(src, labels)
        numbers = {label: classes.number(label) for label in labels}
        entries: list[Entry] = []
        missing: list[str] = []
        outside_masks: dict[str, int] = {}  # with the first row that names each
        files = [find_named(src.parent, row["path"], allowed) for row in rows]
        originals = _unlisted_originals(src, rows, allowed)
        real_paths = RealPaths(src.parent, allowed)
        real_paths.join_clips(filter(None, (*files, *originals.values())))
        for number, (row, media_file, *values) in enumerate(
            zip(rows, files, *(values for _, values in own_columns.values()), strict=True)
        ):
            if media_file is None:
                missing.append(row["path"])
                continue
            entry = Entry.of_file(
                media_file,
                split=_split(src, row),
                source_id=_source_of(src, row, number, media_file.relative, real_paths),
                footage=row["footage"] or media_file.relative if "footage" in row else None,
                identity=row.get("identity") or None,
                dataset=row.get("dataset") or None,
                method=row.get("method") or None,
                compression=row.get("compression") or None,
                whole_frame=_is_whole_frame(src, row, number),
                values=tuple(values),
                **_label_fields(src, row, classes.stored_names, numbers[row["label"]]),
            )
            if mask_name := row.get("mask"):
                mask = find_named(src.parent, mask_name, allowed)
                if mask is None:
                    missing.append(mask_name)
                elif mask.problem == "outside_root":
                    outside_masks.setdefault(mask_name, number)
                else:
                    entry = entry.with_mask(mask)
            entries.append(entry)
        _refuse_outside_masks(src, rows, outside_masks)
        entries.sort(key=lambda entry: entry.video_id)
        refuse_duplicates(src, entries)
        inputs = Counter(classes.names[number] for row in rows if (number := numbers[row["label"]]) >= 0)
        misspelt = misspelt_labels(src, inputs)
        missing += [original for original, file in originals.items() if file is None]
        listing = Listing(
            layout=self.name, root=src.parent, labels=classes.names, entries=entries,
            stored_labels=classes.stored_names, missing=missing,
            uses_splits=has_usable_splits({_split(src, row) for row in rows}),
            footage_from_names=not any("footage" in row for row in rows), without_splits="leave out the column split",
            naming_real=f"list all classes in {class_file(src).name}, one a line, the real one as 'real: {{}}'",
            giving_labels="fill in the column label", columns={name: kind for name, (kind, _) in own_columns.items()},
            warnings=(*misspelt_warnings(src, misspelt, inputs), *_outside_warning(src, originals)),
            misspelt_labels=frozenset(misspelt),
        )  # fmt: skip
        listing = each_file_once(src, listing, real_paths)
        _refuse_images_of_clips(src, listing.entries, real_paths)
        _refuse_masks_as_inputs(src, listing.entries, real_paths)
        return listing


def _rows(src: Path) -> tuple[list[dict[str, str]], dict[str, tuple[str, list[Value]]]]:
    """The rows, with the cells of all known columns as text; and kind and values of each other column."""
    if src.suffix.lower() == ".csv":
        _refuse_utf16(src)
    with _reading(src):
        if src.suffix.lower() == ".csv":
            # Read everything as text: a path like 007 must not become a number.
            with pa.csv.open_csv(src) as head:
                types = {name: pa.string() for name in head.schema.names}
            options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            table = pa.csv.read_csv(src, convert_options=options)
        else:
            table = pq.read_table(src, partitioning=None)
    unknown = _unknown_columns(src, table.column_names)
    names = [name for name in (*_REQUIRED, *_OPTIONAL) if name in table.column_names]
    duplicates = [name for name in names if table.column_names.count(name) > 1]
    if duplicates:
        raise UsageError(f"{src}: has the column {', '.join(duplicates)} more than once; keep the one that is meant")
    with _reading(src):
        rows = [{key: _text(key, value) for key, value in row.items()} for row in table.select(names).to_pylist()]
        own = {
            name: typed_values(table.column(name).to_pylist())
            for name in unknown
            if table.column_names.count(name) == 1
        }
    return rows, own


@contextmanager
def _reading(src: Path) -> Iterator[None]:
    """Context in which what Arrow raises on a table, such as on a date that Python does not have, is a `UsageError`."""
    try:
        yield
    except (OSError, OverflowError, ValueError, pa.ArrowException) as error:
        remedy = "; save it as CSV in UTF-8, it is in another encoding" if "UTF8" in str(error) else ""
        raise UsageError(f"{src}: cannot be read as a table ({error}){remedy}") from error


def _refuse_utf16(src: Path) -> None:
    """Raises `UsageError` where a CSV is in UTF-16, as spreadsheets may save it: half of its bytes are zeros then."""
    with _reading(src), src.open("rb") as file:
        start = file.read(_START_BYTES)
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in start:
        raise UsageError(f"{src}: is encoded in UTF-16, or is no text; must be UTF-8: save it as CSV in UTF-8")


def _unknown_columns(src: Path, names: list[str]) -> tuple[str, ...]:
    """Columns without a meaning here; raises `UsageError` where a required one is absent or one looks misspelt."""
    absent = [name for name in (*_REQUIRED, *_OPTIONAL) if name not in names]
    unknown = [name for name in names if name not in (*_REQUIRED, *_OPTIONAL)]
    likely = {
        name: near[0]
        for name in unknown
        if (near := get_close_matches(name.strip().lower(), absent, 1, _MIN_SIMILARITY))
    }
    if missing := [name for name in _REQUIRED if name in absent]:
        guesses = [f"found {name!r}, did you mean {near!r}?" for name, near in likely.items()]
        separator = next((sign for sign in ";\t|" if len(names) == 1 and sign in names[0]), None)
        if separator:
            guesses = [f"it looks separated by {'a tab' if separator == chr(9) else repr(separator)}, must be by ','"]
        raise UsageError(
            f"{src}: lacks the column {', '.join(missing)}; it has {', '.join(map(repr, names))}, must have "
            f"{', '.join(_REQUIRED)} and may have {', '.join(_OPTIONAL)}{''.join(f'; {guess}' for guess in guesses)}"
        )
    if likely:
        name, known = next(iter(likely.items()))
        raise UsageError(
            f"{src}: has a column {name!r}, did you mean {known!r}? It would be ignored; rename it, or take it out"
        )
    return tuple(unknown)


def _refuse_images_of_clips(src: Path, entries: Sequence[Entry], real_paths: RealPaths) -> None:
    """Raises `UsageError` where a row is an image of a folder that another row has as one clip."""
    clips = {real_paths.of(entry.video_id) for entry in entries if entry.num_images}
    for entry in entries:
        is_single = not entry.num_images and is_image(entry.video_id)
        if is_single and real_paths.of(entry.video_id.rpartition("/")[0]) in clips:
            raise UsageError(
                f"{src}: names {entry.video_id!r}, and the folder that it lies in, which is one clip of all its "
                "images: each input may have one label: drop one"
            )


def _refuse_outside_masks(src: Path, rows: Sequence[Mapping[str, str]], masks: Mapping[str, int]) -> None:
    """Raises `UsageError` where there are `masks` outside the allowed roots; with the number of the row of each."""
    for name, number in masks.items():
        more = f" (the first of {len(masks):,} such masks)" if len(masks) > 1 else ""
        raise UsageError(
            f"{src}: {_position(src, number)}: mask {name!r} of {rows[number]['path']!r} lies outside the folder of "
            f"{src.name}{more} and may not be read: admit it with {allow_root_options(src.parent, [*masks])}, or leave "
            "the cell empty"
        )


def _refuse_masks_as_inputs(src: Path, entries: Sequence[Entry], real_paths: RealPaths) -> None:
    """Raises `UsageError` where a row is the mask of a row."""
    masks = {real_paths.of(entry.mask_id) for entry in entries if entry.mask_id}
    if both := next((entry.video_id for entry in entries if real_paths.of(entry.video_id) in masks), None):
        raise UsageError(f"{src}: names {both!r} as a path and as a mask; a mask is no input: drop that row")


def _text(column: str, value: object) -> str:
    is_empty = value is None or (isinstance(value, float) and math.isnan(value))  # NaN is pandas' empty number
    text = "" if is_empty else str(value).strip()
    # A label may be a class of that name, which the file of classes then lists.
    return "" if text in EMPTY_CELLS and column not in _REQUIRED else text


def _split(src: Path, row: dict[str, str]) -> str | None:
    given = row.get("split")
    if not given:
        return None
    split = parse_split_name(given)
    if split is None:
        raise UsageError(f"{src}: split {given!r} of {row['path']!r}: must be train, val or test")
    return split


def _label_fields(src: Path, row: dict[str, str], classes: Sequence[str], label: int) -> dict[str, Any]:
    """The fields of an entry that say its label, and when it has it; unknown where the segments are an empty list.

    Raises `UsageError` where the segments are none, no class is real, or the row's own label is real or unknown.
    """
    given = row.get("fake_segments")
    if not given:
        return {"label": label}
    where = f"{src}: {row['path']}"
    try:
        value = parse_json(given)
    except ValueError:
        value = given
    segments = parse_segments(value, where)
    real = real_class(classes)
    if real is None:
        raise UsageError(
            f"{where}: has fake segments, but no class is called real, which its other frames would be; call it real, "
            f"or list it as 'real: NAME' in {class_file(src).name}"
        )
    if segments and label in (-1, real):
        raise UsageError(
            f"{where}: has fake segments, and the label {row['label']!r}; give the label that it has in them"
        )
    if not segments:
        return {"label": label if label == real else -1}
    return {"label": label, "fake_segments": segments, "outside_label": real}


def _is_whole_frame(src: Path, row: dict[str, str], number: int) -> bool:
    """Whether the input is cropped already; raises `UsageError` on a value that says neither."""
    given = row.get("whole_frame", "")
    if given.lower() not in _BOOLEANS:
        raise UsageError(
            f"{src}: {_position(src, number)}: whole_frame {given!r} of {row['path']!r}: must be true or false (or 1, "
            "0, yes, no; empty is false)"
        )
    return _BOOLEANS[given.lower()]


def _position(src: Path, number: int) -> str:
    """Where row `number` of the table is, counted from 0: its line in a CSV, in which empty lines are no rows."""
    if src.suffix.lower() != ".csv":
        return f"row {number + 1}"
    with src.open("rb") as file:
        lines = file.read().splitlines()
    filled = (position for position, line in enumerate(lines, 1) if line)
    return f"line {next(islice(filled, number + 1, None), len(lines))}"


def _source_of(src: Path, row: dict[str, str], number: int, video_id: str, real_paths: RealPaths) -> str | None:
    """`_source_id` of the row of `video_id`; raises `UsageError` where it is that itself, also by a link."""
    source_id = _source_id(src, row)
    if source_id and real_paths.of(source_id) == real_paths.of(video_id):
        raise UsageError(
            f"{src}: {_position(src, number)}: {row['path']!r} is its own source; a source is the original that a fake "
            "was made from: name that, or leave the cell empty"
        )
    return source_id


def _source_id(src: Path, row: dict[str, str]) -> str | None:
    """Video id of the row's original; None where it names none."""
    given = row.get("source")
    return relative_name(src.parent, given) if given else None


def _unlisted_originals(src: Path, rows: list[dict[str, str]], allowed: Sequence[Path]) -> dict[str, FoundFile | None]:
    """Originals that no row lists, sorted, with their file or folder; None for those that are not on disk.

    Raises `UsageError` where one is a folder of other things than images.
    """
    listed = {relative_name(src.parent, row["path"]) for row in rows}
    row_of = {source: number for number, row in reversed([*enumerate(rows)]) if (source := _source_id(src, row))}
    root = resolved_root(src.parent)
    found: dict[str, FoundFile | None] = {}
    for source in sorted(row_of.keys() - listed):
        holds_table = root.is_relative_to(os.path.normpath(root / source))
        found[source] = None if holds_table else find_named(src.parent, source, allowed)
        if holds_table or (found[source] is None and _is_folder(src.parent / source)):
            number = row_of[source]
            raise UsageError(
                f"{src}: {_position(src, number)}: source {rows[number]['source']!r} of {rows[number]['path']!r} is a "
                "folder without images; a source is the original that a fake was made from, a video, an image or a "
                "folder of its frames: name that, or leave the cell empty"
            )
    return found


def _outside_warning(src: Path, originals: Mapping[str, FoundFile | None]) -> tuple[str, ...]:
    """A warning of the unlisted `originals` that lie outside the allowed roots, if there are any."""
    outside = [original for original, file in originals.items() if file and file.problem == "outside_root"]
    if not outside:
        return ()
    return (
        f"originals outside the folder of {src.name}: {len(outside):,} ({first_names(outside)}); none is read, so "
        f"their fakes get no mask by comparison: {allow_root_options(src.parent, outside)} reads them",
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False
