"""Layout of OUT, receipts (one per unit) and the manifest (one per dataset).

OUT/faces/<split>/<unit>.parquet   OUT/receipts/<unit>.json   OUT/plan/<n>.json
OUT/manifest.json                  OUT/index.arrow            OUT/_tmp/
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa

from ..errors import CorruptDataError, UsageError
from ..files import read_stored, refuse_address
from ..json_records import brief, parse_json, record_of
from .out import OutPaths
from .schema import READABLE_VERSIONS, SCHEMA_VERSION, check_config, face_schema

RECEIPT_VERSION = 1
MANIFEST_VERSION = 1

_Outcome = Literal["ok", "partial", "no_faces", "failed"]
_UnitOutcome = Literal["done", "split"]

# Names of units become paths, which are read, moved and removed: none may lead out of OUT.
_UNIT_NAME = re.compile(r"\w[\w-]*", re.ASCII)
_UNIT_FILE = re.compile(r"faces/\w[\w-]*/\w[\w-]*\.parquet", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputOutcome:
    """Outcome of one video or image.

    `outcome`: "ok" (has faces), "no_faces", "partial" (some sampled frames are damaged; with or without faces) or
    "failed". `reason` (see `errors.Reason`) and `detail`: why it failed, or why frames of a partial one are missing.
    `frames_wanted`: frames that were sampled. `faces_without_mask`: of a fake that has a mask of its own or whose
    original exists, how many of its `faces` have no mask. `faces_with_own_mask`: how many have theirs from the set.
    `own_mask_problem`: why the mask that the set gives was not used, or not for all frames: a reason, perhaps with a
    detail; else None.
    `seconds`: processing time. `max_damaged_percent`: the limit that was applied to an input with damaged frames; None
    for all others, and in receipts from before it was recorded. `sha256`: of the file's bytes as decoded; None where
    they changed meanwhile or could not be read. `reused`: nothing was decoded, as its rows were copied from a
    superseded unit, or it is gone from the source and has none. `size_bytes`: as planned. `mtime_ns`: of the file that
    was decoded, which may have changed since; -1 where it is uncertain which one that was, as it changed meanwhile.
    `absent`: path of a file that was planned with, but was not there: of the input itself, whose rows, if any, are then
    those of its last content that was, of the original that it would have been compared with, or of its own mask; else
    None.
    `source_sha256`: `sha256` of the original that a fake was compared with; empty where that changed meanwhile, or
    could not be read for a reason that may pass; None where there was no comparison, and in receipts from before it was
    recorded.
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
    faces_with_own_mask: int = 0
    own_mask_problem: str | None = None
    seconds: float = 0.0
    max_damaged_percent: float | None = None
    sha256: str | None = None
    reused: bool = False
    absent: str | None = None
    source_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Outcome of one unit, written after its Parquet file.

    `outcome`: "split" where the unit's worker was lost and the units `children` replace it, else "done". `file`:
    relative to OUT, None where the unit has no rows. `bytes`: size of the file. `supersedes`: ids of replaced units.
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
    inputs: Sequence[InputOutcome] = field(default_factory=list)

    def to_json(self) -> str:
        """The JSON text of the receipt's file."""
        plain = asdict(replace(self, inputs=[*self.inputs]))
        values = {"config" if name == "config_hash" else name: value for name, value in plain.items()}
        return json.dumps({"version": RECEIPT_VERSION, **values}, indent=1)

    @classmethod
    def from_json(cls, text: str | builtins.bytes, *, where: str) -> Self:
        """Parses and validates a receipt; raises `CorruptDataError` naming `where`, its path."""
        try:
            data = parse_json(text)
            if data.pop("version") != RECEIPT_VERSION:
                raise ValueError("unknown version")
            receipt = record_of(cls, {"config_hash": data.pop("config"), **data})
            check_units([receipt.unit, *receipt.children, *receipt.supersedes])
            check_unit_files([receipt.file] if receipt.file else [])
            if receipt.rows != sum(outcome.faces for outcome in receipt.inputs):
                raise ValueError(f"rows={receipt.rows} is not the sum of its inputs' faces")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"{where}: not a receipt ({error})") from error
        return receipt


def check_units(names: Iterable[str]) -> None:
    """Raises `ValueError` where one could lead out of OUT: names of units are names of files."""
    for name in names:
        if not _UNIT_NAME.fullmatch(name):
            raise ValueError(f"{brief(name)} is no name of a unit")


_EVERY_WITH_ALL_IMAGES = 10
"""With which all images of clips are taken where the config does not state it: that of `Sampling.default`."""


def check_unit_files(names: Iterable[str]) -> None:
    """Raises `ValueError` where one is not that of a unit's file, relative to OUT."""
    for name in names:
        if not _UNIT_FILE.fullmatch(name):
            raise ValueError(f"{brief(name)} is no file of a unit")


