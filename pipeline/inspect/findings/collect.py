"""Findings on a dataset, derived from its statistics: errors, warnings, and what is ok, each with a remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..console import first_names, percent, plural
from ..dataset.schema import SPLITS
from ..planning.content_hash import conflicting_content_text, repeated_content_text
from ..planning.failure_limit import remedies_by_reason
from .statistics.columns import FACE_SIZE, SHARPNESS
from .statistics.groups import MANIPULATED_THRESHOLD, SMALL_FACE_PX, Group, Statistics
from .statistics.outcomes import Outcomes
from .statistics.split_crossings import Crossing

Level = Literal["error", "warning", "ok"]

# A finding is a warning, or an error, from these limits on.
_SMALL_FACES_FRACTION: Final = 0.10
_UNCHANGED_FAKES_FRACTION: Final = 0.05
_UNFITTED_FRACTION: Final = 0.01
_ONE_VIDEO_FRACTION: Final = 0.20
_NO_FACES_FRACTION: Final = 0.10
_FAILED_FRACTION: Final = 0.05
_CLASS_SIZE_RATIO: Final = 3.0
_FACE_SIZE_RATIO: Final = 1.5
_SHARPNESS_RATIO: Final = 2.0
_MIN_VIDEOS: Final = 10  # with fewer, one video is always a large fraction


@dataclass(frozen=True)
class Finding:
    """One sentence on the dataset and, where something can be done about it, a second one on the remedy.

    `level`: error: it spoils training or evaluation; warning: to be aware of; ok. Field names are keys of `--json`.
    """

    level: Level
    what: str
    remedy: str = ""


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
            *_split_crossings(outcomes),
            *_equal_content(outcomes),
            *_class_names(statistics, outcomes),
            *_split_coverage(statistics, outcomes.misspelt_classes),
            *_class_balance(statistics),
            *_face_quality(statistics),
            *_landmarks(statistics),
            *_dominant_video(statistics),
            *_missing_masks(outcomes),
            *_segments(statistics),
        ]
    if pictures_missing:
        findings.append(
            Finding(
                "error",
                f"The files of {pictures_missing:,} of the {plural(pictures_read, 'picture')} read are gone.",
                "Run precompute again: it redoes only their units.",
            )
        )
    if damaged := pictures_unreadable - pictures_missing:
        findings.append(
            Finding(
                "error",
                f"{damaged:,} of the {plural(pictures_read, 'picture')} that were read are damaged.",
                "facefeed verify OUT names the files; delete them and run precompute again.",
            )
        )
    findings += _failed_inputs(outcomes)
    order: tuple[Level, ...] = ("error", "warning", "ok")
    return sorted(findings, key=lambda finding: order.index(finding.level))


def _split_crossings(outcomes: Outcomes) -> Iterator[Finding]:
    people = [crossing for crossing in outcomes.crossings if crossing.kind == "person"]
    leaking_people = [crossing for crossing in people if crossing.name not in outcomes.dropped_identities]
    originals = [crossing for crossing in outcomes.crossings if crossing.kind != "person"]
    for leaks, noun, plural_noun in ((originals, "original", "originals"), (leaking_people, "person", "people")):
        if leaks:
            yield Finding(
                "error",
                f"{plural(len(leaks), noun, plural_noun)} {_are(len(leaks))} in more than one split: "
                f"{_name_crossings(leaks)}.",
                "A model would be tested on what it was trained on: make a new OUT without --allow-leaks.",
            )
    if len(people) > len(leaking_people):
        dropped = [crossing.name for crossing in people if crossing.name in outcomes.dropped_identities]
        who = plural(len(dropped), "person who links", "people who link")
        yield Finding("warning", f"{who} over 30 % of all videos may be in every split: {first_names(dropped)}.")
    if (known_for_all := outcomes.link_coverage.fully_known) and not outcomes.crossings:
        *first, last = (f"no {what}" for what in known_for_all)
        listed = f"{', '.join(first)} and {last}" if first else last
        yield Finding("ok", f"{listed.capitalize()} is in more than one split.")
    for unknown in outcomes.link_coverage.unchecked("video"):
        yield Finding("warning", _sentence(unknown.what), _sentence(unknown.remedy))


def _equal_content(outcomes: Outcomes) -> Iterator[Finding]:
    if conflicting := outcomes.equal_content.conflicting:
        yield Finding(
            "error",
            _sentence(conflicting_content_text(conflicting)),
            "Keep one file of each in SRC, and use a new OUT: the other's rows would stay in this one.",
        )
    if repeated := outcomes.equal_content.repeated:
        yield Finding(
            "warning",
            _sentence(repeated_content_text(repeated)),
            "Its faces count several times: a new OUT of one file of each in SRC has it once.",
        )


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _name_crossings(crossings: Sequence[Crossing]) -> str:
    return first_names([f"{crossing.name} in {' and '.join(crossing.splits)}" for crossing in crossings])


def _class_names(statistics: Statistics, outcomes: Outcomes) -> Iterator[Finding]:
    """Classes none of which is known to be real, or that may be others misspelt: the run warns of both in advance."""
    if outcomes.unknown_real_class:
        yield Finding(
            "warning",
            _sentence(outcomes.unknown_real_class),
            "Name the real one in the source, in a table's file of classes as 'real: NAME', and use a new OUT.",
        )
    for name, other in outcomes.misspelt_classes.items():
        videos = plural(outcomes.inputs_of_class[name], "video")
        splits = {key.split for key in statistics.groups}
        is_everywhere = splits == {key.split for key in statistics.groups if key.label == name}
        yield Finding(
            "warning" if is_everywhere else "error",
            f"The class {name!r} ({videos}) may be {other!r} misspelt: it is a class of its own.",
            "If so, fix the labels, and use a new OUT.",
        )


def _split_coverage(statistics: Statistics, misspelt: Collection[str]) -> Iterator[Finding]:
    """Which split lacks a class; none has to have a `misspelt` one."""
    rows = {split: dict.fromkeys(statistics.classes, 0) for split in SPLITS}
    for key, group in statistics.groups.items():
        rows[key.split][key.label] += group.rows
    present = [split for split in SPLITS if any(rows[split].values())]
    for split in SPLITS:
        if split not in present:
            yield Finding("warning", f"There is no {split} split.")
    absent_labels = {
        split: [label for label, _ in _labelled_classes(statistics) if not rows[split][label] and label not in misspelt]
        for split in present
    }
    for split, labels in absent_labels.items():
        if labels:
            those = labels[0] if len(labels) == 1 else "them"
            yield Finding(
                "error",
                f"{split} has no {_faces_of(labels)}.",
                f"What is learned or measured on {split} says nothing of {those}.",
            )
    has_every_class = all(group.rows for group in statistics.classes.values()) and not misspelt
    if has_every_class and present == list(SPLITS) and not any(absent_labels.values()):
        yield Finding("ok", "Every split has faces of every class.")


def _faces_of(labels: Sequence[str]) -> str:
    return f"{labels[0]} faces" if len(labels) == 1 else f"faces of {len(labels)} classes: {first_names(labels)}"


def _class_balance(statistics: Statistics) -> Iterator[Finding]:
    if empty := [label for label, group in statistics.classes.items() if not group.rows]:
        yield Finding("error", f"No split has {_faces_of(empty)}.")
    if statistics.unlabelled:
        rows = statistics.classes[statistics.unlabelled].rows
        share = percent(rows / statistics.total.rows)
        yield Finding("warning", f"{plural(rows, 'face')} ({share}) have no known label.")
    by_size = sorted(_labelled_classes(statistics), key=lambda item: item[1].rows)
    if len(by_size) > 1:
        (smallest_label, smallest), (largest_label, largest) = by_size[0], by_size[-1]
        ratio = largest.rows / smallest.rows
        if ratio >= _CLASS_SIZE_RATIO:
            ratio_text = f"{ratio:.1f}".removesuffix(".0")
            yield Finding(
                "warning",
                f"{largest_label} has {ratio_text} times as many faces as {smallest_label}.",
                "The loader can even that out: balance=.",
            )
    yield from _shortcuts(by_size)


def _labelled_classes(statistics: Statistics) -> list[tuple[str, Group]]:
    """Classes that have faces, without that of the faces without a label."""
    return [
        (label, group) for label, group in statistics.classes.items() if group.rows and label != statistics.unlabelled
    ]


def _shortcuts(classes: list[tuple[str, Group]]) -> Iterator[Finding]:
    """Measures that separate two classes without their content, so that a model may learn these instead."""
    for key, adjective, limit in (
        (FACE_SIZE.key, "larger", _FACE_SIZE_RATIO),
        (SHARPNESS.key, "sharper", _SHARPNESS_RATIO),
    ):
        medians = sorted((quantiles.median, label) for label, group in classes if (quantiles := group.measures[key]))
        if len(medians) < 2:
            continue
        (low, low_label), (high, high_label) = medians[0], medians[-1]
        ratio = high / max(low, 1e-9)
        if ratio >= limit:
            yield Finding(
                "warning",
                f"{high_label} faces are {ratio:.1f} times {adjective} than {low_label} ones (medians).",
                "A model may learn that instead of what you want it to learn.",
            )


def _face_quality(statistics: Statistics) -> Iterator[Finding]:
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
                "The loader can leave them out by filters= on the column manipulated.",
            )
        else:
            all_differ = "All of the fakes' faces that have a mask differ from their source."
            yield Finding("ok", f"Only {unchanged}." if total.unchanged else all_differ)


def _landmarks(statistics: Statistics) -> Iterator[Finding]:
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


def _segments(statistics: Statistics) -> Iterator[Finding]:
    if names := statistics.videos.never_fake:
        yield Finding(
            "warning",
            f"{plural(len(names), 'video')} that should be fake in part {_have(len(names))} no fake face: "
            f"{first_names(names)}.",
            "Are fake_segments in seconds? Else too few frames are sampled for segments that short.",
        )


def _missing_masks(outcomes: Outcomes) -> Iterator[Finding]:
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
            f"{plural(count, 'face')} of fakes {_have(count)} no mask, although there is an original or an own mask.",
            "It has no frame of the same moment, cannot be read, or differs all over; see faces_without_mask.",
        )


def _dominant_video(statistics: Statistics) -> Iterator[Finding]:
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


def _failed_inputs(outcomes: Outcomes) -> Iterator[Finding]:
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
        absent = f"{plural(inputs['missing'], 'video')} listed in metadata {_are(inputs['missing'])} absent on disk."
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


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
