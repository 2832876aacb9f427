"""Names of videos in an export: safe on every file system and in every archive, and unique."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

_MAX_CHARACTERS: Final = 60  # with frame, track and suffix, a name fits the 100 bytes of a plain tar header
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_+-]+")
_HASH_MARK: Final = "~"  # no safe name has it, so a name with a hash never equals one without
_HASH_DIGITS: Final = 16


def safe_name(text: str) -> str:
    """A file name of ASCII letters, digits, `_`, `+` and `-`, without dots; different texts may give the same name.

    >>> safe_name("clip.v2"), safe_name("../x y"), safe_name("-é"), safe_name("..")
    ('clip_v2', 'x_y', 'e', 'video')
    """
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _UNSAFE.sub("_", ascii_text)[:_MAX_CHARACTERS].rstrip("_").lstrip("_-") or "video"


def unique_names(
    video_ids: Sequence[str], groups: Sequence[Hashable], clean: Callable[[str], str] = safe_name
) -> list[str]:
    """Name of each video, unique within its group, also where a file system ignores case.

    A video is called by its file's stem. Where two of a group would have the same name, both are called by their whole
    paths; where that is not enough, a hash of the path is added. Names do not depend on the order of the videos.

    >>> unique_names(["real/a.mp4", "b.mp4", "fake/a.mp4"], [0, 0, 0])
    ['real_a', 'b', 'fake_a']
    >>> unique_names(["x y.mp4", "x_y.mp4"], [0, 0])
    ['x_y~827f07fb73f7ae77', 'x_y~bfe8e781f6fa4fa1']
    """
    levels: tuple[Callable[[str], str], ...] = (
        lambda video_id: clean(_without_suffix(video_id).rpartition("/")[2]),
        lambda video_id: clean(_without_suffix(video_id)),
        lambda video_id: f"{clean(_without_suffix(video_id))}{_HASH_MARK}{_hash(video_id)}",
    )
    level = [0] * len(video_ids)
    names = [levels[0](video_id) for video_id in video_ids]
    while True:
        counts = Counter((group, name.casefold()) for group, name in zip(groups, names, strict=True))
        clashing = [
            number
            for number, (group, name) in enumerate(zip(groups, names, strict=True))
            if counts[group, name.casefold()] > 1 and level[number] + 1 < len(levels)
        ]
        if not clashing:
            return names
        for number in clashing:
            level[number] += 1
            names[number] = levels[level[number]](video_ids[number])


def names_of_texts(texts: Iterable[str], clean: Callable[[str], str] = safe_name) -> dict[str, str]:
    """A name for each text, such as a class: as `clean` makes it, with a hash where that is the name of another too.

    >>> names_of_texts(["v1.0", "a b", "a_b"])
    {'v1.0': 'v1_0', 'a b': 'a_b~c8687a08aa5d6ed2', 'a_b': 'a_b~648fa9b31bc7ff7e'}
    """
    names = {text: clean(text) for text in texts}
    counts = Counter(name.casefold() for name in names.values())
    return {
        text: name if counts[name.casefold()] == 1 else f"{name}{_HASH_MARK}{_hash(text)}"
        for text, name in names.items()
    }


def column_names(columns: Sequence[str], fields: Sequence[str]) -> dict[str, str]:
    """Name of each column in a form that adds `fields`: its own, or where that is a field's, with a `_` at its end.

    >>> column_names(["label", "class"], ["file_name", "class"])
    {'label': 'label', 'class': 'class_'}
    """
    names = {}
    for column in columns:
        name = column
        while name in fields or (name != column and name in columns):
            name += "_"
        names[column] = name
    return names


def _without_suffix(video_id: str) -> str:
    folder, slash, name = video_id.rpartition("/")
    stem, dot, _ = name.rpartition(".")
    return f"{folder}{slash}{stem if dot and stem else name}"


def _hash(video_id: str) -> str:
    return hashlib.sha256(video_id.encode()).hexdigest()[:_HASH_DIGITS]
