"""`ClipItems`: the clips of a dataset, as the items that an epoch orders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.errors import UsageError
from ..dataset.face_dataset import FaceDataset
from ..dataset.replacement import around, replacement_candidates
from ..dataset.selection import ClipRows, Rows
from ..sampling.hashing import derive_key, hash_numbers
from .clip import Clip
from .clip_table import ClipTable
from .runs import find_runs


class ClipItems:
    """The clips of a dataset in place of its rows: what `EpochSampler` and balances ask of a dataset.

    An item is a segment of the clips that one video has of one label; each epoch takes one clip of it. It is named by a
    row of the index, the first one of its middle clip, so that whatever the index knows of that row holds for it: its
    video, method, people; but for the label, which is the clip's.

    Pickled by its settings; a process that needs the clips finds them again.

    Args:
        dataset: whose selected rows the clips are of.
        clip: the settings, `pick` included.
        seed: of the draws.
        sampling: how the dataset's frames were sampled; see `find_runs`.
        are_pairs: whether each fake follows an item of its source, which then begins at the same, or the nearest,
            frame, with its face at the same place. Clips of fakes for which their source has no such clip are left out.

    """

    def __init__(
        self, dataset: FaceDataset, clip: Clip, seed: int, sampling: Mapping[str, Any], *, are_pairs: bool = False
    ) -> None:
        self.dataset, self.clip, self.seed, self.sampling = dataset, clip, seed, sampling
        self.are_pairs = are_pairs
        self.split = dataset.split
        self._table: ClipTable | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    @property
    def table(self) -> ClipTable:
        """The items; found at the first call."""
        if self._table is None:
            dataset, max_gap_seconds = self.dataset, self.clip.max_gap_seconds
            is_thinned = dataset.frames_per_video is not None  # by intention: what it leaves out is no lost frame
            rows = dataset.select_rows(frames_per_video=None) if is_thinned else dataset.rows
            runs = find_runs(dataset.index, rows, max_gap_seconds=max_gap_seconds, sampling=self.sampling)
            runs = runs.of_rows(dataset.rows) if is_thinned else runs
            self._table = ClipTable(dataset.index, runs, self.clip, are_pairs=self.are_pairs)
        return self._table

    @property
    def index(self) -> IndexLike:
        """The index of the dataset, in which an item's row has the label of its clips."""
        return self.table.index

    @property
    def rows(self) -> Rows:
        """The row that names each item, ascending: uint32 (items,)."""
        return self.table.anchors

    @property
    def selection(self) -> Rows:
        """The same, as `OrderedItems` have it."""
        return self.rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def identity(self) -> str:
        """What the clips of an epoch depend on besides the items' rows."""
        table = self.table
        content = hashlib.blake2b(table.runs.rows.data, digest_size=8)
        for positions in (table.runs.starts, table.firsts):
            content.update(positions.data)
        return f" {self.clip} {content.hexdigest()}"

    @property
    def notes(self) -> list[str]:
        """Which tracks give no clip, or clips that are filled up, and how many clips have no pair."""
        notes = self._notes_on_tracks()
        if count := self.table.num_unpaired:
            clips = "clip of a fake is" if count == 1 else "clips of fakes are"
            notes.append(
                f"{count:,} {clips} left out: no clip of the source begins with a face at the same place in the frame"
            )
        return notes

    def _notes_on_tracks(self) -> list[str]:
        runs, span = self.table.runs, self.clip.span
        is_short = runs.lengths < span
        if not is_short.any():
            return []
        faces = int(runs.lengths[is_short].sum())
        too_short = f"{faces:,} {'face is' if faces == 1 else 'faces are'} in runs of under {span} images without a gap"
        if self.clip.pad:
            return [f"{too_short}, whose clips are filled up"]
        num_tracks = int(runs.tracks[-1]) + 1
        tracks = num_tracks - self.table.num_tracks_with_clips
        if not tracks:
            return [f"every track has a clip; {too_short}"]
        return [f"{tracks:,} of {num_tracks:,} tracks without a clip; {too_short}"]

    def check(self, parts: Mapping[str, tuple[int, int]]) -> None:
        """Raises `UsageError` where a part of the index has faces, and no clip; `parts`: first row and end by name."""
        runs = self.table.runs
        first_rows = runs.rows[runs.starts]
        for name, (start, end) in parts.items():
            lengths = runs.lengths[(first_rows >= start) & (first_rows < end)]
            if len(lengths) and not ((self.rows >= start) & (self.rows < end)).any():
                raise UsageError(
                    f"{name}{': ' if name else ''}{self.clip}: no track has {self.clip.span} images in a row without a "
                    f"gap, the longest run has {int(lengths.max())}; take fewer frames or a smaller stride, a larger "
                    "max_gap_seconds, or pad=True; or run precompute with --every 1"
                )

    def check_column(self, name: str) -> None:
        """Raises `UsageError` where an item's images differ in a column of strings, by which items are to be balanced.

        Its value is read from one row of the item, and an epoch may have images of another value: of another clip that
        it draws, or that takes the place of a damaged one.
        """
        index = self.index
        if (row := self.table.first_mixed_row(index.codes(name, self.table.runs.rows))) is not None:
            raise UsageError(
                f"column={name!r}: differs between images of {index.text('video_id', row)} that one clip has, or clips "
                "of which an epoch has one or another, so that no share of them is exact; balance clips by label or by "
                "a column with one value for each video, or select the images of one value with filters"
            )

    def clips(self, items: ArrayLike, epoch: int) -> ClipRows:
        """The rows of the clips that an epoch has of these items, given by their rows."""
        at = np.searchsorted(self.table.anchors, np.asarray(items, np.uint32))
        drawn = self._drawn(at, epoch)
        return self.table.clips(self._beside_fakes(at, drawn) if self.are_pairs else drawn)

    def _drawn(self, at: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """The numbers of the drawn candidates of the items at these positions."""
        table = self.table
        if self.clip.pick != "random":
            return table.middles[at]
        key = derive_key(table.index.fingerprint, self.seed, "clips", epoch)
        uniform = hash_numbers(table.anchors[at].astype(np.uint64), key) / 2.0**64
        sizes = table.segment_ends[at] - table.segment_starts[at]
        drawn: NDArray[np.int64] = np.minimum((uniform * sizes).astype(np.int64), sizes - 1)
        return table.segment_starts[at] + drawn

    def _beside_fakes(self, at: NDArray[np.int64], drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        """The drawn candidates of the items at these positions; that of a source, as the fake after it needs it."""
        partners = np.append(self.table.partners[drawn[1:]], -1)
        is_source = (self.table.group_starts[at] <= partners) & (partners < self.table.group_ends[at])
        return np.where(is_source, partners, drawn)

    def replacements(self, item: int, epoch: int, damaged: Sequence[int], columns: Sequence[str]) -> Iterator[ClipRows]:
        """Yields clips that may replace the one of `item` in an epoch, best first; none holds a row in `damaged`.

        Those of the item's segment, from the drawn one on; then the drawn one of each other item, in the order in which
        `replacement_candidates` yields rows; last the others of their segments, for where damage is wide. See `around`
        for which of a segment's. `damaged` may grow meanwhile.
        """
        for which in (slice(None, 1), slice(1, None)):
            others = replacement_candidates(self.table.index, item, self.table.anchors, columns)
            numbers = chain.from_iterable(self._of_segment(other, epoch, which) for other in others)
            if which.start is None:
                numbers = chain(self._of_segment(item, epoch, slice(None)), numbers)
            for number in numbers:
                clip = self.table.clips([number])
                if not np.isin(clip.rows, damaged).any():
                    yield clip

    def _of_segment(self, item: int, epoch: int, which: slice) -> Iterator[int]:
        """The numbers of `which` of the candidates of an item's segment, `around` the drawn one."""
        at = np.searchsorted(self.table.anchors, [item])
        start, drawn = int(self.table.segment_starts[at[0]]), int(self._drawn(at, epoch)[0])
        size = int(self.table.segment_ends[at[0]]) - start
        return (start + (drawn - start + position) % size for position in islice(around(size), which.start, which.stop))
