"""Incremental runs: what changed in the source since the last one, and the next part of the plan, which covers it.

    Listing, plan -> Changes -> splits of added inputs, units that replace others -> PlanPart

In: a `Listing`, and the plan and receipts of OUT. Out: `Changes`, and a `PlanPart`, not written yet.
Must not know: how units are processed, or what is written.
"""

from .added_splits import divided_recordings
from .changes import Changes, absence_warnings, compare_with_plan, inputs_not_to_decode
from .next_part import next_plan_part

__all__ = [
    "Changes",
    "absence_warnings",
    "compare_with_plan",
    "divided_recordings",
    "inputs_not_to_decode",
    "next_plan_part",
]
