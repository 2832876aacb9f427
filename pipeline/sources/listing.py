"""What a layout returns: a `Listing` with one `Entry` per input."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from ..dataset.schema import SPLITS, unlabelled_name
from ..errors import Reason, UsageError

MAX_CLASSES = 128  # labels are int8
_MAX_CLASSES_SHOWN = 12
_DIGEST_DIGITS = 32

_SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
                "test": "test", "testing": "test"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A media file: path relative to the root (absolute in another allowed folder), size and mtime, or its problem.

    A folder of images has `num_images`, their total size, the latest mtime, and `images_digest`, as an `Entry` has.
    `file_ids`: of the file or of each image, the same under all names that a file has by links; see `file_id`.
    """

    relative: str
    size_bytes: int = 0
    mtime_ns: int = 0
    problem: Reason | None = None
    detail: str | None = None
    num_images: int = 0
    images_digest: str | None = None
    file_ids: Sequence[int] = field(default=(), compare=False, repr=False)

    @classmethod
    def of_frames(cls, folder: str, frames: Sequence[tuple[str, int, int]], file_ids: Sequence[int] = ()) -> Self:
        """A folder of images; `frames`: at least one, as (name, size in bytes, mtime in nanoseconds)."""
        lines = "".join(f"{name}\0{size}\0{mtime}\n" for name, size, mtime in sorted(frames))
        return cls(
            folder, sum(size for _, size, _ in frames), max(mtime for _, _, mtime in frames), num_images=len(frames),
            images_digest=hashlib.sha256(lines.encode()).hexdigest()[:_DIGEST_DIGITS], file_ids=file_ids,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One input with its metadata.

    All inputs linked by `source_id` or `footage` are in one split, and so are those linked by a person, in `identity`
    or `related_identities`, unless people link too large a share of the videos. `footage` and `related_identities`
    become no column.

    Args:
        video_id: path below the listing's root, or an absolute one in an allowed folder.
        size_bytes: size of the file; of a clip of images, of all of them.
        mtime_ns: its modification time, in nanoseconds; of a clip of images, the latest of theirs.
        label: index into the listing's labels, or -1 for unknown.
        split: train, val, test or None.
        source_id: `video_id` of the video that a fake was made from.
        footage: name of the recording that this is a version of, as in other grades of compression.
        identity: who is shown.
        related_identities: further people who are in the video or were used to make it.
        dataset: name of the dataset.
        method: how a fake was made.
        compression: the dataset's own grade.
        mask_id: path of its own mask, a video, an image or a folder of images that says what is manipulated in it;
            relative as `video_id` is.
        mask_size_bytes: size of that file, or of all images; where it changes, as after a broken download, the input is
            done again.
        fake_segments: when it is fake, as (start, end) in seconds since its first frame, end excluded; its other frames
            have the label `outside_label`. None: `label` holds for all frames.
        outside_label: label of the frames outside `fake_segments`.
        whole_frame: whether it is cropped already: each frame is one face, and the detector is not run.
        compared: whether its frames are compared with those of its original: not where one of the two is cropped
            already, as `list_source` sets it, and not those of a real input, as the planning does.
        values: of the listing's `columns`, in their order: str, int, float or None.
        problem: reason why it must not be opened.
        detail: that reason, for people.
        num_images: number of images where it is a folder of them, which is read as one clip; 0 for a file.
        images_digest: hash of their names, sizes and mtimes; None for a file.

    """

    video_id: str
    size_bytes: int = 0
    mtime_ns: int = 0
    label: int = -1
    split: str | None = None
    source_id: str | None = None
    footage: str | None = None
    identity: str | None = None
    related_identities: tuple[str, ...] = ()
    dataset: str | None = None
    method: str | None = None
    compression: str | None = None
    mask_id: str | None = None
    mask_size_bytes: int = 0
    fake_segments: tuple[tuple[float, float], ...] | None = None
    outside_label: int = -1
    whole_frame: bool = False
    compared: bool = True
    values: tuple[str | int | float | None, ...] = ()
    problem: Reason | None = None
    detail: str | None = None
    num_images: int = 0
    images_digest: str | None = None

    @classmethod
    def of_file(cls, file: FoundFile, **metadata: Any) -> Self:
        """The entry of a file that was found, with the other fields by name."""
        return cls(
            video_id=file.relative, size_bytes=file.size_bytes, mtime_ns=file.mtime_ns, problem=file.problem,
            detail=file.detail, num_images=file.num_images, images_digest=file.images_digest, **metadata,
        )  # fmt: skip

    def with_mask(self, mask: FoundFile) -> Self:
        """The entry with a file or a folder of images as its own mask."""
        return replace(self, mask_id=mask.relative, mask_size_bytes=mask.size_bytes)

    def without_mask(self) -> Self:
        """The entry without an own mask."""
        return replace(self, mask_id=None, mask_size_bytes=0) if self.mask_id else self

    def label_at(self, elapsed_seconds: float) -> int:
        """Label of the frame that is shown that long after the video's first one."""
        if self.fake_segments is None or any(start <= elapsed_seconds < end for start, end in self.fake_segments):
            return self.label
        return self.outside_label

    def check_texts(self) -> None:
        """Raises `ValueError` on a text with half a character, as JSON may hold one, which no cell can store."""
        texts = (
            self.video_id, self.split, self.source_id, self.footage, self.dataset, self.method, self.compression,
            self.mask_id, *self.people, *self.values,
        )  # fmt: skip
        try:
            "".join(text for text in texts if isinstance(text, str)).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{self.video_id!r}: its metadata holds {error.object[error.start]!r}, which is half a character"
            ) from None

    @property
    def people(self) -> tuple[str, ...]:
        """Everyone in it: `identity`, then `related_identities`."""
        return (self.identity, *self.related_identities) if self.identity else self.related_identities


