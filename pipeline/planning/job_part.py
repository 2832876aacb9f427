"""`JobPart`: the share of a job's units that one of several independent runs takes, as `--part 3/8`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from ..errors import UsageError

_MAX_PARTS = 100_000


@dataclass(frozen=True, slots=True)
class JobPart:
    """Part `number` of `count`, counted from 1; not to be confused with a `PlanPart`, which all of them share."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses "3/8"; raises `UsageError` on anything else, of whatever type.

        >>> JobPart.parse("3/8")
        JobPart(number=3, count=8)
        """
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", str(text).strip(), re.ASCII)
        part = cls(*map(int, match.groups())) if match else None
        if part is None or not 1 <= part.number <= part.count <= _MAX_PARTS:
            raise UsageError(
                f"part={text!r}: must be I/N, the I-th of N parts, counted from 1: 1/8 to 8/8; of a task that is "
                "counted from 0, as Kubernetes and AWS Batch do, add 1"
            )
        return part

    def takes(self, position: int) -> bool:
        """Whether the unit at `position` in its part of the plan is this one's: every N-th is."""
        return position % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
