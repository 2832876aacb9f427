"""Layouts `uadfv` and `ffiw`: two folders of classes, in which a fake and its original have the same name.

UADFV (Yang et al. 2019):

    real/0000.mp4, fake/0000_fake.mp4

FFIW-10K (Zhou et al. 2021), with train, val and test:

    source/train/videos/00001.mp4, target/train/videos/00001.mp4
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..clips.image_sequences import video_of_frame
from ..clips.video_or_frames import find_videos_or_frames
from ..listing import Entry, FoundFile, Listing, has_usable_splits, parse_split_name
from ..media.media_files import entries_of, find_media, listable_folders
from .names.name_matcher import NameMatcher, path_of_original, published_path, stem_of

_MAX_NAMES_TRIED = 50


@dataclass(frozen=True, kw_only=True)
class ClassPairs:
    """A set of pairs: `real` and `fake` are its folders, both with videos of the same names.

    fake_stem: of every fake; its group is the original's stem. needs_splits: whether `fake` has folders called like
    splits.
    """

    name: str
    real: str
    fake: str
    fake_stem: re.Pattern[str]
    needs: str
    needs_splits: bool

    def fits(self, src: Path) -> bool:
        """Whether `src` has the two folders, and the names of its videos are the set's."""
        has_folders = all((src / folder).is_dir() for folder in (self.real, self.fake))
        return has_folders and self._has_splits(src) and self._has_fakes(src)

    def _has_fakes(self, src: Path) -> bool:
        """Whether the first fakes have the set's names, and one of them an original."""
        media = find_media(src, Counter(), below=self.fake)
        paths = [published_path(file.relative) for file in islice(media, _MAX_NAMES_TRIED)]
        matches = [self.fake_stem.fullmatch(Path(path).stem) for path in paths]
        if not paths or not all(matches):
            return False
        originals = NameMatcher.from_paths(
            published_path(file.relative) for file in find_media(src, Counter(), below=self.real)
        )
        return not self.needs_splits or any(
            stem_of("/".join([self.real, *path.split("/")[1:-1], match[1]])) in originals.paths_by_stem
            for path, match in zip(paths, matches, strict=True)
            if match
        )

    def _has_splits(self, src: Path) -> bool:
        return not self.needs_splits or any(map(parse_split_name, listable_folders(src / self.fake)))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos, or the extracted frames."""
        ignored: Counter[str] = Counter()

        def is_input(file: FoundFile) -> bool:
            return file.relative.split("/")[0] in (self.real, self.fake)

        files = find_videos_or_frames(src, ignored, is_input=is_input, allowed=allowed)
        inputs = [file for file in files if is_input(file)]
        ignored["media beside the folders"] += len(files) - len(inputs)
        splits = {
            parse_split_name(name) for folder in (self.real, self.fake) for name in listable_folders(src / folder)
        }
        on_disk = NameMatcher.from_paths(file.relative for file in inputs)
        use_splits = has_usable_splits(splits)
        entries = entries_of(inputs, lambda file: self._entry(file, on_disk, use_splits=use_splits))
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries, ignored=+ignored,
            missing=sorted(
                NameMatcher.from_paths(video_of_frame(file.relative) for file in inputs)
                .missing(video_of_frame(entry.source_id) for entry in entries if entry.source_id)
                .values()
            ),
            without_splits="rename the folders that are called like splits",
            recognised_by=f"{self.real}, {self.fake} and the names of the videos in {self.fake}",
        )  # fmt: skip

    def _entry(self, file: FoundFile, on_disk: NameMatcher, *, use_splits: bool) -> Entry:
        video = published_path(file.relative)
        top, *between, name = video.split("/")
        label = int(top == self.fake)
        stem = Path(name).stem
        match = self.fake_stem.fullmatch(stem) if label else None
        recording = "/".join([*between, match[1] if match else stem])
        given = next((split for part in between if (split := parse_split_name(part))), None)
        original = path_of_original(file.relative, self.real, match[1]) if match else None
        return Entry.of_file(
            file,
            label=label,
            split=given if use_splits else None,
            source_id=on_disk.find(original) if original else None,
            footage=f"{self.name}/{recording}" if label == 0 or match else None,
            dataset=self.name,
        )


UADFV = ClassPairs(
    name="uadfv", real="real", fake="fake", fake_stem=re.compile(r"(\d{4})_fake"),
    needs="folders real and fake, with fakes called 0000_fake.mp4", needs_splits=False,
)  # fmt: skip
FFIW = ClassPairs(
    name="ffiw", real="source", fake="target", fake_stem=re.compile(r"(.+)"),
    needs="folders source and target, each with train, val or test", needs_splits=True,
)  # fmt: skip
