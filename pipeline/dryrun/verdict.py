"""How the run would end, as far as the listing and the trials say: its exit code, why, and the way out."""

from __future__ import annotations

import math

from ..console import plural
from ..errors import TooManyFailedError
from ..planning.failure_limit import NO_FACES_REMEDY
from .run import DryRun


def exit_code(made: DryRun, allowed: int) -> int:
    """3 where more inputs than `allowed`, or all, would fail, or none would have a face; 1 where a leak comes before
    that.
    """
    if why_it_would_fail(made, allowed):
        return TooManyFailedError.exit_code
    return 0 if made.survey.leak is None else 1


def why_it_would_fail(made: DryRun, allowed: int) -> str:
    """Why the run would end as one with too many failures; empty where that is not expected.

    A leak is refused before anything is tried, but after what the listing alone refuses.
    """
    refused = made.survey.refused
    if made.survey.leak is not None and refused.total() - refused["bridges_splits"] <= allowed:
        return ""
    return _too_many(made, allowed) or _no_face(made)


def _too_many(made: DryRun, allowed: int) -> str:
    """Of a part that was tried a share may fail as of the whole, rounded up as `--max-failed` is."""
    survey, refused = made.survey, made.known
    tried, failed = _told_apart(made)
    most = (f"at most {allowed:,} may fail" if allowed else "none may fail") + " (--max-failed)"
    if refused > allowed or refused == survey.inputs:
        return f"{refused:,} of {survey.inputs:,} inputs have failed, or fail before they are read; {most}"
    if not failed:
        return ""
    left = allowed - refused
    if failed == tried and (left < made.pending or not made.any_face):
        return f"all of the {tried:,} inputs that were tried failed"
    before = f", and {refused:,} have failed, or fail before they are read" if refused else ""
    if failed > left:
        return f"{failed:,} of the {tried:,} inputs that were tried failed{before}; {most}"
    if failed > math.ceil(left * tried / made.pending):
        return (
            f"{failed:,} of the {tried:,} inputs that were tried failed{before}; at this share about "
            f"{_expected(made):,} of {survey.inputs:,} would, and {most}"
        )
    return ""


def _no_face(made: DryRun) -> str:
    if made.any_face:
        return ""
    return "no face in any of " + (
        f"the {made.tried:,} inputs that were tried" if made.pending else plural(made.survey.inputs, "input")
    )


def way_out(made: DryRun, allowed: int) -> str:
    """What to do where `why_it_would_fail`."""
    if not _too_many(made, allowed):
        return NO_FACES_REMEDY
    expected = _expected(made)
    accept = made.any_face and expected < made.survey.inputs
    accepted = f", or accept about as many with --max-failed {expected}" if accept else ""
    return f"fix them, or leave them out of SRC{accepted}; then run the same command again"


def _expected(made: DryRun) -> int:
    """Inputs that would fail: those that are known to, and as large a share of the others as of those tried."""
    tried, failed = _told_apart(made)
    return made.known + math.ceil(failed / max(tried, 1) * made.pending)


def _told_apart(made: DryRun) -> tuple[int, int]:
    """Inputs of which the trial says whether they fail, and how many do.

    A worker that is lost takes innocent inputs along, which the run would do again one by one: they count only where
    nothing else was tried.
    """
    lost = sum(one.reason == "crashed" for one in made.failures)
    return (made.tried - lost, len(made.failures) - lost) if lost < made.tried else (made.tried, lost)
