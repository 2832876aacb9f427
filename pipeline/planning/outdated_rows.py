"""Inputs whose rows were computed from other files than the plan says: one was absent, or changed during the run."""

from __future__ import annotations

from collections.abc import Mapping

from ..sources import Entry
from .run_state import RunState


def outdated_entries(run_state: RunState, current: Mapping[str, Entry]) -> list[Entry]:
    """The entries of `current`, by video id, whose rows lack a file that is in it, or have masks of an older original.

    The plan does not show either. An absent file that is there again may have the size and the time that were planned;
    see `InputOutcome.absent`. An original may have changed between its own processing and that of a fake, in either
    order; see `InputOutcome.source_sha256`.
    """
    source_hashes: dict[str | None, str | None] = dict.fromkeys(entry.source_id for entry in current.values())
    compared: list[tuple[Entry, str]] = []
    outdated: list[Entry] = []
    for _, outcome in run_state.outcomes():
        if outcome.video_id in source_hashes:
            source_hashes[outcome.video_id] = outcome.sha256
        if (entry := current.get(outcome.video_id)) is None:
            continue
        if outcome.absent in current:
            outdated.append(entry)
        elif outcome.source_sha256 is not None and entry.source_id in current:
            compared.append((entry, outcome.source_sha256))
    for entry, compared_with in compared:
        source_sha256 = source_hashes[entry.source_id]
        if source_sha256 is not None and compared_with != source_sha256:
            outdated.append(entry)
    return outdated
