"""Layout `dfdc`: parts with a `metadata.json` each, after the DeepFake Detection Challenge (Dolhansky et al. 2020).

Each part's metadata maps a file's name to its label (REAL or FAKE), its split, and the original a fake was made of.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections import Counter
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .listing import (
    Entry,
    FoundFile,
    Listing,
    find_media,
    find_named,
    printable,
    refuse_twice,
    split_name,
    trusted_splits,
)

_LABELS = {"REAL": 0, "FAKE": 1}


def fits(src: Path) -> bool:
    """Whether `src` holds DFDC parts, or is one."""
    return bool(_parts(src))


def _parts(src: Path) -> list[Path]:
    if not src.is_dir():
        return []
    if _has_metadata(src):
        return [src]
    return sorted(part for part in src.glob("dfdc_train_part_*") if _has_metadata(part))


def _has_metadata(part: Path) -> bool:
    return os.access(part / "metadata.json", os.F_OK)  # `is_file` raises where the folder may not be entered


def read(src: Path) -> Listing:
    """Files on disk that no metadata names are listed too, with label -1.

    Raises `UsageError` where a `metadata.json` is not JSON of DFDC's form: without it no label of the part is known.
    """
    parts = _parts(src)
    if not parts:
        raise UsageError(f"SRC={str(src)!r}: no dfdc_train_part_*/metadata.json; use --layout folder")
    ignored: Counter[str] = Counter()
    on_disk = {one.relative: one for one in find_media(src, ignored)}
    ignored[".json"] -= len(parts)
    entries: list[Entry] = []
    missing: list[str] = []
    claims = [(part, name, says) for part in parts for name, says in sorted(_metadata(part).items())]
    use_splits = trusted_splits({split_name(str(says.get("split"))) for _, _, says in claims})
    for part, name, says in claims:
        prefix = "" if part == src else f"{part.name}/"
        named = posixpath.join(prefix, name)  # an absolute name stays one, and is refused
        found = on_disk.pop(named, None) or find_named(src, named)
        if found is None:
            missing.append(named)
        else:
            on_disk.pop(found.relative, None)
            entries.append(_entry(found, prefix, says, use_splits=use_splits))
    entries += [
        Entry(video_id=one.relative, size_bytes=one.size_bytes, mtime_ns=one.mtime_ns, dataset="dfdc",
              problem=one.problem, detail=one.detail)
        for one in on_disk.values()
    ]  # fmt: skip
    entries.sort(key=lambda entry: entry.video_id)
    refuse_twice(src, entries)
    return Listing(layout="dfdc", root=src, labels=("real", "fake"), entries=entries, missing=missing, ignored=+ignored)


def _entry(found: FoundFile, prefix: str, says: dict[str, Any], *, use_splits: bool) -> Entry:
    label = says.get("label")
    known = isinstance(label, str) and label.upper() in _LABELS
    original = says.get("original")
    return Entry(
        video_id=found.relative,
        size_bytes=found.size_bytes,
        mtime_ns=found.mtime_ns,
        label=_LABELS[str(label).upper()] if known else -1,
        split=split_name(str(says.get("split"))) if use_splits else None,
        source_id=printable(f"{prefix}{original}") if isinstance(original, str) and original else None,
        dataset="dfdc",
        problem=found.problem or (None if known else "unknown_label"),
        detail=found.detail if found.problem or known else f"metadata says label {label!r}; DFDC knows REAL and FAKE",
    )


def _metadata(part: Path) -> dict[str, dict[str, Any]]:
    path = part / "metadata.json"
    consequence = "no label of this part is known; mend it, or use --layout folder"
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {consequence}") from error
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{path}: not JSON ({error}); {consequence}") from error
    if not isinstance(data, dict) or not all(isinstance(says, dict) for says in data.values()):
        raise UsageError(f"{path}: must map each file's name to an object; {consequence}")
    return data
