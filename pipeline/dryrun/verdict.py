"""Predicts from the listing and the trials how the run would end: its exit code, the reason and a remedy."""

from __future__ import annotations

import math

from ..console import plural
from ..errors import TooManyFailedError
from ..planning.failure_limit import NO_FACES_REMEDY, remedies_by_reason
from .run import DryRunResult


def exit_code(result: DryRunResult, allowed: int) -> int:
    """3 where more inputs than `allowed`, or all, would fail, or none would have a face; 1 where a leak comes before
    that.
    """
    if expected_failure(result, allowed):
        return TooManyFailedError.exit_code
    return 0 if result.survey.leak is None else 1


def expected_failure(result: DryRunResult, allowed: int) -> str:
    """Why the run would end as one with too many failures; empty where that is not expected.

    A leak is refused before anything is tried, but after what the listing alone refuses.
    """
    refused = result.survey.refused
    if result.survey.leak is not None and refused.total() - refused["bridges_splits"] <= allowed:
        return ""
    return _too_many(result, allowed) or _no_face(result)


def _too_many(result: DryRunResult, allowed: int) -> str:
    """Of a part that was tried a share may fail as of the whole, rounded up as `--max-failed` is."""
    total, refused = result.inputs_in_out, result.known_failures
    tried, failed = _conclusive_trials(result)
    most = (f"at most {allowed:,} may fail" if allowed else "none may fail") + " (--max-failed)"
    if refused > allowed or refused == total:
        return f"{refused:,} of {total:,} inputs have failed, or fail before they are read; {most}"
    if not failed:
        return ""
    left = allowed - refused
    if failed == tried and (left < result.pending or not result.any_face):
        return f"all of the {tried:,} inputs that were tried failed"
    before = f", and {refused:,} have failed, or fail before they are read" if refused else ""
    if failed > left:
        return f"{failed:,} of the {tried:,} inputs that were tried failed{before}; {most}"
    if failed > math.ceil(left * tried / result.pending):
        return (
            f"{failed:,} of the {tried:,} inputs that were tried failed{before}; at this share about "
            f"{_expected_failures(result):,} of {total:,} would, and {most}"
        )
    return ""


def _no_face(result: DryRunResult) -> str:
    if result.any_face:
        return ""
    return "no face in any of " + (
        f"the {result.tried:,} inputs that were tried" if result.pending else plural(result.survey.inputs, "input")
    )


def failure_remedy(result: DryRunResult, allowed: int) -> str:
    """What to do about the `expected_failure`."""
    if not _too_many(result, allowed):
        return NO_FACES_REMEDY
    expected, refused = _expected_failures(result), result.survey.refused
    is_fixable, others = remedies_by_reason(+refused)
    is_fixable = is_fixable or expected > refused.total()
    fix = "; ".join([*(["fix them"] if is_fixable else []), *others])
    accept = result.any_face and expected < result.inputs_in_out
    accepted = f", or accept about as many with --max-failed {expected}" if accept else ""
    return f"{fix}, or leave them out of SRC{accepted}; then run the same command again"


def _expected_failures(result: DryRunResult) -> int:
    """Inputs that would fail: those that are known to, and as large a share of the others as of those tried."""
    tried, failed = _conclusive_trials(result)
    return result.known_failures + math.ceil(failed / max(tried, 1) * result.pending)


def _conclusive_trials(result: DryRunResult) -> tuple[int, int]:
    """Inputs of which the trial says whether they fail, and how many do.

    A worker that is lost takes innocent inputs along, which the run would do again one by one: they count only where
    nothing else was tried.
    """
    lost = sum(failure.reason == "crashed" for failure in result.failures)
    return (result.tried - lost, len(result.failures) - lost) if lost < result.tried else (result.tried, lost)
