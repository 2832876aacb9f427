"""Collects all findings on a dataset."""

from __future__ import annotations

from collections.abc import Iterator

from ...console import plural
from ..statistics.groups import Statistics
from ..statistics.outcomes import Outcomes
from .classes import class_balance, class_names, split_coverage
from .faces import dominant_video, face_quality, landmark_fit, missing_masks, missing_segments
from .finding import Finding, Level
from .inputs import failed_inputs
from .leaks import equal_content, split_crossings


def collect_findings(
    statistics: Statistics,
    outcomes: Outcomes,
    *,
    pictures_read: int,
    pictures_unreadable: int,
    pictures_missing: int = 0,
) -> list[Finding]:
    """All findings on a dataset, sorted by level, the most severe first.

    Args:
        statistics: of the rows.
        outcomes: of the inputs.
        pictures_read: number of stored images that were read.
        pictures_unreadable: of these, the number that could not be read or are damaged.
        pictures_missing: of these, the number whose file does not exist.

    """
    if not statistics.total.rows:
        findings = [Finding("error", "The dataset holds no faces.", "See what became of the inputs below.")]
    else:
        findings = [
            *split_crossings(outcomes),
            *equal_content(outcomes),
            *class_names(statistics, outcomes),
            *split_coverage(statistics, outcomes.misspelt_classes),
            *class_balance(statistics),
            *face_quality(statistics),
            *landmark_fit(statistics),
            *dominant_video(statistics),
            *missing_masks(outcomes),
            *missing_segments(statistics),
        ]
    findings += _damaged_pictures(pictures_read, pictures_unreadable, pictures_missing)
    findings += failed_inputs(outcomes)
    order: tuple[Level, ...] = ("error", "warning", "ok")
    return sorted(findings, key=lambda finding: order.index(finding.level))


def _damaged_pictures(read: int, unreadable: int, missing: int) -> Iterator[Finding]:
    if missing:
        yield Finding(
            "error",
            f"The files of {missing:,} of the {plural(read, 'picture')} read are gone.",
            "Run precompute again: it redoes only their units.",
        )
    if damaged := unreadable - missing:
        yield Finding(
            "error",
            f"{damaged:,} of the {plural(read, 'picture')} that were read are damaged.",
            "facefeed verify OUT names the files; delete them and run precompute again.",
        )
