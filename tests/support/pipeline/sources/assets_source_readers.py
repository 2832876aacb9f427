"""Readers of sources, for `ReaderProcess`: from what metadata says to a plan on disk and cells of Parquet."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.reserved_names import RESERVED_NAMES
from facefeed.pipeline.dataset.schema import COLUMN_KINDS
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.incremental import compare_with_plan, next_plan_part
from facefeed.pipeline.planning.plan import Plan, PlanPart
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.sources import Entry, Listing, list_source, listing_warnings

_DETECTOR = FixedBoxDetector(((0.3, 0.25, 0.7, 0.75),))


def plan_folder(folder: Path) -> None:
    """The folder `src`."""
    _plan(folder / "src", folder / "out")


def plan_file(folder: Path) -> None:
    """The table, or the JSON of clips, in the folder `src`."""
    [src] = [path for path in (folder / "src").iterdir() if path.suffix in (".csv", ".json", ".parquet")]
    _plan(src, folder / "out")


def plan_with_splits(folder: Path) -> None:
    """The folder `src`, with the splits of `splits.json`."""
    _plan(folder / "src", folder / "out", splits=folder / "splits.json")


def _plan(src: Path, out: Path, **options: Any) -> None:
    available = list_source(src).columns
    columns = [name for name in available if name.isidentifier() and name not in RESERVED_NAMES]
    job, listing, config = prepare_job(
        src, out, detector=_DETECTOR, columns=columns, allow_leaks=True, allow_unlabelled=True, **options
    )
    listing_warnings(listing)
    make_folders(job.paths)
    run_state = RunState(job.paths, Plan(), job.config_hash)
    changes = compare_with_plan(run_state, listing, job, lambda *_: nullcontext(lambda _: None))
    part = next_plan_part(
        run_state, listing, changes, job=job, config=config, allow_leaks=True, retry=None, cost_seconds=lambda _: 1.0
    )
    run_state.plan.append(job.paths, part)
    assert PlanPart.read(job.paths.plan / "0.json") == part, "a plan is read as it was written"
    _store(listing)


def _store(listing: Listing) -> None:
    """What of a listing becomes cells, as Arrow stores it."""
    for field in fields(Entry):
        values = [value for entry in listing.entries if isinstance(value := getattr(entry, field.name), str | int)]
        pa.array([str(value) for value in values], pa.string())
    pa.array([person for entry in listing.entries for person in entry.people], pa.string())
    pa.array(listing.labels, pa.string())
    for position, kind in enumerate(listing.columns.values()):
        pa.array([entry.values[position] for entry in listing.entries if entry.values], COLUMN_KINDS[kind])
