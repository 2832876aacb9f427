"""Inputs that were computed while a file was absent: their own, or that of their original."""

from __future__ import annotations

from collections.abc import Mapping

from ..sources import Entry
from .run_state import RunState


def computed_without_a_file(run_state: RunState, current: Mapping[str, Entry]) -> list[Entry]:
    """The entries of `current`, by video id, whose rows lack a file that is in it too; see `InputOutcome.absent`.

    Where an input was absent, its rows are older than the plan says; where its original was, they lack masks. The plan
    does not show either: the file that is there again may have the size and the time that were planned.
    """
    return [
        current[outcome.video_id]
        for _, outcome in run_state.outcomes()
        if outcome.absent in current and outcome.video_id in current
    ]
