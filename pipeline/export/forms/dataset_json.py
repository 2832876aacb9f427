"""DeepfakeBench's dataset JSON: {dataset: {class: {split: {[compression:] {video: {label, frames}}}}}}.

Written video by video: the frames of a million faces never stand in memory at once.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from ...dataset.schema import SPLITS
from .benchmark_sets import DATASETS, WITH_COMPRESSION, WITH_MASKS, Place

FRAMES, MASKS, LANDMARKS = "frames", "masks", "landmarks"
RGB_FOLDER: Final = "datasets/rgb"
"""DeepfakeBench's default `rgb_dir`; paths begin with `./`, since it puts `rgb_dir` and a backslash before others."""


@dataclass(frozen=True)
class ExportedVideo:
    """One video in DEST. `frames`: frame indices (frames,), ascending; `masked`: those of them that have a mask.

    `grade`: key of its compression in a dataset that has a level for it.
    """

    name: str
    split: str
    grade: str
    place: Place
    frames: NDArray[np.int64]
    masked: NDArray[np.int64]

    def path(self, kind: str, frame: int, suffix: str = ".png") -> str:
        """Path of a frame, its mask or its landmarks, relative to DEST and to a checkout of DeepfakeBench."""
        return frame_path(self.place, self.name, kind, frame, suffix)

    def entry(self) -> dict[str, object]:
        """The video's value in the JSON."""
        entry: dict[str, object] = {
            "label": self.place.label, "frames": [f"./{self.path(FRAMES, frame)}" for frame in self.frames]
        }  # fmt: skip
        if self.place.label in WITH_MASKS:
            entry["masks"] = [f"./{self.path(MASKS, frame)}" for frame in self.masked]
        return entry


def frame_path(place: Place, video: str, kind: str, frame: int, suffix: str = ".png") -> str:
    """Path of a frame's file of one kind, relative to DEST; raises `ValueError` where it leads out of that."""
    path = f"{RGB_FOLDER}/{place.folder}/{kind}/{video}/{frame:03d}{suffix}"
    if ".." in path.split("/"):
        raise ValueError(f"{path}: leads out of DEST")
    return path


def datasets_of(places: Iterable[Place]) -> dict[str, list[str]]:
    """Each dataset JSON with its labels: first those with a fake here, then those whose reals no other one has.

    What DeepfakeBench does not know of a set stands in a JSON of the set's own, with all reals of the set.
    """
    places = sorted(set(places), key=lambda place: place.label)
    labels = {place.label: place for place in places}
    datasets = {name: [label for label in known if label in labels] for name, known in DATASETS.items()}
    all_known = {label for known in DATASETS.values() for label in known}
    for own_set in dict.fromkeys(place.own_set for place in places if place.label not in all_known):
        of_set = [place for place in places if place.own_set == own_set]
        own = [place.label for place in of_set if place.label not in all_known]
        reals = [place.label for place in of_set if place.label in all_known and place.number == 0]
        datasets[own_set] = [*dict.fromkeys([*reals, *own])]
    chosen = {name: known for name, known in datasets.items() if any(labels[label].number for label in known)}
    for name, reals in datasets.items():
        if not {*reals} <= {label for listed in chosen.values() for label in listed}:
            chosen[name] = reals
    return chosen


def write_dataset_json(path: Path, dataset: str, labels: Sequence[str], videos: Sequence[ExportedVideo]) -> None:
    """Writes the JSON of one dataset.

    Every class has all splits and, where the dataset has grades of compression, all of its grades: the loader looks
    them up.
    """
    groups: defaultdict[tuple[str, str, str], list[ExportedVideo]] = defaultdict(list)
    for video in videos:
        if video.place.label in labels:
            grade = video.grade if dataset in WITH_COMPRESSION else ""
            groups[video.place.label, video.split, grade].append(video)
    grades = sorted({grade for *_, grade in groups})

    def of_split(label: str, split: str) -> _Nested:
        of_grade = {grade: groups[label, split, grade] for grade in grades}
        return of_grade[""] if grades == [""] else of_grade

    classes = {label: {split: of_split(label, split) for split in SPLITS} for label in labels}
    with path.open("w", encoding="utf-8") as file:
        _write_nested(file, {dataset: classes})


_Nested = Mapping[str, Any] | list[ExportedVideo]


def _write_nested(file: TextIO, value: _Nested) -> None:
    """Writes JSON objects in one another; the innermost have the videos of a list."""
    if isinstance(value, list):
        _write_videos(file, value)
        return
    file.write("{")
    for number, (key, inner) in enumerate(value.items()):
        file.write(f"{',' if number else ''}\n{json.dumps(key)}: ")
        _write_nested(file, inner)
    file.write("}")


def _write_videos(file: TextIO, videos: Sequence[ExportedVideo]) -> None:
    counts = Counter(video.name for video in videos)
    # Of several grades of an original, names are those of its files, which are the same, and no name has a "/".
    by_key = [(video.name if counts[video.name] == 1 else f"{video.grade}/{video.name}", video) for video in videos]
    by_key.sort(key=itemgetter(0))
    if repeated := next((key for (key, _), (other, _) in pairwise(by_key) if key == other), None):
        raise ValueError(f"two videos of one class are called {repeated}")  # whoever reads it would get one of them
    file.write("{")
    file.writelines(
        f"{',' if number else ''}\n{json.dumps(key)}: {json.dumps(video.entry())}"
        for number, (key, video) in enumerate(by_key)
    )
    file.write("}")
