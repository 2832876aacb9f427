"""Failed inputs, and the check of their number against `--max-failed`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from ..console import plural, printable
from ..dataset.manifest import InputOutcome, Manifest
from ..errors import TooManyFailedError, UsageError
from ..sources import Entry
from .job_share import JobShare
from .run_state import RunState

_MAX_LISTED = 20
_REMEDIES = {"outside_root": "--allow-root FOLDER", "bridges_splits": "a new OUT"}
"""By the reasons of failures that are not of the files, and that come again when the inputs are done again."""
NO_FACES_REMEDY = (
    "inspect some inputs; smaller or less certain faces need a lower --min-face or --min-score, and a new OUT"
)


class Failure(NamedTuple):
    """One input that failed."""

    video_id: str
    reason: str
    detail: str

    @property
    def description(self) -> str:
        """Reason and detail, as shown to users."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


@dataclass(frozen=True, kw_only=True)
class FailureLimit:
    """How many inputs may fail: `count`, or `percent` of all, rounded up (1 % of 30 is one), but never all of them."""

    count: int | None = None
    percent: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.count is not None and not (type(self.count) is int and self.count >= 0):
            raise UsageError(f"max_failed: count={self.count!r}: must be a number of inputs of at least 0; try 5")
        if not (isinstance(self.percent, Real) and 0 <= self.percent <= 100):
            raise UsageError(f"max_failed: percent={self.percent!r}: must be a number from 0 to 100; try 1")

    @classmethod
    def parse(cls, text: str) -> FailureLimit:
        """`5` or `1%`; raises `UsageError` on anything else."""
        try:
            if text.endswith("%"):
                percent = Fraction(text[:-1].strip())
                if 0 <= percent <= 100:
                    return cls(percent=percent)
            elif int(text) >= 0:
                return cls(count=int(text))
        except (ValueError, ZeroDivisionError):
            pass
        raise UsageError(f"max_failed={text!r}: must be a number of inputs or a percentage; try 5 or 1%")

    def max_failures(self, total: int) -> int:
        """How many of `total` inputs may fail."""
        if self.count is not None:
            return self.count
        rounded_up = math.ceil(self.percent * total / 100)
        return rounded_up if self.percent == 100 else min(rounded_up, max(total - 1, 0))


def collect_failures(outcomes: Iterable[InputOutcome], refused: Iterable[Entry]) -> list[Failure]:
    """Failed inputs among `outcomes`, and `refused` inputs, which never reach a unit; sorted by video id."""
    failures = [
        Failure(each.video_id, str(each.reason), each.detail or "") for each in outcomes if each.outcome == "failed"
    ]
    failures += [Failure(entry.video_id, str(entry.problem), entry.detail or "") for entry in refused]
    return sorted(failures)


def failures_in_source(
    run_state: RunState, refused: Collection[Entry], removed: Collection[str]
) -> tuple[list[Failure], int]:
    """Failures, and the number of inputs that they are of, also where their outcomes are still to be copied.

    As in the manifest, neither has what was `removed` from the source and has failed, or was never computed: such an
    input has no rows, and nothing is left of it that could be fixed.
    """
    failures = collect_failures(run_state.known_outcomes(run_state.unit_of_video.keys()), refused)
    counted = [failure for failure in failures if failure.video_id not in removed]
    return counted, len(run_state.unit_of_video) + len(refused) - len(run_state.without_rows(removed))


def remedies_by_reason(reasons: Iterable[str]) -> tuple[bool, list[str]]:
    """Whether any of the failures can be fixed in the files and done again; of each other reason, what helps."""
    given = {*reasons}
    others = [f"{reason}: {remedy}" for reason, remedy in _REMEDIES.items() if reason in given]
    return bool(given - _REMEDIES.keys()), others


def refuse_known_failures(
    failures: Sequence[Failure], total: int, failure_limit: FailureLimit, job_share: JobShare | None = None
) -> None:
    """Raises `TooManyFailedError` before the work begins, where known failures already exceed the limit.

    `job_share`: the share of the units that this run processes, None for all.
    """
    allowed = failure_limit.max_failures(total)
    if len(failures) > allowed:
        accept = "" if len(failures) == total else f", or accept them with --max-failed {len(failures)}"
        fix = _remedy(failures, f"fix them (what failed before is done again {_with_retry(job_share)})")
        raise _too_many_failed(
            f"{_failure_count_text(failures, total, allowed)}: nothing was done", failures,
            f"{fix}, or leave them out of SRC{accept}",
        )  # fmt: skip


def check_failures(
    manifest: Manifest,
    failures: Sequence[Failure],
    failure_limit: FailureLimit,
    out: Path,
    job_share: JobShare | None = None,
) -> None:
    """Raises `TooManyFailedError` where a finished run has more failures than allowed, or no row at all.

    `job_share`: the share of the units that this run processes, None for all.
    """
    total = manifest.inputs["total"]
    allowed = failure_limit.max_failures(total)
    figures = {"inputs": manifest.inputs, "rows": manifest.rows}
    consequence = f"no manifest was written, all finished work is kept in {printable(str(out))}"
    if len(failures) > allowed:
        accept = f", or accept them with --max-failed {len(failures)}" if manifest.rows else ""
        raise _too_many_failed(
            f"{_failure_count_text(failures, total, allowed)}: {consequence}", failures,
            f"{_remedy(failures, f'fix them and run the same command {_with_retry(job_share)}')}{accept}", figures,
        )  # fmt: skip
    if not manifest.rows:
        raise _too_many_failed(
            f"no face in any of {plural(total, 'input')}: {consequence}", failures, NO_FACES_REMEDY, figures
        )


def count_by_reason(failures: Iterable[Failure]) -> dict[str, int]:
    """Number of failed inputs by reason, sorted by reason."""
    return dict(sorted(Counter(failure.reason for failure in failures).items()))


def format_reason_counts(failures: Iterable[Failure]) -> str:
    """Counts by reason as text: `2 empty, 1 truncated`."""
    return ", ".join(f"{count:,} {reason}" for reason, count in count_by_reason(failures).items())


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """One line for each of the first failures, and one that counts the rest."""
    lines = [f"  {printable(f'{failure.video_id}: {failure.description}')}" for failure in failures[:_MAX_LISTED]]
    if len(failures) > _MAX_LISTED:
        lines.append(f"  and {len(failures) - _MAX_LISTED:,} more: the same command with --json names all of them")
    return lines


def _remedy(failures: Iterable[Failure], fix: str) -> str:
    """`fix`, where any of `failures` can be fixed in the files, and what helps against the others."""
    is_fixable, others = remedies_by_reason(failure.reason for failure in failures)
    return "; ".join([*([fix] if is_fixable else []), *others])


def _with_retry(job_share: JobShare | None) -> str:
    """How the command processes failed inputs again: parts do not."""
    return "with --retry-failed" + ("" if job_share is None else " and without --part, once all parts have ended")


def _failure_count_text(failures: Sequence[Failure], total: int, allowed: int) -> str:
    named = format_reason_counts(failures)
    most = f"at most {allowed:,} may fail" if allowed else "none may fail"
    return f"{len(failures):,} of {plural(total, 'input')} failed ({named}), {most} (--max-failed)"


def _too_many_failed(
    what: str, failures: Sequence[Failure], remedy: str, figures: dict[str, Any] | None = None
) -> TooManyFailedError:
    named = [failure._asdict() for failure in failures]
    return TooManyFailedError(
        "\n".join([what, *failure_lines(failures), remedy]), details={**(figures or {}), "failures": named}
    )
