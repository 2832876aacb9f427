"""Findings of `verify`, each with its remedy, and the result as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..dataset.manifest import Receipt
from ..errors import FacefeedError, StoppedError
from ..files import raise_unless_damage
from ..planning.failure_limit import count_by_reason
from .unfinished import UnfinishedRun

RERUN = "run `facefeed precompute` again with the same arguments"
_REMEDIES = {
    "file": f"{RERUN}; only its unit is recomputed",
    "receipt": f"delete it, if it is there, and {RERUN}; a file that is whole is adopted",
    "unknown-file": f"{RERUN}, which moves it to _tmp",
    "plan": "restore OUT/plan from a backup",
    "manifest": f"{RERUN}, which rewrites it",
    "account": f"{RERUN}, which rewrites it",
    "index": "run `facefeed verify OUT --rebuild-index`",
}
_CONTENT_REMEDY = f"delete the file and {RERUN}; only its unit is recomputed"


@dataclass(frozen=True)
class Finding:
    """One defect: its kind, the file or row it is in, and what was observed. `own_remedy`: in place of its kind's."""

    kind: str
    location: str
    detail: str
    own_remedy: str | None = None

    @property
    def remedy(self) -> str:
        """How the user fixes it; in remedies of a kind, OUT stands for the dataset."""
        return self.own_remedy or _REMEDIES.get(self.kind, _CONTENT_REMEDY)


@dataclass(frozen=True, kw_only=True)
class CheckedUnit:
    """Result of the check of a unit.

    `has_file`: whether there is one. `faces`: `digest_of` their ids, where it has no finding. `index_part`: of an OUT
    in a store, the unit's part of the index; None where the file has findings that leave it unread.
    """

    receipt: Receipt
    has_file: bool
    findings: Sequence[Finding]
    faces: str | None = None
    index_part: bytes | None = None


def digest_of(face_ids: pa.ChunkedArray) -> str:
    """A hash, 32 hex digits, of the ids of faces in their order."""
    return hashlib.sha256(json.dumps(face_ids.to_pylist()).encode()).hexdigest()[:32]


@dataclass(kw_only=True)
class VerifyResult:
    """What was checked, and the findings; without findings, everything that was checked is complete and undamaged.

    `size_bytes`: of the checked files. `unfinished`: state of the last run, where it has not finished.
    """

    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    unfinished: UnfinishedRun | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the last run on OUT finished."""
        return self.unfinished is None

    @property
    def pending(self) -> int:
        """Number of inputs that are left to process."""
        return self.unfinished.pending if self.unfinished else 0

    @property
    def exit_code(self) -> int:
        """1 where there are findings or the last run has not finished, else 0."""
        return int(bool(self.findings) or not self.is_finished)

    def add(self, unit: CheckedUnit) -> None:
        """Adds the findings on a unit, and counts its file, where it is there."""
        self.findings += unit.findings
        if unit.has_file:
            self.files, self.rows = self.files + 1, self.rows + unit.receipt.rows
            self.size_bytes += unit.receipt.bytes

    def figures(self) -> dict[str, Any]:
        """The values for `--json`."""
        return {
            "files": self.files,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "findings": [
                {"what": finding.kind, "where": finding.location, "detail": finding.detail, "remedy": finding.remedy}
                for finding in self.findings
            ],
            "finished": self.is_finished,
            "pending": self.pending,
            "failed": count_by_reason(self.unfinished.failures) if self.unfinished else {},
            "exit": self.exit_code,
        }


def errors_as_findings(
    kind: str, out: Path, location: str, checks: Callable[[], Iterable[Finding]]
) -> Iterator[Finding]:
    """Yields the findings of `checks`; an exception, as parsers raise on damaged bytes, becomes one more finding.

    Raises `StoppedError` where the disk fails: what cannot be read now may well be sound.
    """
    try:
        yield from checks()
    except StoppedError:
        raise
    except Exception as error:
        raise_unless_damage(out / location, error)
        yield Finding(kind, location, str(error) if isinstance(error, FacefeedError) else repr(error))
