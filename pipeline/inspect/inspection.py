"""Collects everything that is shown of a dataset, in one pass over it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..dataset.manifest import Manifest
from ..dataset.open_dataset import open_dataset
from ..dataset.out import OutPaths
from ..dataset.schema import WHOLE_FRAME_HULL
from ..dataset.stores.opening import StoreOptions, open_store
from ..dataset.stores.writing import StoreFiles
from .figures.contact_sheets import ContactSheets
from .figures.histograms import Histogram, histograms
from .findings.collect import collect_findings
from .findings.finding import Finding
from .statistics.columns import Measure, measures_of
from .statistics.groups import Statistics
from .statistics.outcomes import Outcomes


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The content of terminal report, `--json` and page.

    `whole_frames`: faces of inputs that are cropped already. `measures`: all that have statistics.
    """

    outcomes: Outcomes
    statistics: Statistics
    findings: list[Finding]
    sheets: ContactSheets
    histograms: list[Histogram]
    whole_frames: int
    measures: tuple[Measure, ...]


def inspect_dataset(out: Path | OutPaths) -> Inspection:
    """Reads manifest, receipts, the index's columns, and the images of the few faces that are shown.

    `out`: a folder, or the open paths of a dataset that may be in a store.

    Raises `UsageError` where OUT holds no finished dataset, `CorruptDataError` where its plan or its index is damaged,
    `StoppedError` where storage does not return a file; a damaged image is counted and shown as such.

    """
    paths, ranges = out if isinstance(out, OutPaths) else OutPaths(out), None
    if isinstance(paths.files, StoreFiles):
        address = paths.files.remote.address
        store = open_store(address.url, StoreOptions(storage_options=address.options))
        manifest, index, ranges = Manifest.read(store.folder), store.index, store.reader
    else:
        manifest, index = open_dataset(paths.root)
    outcomes = Outcomes.of(paths, manifest, set(index.categories("video_id")), index_out=index.out)
    statistics = Statistics.of(index)
    sheets = ContactSheets.of(index, statistics.videos, ranges)
    return Inspection(
        outcomes=outcomes,
        statistics=statistics,
        findings=collect_findings(
            statistics,
            outcomes,
            pictures_read=len(sheets.rows_read),
            pictures_unreadable=len(sheets.unreadable),
            pictures_missing=len(sheets.missing_rows),
        ),
        sheets=sheets,
        histograms=histograms(index, statistics.videos),
        measures=measures_of(index),
        whole_frames=len(index.rows_where("hull_method", WHOLE_FRAME_HULL)),
    )
