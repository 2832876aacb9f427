"""Layout `table`: a CSV or Parquet file, one row per input: `path,label[,split,source,mask,identity,footage,...]`.

A path that is a folder of images is one clip. Paths, sources and masks are relative to the table's own folder. Where
there is a column `footage`, rows of one footage stay in one split, and a row without one forms a group of its own.
`whole_frame` says which inputs are cropped already.
`fake_segments`, such as [[1.2, 3.4]] in seconds, says which frames of a video have its label; the others are real.
Beside `emotions.csv`, `emotions.classes.txt` may name the classes, one a line, in the order of their numbers;
`real: live` says which of them is stored as real.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...listing import Entry, FoundFile, Listing, has_usable_splits, refuse_duplicates
from ...media.linked_files import RealPaths, each_file_once
from ...media.media_files import find_named
from ...media.shared_files import shared_files_warning
from .checks import folder_of_others, refuse_images_of_clips, refuse_masks_as_inputs, refuse_outside_masks
from .class_names import ClassNames, class_file, misspelt_labels, misspelt_warnings
from .columns import read_columns
from .originals import outside_warning, unlisted_originals
from .row import Row


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
        cells, own_columns = read_columns(src)
        columns = zip(cells, *(values for _, values in own_columns.values()), strict=True)
        rows = [Row(src, number, known, tuple(own)) for number, (known, *own) in enumerate(columns)]
        labels = {row.label for row in rows}
        classes = ClassNames.of_table(src, labels)
        numbers = {label: classes.number(label) for label in labels}
        files = [find_named(src.parent, row.path, allowed) or folder_of_others(src.parent, row.path) for row in rows]
        originals = unlisted_originals(src, rows, allowed)
        real_paths = RealPaths(src.parent, allowed)
        real_paths.join_clips(filter(None, (*files, *originals.values())))
        entries, missing = _entries(zip(rows, files, strict=True), classes, numbers, real_paths, allowed)
        refuse_duplicates(src, entries)
        inputs = Counter(classes.names[number] for row in rows if (number := numbers[row.label]) >= 0)
        misspelt = misspelt_labels(src, inputs)
        missing += [original for original, file in originals.items() if file is None]
        missing = list(dict.fromkeys(missing))  # rows may share a mask
        listing = Listing(
            layout=self.name, root=src.parent, labels=classes.names, entries=entries,
            stored_labels=classes.stored_names, missing=missing,
            uses_splits=has_usable_splits({row.split for row in rows}),
            footage_from_names=not any("footage" in row.cells for row in rows),
            without_splits="leave out the column split",
            naming_real=f"list all classes in {class_file(src).name}, one a line, the real one as 'real: {{}}'",
            giving_labels="fill in the column label", columns={name: kind for name, (kind, _) in own_columns.items()},
            warnings=(*misspelt_warnings(src, misspelt, inputs), *outside_warning(src, originals)),
            misspelt_labels=frozenset(misspelt),
        )  # fmt: skip
        listing = each_file_once(src, listing, real_paths)
        refuse_images_of_clips(src, listing.entries, real_paths)
        refuse_masks_as_inputs(src, listing.entries, real_paths)
        shared = shared_files_warning(listing.entries, [*filter(None, files)], listing.labels)
        return replace(listing, warnings=(*listing.warnings, *shared))


def _entries(
    inputs: Iterable[tuple[Row, FoundFile | None]],
    classes: ClassNames,
    numbers: Mapping[str, int],
    real_paths: RealPaths,
    allowed: Sequence[Path],
) -> tuple[list[Entry], list[str]]:
    """The entries of rows whose file is there, sorted by id, and the names of files and masks that are not.

    `inputs`: each row with its file. `numbers`: class numbers by label.
    """
    entries: list[Entry] = []
    missing: list[str] = []
    outside_masks: dict[str, Row] = {}  # with the first row that names each
    for row, media_file in inputs:
        if media_file is None:
            missing.append(row.path)
            continue
        entry = _entry(row, media_file, classes, numbers[row.label], real_paths)
        if mask_name := row.cells.get("mask"):
            mask = find_named(row.table.parent, mask_name, allowed)
            if mask is None:
                missing.append(mask_name)
            elif mask.problem == "outside_root":
                outside_masks.setdefault(mask_name, row)
            else:
                entry = entry.with_mask(mask)
        entries.append(entry)
    refuse_outside_masks(outside_masks)
    return sorted(entries, key=lambda entry: entry.video_id), missing


def _entry(row: Row, media_file: FoundFile, classes: ClassNames, label: int, real_paths: RealPaths) -> Entry:
    footage = row.cells.get("footage")
    return Entry.of_file(
        media_file,
        split=row.split,
        source_id=row.source_of(media_file.relative, real_paths),
        footage=None if footage is None else footage or media_file.relative,
        identity=row.cells.get("identity") or None,
        dataset=row.cells.get("dataset") or None,
        method=row.cells.get("method") or None,
        compression=row.cells.get("compression") or None,
        whole_frame=row.is_whole_frame,
        values=row.values,
        **row.label_fields(classes.stored_names, label),
    )
