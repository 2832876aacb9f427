"""Link coverage: for how many inputs originals, recordings and people, which splits must not cut, are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from ...console import plural
from ...dataset.schema import REAL_NAMES
from ..clips.image_sequences import class_names, group_frames
from ..listing import Entry
from ..media.suffixes import is_image


class UncheckedLink(NamedTuple):
    """A kind of leak that cannot be checked, and the metadata that would allow it: clauses without a full stop."""

    what: str
    remedy: str


class LinkCoverage(NamedTuple):
    """Counts of inputs with a known original, recording or person, and of inputs that could have one.

    `fakes`: inputs that may have an original: those not labelled real; where no class is named real, all but the
    originals that others name, if any do, and other inputs of their class, if it has originals alone. `with_original`:
    those of them whose original is known. `has_recordings`: whether any input is known to be a version or frame of a
    recording. `with_recording`: inputs whose recording is known, without the `guessed` ones: images that are assumed to
    be its frames by their names alone.
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
        """Counts over `entries`; `labels[i]` is the name of label `i`."""
        real = {number for number, name in enumerate(labels) if name.lower() in REAL_NAMES}
        originals = {entry.source_id for entry in entries if entry.source_id is not None}
        if real:
            fakes = [entry for entry in entries if entry.label not in real]
        else:
            of_originals = classes_of_originals(entries)
            others = [entry for entry in entries if entry.label not in of_originals]
            fakes = [entry for entry in others if entry.video_id not in originals] if originals else []
        recorded = [entry for entry in entries if entry.footage is not None]
        guessed = _guessed(recorded, labels)
        # A table's row without footage is its own; where all are, the column is empty and nothing is known.
        has_footage = any(entry.footage != entry.video_id for entry in recorded)
        return cls(
            inputs=len(entries),
            with_person=sum(bool(entry.people) for entry in entries),
            has_real=bool(real),
            fakes=len(fakes),
            with_original=sum(entry.source_id is not None for entry in fakes),
            has_recordings=bool(recorded),
            with_recording=len(recorded) - guessed if has_footage else 0,
            guessed=guessed,
        )

    @property
    def fully_known(self) -> list[str]:
        """Kinds of links known for every input that could have one, so that every leak of that kind is detected."""
        kinds = (
            ("original", self.with_original, self.fakes),
            ("recording", self.with_recording, self.inputs),
            ("known person", self.with_person, self.inputs),
        )
        return [kind for kind, count, possible in kinds if count and count >= possible]

    def unchecked(self, noun: str = "input") -> Iterator[UncheckedLink]:
        """Kinds of links known for some inputs or none, with counts; `noun`: the word for an input."""
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


def classes_of_originals(entries: Sequence[Entry]) -> set[int]:
    """Labels of the originals that other inputs name, where no input of the same label was made from one itself."""
    originals = {entry.source_id for entry in entries if entry.source_id is not None}
    with_original = {entry.label for entry in entries if entry.source_id is not None}
    return {entry.label for entry in entries if entry.video_id in originals} - with_original - {-1}


def _guessed(recorded: Sequence[Entry], labels: Sequence[str]) -> int:
    images = [entry for entry in recorded if entry.num_images or is_image(entry.video_id)]
    by_name = group_frames([replace(entry, footage=None) for entry in images], class_names(images, labels))
    return sum(image.footage == other.footage for image, other in zip(images, by_name, strict=True))
