"""Findings of `verify`, each with its remedy, and the result as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..dataset.manifest import Receipt
from ..dataset.out import OutPaths
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

    def add(self, paths: OutPaths, receipt: Receipt, checks: Iterable[Finding]) -> bool:
        """Counts the file of a receipt of OUT, where it is there, and adds the findings of its checks; returns whether
        there are none.
        """
        findings = list(errors_as_findings("content", paths.root, str(receipt.file), lambda: checks))
        self.findings += findings
        if paths.files.size_bytes(paths.root / str(receipt.file)) is not None:
            self.files, self.rows = self.files + 1, self.rows + receipt.rows
            self.size_bytes += receipt.bytes
        return not findings

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
