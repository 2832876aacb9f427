"""Warnings about a listing, shown before the work begins: missing metadata, and how to supply it."""

from __future__ import annotations

from ..errors import RefusedError
from .allowed_roots import outside_warning
from .link_coverage import LinkCoverage
from .listing import Listing


def listing_warnings(listing: Listing) -> list[str]:
    """One sentence each on inputs outside the allowed roots, inputs without a label, splits that cannot be checked
    for leaks, and ignored columns of a table.
    """
    warnings = (
        outside_warning(listing), _label_warning(listing), *_link_warnings(listing), _column_warning(listing),
    )  # fmt: skip
    return [text for text in warnings if text]


def refuse_unlabelled(listing: Listing) -> None:
    """Raises `RefusedError` where more than half of the inputs have no label."""
    entries = [entry for entry in listing.entries if not entry.problem]
    if sum(entry.label < 0 for entry in entries) * 2 > len(entries):
        raise RefusedError(f"{_label_warning(listing)}; or accept it with --allow-unlabelled")


def _label_warning(listing: Listing) -> str | None:
    entries = [entry for entry in listing.entries if not entry.problem]
    unknown = sum(entry.label < 0 for entry in entries)
    if not unknown:
        return None
    have = "has" if unknown == 1 else "have"
    return f"{unknown:,} of {len(entries):,} inputs {have} no label (layout {listing.layout}): {listing.giving_labels}"


def _link_warnings(listing: Listing) -> list[str]:
    readable = [entry for entry in listing.entries if not entry.problem]
    return [f"{link.what}; {link.remedy}" for link in LinkCoverage.from_entries(readable, listing.labels).unchecked()]


def _column_warning(listing: Listing) -> str | None:
    if not listing.ignored_columns:
        return None
    return f"columns of the table that are ignored: {', '.join(map(repr, listing.ignored_columns))}"
