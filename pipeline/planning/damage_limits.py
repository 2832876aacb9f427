"""Inputs whose outcome another limit of damaged frames has decided than the one that holds now."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Self

from ..console import plural
from ..dataset.manifest import InputOutcome
from ..sources import Listing
from ..video import max_damaged_frames
from .run_state import RunState

_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class OtherLimit:
    """What an OUT holds that the limit of now would decide, or might decide, otherwise.

    `partial` inputs have more damage than it allows; `failed` ones more than a lower limit allowed.
    """

    partial: list[InputOutcome]
    failed: list[InputOutcome]

    @classmethod
    def of(cls, run_state: RunState, max_damaged_percent: float, here: Container[str]) -> Self:
        """Reads all receipts; counts the inputs that are still in the source, those `here`."""
        partial, failed = [], []
        for _, one in run_state.outcomes():
            if one.video_id not in here:
                continue
            allowed = max_damaged_frames(one.frames_wanted, max_damaged_percent)
            if one.outcome == "partial" and one.frames_wanted - one.frames_decoded > allowed:
                partial.append(one)
            judged_by = one.max_damaged_percent
            if (
                one.outcome == "failed"
                and judged_by is not None
                and allowed > max_damaged_frames(one.frames_wanted, judged_by)
            ):
                failed.append(one)
        return cls(partial=partial, failed=failed)


def damage_warnings(
    run_state: RunState, max_damaged_percent: float, listing: Listing, retry: Callable[[str], bool] | None
) -> list[str]:
    """A sentence each on inputs that another limit has decided and that stay as they are, with what judges them anew.

    None where `retry`, which says which failures by reason are done again, does that.
    """
    if retry is not None and retry("decode_error"):
        return []
    other = OtherLimit.of(run_state, max_damaged_percent, {one.video_id for one in listing.entries if not one.problem})
    limit = f"--max-damaged {max_damaged_percent:g}%"
    found = []
    if count := len(other.partial):
        has, keeps = ("has", "keeps its") if count == 1 else ("have", "keep their")
        what = f"{plural(count, 'partial input')} {has} more damage than {limit} allows and {keeps} rows"
        found.append(_sentence(what, other.partial))
    if count := len(other.failed):
        stays = "stays" if count == 1 else "stay"
        what = f"{plural(count, 'input')} failed as decode_error that {limit} may allow and {stays} failed"
        found.append(_sentence(what, other.failed))
    return found


def _sentence(what: str, inputs: Sequence[InputOutcome]) -> str:
    limits = sorted({one.max_damaged_percent for one in inputs if one.max_damaged_percent is not None})
    known = f" ({', '.join(f'{limit:g}%' for limit in limits)})" if limits else ""
    names = ", ".join(one.video_id for one in inputs[:_NAMED])
    more = f" and {len(inputs) - _NAMED:,} more" if len(inputs) > _NAMED else ""
    was, then = ("it was", "it is") if len(inputs) == 1 else ("they were", "they are")
    again = f"with --retry-failed decode_error {then} judged anew"
    return f"{what}, since {was} judged by another limit{known}: {names}{more}; {again}"
