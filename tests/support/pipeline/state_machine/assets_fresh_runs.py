"""What an undisturbed run into a new OUT gives for one video: the measure of every other way to the same end."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
from assets_columns import Colour
from assets_in_process import in_process, new_folder
from assets_tiny_source import NAMES, ORIGINALS, TinySource
from facefeed.pipeline.added_columns.maker import StoredFaces
from facefeed.pipeline.added_columns.values import as_batch
from facefeed.pipeline.dataset.image_codec import decode_rgb_strictly
from facefeed.pipeline.dataset.manifest import InputOutcome
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.schema import BINARY_COLUMNS
from facefeed.pipeline.errors import TooManyFailedError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options, hash_config
from facefeed.pipeline.planning.plan import Plan
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.video import Sampling

_KEEP = FaceFilter(min_face_px=16)
SETTINGS: Mapping[str, Options] = {
    "usual": Options(sampling=Sampling(every=2), keep=_KEEP, size_px=32),
    "wide": Options(sampling=Sampling(every=2), keep=_KEEP, size_px=32, margin=0.6),
    "dense": Options(sampling=Sampling(every=1), keep=_KEEP, size_px=32, boxes="source"),
}


def run_precompute(source: TinySource, out: Path, setting: str, **given: Any) -> Summary:
    """One call of `precompute`, in which any number of videos may fail; see `in_process`."""
    return precompute(
        source.table, out, options=SETTINGS[setting], detector=FixedBoxDetector(),
        max_failed=FailureLimit(count=len(NAMES)), **given,
    )  # fmt: skip


def run_state_of(out: Path) -> RunState | None:
    """What OUT holds by plan and receipts; None without a plan."""
    plan = Plan.load(OutPaths(out))
    return RunState(OutPaths(out), plan, hash_config(plan.parts[0].config)) if plan.parts else None


class Version(NamedTuple):
    """What rows are computed from: the content of a video and that of its original, None where that is not there."""

    content: str
    original: str | None


@dataclass(frozen=True)
class Stored:
    """What a dataset holds of one video: its outcome, and its rows in the order of their names, None without any."""

    outcome: str
    reason: str | None
    rows: pa.Table | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stored) or (self.outcome, self.reason) != (other.outcome, other.reason):
            return False
        return other.rows is None if self.rows is None else other.rows is not None and self.rows.equals(other.rows)

    __hash__ = None  # type: ignore[assignment]


def read_stored(out: Path) -> dict[str, Stored]:
    """What OUT holds of each video of its plan that is finished; fails where rows are of no such video, or there twice.

    Rows are those of all files in OUT/faces, which is what readers see.
    """
    run_state = run_state_of(out)
    outcomes: list[InputOutcome] = [] if run_state is None else [outcome for _, outcome in run_state.outcomes()]
    files = sorted((out / "faces").rglob("*.parquet"))
    table: Any = pads.dataset(files, partitioning=None).to_table().sort_by("face_id") if files else None
    rows_of: dict[str, list[int]] = {}
    for row, video_id in enumerate(table.column("video_id").to_pylist() if files else ()):
        rows_of.setdefault(video_id, []).append(row)
    stored = {
        outcome.video_id: Stored(
            outcome.outcome, outcome.reason,
            None if outcome.video_id not in rows_of else table.take(rows_of.pop(outcome.video_id)).combine_chunks(),
        )
        for outcome in outcomes
    }  # fmt: skip
    assert rows_of == {}, f"rows of videos without an outcome: {sorted(rows_of)}"
    return stored


@functools.cache
def fresh(setting: str, name: str, version: Version) -> Stored:
    """What a new OUT holds of a video that is alone in its source, but for its original."""
    root = new_folder()
    source, out = TinySource(root / "src"), root / "out"
    with in_process():
        source.put(name, version.content)
        if version.original is not None:
            source.put(ORIGINALS[name], version.original)
        with suppress(TooManyFailedError):  # it has no face
            run_precompute(source, out, setting)
    return read_stored(out)[name]


@functools.cache
def fresh_colours(setting: str, name: str, version: Version) -> Mapping[str, Mapping[str, Any]]:
    """The added columns of its rows, by face: what the maker gives for the images."""
    rows = fresh(setting, name, version).rows
    if rows is None:
        return {}
    images = [decode_rgb_strictly(image) for image in rows.column("image").to_pylist()]
    faces = StoredFaces(images, rows.drop_columns([*BINARY_COLUMNS]))
    columns = as_batch(Colour().compute(faces), Colour.columns, len(faces))
    values = pa.Table.from_arrays(columns, schema=Colour.columns).to_pylist()
    return dict(zip(rows.column("face_id").to_pylist(), values, strict=True))
