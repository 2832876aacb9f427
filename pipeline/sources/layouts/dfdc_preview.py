"""Layout `dfdcp`: the preview of the DeepFake Detection Challenge (Dolhansky et al. 2019).

    dataset.json        {"method_A/1224068/1224068_A/643049_1224068_A_0.mp4": {"label": "fake", "set": "train",
                         "target_id": "1224068", "swapped_id": "643049", "augmentations": []}, ...}
    original_videos/..., method_A/..., method_B/...         in some copies with a folder `videos` in each

`target_id` is whose video it is, `swapped_id` whose face was put into it; both count as being in it.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..clips.image_sequences import video_of_frame
from ..clips.video_or_frames import find_videos_or_frames
from ..listing import Entry, FoundFile, Listing, has_usable_splits, parse_split_name
from ..media.media_files import list_folders, listable_folders, path_exists
from ..metadata.json_files import read_json
from .names.name_matcher import published_path, stem_of
from .names.spelling import by_spelling, check_spelling, folders_spelt_as, misspelt

_TABLE = "dataset.json"
_FOLDERS = {name: name for name in ("original_videos", "method_A", "method_B")}
_LABELS = {"real": 0, "fake": 1}


class DFDCPreview:
    """The three folders with `dataset.json`, which gives labels, splits and people; other media get label -1."""

    name = "dfdcp"
    needs = f"a folder with {_TABLE} and {', '.join(_FOLDERS)}"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout, or folders that are nearly called so, which `read` refuses."""
        if not path_exists(src / _TABLE):
            return False
        folders = listable_folders(src)
        return bool(by_spelling(folders, _FOLDERS) or misspelt(folders, _FOLDERS))

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos, or the extracted frames.

        Raises `UsageError` where `dataset.json` is not of the set's form, or a folder is nearly called as published.
        """
        published_name = folders_spelt_as(src, _FOLDERS)
        check_spelling(src, list_folders(src), _FOLDERS, published_name)
        records = _records(src / _TABLE)
        ignored: Counter[str] = Counter()
        files = find_videos_or_frames(src, ignored, is_input=lambda _: True, allowed=allowed)
        ignored[".json"] -= 1
        entries = [_entry(file, records.get(_key(file.relative))) for file in files]
        on_disk = {_key(entry.video_id) for entry in entries}
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries,
            missing=sorted(record["path"] for key, record in records.items() if key not in on_disk), ignored=+ignored,
            uses_splits=has_usable_splits({_split(record) for record in records.values()}),
            without_splits=f"take `set` out of {_TABLE}", giving_labels=f"{_TABLE} does not name them",
            recognised_by=f"{_TABLE}, {', '.join(published_name)}",
        )  # fmt: skip


def _key(path: str) -> str:
    """The method's folder and the video's own name: copies differ in the folders between them."""
    video = published_path(path)
    return stem_of(f"{_published_folder(video)}/{posixpath.basename(video)}")


def _published_folder(path: str) -> str:
    """The folder that a path begins with, as it is published."""
    folder = path.partition("/")[0]
    return by_spelling([folder], _FOLDERS).get(folder, folder)


def _records(path: Path) -> dict[str, dict[str, Any]]:
    """Records by `_key`, each with its own `path`."""
    consequence = "no label of this set is known; fix it, or use --layout folder"
    data = read_json(path, consequence)
    if not isinstance(data, dict) or not all(isinstance(record, dict) for record in data.values()):
        raise UsageError(f"{path}: must map each video's path to an object; {consequence}")
    for name, record in data.items():
        if (label := record.get("label")) not in [*_LABELS]:
            raise UsageError(f"{path}: label {label!r} of {name!r}: must be real or fake; {consequence}")
    records = {_key(name): {**record, "path": name} for name, record in data.items()}
    if len(records) < len(data):
        raise UsageError(f"{path}: names a video of one folder twice; {consequence}")
    return records


def _split(record: Mapping[str, Any]) -> str | None:
    return parse_split_name(str(record.get("set")))


def _entry(file: FoundFile, record: Mapping[str, Any] | None) -> Entry:
    if record is None:
        return Entry.of_file(file, dataset="dfdcp")
    label = _LABELS[record["label"]]
    target, face = (str(person) if (person := record.get(key)) else None for key in ("target_id", "swapped_id"))
    identity = (face if label else None) or target
    return Entry.of_file(
        file,
        label=label,
        split=_split(record),
        footage=_key(file.relative) if video_of_frame(file.relative) != file.relative else None,
        identity=identity,
        related_identities=tuple(person for person in (target, face) if person and person != identity),
        dataset="dfdcp",
        method=_published_folder(file.relative) if label else None,
    )