class OtherVersionError(CorruptDataError):
    """The manifest is that of another version of facefeed; what it describes may be sound."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Totals of a finished dataset; `inputs.total = ok + partial + no_faces + failed` always holds.

    `refused`: the failed inputs that never reached a unit, and so are in no receipt. `removed`: ids of inputs without
    rows, as they failed or were not computed yet, that were no longer in the source at the end of the run: they are not
    in `inputs`. `faces_without_mask`: of fakes that have a mask of their own or whose original exists, how many faces
    have no mask. `faces_with_own_mask`: how many faces have their mask from the set itself. `own_masks_unused`: inputs
    whose own mask was not used, or not for all frames, by reason.
    `plan_parts`: how many parts of the plan the manifest covers; where the plan has more, a later run is unfinished.
    None in manifests from before it was recorded. `clip_settings`: what holds for clips of images beyond the config, of
    a dataset that began with videos alone. `schema`: version of the schema of its files.
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
    faces_with_own_mask: int = 0
    own_masks_unused: dict[str, int] = field(default_factory=dict)
    refused: list[dict[str, str | None]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    plan_parts: int | None = None
    clip_settings: dict[str, Any] | None = None
    schema: int = SCHEMA_VERSION

    @property
    def image_format(self) -> str:
        """Format of the stored crops: jpeg, which is all that the first datasets had, or another one."""
        return str(self.config.get("format", "jpeg"))

    @property
    def knows_times_of_clips(self) -> bool:
        """Whether the rate of its clips of images is known, so that their times are."""
        return "fps_of_images" in self._settings

    @property
    def takes_all_images(self) -> bool:
        """Whether clips of images gave all of their images, whatever was taken of videos."""
        usual = self.config.get("sampling", {}).get("every") == _EVERY_WITH_ALL_IMAGES
        return bool(self._settings.get("all_images", usual))

    @property
    def _settings(self) -> dict[str, Any]:
        return {**self.config, **(self.clip_settings or {})}

    def face_schema(self) -> pa.Schema:
        """Schema of the dataset's files."""
        return face_schema(
            self.labels, self.schema, self.config.get("columns", {}),
            has_dense_landmarks=self.config.get("dense_landmarks", False),
        )  # fmt: skip

    def to_json(self) -> str:
        """The JSON text of the manifest's file."""
        values = {"version": MANIFEST_VERSION, "schema": self.schema, **asdict(self)}
        if self.clip_settings is None:  # as before there were any
            del values["clip_settings"]
        return json.dumps(values, indent=1)

    @classmethod
    def read(cls, out: Path) -> Self:
        """Reads OUT's manifest.

        Raises `UsageError` where OUT holds no finished dataset, `CorruptDataError` where its manifest is damaged or of
        another version, `StoppedError` where the disk fails.
        """
        path = OutPaths(out).manifest
        try:
            data = parse_json(read_stored(path))
            version, schema = data.pop("version"), data["schema"]
            if version != MANIFEST_VERSION or schema not in READABLE_VERSIONS:
                readable = " and ".join(map(str, READABLE_VERSIONS))
                raise OtherVersionError(
                    f"{path}: is of version {version}, schema {schema}; this facefeed reads version "
                    f"{MANIFEST_VERSION}, schema {readable}: read it with the facefeed that made it, or make a new OUT "
                    "with `facefeed precompute`"
                )
            data["inputs"] = {"partial": 0, **data["inputs"]}  # older manifests lack it
            manifest = record_of(cls, data)
            record_of(_InputCounts, manifest.inputs)
            for refused in manifest.refused:
                record_of(_RefusedInput, refused)
            check_config(manifest.config)
            if manifest.plan_parts is not None and manifest.plan_parts < 1:
                raise ValueError(f"plan_parts={manifest.plan_parts}: must be at least 1")
            return manifest
        except FileNotFoundError as error:
            from ..lock import advice_to_wait  # noqa: PLC0415 (with rich, which no worker of a loader needs)

            refuse_address(out, "this command reads folders: copy the dataset to one, or mount the store")
            if root := next((root for root in out.parents if _is_part(out, OutPaths(root))), None):
                raise UsageError(f"{out}: is a part of the dataset {root}; give that") from error
            remedy = advice_to_wait(out) or f"run `facefeed precompute SRC {out}` to its end"
            raise UsageError(f"{out}: no manifest.json, so no finished dataset; {remedy}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"{path}: not a manifest ({error})") from error


def _is_part(path: Path, dataset: OutPaths) -> bool:
    own = dataset.faces, dataset.receipts, dataset.plan, dataset.manifest, dataset.index
    return any(path.is_relative_to(part) for part in own) and dataset.manifest.exists()


@dataclass(frozen=True, kw_only=True)
class _InputCounts:
    """What `count_inputs` returns."""

    total: int
    ok: int
    partial: int
    no_faces: int
    failed: dict[str, int]
    missing: int


@dataclass(frozen=True, kw_only=True)
class _RefusedInput:
    """One of the manifest's `refused`."""

    video_id: str
    reason: str
    detail: str | None


def count_inputs(outcomes: Iterable[InputOutcome], refused: Mapping[str, int], missing: int) -> dict[str, Any]:
    """The manifest's `inputs`, every input counted once; `refused`: inputs that never reached a unit, by reason."""
    counts = dict.fromkeys(("ok", "partial", "no_faces"), 0)
    failed = dict(refused)
    for outcome in outcomes:
        if outcome.outcome == "failed":
            failed[str(outcome.reason)] = failed.get(str(outcome.reason), 0) + 1
        else:
            counts[outcome.outcome] += 1
    return {
        "total": sum(counts.values()) + sum(failed.values()),
        **counts,
        "failed": dict(sorted(failed.items())),
        "missing": missing,
    }
