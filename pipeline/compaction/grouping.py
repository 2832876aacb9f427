"""Which units are merged: small ones of one split, in the order of the plan, up to the size that is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..dataset.manifest import Receipt
from ..planning.incremental.replaced_units import entry_of_rows
from ..planning.plan import PlanPart, Unit
from ..planning.run_state import RunState
from ..sources import Entry


class _SmallUnit(NamedTuple):
    """A unit that may be merged with others. `receipts`: its own, or those of the parts that it was split into."""

    unit: Unit
    receipts: list[Receipt]

    @property
    def size_bytes(self) -> int:
        return sum(receipt.bytes for receipt in self.receipts)

    @property
    def num_files(self) -> int:
        return sum(receipt.file is not None for receipt in self.receipts)

    def owns_all(self, unit_of_video: Mapping[str, str]) -> bool:
        """Whether no later unit contains one of its inputs, as where an earlier version tried a failed one again."""
        names = (outcome.video_id for receipt in self.receipts for outcome in receipt.inputs)
        return all(unit_of_video[name] == self.unit.unit_id for name in names)


def plan_compaction(run_state: RunState, target_bytes: int) -> PlanPart:
    """A part of the plan with units in place of several smaller ones each; without any where none are to be merged.

    Files of at least half of `target_bytes` stay as they are, and no merged one is larger than that. Merged again, they
    give nothing more to merge: at most one smaller file a split is left. A unit stays that shares an input with a later
    one: merged, the rows of either could be taken for those of that input.
    """
    planned = run_state.plan.planned_videos()
    salt = str(len(run_state.plan.parts))
    groups = (group for group in _groups(run_state, target_bytes) if sum(small.num_files for small in group) > 1)
    units = [_merged(run_state, group, planned, salt) for group in groups]
    return PlanPart(config=run_state.plan.parts[0].config, units=tuple(units), is_compaction=True)


def _groups(run_state: RunState, target_bytes: int) -> Iterator[list[_SmallUnit]]:
    open_groups: dict[str, list[_SmallUnit]] = {}
    for unit in run_state.plan.units():
        small = _SmallUnit(unit, list(_receipts(run_state, unit)))
        if small.size_bytes * 2 >= target_bytes or not small.owns_all(run_state.unit_of_video):
            continue
        group = open_groups.setdefault(unit.split, [])
        if sum(each.size_bytes for each in group) + small.size_bytes > target_bytes:
            yield group
            open_groups[unit.split] = group = []
        group.append(small)
    yield from open_groups.values()


def _receipts(run_state: RunState, unit: Unit) -> Iterator[Receipt]:
    for leaf, receipt in run_state.leaf_units(unit):
        if receipt is None:  # merged without its rows, they would be removed
            raise run_state.lost(leaf)
        yield receipt


def _merged(run_state: RunState, group: list[_SmallUnit], planned: dict[str, tuple[Entry, str]], salt: str) -> Unit:
    inputs = []
    for small in group:
        entries = {entry.video_id: entry for entry in small.unit.inputs}
        inputs += [
            entry_of_rows(entries[outcome.video_id], planned[outcome.video_id][0], outcome)
            for receipt in small.receipts
            for outcome in receipt.inputs
        ]
    return Unit.make(
        inputs, group[0].unit.split, config_hash=run_state.config_hash, salt=salt,
        supersedes=[small.unit.unit_id for small in group], reuses=[entry.video_id for entry in inputs],
    )  # fmt: skip
