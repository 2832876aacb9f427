"""Layout `dfdc`: parts with a `metadata.json` each, after the DeepFake Detection Challenge (Dolhansky et al. 2020).

Each part's metadata maps a file's name to its label (REAL or FAKE; in the test set `is_fake`), its split, and the
original a fake was made of.
"""

from __future__ import annotations

import json
import posixpath
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..listing import Entry, Listing, has_usable_splits, parse_split_name, refuse_duplicates
from ..media_files import FoundFile, find_media, find_named, path_exists, printable_name

_LABELS = {"REAL": 0, "FAKE": 1}
_PARTS = ("dfdc_train_part_*", "train_sample_videos")


class DFDC:
    """A folder of parts, or one part. Files that no metadata names are listed too, with label -1."""

    name = "dfdc"
    needs = "a folder with metadata.json, or with dfdc_train_part_*/metadata.json"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return bool(_parts(src))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos of all parts.

        Raises `UsageError` where a `metadata.json` is not JSON of DFDC's form, or an original is an absolute path.
        """
        parts = _parts(src)
        ignored: Counter[str] = Counter()
        on_disk = {file.relative: file for file in find_media(src, ignored, allowed=allowed)}
        ignored[".json"] -= len(parts)
        records = [
            (_prefix(part, src), name, metadata) for part in parts for name, metadata in sorted(_metadata(part).items())
        ]
        use_splits = has_usable_splits({parse_split_name(str(metadata.get("split"))) for _, _, metadata in records})
        prefixes: dict[str, set[str]] = defaultdict(set)
        for prefix, name, _ in records:
            prefixes[posixpath.normpath(name)].add(prefix)
        entries: list[Entry] = []
        missing: list[str] = []
        for prefix, name, metadata in records:
            path = posixpath.join(prefix, name)  # an absolute name stays one, and is refused
            media_file = on_disk.pop(path, None) or find_named(src, path, allowed)
            if media_file is None:
                missing.append(path)
                continue
            on_disk.pop(media_file.relative, None)
            original = _original(src, prefix, name, metadata, prefixes)
            entries.append(_entry(media_file, metadata, original, use_splits=use_splits))
        entries += [
            Entry(video_id=file.relative, size_bytes=file.size_bytes, mtime_ns=file.mtime_ns, dataset=self.name,
                  problem=file.problem, detail=file.detail)
            for file in on_disk.values()
        ]  # fmt: skip
        entries.sort(key=lambda entry: entry.video_id)
        refuse_duplicates(src, entries)
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries, missing=missing, ignored=+ignored,
            without_splits="take `split` out of each metadata.json",
            giving_labels="no metadata.json names them, or gives them a label",
        )  # fmt: skip


def _parts(src: Path) -> list[Path]:
    if not src.is_dir():
        return []
    if path_exists(src / "metadata.json"):
        return [src]
    return sorted(part for kind in _PARTS for part in src.glob(kind) if path_exists(part / "metadata.json"))


def _prefix(part: Path, src: Path) -> str:
    return "" if part == src else f"{part.name}/"


def _original(src: Path, prefix: str, name: str, metadata: dict[str, Any], prefixes: dict[str, set[str]]) -> str | None:
    """Path of the original: in the fake's own part, unless only the metadata of another part lists it."""
    given = metadata.get("original")
    if not isinstance(given, str) or not given:
        return None
    if given.startswith("/"):
        raise UsageError(
            f"{src / prefix / 'metadata.json'}: original {given!r} of {name!r}: is an absolute path, so nothing would "
            "keep the fake in its original's split; write it relative to that part"
        )
    original = posixpath.normpath(given)
    candidates = prefixes.get(original, {prefix})
    return printable_name(posixpath.normpath(f"{prefix if prefix in candidates else min(candidates)}{original}"))


def _entry(media_file: FoundFile, metadata: dict[str, Any], original: str | None, *, use_splits: bool) -> Entry:
    label = _label(metadata)
    problem_detail = (
        f"metadata says label {metadata.get('label')!r}; DFDC knows REAL and FAKE" if label is None else None
    )
    return Entry(
        video_id=media_file.relative,
        size_bytes=media_file.size_bytes,
        mtime_ns=media_file.mtime_ns,
        label=-1 if label is None else label,
        split=parse_split_name(str(metadata.get("split"))) if use_splits else None,
        source_id=original,
        dataset="dfdc",
        problem=media_file.problem or ("unknown_label" if problem_detail else None),
        detail=media_file.detail if media_file.problem else problem_detail,
    )


def _label(metadata: dict[str, Any]) -> int | None:
    label = metadata.get("label")
    if label is None and metadata.get("is_fake") in (0, 1):
        return int(metadata["is_fake"])
    return _LABELS.get(label.upper()) if isinstance(label, str) else None


def _metadata(part: Path) -> dict[str, dict[str, Any]]:
    path = part / "metadata.json"
    consequence = "no label of this part is known; fix it, or use --layout folder"
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {consequence}") from error
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{path}: not JSON ({error}); {consequence}") from error
    if not isinstance(data, dict) or not all(isinstance(value, dict) for value in data.values()):
        raise UsageError(f"{path}: must map each file's name to an object; {consequence}")
    return data
