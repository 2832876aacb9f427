"""Inputs that are cropped already beside others that are not: only like is compared with like."""

from __future__ import annotations

from dataclasses import replace

from ...console import plural
from ..listing import Listing


def without_unlike_comparisons(listing: Listing) -> Listing:
    """The listing with `compared=False` for each fake of which only one is cropped already, it or its original.

    An original that the listing lacks counts as not cropped. Warns of such fakes: they get no mask by comparison.
    """
    whole = {entry.video_id for entry in listing.entries if entry.whole_frame}
    if not whole:
        return listing
    entries = [
        replace(entry, compared=False)
        if entry.source_id is not None and entry.whole_frame != (entry.source_id in whole)
        else entry
        for entry in listing.entries
    ]
    unlike = sum(not entry.compared for entry in entries)
    warning = (
        f"{plural(unlike, 'fake')} cannot be compared with the original, since only one of the two is a whole_frame: "
        "without a mask of the set's own they have none"
    )
    return replace(listing, entries=entries, warnings=(*listing.warnings, *([warning] if unlike else ())))
