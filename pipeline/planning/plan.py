"""The plan: which inputs make which unit. Fixed once written; later runs only append to it.

A unit is a group of whole originals, each with its fakes, of one split, sized by the seconds of work it is expected
to take. What a plan says of an input (its label, split, size and time of change) is what its rows will say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from ..dataset.manifest import OutPaths
from ..errors import CorruptDataError
from ..files import write_durably
from ..sources import Entry

PLAN_VERSION = 1
_UNIT_SECONDS = 120.0
_SMALLEST_UNIT_SECONDS = 1.0
_UNITS_AT_LEAST = 32  # a small job is cut finer than two minutes a unit, or it would keep one slot busy
_UNIT_BYTES = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A piece of work with one file, one split and one receipt; `supersedes` names the units it replaces.

    `reuses`: those of its inputs whose rows are taken from the units it replaces.
    """

    unit_id: str
    split: str
    inputs: tuple[Entry, ...]
    supersedes: tuple[str, ...] = ()
    reuses: tuple[str, ...] = ()

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
        """Names the unit by what it is made of; `salt` tells apart a second go at the same inputs."""
        held = tuple(inputs)
        content = json.dumps([config_hash, salt, split, [_as_dict(entry) for entry in held]], sort_keys=True)
        unit_id = hashlib.sha256(content.encode()).hexdigest()[:32]
        return cls(
            unit_id=unit_id, split=split, inputs=held, supersedes=tuple(dict.fromkeys(supersedes)), reuses=tuple(reuses)
        )

    @property
    def to_decode(self) -> tuple[Entry, ...]:
        """Its inputs whose rows are not there yet."""
        return tuple(entry for entry in self.inputs if entry.video_id not in self.reuses)

    def halves(self, config_hash: str) -> tuple[Self, ...]:
        """Two units that together do this one's work; a pure function, so that any run finds the same ones."""
        middle = len(self.inputs) // 2
        return tuple(
            self.make(
                part, self.split, config_hash=config_hash, salt=self.unit_id, supersedes=self.supersedes,
                reuses=[entry.video_id for entry in part if entry.video_id in self.reuses],
            )
            for part in (self.inputs[:middle], self.inputs[middle:])
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlanPart:
    """One ``plan/<n>.json``.

    `times`: new `mtime_ns` of inputs that were planned before and whose content was seen to be the same.
    """

    config: dict[str, Any]
    units: tuple[Unit, ...]
    dropped_identities: tuple[str, ...] = ()
    times: Mapping[str, int] = field(default_factory=dict)

    def write(self, paths: OutPaths, number: int) -> None:
        """Write part `number`, durably; raises `FileExistsError` where there is one already."""
        units = [
            {"unit": unit.unit_id, "split": unit.split, "supersedes": unit.supersedes, "reuses": unit.reuses,
             "inputs": [_without_defaults(entry) for entry in unit.inputs]}
            for unit in self.units
        ]  # fmt: skip
        data = {
            "version": PLAN_VERSION,
            "config": self.config,
            "dropped_identities": self.dropped_identities,
            "units": units,
            "times": self.times,
        }
        target = paths.plan / f"{number}.json"
        write_durably(target, json.dumps(data), paths.temporary, replace=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises `CorruptDataError` where the file is not a plan."""
        try:
            data = json.loads(path.read_bytes())
            if data["version"] != PLAN_VERSION:
                raise ValueError(f"unknown version {data['version']}")
            units = tuple(
                Unit(unit_id=one["unit"], split=one["split"], supersedes=tuple(one["supersedes"]),
                     reuses=tuple(one.get("reuses", ())), inputs=tuple(map(_entry, one["inputs"])))
                for one in data["units"]
            )  # fmt: skip
            return cls(
                config=data["config"],
                units=units,
                dropped_identities=tuple(data["dropped_identities"]),
                times=dict(data.get("times", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"{path}: not a plan ({error})") from error


_ENTRY_FIELDS = tuple(one.name for one in fields(Entry))


def _as_dict(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in _ENTRY_FIELDS}  # asdict copies deeply: ten times as long


_BLANK = _as_dict(Entry(video_id=""))


def _without_defaults(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in _as_dict(entry).items() if value != _BLANK[name]}


def _entry(written: dict[str, Any]) -> Entry:
    return Entry(**{**written, "kin": tuple(written.get("kin", ()))})  # JSON has no tuples


@dataclass
class Plan:
    """All parts of a plan, in order; a later unit that holds a video takes it over from an earlier one."""

    parts: list[PlanPart] = field(default_factory=list)

    @classmethod
    def load(cls, paths: OutPaths) -> Self:
        """Read all parts; raises `CorruptDataError` where one is damaged or missing."""
        found = {path.name for path in paths.plan.glob("*.json")} if paths.plan.is_dir() else set()
        names = [f"{number}.json" for number in range(len(found))]
        if found != set(names):
            missing = ", ".join(name for name in names if name not in found)
            strange = ", ".join(sorted(found - set(names)))
            raise CorruptDataError(
                f"{paths.plan}: holds {strange}, but not {missing}: parts are numbered from 0 without a gap; restore "
                "the missing one from a backup, or move away what is no part"
            )
        return cls([PlanPart.read(paths.plan / name) for name in names])

    def units(self) -> Iterator[Unit]:
        """Every unit that no later one replaces."""
        replaced = self._replaced()
        for part in self.parts:
            yield from (unit for unit in part.units if unit.unit_id not in replaced)

    def _replaced(self) -> set[str]:
        return {name for part in self.parts for unit in part.units for name in unit.supersedes}

    def all_units(self) -> Iterator[Unit]:
        """Every unit ever planned, also the replaced ones."""
        for part in self.parts:
            yield from part.units

    def videos(self) -> dict[str, tuple[Entry, str]]:
        """Each planned video as last planned, with its split and the newest time of change that was recorded."""
        replaced = self._replaced()
        videos: dict[str, tuple[Entry, str]] = {}
        for part in self.parts:
            for unit in part.units:
                if unit.unit_id not in replaced:
                    videos |= {entry.video_id: (entry, unit.split) for entry in unit.inputs}
            for video_id in part.times.keys() & videos.keys():
                entry, split = videos[video_id]
                videos[video_id] = replace(entry, mtime_ns=part.times[video_id]), split
        return videos

    def dropped_identities(self) -> set[str]:
        """Identities that were too common to keep together."""
        return {name for part in self.parts for name in part.dropped_identities}

    def append(self, paths: OutPaths, part: PlanPart) -> None:
        """Write the next part; the ones before it are never touched."""
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
    """Packs originals with their fakes into units of one split: by expected seconds first, then bytes."""
    families: dict[tuple[str, str], list[Entry]] = {}
    costs = {entry.video_id: cost_seconds(entry) for entry in entries}
    for entry in entries:
        key = (split_of[entry.video_id], entry.source_id or entry.video_id)
        families.setdefault(key, []).append(entry)
    target = min(_UNIT_SECONDS, max(sum(costs.values()) / _UNITS_AT_LEAST, _SMALLEST_UNIT_SECONDS))
    groups: dict[str, list[list[Entry]]] = {}
    seconds = size_bytes = 0.0
    for (split, _), family in sorted(families.items()):
        family_seconds = sum(costs[entry.video_id] for entry in family)
        family_bytes = sum(entry.size_bytes for entry in family)
        full = seconds + family_seconds > target or size_bytes + family_bytes > _UNIT_BYTES
        if split not in groups or full:
            groups.setdefault(split, []).append([])
            seconds = size_bytes = 0.0
        # The original first: its frames are kept for its fakes.
        groups[split][-1] += sorted(family, key=lambda entry: entry.source_id is not None)
        seconds += family_seconds
        size_bytes += family_bytes
    return [
        Unit.make(inputs, split, config_hash=config_hash, salt=salt)
        for split, parts in groups.items()
        for inputs in parts
    ]
