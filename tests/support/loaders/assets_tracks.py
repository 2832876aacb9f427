"""Made-up tracks for tests of clips: rows that were never stored, with lost frames, cuts and several people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from assets_rows import ColumnsOnly, RowsOnly
from facefeed.loaders.dataset.selection import Rows, select_rows
from hypothesis import strategies as st


@dataclass(frozen=True)
class Track:
    """One person in one video.

    steps: seconds from each sampled frame to the next. lost: ordinals of sampled frames in which the face was not
    found. cuts: ordinals before which the picture jumps. labels: of the frames, by ordinal; the last one repeats.
    frames: their indices in the video; empty: every frame was sampled. numbers: in the names of images of a folder.
    place: where the face is, as a number from the left; None: that of the track. source: the video it was made from.
    """

    video: str
    track: int
    steps: tuple[float, ...]
    lost: frozenset[int] = frozenset()
    cuts: frozenset[int] = frozenset()
    labels: tuple[int, ...] = (0,)
    frames: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    place: int | None = None
    source: str | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Its rows in order of presentation; `ordinal` and `shot` are what a test compares clips with."""
        times = np.concatenate([[0.0], np.cumsum(self.steps)])
        kept = [ordinal for ordinal in range(len(times)) if ordinal not in self.lost]
        rows = []
        for ordinal in kept:
            shot = sum(cut <= ordinal for cut in self.cuts)
            left = 1000.0 * shot + 100 * (self.track if self.place is None else self.place) + ordinal % 3
            rows.append({
                "video_id": self.video, "track_id": self.track,
                "frame_index": self.frames[ordinal] if self.frames else ordinal,
                "pts_seconds": float(times[ordinal]), "ordinal": ordinal, "shot": shot,
                "frame_number": self.numbers[ordinal] if self.numbers else -1,
                "box_xyxy": (left, 10.0, left + 50, 60.0),
                "label": self.labels[min(ordinal, len(self.labels) - 1)], "split": "train", "source_id": self.source,
            })  # fmt: skip
        return rows


class TracksOnly(RowsOnly):
    """As much of a `FaceDataset` as clips ask for. Rows are in the order in which `precompute` stores them, that is by
    video and frame; `table` has them as dicts."""

    def __init__(self, tracks: list[Track], frames_per_video: int | None = None) -> None:
        rows = [row for track in tracks for row in track.rows()]
        self.table = sorted(rows, key=lambda row: (row["video_id"], row["frame_index"], row["track_id"]))
        columns = {name: [row[name] for row in self.table] for name in self.table[0]}
        super().__init__(columns)
        self.index: Any = _Index(columns)
        self.frames_per_video: Any = frames_per_video
        self.selection = self.select_rows(frames_per_video=frames_per_video)

    def select_rows(self, *, frames_per_video: int | None) -> Rows:
        return np.asarray(select_rows(self.index, None, None, frames_per_video))

    def of(self, rows: Any, name: str) -> list[Any]:
        """One column of some rows."""
        return [self.table[row][name] for row in np.asarray(rows).tolist()]


class _Index(ColumnsOnly):
    def boxes(self, name: str, rows: Any) -> Any:
        return np.array(self._columns[name], np.float32).reshape(-1, 4)[rows]

    def number(self, name: str, row: int) -> Any:
        return self.numbers(name, row)


CONSTANT = st.just(0.04)
JITTER = st.sampled_from([0.033, 0.034])
VARIABLE = st.floats(0.01, 0.1)
"""Variable frame rate."""


def tracks(steps: st.SearchStrategy[float] = CONSTANT, **options: Any) -> st.SearchStrategy[list[Track]]:
    """One to four people in two videos, with lost frames and cuts."""
    ordinals = st.frozensets(st.integers(1, 30), max_size=4)
    person = st.fixed_dictionaries({"lost": ordinals, "cuts": ordinals, **options})
    people = st.lists(person, min_size=1, max_size=2)
    video = st.tuples(st.lists(steps, max_size=30).map(tuple), people)
    return st.lists(video, min_size=1, max_size=2).map(
        lambda videos: [
            Track(f"{name}.mp4", number, video_steps, **settings)
            for name, (video_steps, people_of_video) in zip("ab", videos, strict=False)
            for number, settings in enumerate(people_of_video)
        ]
    )
