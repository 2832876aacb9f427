"""The plan: assigns inputs to units of work. Immutable once written; later runs only append parts to it.

A unit is a group of originals of one split, each together with its fakes, sized by its expected seconds of work. The
plan's record of an input (label, split, size, mtime) is what its rows will contain.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from ..dataset.manifest import check_units
from ..dataset.out import OutPaths
from ..dataset.schema import SPLITS, check_config
from ..errors import CorruptDataError
from ..files import read_stored_in_parts, stop_on_disk_error
from ..json_records import brief, parse_json_list_by_list, record_of
from ..sources import Entry
from .job_share import JobShare

PLAN_VERSION = 1
_TARGET_UNIT_SECONDS = 120.0
_MIN_UNIT_SECONDS = 1.0
_MIN_UNITS = 32  # a small job gets units shorter than two minutes, or it would keep a single worker busy
_MAX_UNIT_BYTES = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A piece of work that gives one Parquet file of one split, and one receipt.

    `unit_id`: hash of its content. `supersedes`: ids of the units it replaces. `reuses`: video ids of inputs whose rows
    are copied from the superseded units. `gone`: video ids of inputs that the source does not name now, whose rows are
    copied too, if they have any; not part of the plan, since each run lists the source anew.
    """

    unit_id: str
    split: str
    inputs: tuple[Entry, ...]
    supersedes: tuple[str, ...] = ()
    reuses: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    @classmethod
    def make(
        cls,
        inputs: Iterable[Entry],
        split: str,
        *,
        config_hash: str,
        salt: str,
        supersedes: Iterable[str] = (),
        reuses: Iterable[str] = (),
    ) -> Self:
        """Creates a unit whose id is a hash of its content; `salt` distinguishes another attempt at the same inputs."""
        entries = tuple(inputs)
        content = json.dumps([config_hash, salt, split, [_content(entry) for entry in entries]], sort_keys=True)
        unit_id = hashlib.sha256(content.encode()).hexdigest()[:32]
        return cls(
            unit_id=unit_id,
            split=split,
            inputs=entries,
            supersedes=tuple(dict.fromkeys(supersedes)),
            reuses=tuple(reuses),
        )

    @property
    def inputs_to_decode(self) -> tuple[Entry, ...]:
        """The inputs whose rows are not reused, and that are not gone."""
        copied = {*self.reuses, *self.gone}
        return tuple(entry for entry in self.inputs if entry.video_id not in copied)

    def with_gone(self, gone: Container[str]) -> Self:
        """The unit in a run whose source does not name the inputs `gone`."""
        return replace(self, gone=tuple(entry.video_id for entry in self.inputs if entry.video_id in gone))

    def halves(self, config_hash: str) -> tuple[Self, ...]:
        """Splits the unit into two; a pure function, so that every run derives the same halves."""
        middle = len(self.inputs) // 2
        return tuple(
            self.make(
                part, self.split, config_hash=config_hash, salt=self.unit_id, supersedes=self.supersedes,
                reuses=[entry.video_id for entry in part if entry.video_id in self.reuses],
            ).with_gone(self.gone)
            for part in (self.inputs[:middle], self.inputs[middle:])
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlanPart:
    """One ``plan/<n>.json``.

    `mtime_updates`: new `mtime_ns` by video id, of planned inputs whose content was verified to be unchanged;
    `digest_updates`: new `images_digest` of those of them that are clips of images. `is_compaction`: its units hold the
    rows of units that they replace, and nothing else. `source`: the folder or address that its inputs were in; "" of a
    compaction, and in plans of earlier versions.
    """

    config: dict[str, Any]
    units: tuple[Unit, ...]
    source: str = ""
    dropped_identities: tuple[str, ...] = ()
    mtime_updates: Mapping[str, int] = field(default_factory=dict)
    digest_updates: Mapping[str, str] = field(default_factory=dict)
    is_compaction: bool = False

    def write(self, paths: OutPaths, number: int) -> None:
        """Writes part `number` durably; raises `FileExistsError` where it already exists."""
        paths.files.write(paths.plan / f"{number}.json", self._to_json(), paths.temporary, replace=False)

    def _to_json(self) -> Iterator[str]:
        """The text in parts, one a unit: there may be many."""
        head = {"version": PLAN_VERSION, "config": self.config, "dropped_identities": self.dropped_identities}
        tail = {
            "times": self.mtime_updates,
            "digests": self.digest_updates,
            **({"source": self.source} if self.source else {}),
            **({"is_compaction": True} if self.is_compaction else {}),
        }
        yield f'{json.dumps(head)[:-1]}, "units": ['
        for number, unit in enumerate(self.units):
            yield f"{', ' if number else ''}{json.dumps(_stored_unit(unit))}"
        yield f"], {json.dumps(tail)[1:]}"

    @classmethod
    def read(cls, path: Path, listed: Mapping[str, Entry] = MappingProxyType({})) -> Self:
        """Reads one part; raises `CorruptDataError` where the file is not one. `listed`: see `Plan.load`, by id."""
        try:
            parse_unit = partial(_parse_unit, listed=listed)
            data = parse_json_list_by_list(read_stored_in_parts(path), {"units": parse_unit})
            if data.pop("version") != PLAN_VERSION:
                raise ValueError("unknown version")
            if not isinstance(units := data.pop("units"), list):
                raise ValueError(f"units: {brief(units)} is no list")
            stored = record_of(_StoredPart, data)
            check_config(stored.config)
            if missing := {"labels", "schema"} - stored.config.keys():
                raise ValueError(f"config lacks {', '.join(sorted(missing))}")
            _check_labels(units, len(stored.config["labels"]))
            return cls(
                config=stored.config,
                units=tuple(units),
                source=stored.source,
                dropped_identities=stored.dropped_identities,
                mtime_updates=stored.times,
                digest_updates=stored.digests,
                is_compaction=stored.is_compaction,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"{path}: not a plan ({error})") from error


@dataclass(frozen=True, kw_only=True)
class _StoredUnit:
    """A unit in the file of a part."""

    unit: str
    split: str
    supersedes: tuple[str, ...]
    inputs: list[dict[str, Any]]
    reuses: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _StoredPart:
    """The file of a part, without its version and its units."""

    config: dict[str, Any]
    dropped_identities: tuple[str, ...]
    times: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    source: str = ""
    is_compaction: bool = False


def _stored_unit(unit: Unit) -> dict[str, Any]:
    """The fields of a `_StoredUnit`."""
    inputs = [_without_defaults(entry) for entry in unit.inputs]
    return {"unit": unit.unit_id, "split": unit.split, "supersedes": unit.supersedes, "reuses": unit.reuses,
            "inputs": inputs}  # fmt: skip


def _parse_unit(data: object, listed: Mapping[str, Entry]) -> Unit:
    stored = record_of(_StoredUnit, data)
    check_units([stored.unit, *stored.supersedes])
    if stored.split not in SPLITS:
        raise ValueError(f"split {brief(stored.split)} is none of {', '.join(SPLITS)}")
    texts: dict[str, str] = {}
    parsed = (_parse_entry(each, texts) for each in stored.inputs)
    inputs = tuple(
        same if (same := listed.get(entry.video_id)) is not None and _is_stored_alike(same, entry) else entry
        for entry in parsed
    )
    return Unit(
        unit_id=stored.unit, split=stored.split, supersedes=stored.supersedes, reuses=stored.reuses, inputs=inputs
    )


def _check_labels(units: Iterable[Unit], num_labels: int) -> None:
    """Raises `ValueError` where an input has a label that is none of so many."""
    for unit in units:
        for entry in unit.inputs:
            if not (-1 <= entry.label < num_labels and -1 <= entry.outside_label < num_labels):
                raise ValueError(f"a label of {brief(entry.video_id)} is none of {num_labels} classes")


_STORED_NAMES = {"related_identities": "kin"}  # ids of units are hashes of these names: in plans they stay
_FIELD_NAMES = {stored: name for name, stored in _STORED_NAMES.items()}
_ENTRY_FIELDS = tuple((_STORED_NAMES.get(each.name, each.name), each.name) for each in fields(Entry))


def _as_dict(entry: Entry) -> dict[str, Any]:
    return {stored: getattr(entry, name) for stored, name in _ENTRY_FIELDS}  # asdict makes deep copies: 10 times slower


_ENTRY_DEFAULTS = _as_dict(Entry(video_id=""))
_LATER_FIELDS = (
    "mask_id", "mask_size_bytes", "fake_segments", "outside_label", "whole_frame", "compared", "values", "num_images",
    "images_digest",
)  # fmt: skip


def _content(entry: Entry) -> dict[str, Any]:
    """What a unit's id depends on; without later fields at their defaults, so that units from before keep their ids."""
    unset = {name for name in _LATER_FIELDS if getattr(entry, name) == _ENTRY_DEFAULTS[name]}
    return {name: value for name, value in _as_dict(entry).items() if name not in unset}


def _without_defaults(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in _as_dict(entry).items() if value != _ENTRY_DEFAULTS[name]}


def _parse_entry(data: dict[str, Any], texts: dict[str, str]) -> Entry:
    """The entry; `texts`: of the unit so far: what its entries share, such as their original, is in memory once."""
    shared = {name: texts.setdefault(value, value) if type(value) is str else value for name, value in data.items()}
    entry = record_of(Entry, {_FIELD_NAMES.get(stored, stored): value for stored, value in shared.items()})
    entry.check_texts()
    return entry


def _is_stored_alike(entry: Entry, other: Entry) -> bool:
    """Whether both are equal and have the same JSON text, which ids of units depend on: 1 and 1.0 have not."""
    return entry == other and repr((entry.values, entry.fake_segments)) == repr((other.values, other.fake_segments))


@dataclass
class Plan:
    """All parts of a plan, in order; where several units contain a video, the last one owns it."""

    parts: list[PlanPart] = field(default_factory=list)

    @classmethod
    def load(cls, paths: OutPaths, listed: Iterable[Entry] = ()) -> Self:
        """Reads all parts.

        `listed`: what a source holds now. Inputs that are as they were planned are these objects, and not others that
        take as much memory again.

        Raises `CorruptDataError` where one is damaged or missing, `StoppedError` where the disk fails.
        """
        try:
            # Not `glob`, which finds nothing in a folder that cannot be read: no file would be of a unit of the plan.
            with stop_on_disk_error(paths.plan, unless=(FileNotFoundError, NotADirectoryError)):
                present = {path.name for path in paths.plan.iterdir() if path.suffix == ".json"}
        except (FileNotFoundError, NotADirectoryError):
            present = set()
        names = [f"{number}.json" for number in range(len(present))]
        if present != set(names):
            missing = ", ".join(name for name in names if name not in present)
            unexpected = ", ".join(sorted(present - set(names)))
            raise CorruptDataError(
                f"{paths.plan}: holds {unexpected}, but not {missing}: parts are numbered from 0 without a gap; "
                "restore the missing one from a backup, or move away what is no part"
            )
        by_id = {entry.video_id: entry for entry in listed}
        return cls([PlanPart.read(paths.plan / name, by_id) for name in names])

    def units(self, job_share: JobShare | None = None) -> Iterator[Unit]:
        """Every unit that no later one supersedes, or the share of `job_share` in them.

        Positions within a part of the plan count for shares, so that a unit stays in its share when the plan grows.
        """
        superseded = self._superseded_ids()
        for part in self.parts:
            for position, unit in enumerate(part.units):
                if unit.unit_id not in superseded and (job_share is None or job_share.takes(position)):
                    yield unit

    def _superseded_ids(self) -> set[str]:
        return {name for part in self.parts for unit in part.units for name in unit.supersedes}

    def all_units(self) -> Iterator[Unit]:
        """Every unit ever planned, superseded ones included."""
        for part in self.parts:
            yield from part.units

    def planned_videos(self) -> dict[str, tuple[Entry, str]]:
        """`(entry, split)` of each planned video by id, as last planned, with the most recently recorded mtime."""
        superseded = self._superseded_ids()
        videos: dict[str, tuple[Entry, str]] = {}
        for part in self.parts:
            for unit in part.units:
                if unit.unit_id not in superseded:
                    videos |= {entry.video_id: (entry, unit.split) for entry in unit.inputs}
            for video_id in part.mtime_updates.keys() & videos.keys():
                entry, split = videos[video_id]
                digest = part.digest_updates.get(video_id, entry.images_digest)
                videos[video_id] = replace(entry, mtime_ns=part.mtime_updates[video_id], images_digest=digest), split
        return videos

    def sources(self) -> dict[str, str]:
        """The folder or address that each planned input was last planned from, by video id; "" where none is known."""
        found: dict[str, str] = {}
        for part in self.parts:
            if not part.is_compaction:
                for unit in part.units:
                    reused = set(unit.reuses)
                    found |= {entry.video_id: part.source for entry in unit.inputs if entry.video_id not in reused}
                found |= dict.fromkeys(part.mtime_updates, part.source)
        return found

    def dropped_identities(self) -> set[str]:
        """Identities that link too many videos to be kept within one split."""
        return {name for part in self.parts for name in part.dropped_identities}

    def append(self, paths: OutPaths, part: PlanPart) -> None:
        """Writes the next part; earlier ones are never modified."""
        part.write(paths, len(self.parts))
        self.parts.append(part)


def group_units(
    entries: Sequence[Entry],
    split_of: dict[str, str],
    *,
    config_hash: str,
    salt: str,
    cost_seconds: Callable[[Entry], float],
) -> list[Unit]:
    """Packs originals together with their fakes into units of one split, limited by expected seconds and by bytes."""
    costs = array("d", map(cost_seconds, entries))
    target = min(_TARGET_UNIT_SECONDS, max(sum(costs) / _MIN_UNITS, _MIN_UNIT_SECONDS))
    groups: dict[str, list[list[Entry]]] = {}
    seconds = size_bytes = 0.0
    for split, positions in _families(entries, split_of):
        family = [entries[position] for position in positions]
        family_seconds = sum(costs[position] for position in positions)
        family_bytes = sum(entry.size_bytes for entry in family)
        full = seconds + family_seconds > target or size_bytes + family_bytes > _MAX_UNIT_BYTES
        if split not in groups or full:
            groups.setdefault(split, []).append([])
            seconds = size_bytes = 0.0
        # The original first: its frames are cached for its fakes.
        groups[split][-1] += sorted(family, key=lambda entry: entry.source_id is not None)
        seconds += family_seconds
        size_bytes += family_bytes
    return [
        Unit.make(inputs, split, config_hash=config_hash, salt=salt)
        for split, parts in groups.items()
        for inputs in parts
    ]


def _families(entries: Sequence[Entry], split_of: Mapping[str, str]) -> Iterator[tuple[str, list[int]]]:
    """Split and positions of each original together with its fakes, sorted by split, then by the original's id.

    By sorting, which takes a fifth of the memory of a dict of lists.
    """

    def original(position: int) -> str:
        return entries[position].source_id or entries[position].video_id

    def split(position: int) -> str:
        return split_of[entries[position].video_id]

    order = sorted(range(len(entries)), key=original)
    order.sort(key=split)  # one by one: keys of both would be a tuple for each
    for (name, _), family in groupby(order, key=lambda position: (split(position), original(position))):
        yield name, list(family)
