"""`JobShare`: the share of a job's units that one of several independent runs takes, as `--part 3/8`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from ..errors import UsageError

_MAX_COUNT = 100_000


@dataclass(frozen=True, slots=True)
class JobShare:
    """Share `number` of `count`, counted from 1: every `count`-th unit of each `PlanPart`."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses "3/8"; raises `UsageError` on anything else, of whatever type.

        >>> JobShare.parse("3/8")
        JobShare(number=3, count=8)
        """
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", str(text).strip(), re.ASCII)
        share = cls(*map(int, match.groups())) if match else None
        if share is None or not 1 <= share.number <= share.count <= _MAX_COUNT:
            raise UsageError(
                f"part={text!r}: must be I/N, the I-th of N parts, counted from 1: 1/8 to 8/8; of a task that is "
                "counted from 0, as Kubernetes and AWS Batch do, add 1"
            )
        return share

    def takes(self, position: int) -> bool:
        """Whether the unit at `position` in its part of the plan is in this share: every N-th is."""
        return position % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
