"""Inputs whose rows were computed from other files than the plan says: one was absent, or changed during the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import groupby
from operator import itemgetter

from ...dataset.manifest import InputOutcome
from ...sources import Entry
from ..run_state import RunState


def outdated_entries(
    run_state: RunState, current: Mapping[str, Entry], file_exists: Callable[[str], bool]
) -> list[Entry]:
    """The entries of `current`, by video id, whose rows are of other files than a run would compute them from now.

    The plan does not show it: a file that was away during a run may be back as it was planned, an input may have been
    replaced for a while, and an original may have changed between its own processing and that of a fake, in either
    order. See `InputOutcome`: `absent`, `mtime_ns`, `source_sha256`.

    `file_exists`: whether there is a file of that path below the root.
    """
    exists = cache(file_exists)
    source_hashes: dict[str | None, str | None] = dict.fromkeys(entry.source_id for entry in current.values())
    compared: list[tuple[Entry, str]] = []
    same_hashes: dict[str, str] = {}  # by itself each hash in `compared`: all fakes of an original share one text
    outdated: list[Entry] = []
    for planned, outcome in _outcomes_as_planned(run_state):
        if outcome.video_id in source_hashes and outcome.outcome != "failed":
            source_hashes[outcome.video_id] = outcome.sha256
        if (entry := current.get(outcome.video_id)) is None:
            continue
        was_replaced = outcome.mtime_ns != planned.mtime_ns and entry.mtime_ns == planned.mtime_ns
        if was_replaced or _lacks_a_file(entry, outcome, exists):
            outdated.append(entry)
        elif outcome.source_sha256 is not None:
            source_sha256 = outcome.source_sha256
            compared.append((entry, same_hashes.setdefault(source_sha256, source_sha256)))
    for entry, compared_with in compared:
        # What the source does not name keeps its rows: what lies under that name now may be another file for good.
        current_sha256 = source_hashes[entry.source_id] if entry.source_id in current else None
        if current_sha256 is not None and compared_with != current_sha256:
            outdated.append(entry)
    return outdated


def _outcomes_as_planned(run_state: RunState) -> Iterator[tuple[Entry, InputOutcome]]:
    """Each outcome with the entry that its unit was planned with."""
    for unit, of_unit in groupby(run_state.outcomes(), key=itemgetter(0)):
        planned = {entry.video_id: entry for entry in unit.inputs}
        for _, outcome in of_unit:
            yield planned[outcome.video_id], outcome


def _lacks_a_file(entry: Entry, outcome: InputOutcome, exists: Callable[[str], bool]) -> bool:
    """Whether a file that was absent when the rows were computed is there now, and would be used."""
    absent = outcome.absent
    return absent is not None and absent in (entry.video_id, entry.source_id, entry.mask_id) and exists(absent)
