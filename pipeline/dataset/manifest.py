"""What stands in OUT beside the faces: its paths, the receipts (one a unit) and the manifest (one a dataset).

OUT/faces/<split>/<unit>.parquet   OUT/receipts/<unit>.json   OUT/plan/<n>.json
OUT/manifest.json                  OUT/index.arrow            OUT/_tmp/
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

from ..errors import CorruptDataError, StoppedError, UsageError
from .schema import SCHEMA_VERSION

RECEIPT_VERSION = 1
MANIFEST_VERSION = 1

_Outcome = Literal["ok", "partial", "no_faces", "failed"]
_UnitOutcome = Literal["done", "split"]


@dataclass(frozen=True)
class OutPaths:
    """Where things stand below one OUT folder."""

    root: Path

    @property
    def faces(self) -> Path:
        """Rows, one folder a split."""
        return self.root / "faces"

    @property
    def receipts(self) -> Path:
        """One receipt a unit."""
        return self.root / "receipts"

    @property
    def plan(self) -> Path:
        """What makes which unit."""
        return self.root / "plan"

    @property
    def temporary(self) -> Path:
        """Attempts and what was set aside; never read."""
        return self.root / "_tmp"

    @property
    def manifest(self) -> Path:
        """The account of the finished dataset."""
        return self.root / "manifest.json"

    @property
    def index(self) -> Path:
        """Light columns of all rows."""
        return self.root / "index.arrow"

    @property
    def next_index(self) -> Path:
        """The index of a manifest that is about to be written, or was just written."""
        return self.root / "index.next.arrow"

    @property
    def lease(self) -> Path:
        """Who is working on OUT."""
        return self.root / "driver.lease"

    def unit_file(self, split: str, unit: str) -> Path:
        """Where a unit's rows stand once published."""
        return self.faces / split / f"{unit}.parquet"

    def receipt(self, unit: str) -> Path:
        """Where a unit's receipt stands."""
        return self.receipts / f"{unit}.json"


