"""What the name of a folder says of the media below it: its class, its split, its clip, or the kind of its content.

A name may be several words, as `real_test` or `Val-Set`, as long as each of them is known. The number of its class may
stand before it, as in `0_real` and `1_fake`.
"""

from __future__ import annotations

import re
from functools import cache

from ..dataset.schema import REAL_NAMES
from .listing import parse_split_name

FAKE_NAMES = frozenset(["fake", "fakes", "manipulated", "deepfake", "deepfakes", "forged", "synthetic"])
CONTENT_NAMES = frozenset(["crops", "faces", "frames", "images", "imgs", "photos", "pictures"])

VIDEO_FOLDERS = CONTENT_NAMES | {"videos"}
COMPRESSIONS = {"raw": "raw", "c0": "raw", "c23": "c23", "c40": "c40"}
"""Of FaceForensics++ by folder; c0 is an older name of raw."""

_FILLERS = VIDEO_FOLDERS | {"clips", "data", "dataset", "set", "split", "video"}


def class_of_folder(name: str) -> int | None:
    """0 of a folder called real or the like, 1 of one called fake or the like; None of any other.

    >>> class_of_folder("Real"), class_of_folder("fake_test"), class_of_folder("real_vs_fake")
    (0, 1, None)
    >>> class_of_folder("0_real"), class_of_folder("1_fake"), class_of_folder("2_real")
    (0, 1, None)
    """
    words = _known_words(name)
    return 0 if words & REAL_NAMES else 1 if words & FAKE_NAMES else None


def last_word(name: str) -> str:
    """In lower case; empty where a name has no words.

    >>> last_word("Deepfakes_Masks"), last_word("original faces"), last_word("FSGAN")
    ('masks', 'faces', 'fsgan')
    """
    return next((word for word in reversed(re.split(r"[\W_]+", name.lower())) if word), "")


def split_of_folder(name: str) -> str | None:
    """`train`, `val` or `test` of a folder that is called so; None of any other.

    >>> split_of_folder("Validation"), split_of_folder("real_test"), split_of_folder("test_of_time")
    ('val', 'test', None)
    """
    return next(iter(_splits(_known_words(name))), None)


def without_content_folders(folder: str) -> list[str]:
    """The parts of a folder's path, without those at its end that are called `frames`, `faces` or the like."""
    parts = folder.split("/") if folder else []
    while parts and parts[-1].lower() in CONTENT_NAMES:
        parts.pop()
    return parts


def clip_of_folder(folder: str) -> str | None:
    """Path that identifies the clip whose images a folder holds; None of one that collects them, by its name alone.

    >>> clip_of_folder("real/033/frames"), clip_of_folder("train/real/faces")
    ('real/033', None)
    """
    parts = without_content_folders(folder)
    is_collection = not parts or class_of_folder(parts[-1]) is not None or split_of_folder(parts[-1])
    return None if is_collection else "/".join(parts)


def is_unclear_split(name: str) -> bool:
    """Whether the name of a split is one of several words that together name none.

    >>> is_unclear_split("test"), is_unclear_split("my_test_v2")
    (False, True)
    """
    return split_of_folder(name) is None and bool(_splits(_words(name)))


@cache
def _known_words(name: str) -> frozenset[str]:
    """The words of a name; none where one of them is unknown, or it names two classes or two splits."""
    words = _words(_without_class_number(name))
    splits = _splits(words)
    is_known = all(word in REAL_NAMES | FAKE_NAMES | _FILLERS or parse_split_name(word) for word in words)
    has_both = bool(words & REAL_NAMES) and bool(words & FAKE_NAMES)
    return words if is_known and len(splits) < 2 and not has_both else frozenset()


def _splits(words: frozenset[str]) -> set[str]:
    return {split for word in words if (split := parse_split_name(word))}


def _without_class_number(name: str) -> str:
    """Of other numbers nothing is known: `real_1` and `2_real` may be clips, as folders of their frames."""
    number, rest = name[:1], name[1:].lstrip("_- .")
    is_class_number = (number == "0" and _words(rest) & REAL_NAMES) or (number == "1" and _words(rest) & FAKE_NAMES)
    return rest if is_class_number and rest != name[1:] else name


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[\W_]+", name.lower())) - {""}
