"""The official splits of FaceForensics++: train.json, val.json and test.json, lists of pairs of numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ....dataset.schema import SPLITS
from ....errors import UsageError
from ....json_records import brief
from ...metadata.json_files import read_json
from ..names.split_lists import find_lists, missing_lists

_NAMES = {split: f"{split}.json" for split in SPLITS}
_REMEDY = "fix it, or take the split files away so that splits are drawn"


@dataclass(frozen=True, kw_only=True)
class OfficialSplits:
    """Split of each youtube number, the pairs of numbers that name fakes, the files read, and those not there."""

    split_of: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...]
    files: tuple[str, ...]
    missing: tuple[str, ...]

    def split(self, target: str, source: str | None) -> str | None:
        """Split of an original, or of a fake whose two people are in the same split; else None."""
        split = self.split_of.get(target)
        return split if source is None or self.split_of.get(source) == split else None


def read_splits(root: Path) -> OfficialSplits:
    """Reads {train,val,test}.json in `root`/splits or in `root` itself; each of them may be absent.

    Raises `UsageError` where one is no list of pairs of numbers, a number is in two of them, which is a leak, or a file
    or folder is nearly called as published.
    """
    names = next((names for folder in ("splits", "") if (names := find_lists(root, folder, _NAMES))), {})
    split_of: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for split, name in names.items():
        for pair in _pairs(root / name):
            pairs.append(pair)
            for number in pair:
                if (other := split_of.setdefault(number, split)) != split:
                    raise UsageError(
                        f"{root}: {number!r} is in {names[other]} and in {name}: a leak, since a video and the fakes "
                        f"of it can be in one split alone; {_REMEDY}"
                    )
    return OfficialSplits(
        split_of=split_of, pairs=tuple(pairs), files=tuple(names.values()),
        missing=missing_lists(_NAMES, names),
    )  # fmt: skip


def _pairs(path: Path) -> list[tuple[str, str]]:
    data = read_json(path, _REMEDY)
    for pair in data if isinstance(data, list) else [data]:
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_number, pair)):
            raise UsageError(f'{path}: {brief(pair)}: must be pairs such as ["033", "097"]; {_REMEDY}')
    return [(target, source) for target, source in data]


def _is_number(given: object) -> bool:
    return isinstance(given, str) and re.fullmatch(r"\d{3}", given) is not None
