"""Layouts `uadfv` and `ffiw`: two folders of classes, in which a fake and its original have the same name.

UADFV (Yang et al. 2019):

    real/0000.mp4, fake/0000_fake.mp4

FFIW-10K (Zhou et al. 2021), with train, val and test:

    source/train/videos/00001.mp4, target/train/videos/00001.mp4
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ...console import plural
from ..clips.image_sequences import video_of_frame
from ..clips.video_or_frames import find_in_folders
from ..folder_names import VIDEO_FOLDERS
from ..listing import Entry, FoundFile, Listing, has_usable_splits, parse_split_name
from ..media.media_files import entries_of, listable_folders, listable_names
from ..media.suffixes import is_media
from .names.name_matcher import NameMatcher, path_of_original, published_path, stem_of
from .names.spelling import folders_spelt_as

_MAX_NAMES_TRIED = 10_000
_MAX_DEPTH = 2  # of folders for splits and videos


@dataclass(frozen=True, kw_only=True)
class ClassPairs:
    """A set of pairs: `real` and `fake` are its folders, both with videos of the same names.

    stem: of every original. fake_stem: of every fake; its group is the original's stem. needs_splits: whether `fake`
    has folders called like splits.
    """

    name: str
    real: str
    fake: str
    stem: re.Pattern[str]
    fake_stem: re.Pattern[str]
    needs: str
    needs_splits: bool

    def fits(self, src: Path) -> bool:
        """Whether `src` has the two folders, and the names of its videos are the set's."""
        label_of = self._label_of(src)
        real, fake = (self._top(label_of, label) for label in (0, 1))
        return {*label_of.values()} == {0, 1} and self._has_splits(src / fake) and self._has_fakes(src, real, fake)

    def _label_of(self, src: Path) -> dict[str, int]:
        return folders_spelt_as(src, {self.real: 0, self.fake: 1})

    def _top(self, label_of: Mapping[str, int], label: int) -> str:
        """The folder of a class as it is spelt on disk."""
        return next((name for name, known in label_of.items() if known == label), (self.real, self.fake)[label])

    def _has_fakes(self, src: Path, real: str, fake: str) -> bool:
        """Whether one of the first fakes has the set's name and an original, or, without splits, half have the name.

        Others do not matter: a file of one's own beside the set's would otherwise hide all originals.
        """
        fakes = [*islice(_clips(src / fake), _MAX_NAMES_TRIED)]
        recordings = {(*folders, match[1]) for *folders, stem in fakes if (match := self.fake_stem.fullmatch(stem))}
        if recordings and not self.needs_splits and 2 * len(recordings) >= len(fakes):
            return True
        return bool(recordings) and not recordings.isdisjoint(_clips(src / real))

    def _has_splits(self, folder: Path) -> bool:
        return not self.needs_splits or any(map(parse_split_name, listable_folders(folder)))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos, or the extracted frames."""
        ignored: Counter[str] = Counter()
        label_of = self._label_of(src)
        inputs = find_in_folders(src, label_of, ignored, allowed=allowed)
        splits = {parse_split_name(name) for folder in label_of for name in listable_folders(src / folder)}
        on_disk = NameMatcher.from_paths(file.relative for file in inputs)
        entries = entries_of(inputs, lambda file: self._entry(file, label_of, on_disk))
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries, ignored=+ignored,
            missing=sorted(
                NameMatcher.from_paths(video_of_frame(file.relative) for file in inputs)
                .missing(video_of_frame(entry.source_id) for entry in entries if entry.source_id)
                .values()
            ),
            uses_splits=has_usable_splits(splits), without_splits="rename the folders that are called like splits",
            recognised_by=f"{', '.join(label_of)} and the names of the videos in {self._top(label_of, 1)}",
            warnings=self._foreign_warnings(entries),
        )  # fmt: skip

    def _foreign_warnings(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        """Reports clips that are not called as the set's: nothing but the folder's class is known of them."""
        paths = {published_path(entry.video_id): entry for entry in reversed(entries) if not entry.problem}
        foreign = [
            entry.video_id
            for path, entry in paths.items()
            if not (self.fake_stem if entry.label else self.stem).fullmatch(Path(path).stem)
        ]
        if not foreign:
            return ()
        are = "is" if len(foreign) == 1 else "are"
        return (
            f"{plural(len(foreign), 'input')} {are} not called as those of {self.name} ({foreign[-1]!r}), and {are} "
            "used with the label of the folder alone: no original is known; take out what is not of the set",
        )

    def _entry(self, file: FoundFile, label_of: Mapping[str, int], on_disk: NameMatcher) -> Entry:
        video = published_path(file.relative)
        top, *between, name = video.split("/")
        label = label_of[top]
        stem = Path(name).stem
        match = self.fake_stem.fullmatch(stem) if label else None
        recording = "/".join([*between, match[1] if match else stem])
        original = path_of_original(file.relative, self._top(label_of, 0), match[1]) if match else None
        return Entry.of_file(
            file,
            label=label,
            split=next((split for part in between if (split := parse_split_name(part))), None),
            source_id=on_disk.find(original) if original else None,
            footage=f"{self.name}/{recording}" if label == 0 or match else None,
            dataset=self.name,
        )


def _clips(folder: Path, depth: int = _MAX_DEPTH) -> Iterator[tuple[str, ...]]:
    """Folders and stem, in lower case, of each video and folder in `folder`, without folders for videos and frames."""
    inner = []
    for name in listable_names(folder):
        key = name.lower()
        if key in VIDEO_FOLDERS or parse_split_name(key):
            inner.append(name)
        else:
            yield (stem_of(key) if is_media(key) else key,)
    for name in inner if depth else ():
        above = () if name.lower() in VIDEO_FOLDERS else (name.lower(),)
        yield from ((*above, *clip) for clip in _clips(folder / name, depth - 1))


UADFV = ClassPairs(
    name="uadfv", real="real", fake="fake", stem=re.compile(r"\d{4}"),
    fake_stem=re.compile(r"(\d{4})_fake", re.IGNORECASE),
    needs="folders real and fake, with fakes called 0000_fake.mp4", needs_splits=False,
)  # fmt: skip
FFIW = ClassPairs(
    name="ffiw", real="source", fake="target", stem=re.compile(r".+"), fake_stem=re.compile(r"(.+)"),
    needs="folders source and target, each with train, val or test", needs_splits=True,
)  # fmt: skip