@dataclass(frozen=True, kw_only=True)
class InputOutcome:
    """What became of one video or image.

    `outcome`: "ok" has faces, "no_faces" has none, of "partial" some wanted frames are damaged (it may have faces or
    none). `reason` (see `errors.Reason`) and `detail` say why it failed, or why frames of a partial one are missing.
    `faces_without_mask`: of a fake whose original is there, how many of its `faces` could not be compared with it.
    `sha256`: of the file's bytes as they were decoded; None where they changed meanwhile or could not be read.
    `max_damaged_percent`: the limit that one was judged by of which frames are damaged; None of all others, and where
    a facefeed did not record it. `reused`: its rows are those of the unit that this one replaces; nothing was decoded.
    """

    video_id: str
    size_bytes: int
    mtime_ns: int
    outcome: _Outcome
    reason: str | None = None
    detail: str | None = None
    frames_wanted: int = 0
    frames_decoded: int = 0
    faces: int = 0
    faces_without_mask: int = 0
    seconds: float = 0.0
    max_damaged_percent: float | None = None
    sha256: str | None = None
    reused: bool = False


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What one unit came to, written after its file; `file` is relative to OUT and None where no row came of it.

    `outcome` is "split" where the unit's worker was lost and `children` took its place.
    """

    unit: str
    config_hash: str
    outcome: _UnitOutcome
    children: list[str] = field(default_factory=list)
    supersedes: list[str] = field(default_factory=list)
    file: str | None = None
    rows: int = 0
    bytes: int = 0
    sha256: str | None = None
    inputs: list[InputOutcome] = field(default_factory=list)

    def to_json(self) -> str:
        """Return what the file holds."""
        values = {"config" if name == "config_hash" else name: value for name, value in asdict(self).items()}
        return json.dumps({"version": RECEIPT_VERSION, **values}, indent=1)

    @classmethod
    def from_json(cls, text: str | builtins.bytes, *, where: str) -> Self:
        """Parses and validates; raises `CorruptDataError` naming `where`."""
        try:
            data = json.loads(text)
            if data.pop("version") != RECEIPT_VERSION:
                raise ValueError("unknown version")
            data["inputs"] = [InputOutcome(**one) for one in data["inputs"]]
            receipt = cls(config_hash=data.pop("config"), **data)
            if receipt.outcome not in get_args(_UnitOutcome):
                raise ValueError(f"unknown outcome {receipt.outcome!r}")
            if strange := {one.outcome for one in receipt.inputs}.difference(get_args(_Outcome)):
                raise ValueError(f"unknown outcome {strange.pop()!r} of an input")
            if receipt.rows != sum(one.faces for one in receipt.inputs):
                raise ValueError(f"rows={receipt.rows} is not the sum of its inputs' faces")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"{where}: not a receipt ({error})") from error
        return receipt


def trusted_receipt(paths: OutPaths, unit: str, config_hash: str) -> Receipt | None:
    """The receipt of a unit whose file is there at its full size; a damaged or lonely receipt counts as none.

    Raises `StoppedError` where the disk fails: the unit may well be done.
    """
    path = paths.receipt(unit)
    try:
        receipt = Receipt.from_json(path.read_bytes(), where=str(path))
        if receipt.file and (paths.root / receipt.file).stat().st_size != receipt.bytes:
            return None
    except (CorruptDataError, FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoppedError(f"{path}: {os.strerror(error.errno or 0)}; run the same command again") from error
    return receipt if (receipt.unit, receipt.config_hash) == (unit, config_hash) else None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The account of a finished dataset: `inputs.total = ok + partial + no_faces + failed` always holds.

    `refused` names the failed inputs that never reached a unit, and so stand in no receipt. `faces_without_mask`: of
    fakes whose original is there, how many faces could not be compared with it. `plan_parts`: of how many parts of the
    plan this is the account; with more of them a later run has begun and not come to its end. None from a facefeed that
    did not count them.
    """

    fingerprint: str
    config: dict[str, Any]
    labels: list[str]
    splits: dict[str, dict[str, int]]
    units: int
    rows: int
    bytes: int
    inputs: dict[str, Any]
    faces_without_mask: int = 0
    refused: list[dict[str, str | None]] = field(default_factory=list)
    plan_parts: int | None = None

    def to_json(self) -> str:
        """Return what the file holds."""
        return json.dumps({"version": MANIFEST_VERSION, "schema": SCHEMA_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def read(cls, out: Path) -> Self:
        """Raises `UsageError` where OUT holds no finished dataset, `CorruptDataError` where its manifest is damaged or
        of another version.
        """
        path = OutPaths(out).manifest
        try:
            data = json.loads(path.read_bytes())
            made, read = (data.pop("version"), data.pop("schema")), (MANIFEST_VERSION, SCHEMA_VERSION)
            if made != read:
                raise CorruptDataError(
                    f"{path}: is of version {made[0]}, schema {made[1]}; this facefeed reads version {read[0]}, schema "
                    f"{read[1]}: read it with the facefeed that made it, or make a new OUT with `facefeed precompute`"
                )
            data["inputs"] = {"partial": 0, **data["inputs"]}  # older manifests know no partial inputs
            manifest = cls(**data)
            if manifest.plan_parts is not None and manifest.plan_parts < 1:
                raise ValueError(f"plan_parts={manifest.plan_parts}: must be at least 1")
            return manifest
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UsageError(
                f"{out}: no manifest.json, so no finished dataset; run `facefeed precompute SRC {out}` to its end"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"{path}: not a manifest ({error})") from error


def count_inputs(outcomes: Iterable[InputOutcome], refused: Mapping[str, int], missing: int) -> dict[str, Any]:
    """The manifest's `inputs`: every input once. `refused` counts by reason those that never reached a unit."""
    counts = dict.fromkeys(("ok", "partial", "no_faces"), 0)
    failed = dict(refused)
    for one in outcomes:
        if one.outcome == "failed":
            failed[str(one.reason)] = failed.get(str(one.reason), 0) + 1
        else:
            counts[one.outcome] += 1
    return {
        "total": sum(counts.values()) + sum(failed.values()),
        **counts,
        "failed": dict(sorted(failed.items())),
        "missing": missing,
    }
