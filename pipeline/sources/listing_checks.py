"""What a listing does not say, and what would say it: for people, before the work begins."""

from __future__ import annotations

from .allowed_roots import outside_warning
from .link_coverage import LinkCoverage
from .listing import Listing


def listing_warnings(listing: Listing) -> list[str]:
    """A sentence each on inputs that lie outside, inputs without a label, splits that cannot be
    checked, and columns of a table that are ignored.
    """
    found = (outside_warning(listing), _labels(listing), *_ties(listing), _columns(listing))
    return [text for text in found if text]


def _labels(listing: Listing) -> str | None:
    entries = [entry for entry in listing.entries if not entry.problem]
    unknown = sum(entry.label < 0 for entry in entries)
    if not unknown:
        return None
    have = "has" if unknown == 1 else "have"
    return f"{unknown:,} of {len(entries):,} inputs {have} no label (layout {listing.layout}): {listing.giving_labels}"


def _ties(listing: Listing) -> list[str]:
    sound = [entry for entry in listing.entries if not entry.problem]
    return [f"{one.what}; {one.remedy}" for one in LinkCoverage.from_entries(sound, listing.labels).unchecked()]


def _columns(listing: Listing) -> str | None:
    if not listing.ignored_columns:
        return None
    return f"columns of the table that are ignored: {', '.join(map(repr, listing.ignored_columns))}"
