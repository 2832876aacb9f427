"""Readers of OUT, for `ReaderProcess`: each opens the dataset in the folder `out` as a command or a training does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.commit.finalize import (
    build_manifest,
    publish_manifest,
    quarantine_orphans,
    remove_superseded,
    write_index_or_quarantine,
)
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dryrun.forecast import forecast_file, load_forecast
from facefeed.pipeline.errors import StoppedError
from facefeed.pipeline.export.destination import Destination
from facefeed.pipeline.export.receipt import ExportReceipt
from facefeed.pipeline.export.rows import StoredRows
from facefeed.pipeline.inspect.inspection import inspect_dataset
from facefeed.pipeline.lock import hold_lock
from facefeed.pipeline.planning.options import hash_config
from facefeed.pipeline.planning.plan import Plan
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file
from facefeed.pipeline.verify.unfinished import UnfinishedRun

EXPORT_REQUEST: dict[str, Any] = {"form": "folders", "split": None}
"""Of the export that `export` finds."""


def verify_all(folder: Path) -> None:
    """`facefeed verify`, whose findings are its result."""
    result = verify(folder / "out")
    assert all(finding.detail and finding.remedy for finding in result.findings)
    result.figures()


def rebuild_index(folder: Path) -> None:
    """`facefeed verify --rebuild-index`."""
    rebuild_index_file(folder / "out")


def inspect_all(folder: Path) -> None:
    """`facefeed inspect` without its page."""
    inspect_dataset(folder / "out")


def load(folder: Path) -> None:
    """An epoch of training, with every light column."""
    out = folder / "out"
    index = Index(out)
    loader = FaceDataLoader(
        out, batch_size=16, image_size=32, num_workers=0, fields=("image", "label", "video_id", "mask")
    )
    for batch in loader:
        assert len(batch["image"]) == len(batch["video_id"])
    loader.stats()
    for name in index.schema.names:
        index.column(name).to_pylist()
    index.hints("method pose added")
    rows = StoredRows(out)
    rows.incomplete_sets()
    for _, batch in rows.batches(rows.select(None), 16):
        batch.to_pylist()


def load_split(folder: Path) -> None:
    """Training on the rows of one split, which it has."""
    assert len(FaceDataLoader(folder / "out", split="train", batch_size=16, image_size=32, num_workers=0))


def finish(folder: Path) -> None:
    """What a further `facefeed precompute` does when every unit has its receipt."""
    paths = OutPaths(folder / "out")
    plan = Plan.load(paths)
    config = plan.parts[0].config if plan.parts else {}
    run_state = RunState(paths, plan, hash_config(config))
    plan.planned_videos()
    plan.dropped_identities()
    if any(run_state.pending_units()) or not plan.parts:
        return
    quarantine_orphans(run_state)
    manifest = build_manifest(run_state, config, (), 0)
    with suppress(StoppedError):  # damaged files went to _tmp, and are done again
        write_index_or_quarantine(run_state, manifest, redoes_units=True)
        publish_manifest(paths, manifest)
        remove_superseded(run_state)


def describe_unfinished(folder: Path) -> None:
    """`facefeed inspect` and `verify` of a run that did not come to its end."""
    (folder / "out/manifest.json").unlink()
    if (unfinished := UnfinishedRun.find(folder / "out")) is not None:
        assert unfinished.state
        assert unfinished.remarks


def lock(folder: Path) -> None:
    """Any command that writes to OUT, where the lock's holder is gone."""
    with hold_lock(folder / "out" / "driver.lease", work="test"):
        pass


def forecast(folder: Path) -> None:
    """The comparison of a run with the forecast of its dry run, in the user's cache."""
    os.environ["XDG_CACHE_HOME"] = str(folder)
    target = forecast_file(str(folder / "out"))
    target.parent.mkdir(parents=True, exist_ok=True)
    (folder / "forecast.json").replace(target)
    if (found := load_forecast(str(folder / "out"))) is not None:
        report = f"{found.seconds.likely:.0f} {found.size_bytes.low:,.0f} {found.inputs:,}"
        assert report.isprintable()
        assert found.is_from_few in (True, False)


def export(folder: Path) -> None:
    """A further `facefeed export` to the same folder, `dest`."""
    wanted = ExportReceipt(fingerprint="f", request=EXPORT_REQUEST)
    destination = Destination.open(folder / "dest", folder / "out", wanted)
    destination.published("real-0")
    if destination.receipt.finished:
        receipt = destination.receipt
        report = f"{receipt.rows:,} {receipt.files:,} {receipt.size_bytes:,} {receipt.skipped} {receipt.notes}"
        assert report.isprintable()
        assert all(isinstance(face, str) for face in receipt.damaged)
        list(destination.listed_files())