@dataclass(frozen=True, kw_only=True)
class Listing:
    """All inputs of one source.

    Args:
        layout: name of the layout.
        root: folder that every `video_id` is relative to.
        labels: names of the labels, by index.
        entries: the inputs.
        stored_labels: names by index that OUT has in place of `labels`, after which folders of SRC may be called.
        missing: files that metadata lists but that are not on disk; no failure.
        ignored: number of files that are no inputs, by suffix or by folder.
        uses_splits: whether the entries' splits are used; see `has_usable_splits`.
        unused_split_warning: what a user should know where they are not, as a sentence without a full stop.
        footage_from_names: whether `footage` follows from names alone. Where it then differs from that of a planned
            input, it is the rule that is another, and not the source that has changed.
        clips_in_root: whether folders in the root may be clips of a published set, as in one part of DFDC.
        footage_before: what the layout gave as the footage of entries that got that of others, since they may be of one
            clip; by id.
        without_splits: in the imperative, how the user removes given splits, so that splits are drawn.
        missing_split_lists: published lists of splits that are not there.
        split_lists: published lists of splits that were read.
        collecting_folders: names, in lower case, of folders of a published set that hold frames of several clips.
        giving_labels: how inputs without a label get one.
        naming_real: in the imperative, how a class is named the real one; {} stands for its name.
        misspelt_labels: those of `labels` that may be another one misspelt, of which `warnings` warns.
        columns: the source's own columns, kind by name; see `dataset.schema.COLUMN_KINDS`. Stored where they are
            selected.
        unusable_columns: those of `columns` that cannot be selected, with why.
        ignored_columns: further ones, which are not stored.
        recognised_by: what in the source shows that it has this layout.
        warnings: what a user should know of how it is read, as sentences without a full stop.
        unread_folders: folders in `root` that hold media, but are no part of the published set; their files are in
            `ignored` as `in folder/`.

    """

    layout: str
    root: Path
    labels: tuple[str, ...]
    entries: list[Entry]
    stored_labels: tuple[str, ...] | None = None
    missing: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    uses_splits: bool = True
    unused_split_warning: str = ""
    footage_from_names: bool = False
    clips_in_root: bool = False
    footage_before: Mapping[str, str | None] = field(default_factory=dict)
    without_splits: str = "take the splits out of the source"
    missing_split_lists: tuple[str, ...] = ()
    split_lists: tuple[str, ...] = ()
    collecting_folders: frozenset[str] = frozenset()
    giving_labels: str = "list them in a table: path,label"
    naming_real: str = "if {} is the real one, have the layout call it real"
    misspelt_labels: frozenset[str] = frozenset()
    columns: Mapping[str, str] = field(default_factory=dict)
    unusable_columns: Mapping[str, str] = field(default_factory=dict)
    ignored_columns: tuple[str, ...] = ()
    recognised_by: str = ""
    warnings: tuple[str, ...] = ()
    unread_folders: tuple[str, ...] = ()

    def without_unused_splits(self) -> Self:
        """The listing without the splits of its entries, where they are not used; warns of those that are lost.

        Not of train in a published set: what is meant for tests is not in it.
        """
        given = sorted({entry.split for entry in self.entries if entry.split})
        if self.uses_splits or not given:
            return self
        warning = ""
        if given != ["train"] or not self.recognised_by:
            count = num_files(entry for entry in self.entries if entry.split)  # images may become clips, or be left out
            warning = (
                f"{count:,} of {num_files(self.entries):,} media files have the split {' or '.join(given)}, and none "
                "another; one alone is not used, and all splits are drawn: give every input one, or name it with "
                "--splits FILE, of which one alone is used"
            )
        entries = [replace(entry, split=None) if entry.split else entry for entry in self.entries]
        return replace(self, entries=entries, unused_split_warning=warning)

    def is_relinked(self, entry: Entry, planned: str | None) -> bool:
        """Whether the footage of an entry is another than was planned by a rule alone, and not by what SRC says."""
        given = self.footage_before.get(entry.video_id, entry.footage)
        return entry.footage != planned and (self.footage_from_names or given == planned)

    @property
    def clips(self) -> list[Entry]:
        """The inputs that are folders of images."""
        return [entry for entry in self.entries if entry.num_images]

    def format_class_counts(self) -> str:
        """Number of entries per class as text: `14 real, 16 fake`."""
        counts = Counter(entry.label for entry in self.entries)
        named = [f"{counts[number]:,} {name}" for number, name in enumerate(self.labels) if counts[number]]
        shown = named[:_MAX_CLASSES_SHOWN]
        if len(named) > len(shown):
            shown.append(f"and {len(named) - len(shown)} classes more")
        return ", ".join([*shown, f"{counts[-1]:,} {unlabelled_name(self.labels)}"] if counts[-1] else shown)


def num_files(entries: Iterable[Entry]) -> int:
    """Number of media files: each image of a clip is one."""
    return sum(entry.num_images or 1 for entry in entries)


def refuse_duplicates(path: Path, entries: Sequence[Entry]) -> None:
    """Raises `UsageError` where two of the sorted `entries` are the same file; `path` is the source."""
    for entry, following in pairwise(entries):
        if entry.video_id == following.video_id:
            raise UsageError(
                f"{path}: names {entry.video_id!r} more than once; each input may have one label: drop one"
            )


def parse_split_name(name: str) -> str | None:
    """`train`, `val` or `test` for common spellings of it; None for any other name."""
    return _SPLIT_NAMES.get(name.strip().lower())


def has_usable_splits(names: set[str | None]) -> bool:
    """Whether given splits are used: only where there are two or more (DFDC says `train` for everything).

    One alone is used where inputs are added to a dataset that has given splits: see `list_source`.
    """
    return len(names & set(SPLITS)) >= 2
