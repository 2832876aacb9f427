"""Warnings about a listing, shown before the work begins: missing metadata, and how to supply it."""

from __future__ import annotations

from collections.abc import Sequence

from ...console import first_names
from ...dataset.schema import real_class
from ...errors import RefusedError
from ..listing import Entry, Listing, num_files
from ..media.allowed_roots import outside_warning
from .link_coverage import LinkCoverage, classes_of_originals

_NAMES_OF_SOURCE = {
    f"{word}{end}" for word in ("original", "source") for end in ("", "s", "_id", "_path", "_file", "_name", "_video")
}
"""What a table's column of originals is called elsewhere; in lower case."""


def listing_warnings(listing: Listing) -> list[str]:
    """One sentence each on inputs outside the allowed roots, inputs without a label, a real class that is not known,
    real inputs that were made from fakes, a class that is absent, lists of splits that are not there or name no input,
    splits that are not used, splits that cannot be checked for leaks, ignored columns of a table, and the listing's own
    warnings.
    """
    warnings = (
        outside_warning(listing), _label_warning(listing), _real_warning(listing), _swap_warning(listing),
        _class_warning(listing), _list_warning(listing), _unapplied_lists_warning(listing),
        listing.unused_split_warning, *_link_warnings(listing), _column_warning(listing), *listing.warnings,
    )  # fmt: skip
    return [text for text in warnings if text]


def refuse_unlabelled(listing: Listing) -> None:
    """Raises `RefusedError` where more than half of the inputs, or of their media files, have no label.

    Few clips can hold most images: where those of one class are inputs of their own, and those of others joined.
    """
    entries = [entry for entry in listing.entries if not entry.problem]
    unknown = [entry for entry in entries if entry.label < 0]
    if len(unknown) * 2 > len(entries) or num_files(unknown) * 2 > num_files(entries):
        raise RefusedError(f"{_label_warning(listing)}; or accept it with --allow-unlabelled")


def _label_warning(listing: Listing) -> str | None:
    entries = [entry for entry in listing.entries if not entry.problem]
    unknown = [entry for entry in entries if entry.label < 0]
    if not unknown:
        return None
    have, hold = ("has", "holds") if len(unknown) == 1 else ("have", "hold")
    files, all_files = num_files(unknown), num_files(entries)
    is_larger_share = files * len(entries) > len(unknown) * all_files
    in_files = f", which {hold} {files:,} of {all_files:,} media files" if is_larger_share else ""
    return (
        f"{len(unknown):,} of {len(entries):,} inputs {have} no label{in_files} (layout {listing.layout}): "
        f"{listing.giving_labels}"
    )


def unknown_real_class(entries: Sequence[Entry], labels: Sequence[str]) -> str | None:
    """What follows from it that no class of `labels` is known to be real, as a clause; None where that is no matter.

    Where originals or masks are named, or where there are two classes, these are hardly emotions or ages.
    """
    present = sorted({entry.label for entry in entries if entry.label >= 0})
    has_fakes = any(entry.source_id or entry.mask_id for entry in entries)
    if real_class(labels) is not None or not present or not (has_fakes or len(present) == 2):
        return None
    numbers = first_names([f"{labels[label]!r} is {label}" for label in present])
    return (
        f"no class is known to be real (of the labels, {numbers}): masks, pairs, blends and the AUC, which is that of "
        "label 1, cannot tell real from fake"
    )


def _real_warning(listing: Listing) -> str | None:
    labels = listing.stored_labels or listing.labels
    unknown = unknown_real_class(listing.entries, labels)
    if unknown is None:
        return None
    originals = classes_of_originals(listing.entries)
    name = labels[min(originals)] if len(originals) == 1 else "NAME"
    return f"{unknown}; {listing.naming_real.replace('{}', name)}"


def _swap_warning(listing: Listing) -> str | None:
    """Real inputs with a source of another class: `Pairs` leaves them out, and masks compare them the wrong way."""
    real = real_class(listing.labels)
    other = {entry.video_id: entry for entry in listing.entries if entry.label not in {real, -1}}
    swapped = [entry for entry in listing.entries if entry.label == real and entry.source_id in other]
    if real is None or not swapped:
        return None
    first = swapped[0]
    was_made = "input was made" if len(swapped) == 1 else "inputs were made"
    return (
        f"{len(swapped):,} {listing.labels[real]} {was_made} from one of another class, the first {first.video_id!r} "
        f"({listing.labels[real]}) from {first.source_id!r} ({listing.labels[other[str(first.source_id)].label]}): "
        "are labels or originals swapped?"
    )


def _class_warning(listing: Listing) -> str | None:
    """Of a published set: it has all of its classes, so that one is absent means that a folder is."""
    if not listing.recognised_by:
        return None
    present = {entry.label for entry in listing.entries}
    absent = [name for label, name in enumerate(listing.labels) if label not in present]
    if not absent or present == {-1}:
        return None
    left_out = ", ".join(f"{count:,} {what}" for what, count in listing.ignored.most_common(3))
    beside = f"; left out: {left_out}" if left_out else ""
    return (
        f"no input is {' or '.join(absent)} (layout {listing.layout}, found: {listing.recognised_by}){beside}; "
        "if it is no such dataset, read it with --layout folder"
    )


def _list_warning(listing: Listing) -> str | None:
    if not listing.missing_split_lists:
        return None
    *others, last = listing.missing_split_lists
    lists, are = (f"{', '.join(others)} and {last}", "are") if others else (last, "is")
    if any(entry.split for entry in listing.entries):
        return f"{lists} {are} not there: splits of the videos that it lists are drawn, not the published ones"
    return f"{lists} {are} not there: splits are drawn, not the published ones that papers report on"


def _unapplied_lists_warning(listing: Listing) -> str | None:
    if not listing.split_lists or not listing.uses_splits or any(entry.split for entry in listing.entries):
        return None
    return (
        f"{', '.join(listing.split_lists)}: no input is known to be a video of these lists, so that splits are drawn, "
        "not the published ones that papers report on"
    )


def _link_warnings(listing: Listing) -> list[str]:
    readable = [entry for entry in listing.entries if not entry.problem]
    return [f"{link.what}; {link.remedy}" for link in LinkCoverage.from_entries(readable, listing.labels).unchecked()]


def _column_warning(listing: Listing) -> str | None:
    if not listing.ignored_columns:
        return None
    names = ", ".join(map(repr, listing.ignored_columns))
    text = f"columns of the table that are ignored: {names}; --columns stores those that it names in each row"
    original = next((name for name in listing.ignored_columns if name.strip().lower() in _NAMES_OF_SOURCE), None)
    if original is None or any(entry.source_id for entry in listing.entries):
        return text
    return f"{text}; {original!r} looks like originals of fakes, which only the column 'source' gives: rename it"
