"""Findings on the inputs: which failed, and what helps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ...console import first_names, plural
from ...planning.failure_limit import remedies_by_reason
from ..statistics.outcomes import Outcomes
from .finding import Finding, Level, are

# A finding is a warning, or an error, from these limits on.
_NO_FACES_FRACTION: Final = 0.10
_FAILED_FRACTION: Final = 0.05


def failed_inputs(outcomes: Outcomes) -> Iterator[Finding]:
    """Inputs that failed, are damaged, show no face or are absent."""
    inputs, num_failed = outcomes.input_counts, outcomes.num_failed
    total = plural(inputs["total"], "input")
    if num_failed:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in inputs["failed"].items())
        level: Level = "error" if num_failed > _FAILED_FRACTION * inputs["total"] else "warning"
        yield Finding(
            level,
            f"{num_failed:,} of {total} failed: {reasons}.",
            _remedy_for_failures(inputs["failed"]),
        )
    if outcomes.partial:
        lost = sum(outcome.frames_wanted - outcome.frames_decoded for outcome in outcomes.partial)
        names = first_names([outcome.video_id for outcome in outcomes.partial])
        what = f"{len(outcomes.partial):,} of {total} lack {plural(lost, 'damaged frame')}: {names}."
        yield Finding("warning", what, "Put sound copies in their place and run precompute again.")
    if inputs["total"] and inputs["no_faces"] >= _NO_FACES_FRACTION * inputs["total"]:
        yield Finding("warning", f"{inputs['no_faces']:,} of {total} show no face.")
    if inputs["missing"]:
        absent = f"{plural(inputs['missing'], 'video')} listed in metadata {are(inputs['missing'])} absent on disk."
        yield Finding("warning", absent)
    if inputs["total"] and not num_failed:
        yield Finding("ok", f"None of the {total} failed.")


def _remedy_for_failures(reasons: Collection[str]) -> str:
    """What helps: nothing is to be fixed in files outside SRC, and in those that would join two splits."""
    is_fixable, others = remedies_by_reason(reasons)
    if not others:
        return "Fix them and run precompute with --retry-failed."
    own = ["Fix them: --retry-failed"] if is_fixable else []
    return f"{'; '.join([*own, *others])}."
