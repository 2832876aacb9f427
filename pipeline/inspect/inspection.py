"""All that is to be shown of a dataset, from one go over it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..dataset.index import Index
from ..dataset.manifest import Manifest
from ..errors import CorruptDataError
from .figures.histograms import Histogram, histograms
from .figures.sheets import Sheets
from .findings import Finding, findings
from .statistics.groups import Census
from .statistics.outcomes import Account


@dataclass(frozen=True, kw_only=True)
class Content:
    """What terminal, `--json` and page draw on."""

    account: Account
    census: Census
    findings: list[Finding]
    sheets: Sheets
    histograms: list[Histogram]


def survey(out: Path) -> Content:
    """Reads the account, the index's columns, and the images of the few faces that are shown.

    Raises `UsageError` where OUT holds no finished dataset, `CorruptDataError` where its account or its index is
    damaged; a damaged image is counted and shown as such.
    """
    manifest, index = Manifest.read(out), Index(out)
    if index.fingerprint != manifest.fingerprint:
        raise CorruptDataError(
            f"{out}: the index belongs to another state of the dataset, its numbers would be wrong; "
            f"run `facefeed verify {out} --rebuild-index`"
        )
    account, census = Account.of(out, manifest, set(index.names("video_id"))), Census.of(index)
    sheets = Sheets.of(index, census.videos)
    return Content(
        account=account,
        census=census,
        findings=findings(census, account, len(sheets.unreadable), sheets.shown, len(sheets.missing)),
        sheets=sheets,
        histograms=histograms(index, census.videos),
    )
