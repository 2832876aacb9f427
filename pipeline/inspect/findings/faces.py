"""Findings on the faces: how large they are, what is manipulated in them, which videos they are of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...console import first_names, percent, plural
from ..statistics.groups import MANIPULATED_THRESHOLD, SMALL_FACE_PX, Statistics
from ..statistics.outcomes import Outcomes
from .finding import Finding, have

# A finding is a warning from these limits on.
_SMALL_FACES_FRACTION: Final = 0.10
_UNCHANGED_FAKES_FRACTION: Final = 0.05
_UNFITTED_FRACTION: Final = 0.01
_ONE_VIDEO_FRACTION: Final = 0.20
_MIN_VIDEOS: Final = 10  # with fewer, one video is always a large fraction


def face_quality(statistics: Statistics) -> Iterator[Finding]:
    """Small faces, and faces of fakes that differ little from their source."""
    total = statistics.total
    if total.small >= _SMALL_FACES_FRACTION:
        yield Finding(
            "warning",
            f"{percent(total.small)} of the faces are smaller than {SMALL_FACE_PX:.0f} px.",
            "A larger --min-face, or filters=[(...)] in the loader, leaves them out.",
        )
    if total.unchanged is not None:
        limit = percent(MANIPULATED_THRESHOLD)
        unchanged = f"{percent(total.unchanged)} of the fakes' faces differ from their source by less than {limit}"
        if total.unchanged >= _UNCHANGED_FAKES_FRACTION:
            yield Finding(
                "warning",
                f"{unchanged}: real faces with the label of a fake.",
                "The loader can leave them out by filters= on the columns manipulated and label, which keep real "
                "faces: their manipulated is null, or about 0.",
            )
        else:
            all_differ = "All of the fakes' faces that have a mask differ from their source."
            yield Finding("ok", f"Only {unchanged}." if total.unchanged else all_differ)


def landmark_fit(statistics: Statistics) -> Iterator[Finding]:
    """How many faces the dense landmarks do not fit."""
    unfitted = statistics.total.unfitted
    if unfitted is None:
        return
    if unfitted >= _UNFITTED_FRACTION:
        yield Finding(
            "warning",
            f"The dense landmarks do not fit {percent(unfitted)} of the faces: false ones, profiles, covered faces.",
            "--min-landmark-score 0.5, or filters= on the column landmark_score in the loader, leaves them out.",
        )
    else:
        share = f"all but {percent(unfitted)} of the" if unfitted else "all"
        yield Finding("ok", f"The dense landmarks fit {share} faces.")


def missing_segments(statistics: Statistics) -> Iterator[Finding]:
    """Videos that should be fake in part, and have no fake face."""
    if names := statistics.videos.never_fake:
        yield Finding(
            "warning",
            f"{plural(len(names), 'video')} that should be fake in part {have(len(names))} no fake face: "
            f"{first_names(names)}.",
            "Are fake_segments in seconds? Else too few frames are sampled for segments that short.",
        )


def missing_masks(outcomes: Outcomes) -> Iterator[Finding]:
    """Masks that could not be used, and faces of fakes without one."""
    if unused := outcomes.manifest.own_masks_unused:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in unused.items())
        yield Finding(
            "warning",
            f"Masks of the set's own that could not be used, or not for all frames: {reasons}.",
            "Fakes without any were compared with their sources, where these are there; see own_mask_problem.",
        )
    if count := outcomes.manifest.faces_without_mask:
        yield Finding(
            "warning",
            f"{plural(count, 'face')} of fakes {have(count)} no mask, although there is an original or an own mask.",
            "It has no frame of the same moment, cannot be read, or differs also around the faces: see "
            "faces_without_mask.",
        )


def dominant_video(statistics: Statistics) -> Iterator[Finding]:
    """A video that gives a large share of all faces."""
    videos = statistics.videos
    ids, faces = videos.faces_by_id()
    largest = int(faces.argmax())
    fraction = faces[largest] / statistics.total.rows
    if fraction >= _ONE_VIDEO_FRACTION and len(ids) >= _MIN_VIDEOS:
        name = videos.names[int((videos.id_of_video == ids[largest]).argmax())]
        yield Finding(
            "warning",
            f"One video gives {percent(fraction)} of all faces: {name}.",
            "The loader can limit that: max_per_video=.",
        )
