"""The receipt of an export, `DEST/export.json`, and of each of its parts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from ..errors import CorruptDataError
from ..json_records import parse_json, record_of

EXPORT_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class PartReceipt:
    """One published part of an export.

    `rows`: rows of OUT that it holds. `skipped`: rows that it does not hold, since the form has no place for them, by
    reason. `damaged`: face ids of the rows left out since their stored bytes are damaged. `notes`: rows that it holds,
    but that the user should know of, by remark. `files`, `size_bytes`: of what was published. `sha256`: of its lines in
    `SHA256SUMS`.
    """

    name: str
    rows: int
    skipped: dict[str, int] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    files: int
    size_bytes: int
    sha256: str

    def to_json(self) -> str:
        """The JSON text of the part's file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parses a part; raises `ValueError` on anything else."""
        return record_of(cls, parse_json(text))


@dataclass(frozen=True, kw_only=True)
class ExportReceipt:
    """What DEST is, and once it is finished, all that it holds.

    `fingerprint`: of OUT's manifest. `request`: see `ExportRequest.to_json`. `added_columns`: the sets that it holds,
    see `Index.added_sets`; none in receipts from before they were recorded. `sums_sha256`: of `SHA256SUMS`.
    """

    fingerprint: str
    request: dict[str, Any]
    added_columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    finished: bool = False
    parts: list[PartReceipt] = field(default_factory=list)
    sums_sha256: str | None = None

    @property
    def rows(self) -> int:
        """Rows of OUT that DEST holds."""
        return sum(part.rows for part in self.parts)

    @property
    def skipped(self) -> dict[str, int]:
        """Rows that the form has no place for, by reason."""
        return dict(sum((Counter(part.skipped) for part in self.parts), Counter[str]()))

    @property
    def notes(self) -> dict[str, int]:
        """Rows that the user should know of, by remark."""
        return dict(sum((Counter(part.notes) for part in self.parts), Counter[str]()))

    @property
    def damaged(self) -> list[str]:
        """Face ids of the rows that are damaged in OUT."""
        return [face_id for part in self.parts for face_id in part.damaged]

    @property
    def files(self) -> int:
        """Files in all parts."""
        return sum(part.files for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Size of all files of all parts."""
        return sum(part.size_bytes for part in self.parts)

    def to_json(self) -> str:
        """The JSON text of the receipt's file."""
        return json.dumps({"version": EXPORT_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str) -> Self:
        """Parses and validates a receipt; raises `CorruptDataError` naming `where`, its path."""
        try:
            data = parse_json(text)
            if data.pop("version") != EXPORT_VERSION:
                raise ValueError("unknown version")
            return record_of(cls, data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                f"{where}: not the receipt of an export ({error}); delete the folder, or name another one"
            ) from error
