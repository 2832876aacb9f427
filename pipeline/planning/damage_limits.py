"""Inputs whose recorded outcome was decided by another `--max-damaged` limit than the current one."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Self

from ..console import plural
from ..dataset.manifest import InputOutcome
from ..sources import Listing
from ..video import max_damaged_frames
from .run_state import RunState

_MAX_LISTED = 3


@dataclass(frozen=True, kw_only=True)
class DamageLimitConflicts:
    """Outcomes in OUT that the current limit of damaged frames decides, or may decide, differently.

    `partial` inputs have more damage than it allows; `failed` ones failed under a lower limit.
    """

    partial: list[InputOutcome]
    failed: list[InputOutcome]

    @classmethod
    def find(cls, run_state: RunState, max_damaged_percent: float, video_ids: Container[str]) -> Self:
        """Reads all receipts; considers only `video_ids`, the inputs that are still in the source."""
        partial, failed = [], []
        for _, outcome in run_state.outcomes():
            if outcome.video_id not in video_ids:
                continue
            allowed = max_damaged_frames(outcome.frames_wanted, max_damaged_percent)
            if outcome.outcome == "partial" and outcome.frames_wanted - outcome.frames_decoded > allowed:
                partial.append(outcome)
            recorded_percent = outcome.max_damaged_percent
            if (
                outcome.outcome == "failed"
                and recorded_percent is not None
                and allowed > max_damaged_frames(outcome.frames_wanted, recorded_percent)
            ):
                failed.append(outcome)
        return cls(partial=partial, failed=failed)


def damage_limit_warnings(
    run_state: RunState, max_damaged_percent: float, listing: Listing, retry: Callable[[str], bool] | None
) -> list[str]:
    """One sentence each on partial and on failed inputs that another limit decided and that stay as they are.

    None where `retry`, a predicate on failure reasons, redoes them.
    """
    if retry is not None and retry("decode_error"):
        return []
    conflicts = DamageLimitConflicts.find(
        run_state, max_damaged_percent, {entry.video_id for entry in listing.entries if not entry.problem}
    )
    limit = f"--max-damaged {max_damaged_percent:g}%"
    warnings = []
    if count := len(conflicts.partial):
        has, keeps = ("has", "keeps its") if count == 1 else ("have", "keep their")
        what = f"{plural(count, 'partial input')} {has} more damage than {limit} allows and {keeps} rows"
        warnings.append(_warning(what, conflicts.partial))
    if count := len(conflicts.failed):
        stays = "stays" if count == 1 else "stay"
        what = f"{plural(count, 'input')} failed as decode_error that {limit} may allow and {stays} failed"
        warnings.append(_warning(what, conflicts.failed))
    return warnings


def _warning(what: str, inputs: Sequence[InputOutcome]) -> str:
    limits = sorted({outcome.max_damaged_percent for outcome in inputs if outcome.max_damaged_percent is not None})
    known = f" ({', '.join(f'{limit:g}%' for limit in limits)})" if limits else ""
    names = ", ".join(outcome.video_id for outcome in inputs[:_MAX_LISTED])
    more = f" and {len(inputs) - _MAX_LISTED:,} more" if len(inputs) > _MAX_LISTED else ""
    was, then = ("it was", "it is") if len(inputs) == 1 else ("they were", "they are")
    again = f"with --retry-failed decode_error {then} judged again"
    return f"{what}, since {was} judged by another limit{known}: {names}{more}; {again}"
