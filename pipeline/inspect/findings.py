"""A dataset's numbers in plain words: is it good, and if not, what is wrong and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..console import plural
from ..dataset.schema import SPLITS
from .formatting import named, percent
from .statistics.columns import FACE, SHARPNESS
from .statistics.groups import SMALL_PX, UNCHANGED_BELOW, Census, Group
from .statistics.outcomes import Account
from .statistics.split_crossings import Crossing

Level = Literal["error", "warning", "ok"]

_SMALL_SHARE: Final = 0.10
_UNCHANGED_SHARE: Final = 0.05
_ONE_VIDEO_SHARE: Final = 0.20
_NO_FACES_SHARE: Final = 0.10
_FAILED_SHARE: Final = 0.05
_TIMES_AS_MANY: Final = 3.0
_TIMES_AS_LARGE: Final = 1.5
_TIMES_AS_SHARP: Final = 2.0
_VIDEOS_AT_LEAST: Final = 10  # of fewer, one is always a large share


@dataclass(frozen=True)
class Finding:
    """One sentence on the dataset and, where something can be done about it, another on what.

    `level`: error, it spoils what is trained on it; warning, know it when you train; ok.
    """

    level: Level
    what: str
    remedy: str = ""


def findings(census: Census, account: Account, unreadable: int, shown: int, missing: int = 0) -> list[Finding]:
    """Everything worth a sentence, the worst first.

    `unreadable` of the `shown` pictures are damaged, but for `missing` of these, whose files are gone.
    """
    if not census.whole.rows:
        found = [Finding("error", "The dataset holds no faces.", "See what became of the inputs below.")]
    else:
        found = [*_crossing(account), *_splits(census), *_classes(census), *_faces(census), *_videos(census)]
        found += _masks(account)
    if missing:
        found.append(Finding("error", f"The files of {missing:,} of the {plural(shown, 'picture')} read are gone.",
                             "Run precompute again: only their units are made anew."))  # fmt: skip
    if damaged := unreadable - missing:
        found.append(Finding("error", f"{damaged:,} of the {plural(shown, 'picture')} that were read are damaged.",
                             "facefeed verify OUT names the files; delete them and run precompute again."))  # fmt: skip
    found += _inputs(account)
    order: tuple[Level, ...] = ("error", "warning", "ok")
    return sorted(found, key=lambda one: order.index(one.level))


def _crossing(account: Account) -> Iterator[Finding]:
    people = [one for one in account.crossing if one.kind == "person"]
    known = [one for one in people if one.name not in account.dropped_identities]
    originals = [one for one in account.crossing if one.kind != "person"]
    for leaks, what, more in ((originals, "original", "originals"), (known, "person", "people")):
        if leaks:
            yield Finding(
                "error",
                f"{plural(len(leaks), what, more)} {_are(len(leaks))} in more than one split: {_where(leaks)}.",
                "A model would be tested on what it was trained on: make a new OUT without --allow-leaks.",
            )
    if len(people) > len(known):
        dropped = [one.name for one in people if one.name in account.dropped_identities]
        who = plural(len(dropped), "person who links", "people who link")
        yield Finding("warning", f"{who} over 30 % of all videos may be in every split: {named(dropped)}.")
    if (known_for_all := account.ties.known) and not account.crossing:
        *first, last = (f"no {what}" for what in known_for_all)
        listed = f"{', '.join(first)} and {last}" if first else last
        yield Finding("ok", f"{listed.capitalize()} is in more than one split.")
    for one in account.ties.unknown("video"):
        yield Finding("warning", _sentence(one.what), _sentence(one.remedy))


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _where(leaks: Sequence[Crossing]) -> str:
    return named([f"{one.name} in {' and '.join(one.splits)}" for one in leaks])


def _splits(census: Census) -> Iterator[Finding]:
    rows = {split: dict.fromkeys(census.classes, 0) for split in SPLITS}
    for kind, group in census.groups.items():
        rows[kind.split][kind.label] += group.rows
    there = [split for split in SPLITS if any(rows[split].values())]
    for split in SPLITS:
        if split not in there:
            yield Finding("warning", f"There is no {split} split.")
    lacking = {split: [label for label, _ in _known(census) if not rows[split][label]] for split in there}
    for split, labels in lacking.items():
        if labels:
            those = labels[0] if len(labels) == 1 else "them"
            yield Finding("error", f"{split} has no {_faces_of(labels)}.",
                          f"What is learned or measured on {split} says nothing of {those}.")  # fmt: skip
    everywhere = all(group.rows for group in census.classes.values())
    if everywhere and there == list(SPLITS) and not any(lacking.values()):
        yield Finding("ok", "Every split has faces of every class.")


def _faces_of(labels: Sequence[str]) -> str:
    return f"{labels[0]} faces" if len(labels) == 1 else f"faces of {len(labels)} classes: {named(labels)}"


def _classes(census: Census) -> Iterator[Finding]:
    if empty := [label for label, group in census.classes.items() if not group.rows]:
        yield Finding("error", f"Nowhere are there {_faces_of(empty)}.")
    if census.unlabelled:
        rows = census.classes[census.unlabelled].rows
        yield Finding("warning", f"{plural(rows, 'face')} ({percent(rows / census.whole.rows)}) have no known label.")
    known = sorted(_known(census), key=lambda one: one[1].rows)
    if len(known) > 1:
        (fewest, least), (most, largest) = known[0], known[-1]
        times = largest.rows / least.rows
        if times >= _TIMES_AS_MANY:
            times_told = f"{times:.1f}".removesuffix(".0")
            yield Finding("warning", f"{most} has {times_told} times as many faces as {fewest}.",
                          "The loader can even that out: balance=.")  # fmt: skip
    yield from _shortcuts(known)


def _known(census: Census) -> list[tuple[str, Group]]:
    return [(label, group) for label, group in census.classes.items() if group.rows and label != census.unlabelled]


def _shortcuts(classes: list[tuple[str, Group]]) -> Iterator[Finding]:
    """What tells two classes apart without a look at the face: a model would learn that instead."""
    for key, word, limit in ((FACE.key, "larger", _TIMES_AS_LARGE), (SHARPNESS.key, "sharper", _TIMES_AS_SHARP)):
        medians = sorted((spread.median, label) for label, group in classes if (spread := group.measures[key]))
        if len(medians) < 2:
            continue
        (low, less), (high, more) = medians[0], medians[-1]
        times = high / max(low, 1e-9)
        if times >= limit:
            yield Finding(
                "warning",
                f"{more} faces are {times:.1f} times {word} than {less} ones (medians).",
                "A model may learn that instead of what you want it to learn.",
            )


def _faces(census: Census) -> Iterator[Finding]:
    whole = census.whole
    if whole.small >= _SMALL_SHARE:
        yield Finding("warning", f"{percent(whole.small)} of the faces are smaller than {SMALL_PX:.0f} px.",
                      "A larger --min-face, or filters=[(...)] in the loader, leaves them out.")  # fmt: skip
    if whole.unchanged is not None:
        limit = percent(UNCHANGED_BELOW)
        few = f"{percent(whole.unchanged)} of the fakes' faces differ from their source by less than {limit}"
        if whole.unchanged >= _UNCHANGED_SHARE:
            yield Finding("warning", f"{few}: real faces with the label of a fake.",
                          "The loader can leave them out by filters= on the column manipulated.")  # fmt: skip
        else:
            every = "All of the fakes' faces that have a mask differ from their source."
            yield Finding("ok", f"Only {few}." if whole.unchanged else every)


def _masks(account: Account) -> Iterator[Finding]:
    if count := account.manifest.faces_without_mask:
        yield Finding(
            "warning",
            f"{plural(count, 'face')} of fakes {_have(count)} no mask, although their original is there.",
            "It has no frame of the same moment, cannot be read, or differs all over; see faces_without_mask.",
        )


def _videos(census: Census) -> Iterator[Finding]:
    videos = census.videos
    largest = int(videos.rows.argmax())
    share = videos.rows[largest] / census.whole.rows
    if share >= _ONE_VIDEO_SHARE and len(videos.names) >= _VIDEOS_AT_LEAST:
        yield Finding("warning", f"One video gives {percent(share)} of all faces: {videos.names[largest]}.",
                      "The loader can limit that: max_per_video=.")  # fmt: skip


def _inputs(account: Account) -> Iterator[Finding]:
    inputs, failed = account.inputs, account.failed
    if failed:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in inputs["failed"].items())
        level: Level = "error" if failed > _FAILED_SHARE * inputs["total"] else "warning"
        yield Finding(level, f"{failed:,} of {plural(inputs['total'], 'input')} failed: {reasons}.",
                      "Fix them and run precompute with --retry-failed.")  # fmt: skip
    if account.partial:
        lost = sum(one.frames_wanted - one.frames_decoded for one in account.partial)
        names = named([one.video_id for one in account.partial])
        share = f"{len(account.partial):,} of {plural(inputs['total'], 'input')}"
        what = f"{share} lack {plural(lost, 'damaged frame')}: {names}."
        yield Finding("warning", what, "Put sound copies in their place and run precompute again.")
    if inputs["total"] and inputs["no_faces"] >= _NO_FACES_SHARE * inputs["total"]:
        yield Finding("warning", f"{inputs['no_faces']:,} of {plural(inputs['total'], 'input')} show no face.")
    if inputs["missing"]:
        absent = f"{plural(inputs['missing'], 'video')} listed in metadata {_are(inputs['missing'])} absent on disk."
        yield Finding("warning", absent)
    if inputs["total"] and not failed:
        yield Finding("ok", f"None of the {plural(inputs['total'], 'input')} failed.")


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
