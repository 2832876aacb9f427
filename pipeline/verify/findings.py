"""What `verify` finds: each thing that is wrong with its remedy, and the verdict on the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..dataset.manifest import Receipt
from ..errors import FacefeedError
from ..planning.failure_limit import by_reason
from .unfinished import Unfinished

_AGAIN = "run `facefeed precompute` again with the same arguments"
_REMEDIES = {
    "file": f"{_AGAIN}; only its unit is made anew",
    "receipt": f"delete it, if it is there, and {_AGAIN}; a file that is whole is adopted",
    "stranger": f"{_AGAIN}, which moves it to _tmp",
    "plan": "restore OUT/plan from a backup",
    "manifest": f"{_AGAIN}, which writes it anew",
    "account": f"{_AGAIN}, which writes it anew",
    "index": "run `facefeed verify OUT --rebuild-index`",
}
_REMEDY_OF_CONTENT = f"delete the file and {_AGAIN}; only its unit is made anew"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what kind, where, and what was seen."""

    what: str
    where: str
    detail: str

    @property
    def remedy(self) -> str:
        """What the user does about it."""
        return _REMEDIES.get(self.what, _REMEDY_OF_CONTENT)


@dataclass(kw_only=True)
class Verdict:
    """What was checked and what was found; an empty list of findings means whole, as far as it is there.

    `unfinished`: how far the last run came, where it has not come to its end.
    """

    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    unfinished: Unfinished | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the last run on OUT came to its end."""
        return self.unfinished is None

    @property
    def pending(self) -> int:
        """Inputs that are left to do."""
        return self.unfinished.pending if self.unfinished else 0

    @property
    def exit_code(self) -> int:
        """1 where something is wrong, or the job has not come to its end."""
        return int(bool(self.findings) or not self.is_finished)

    def add(self, receipt: Receipt, checks: Iterable[Finding]) -> None:
        """Counts the file of a receipt, and what its checks find."""
        self.findings += guarded("content", str(receipt.file), lambda: checks)
        self.files, self.rows = self.files + 1, self.rows + receipt.rows
        self.size_bytes += receipt.bytes

    def figures(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "files": self.files,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "findings": [
                {"what": one.what, "where": one.where, "detail": one.detail, "remedy": one.remedy}
                for one in self.findings
            ],
            "finished": self.is_finished,
            "pending": self.pending,
            "failed": by_reason(self.unfinished.failures) if self.unfinished else {},
            "exit": self.exit_code,
        }


def guarded(what: str, where: str, checks: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Findings of `checks`; whatever damaged bytes make a parser raise on the way is one more."""
    try:
        yield from checks()
    except Exception as error:
        yield Finding(what, where, str(error) if isinstance(error, FacefeedError) else repr(error))
