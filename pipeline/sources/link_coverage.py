"""For how many inputs it is known what splits must keep together, and in words where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from ..console import plural
from .image_sequences import REAL_NAMES, group_frames
from .listing import Entry
from .media_files import is_image


class UncheckedLink(NamedTuple):
    """What cannot be checked, and what would say it: clauses without a full stop."""

    what: str
    remedy: str


class LinkCoverage(NamedTuple):
    """How many inputs say what splits must keep together, and of how many there are that could.

    `fakes`: inputs that may have an original: those not labelled real; where no class is called so, all but the
    originals that others name, if any do; `with_original`: of these. `has_recordings`: whether any is said to be a
    version or frame of a recording; `with_recording`: those of which that is known, without the `guessed` ones: images
    that are taken for its frames by their names alone.
    """

    inputs: int
    with_person: int
    has_real: bool
    fakes: int
    with_original: int
    has_recordings: bool
    with_recording: int
    guessed: int

    @classmethod
    def from_entries(cls, entries: Sequence[Entry], labels: Sequence[str]) -> Self:
        """Counts `entries`; `labels[i]` is the name of label `i`."""
        real = {number for number, name in enumerate(labels) if name.lower() in REAL_NAMES}
        originals = {entry.source_id for entry in entries if entry.source_id is not None}
        if real:
            fakes = [entry for entry in entries if entry.label not in real]
        else:
            fakes = [entry for entry in entries if entry.video_id not in originals] if originals else []
        recorded = [entry for entry in entries if entry.footage is not None]
        guessed = _guessed(recorded, labels)
        # A table's row without footage is alone; where all are, its column was never filled in, and nothing is known.
        is_named = any(entry.footage != entry.video_id for entry in recorded)
        return cls(
            inputs=len(entries),
            with_person=sum(bool(entry.people) for entry in entries),
            has_real=bool(real),
            fakes=len(fakes),
            with_original=sum(entry.source_id is not None for entry in fakes),
            has_recordings=bool(recorded),
            with_recording=len(recorded) - guessed if is_named else 0,
            guessed=guessed,
        )

    @property
    def fully_known(self) -> list[str]:
        """What is known for all inputs that have it, so that nothing can cross splits unseen."""
        kinds = (
            ("original", self.with_original, self.fakes),
            ("recording", self.with_recording, self.inputs),
            ("known person", self.with_person, self.inputs),
        )
        return [what for what, count, wanted in kinds if count and count >= wanted]

    def unchecked(self, noun: str = "input") -> Iterator[UncheckedLink]:
        """What is known for some inputs or none, with the share; `noun` is what inputs are called."""
        if self.with_original < self.fakes:
            which = f"the {plural(self.fakes, noun)} not labelled real" if self.has_real else plural(self.fakes, noun)
            yield UncheckedLink(
                f"originals are known for {self.with_original:,} of {which}: whether an original and its fakes are in "
                "different splits cannot be checked for the others",
                "a table with the column source names originals",
            )
        if self.has_recordings and self.with_recording < self.inputs:
            guessed = f" and guessed from file names for {self.guessed:,}" if self.guessed else ""
            yield UncheckedLink(
                f"recordings are known for {self.with_recording:,} of {plural(self.inputs, noun)}{guessed}: whether a "
                "recording is in more than one split cannot be checked for the others",
                "a table with the column footage names recordings",
            )
        if self.with_person < self.inputs:
            yield UncheckedLink(
                f"people are known for {self.with_person:,} of {plural(self.inputs, noun)}: whether a person is in "
                "more than one split cannot be checked for the others",
                "a table with the column identity names people",
            )


def _guessed(recorded: Sequence[Entry], labels: Sequence[str]) -> int:
    images = [entry for entry in recorded if is_image(entry.video_id)]
    by_name = group_frames([replace(entry, footage=None) for entry in images], labels)
    return sum(one.footage == other.footage for one, other in zip(images, by_name, strict=True))
