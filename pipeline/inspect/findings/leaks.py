"""Findings on what is in the dataset twice, above all in several splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...console import first_names, plural
from ...planning.content_hash import conflicting_content_text, repeated_content_text
from ..statistics.outcomes import Outcomes
from ..statistics.split_crossings import Crossing
from .finding import Finding, are, sentence


def split_crossings(outcomes: Outcomes) -> Iterator[Finding]:
    """Originals and people in more than one split, and whether all of them would be noticed."""
    people = [crossing for crossing in outcomes.crossings if crossing.kind == "person"]
    leaking_people = [crossing for crossing in people if crossing.name not in outcomes.dropped_identities]
    originals = [crossing for crossing in outcomes.crossings if crossing.kind != "person"]
    for leaks, noun, plural_noun in ((originals, "original", "originals"), (leaking_people, "person", "people")):
        if leaks:
            yield Finding(
                "error",
                f"{plural(len(leaks), noun, plural_noun)} {are(len(leaks))} in more than one split: "
                f"{_name_crossings(leaks)}.",
                "A model would be tested on what it was trained on: make a new OUT without --allow-leaks.",
            )
    if len(people) > len(leaking_people):
        dropped = [crossing.name for crossing in people if crossing.name in outcomes.dropped_identities]
        who = plural(len(dropped), "person who links", "people who link")
        yield Finding("warning", f"{who} over 30 % of all videos may be in every split: {first_names(dropped)}.")
    if (known_for_all := outcomes.link_coverage.fully_known) and not outcomes.crossings:
        *first, last = (f"no {what}" for what in known_for_all)
        listed = f"{', '.join(first)} and {last}" if first else last
        yield Finding("ok", f"{listed.capitalize()} is in more than one split.")
    for unknown in outcomes.link_coverage.unchecked("video"):
        yield Finding("warning", sentence(unknown.what), sentence(unknown.remedy))


def equal_content(outcomes: Outcomes) -> Iterator[Finding]:
    """Inputs that have the same bytes."""
    if conflicting := outcomes.equal_content.conflicting:
        yield Finding(
            "error",
            sentence(conflicting_content_text(conflicting)),
            "Keep one file of each in SRC, and use a new OUT: the other's rows would stay in this one.",
        )
    if repeated := outcomes.equal_content.repeated:
        yield Finding(
            "warning",
            sentence(repeated_content_text(repeated)),
            "Its faces count several times: a new OUT of one file of each in SRC has it once.",
        )


def _name_crossings(crossings: Sequence[Crossing]) -> str:
    return first_names([f"{crossing.name} in {' and '.join(crossing.splits)}" for crossing in crossings])
