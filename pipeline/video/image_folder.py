"""A folder of images that is read as a clip: which of its files are frames, and in which order.

In: a folder. Out: names of files in the order of the frames. The parent, the decoder's child and the listing of a
source all use this, so that they mean the same frames. No image is opened.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

IMAGE_SUFFIXES = frozenset([".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"])

_LAST_NUMBER = re.compile(r"([0-9]+)(?:\.[^.]*)?$")
_POINT_NUMBER = re.compile(r"(.*[0-9])\.[0-9]+\.[^.]*$")
_DECIMAL = re.compile(r"(?<![0-9A-Za-z.])([0-9]+)\.([0-9]+)\.[^.]*$")
_NUMBERS = re.compile(r"([0-9]+)")
_MAX_NUMBER = (1 << 63) - 1


def frame_number(name: str) -> int | None:
    """The number that a file's name ends in, before the suffix; None without one, or beyond 63 bits.

    >>> frame_number("frame_0012.png"), frame_number("cover.png")
    (12, None)
    """
    digits = _LAST_NUMBER.search(name)
    number = int(digits[1]) if digits else None
    return number if number is not None and number <= _MAX_NUMBER else None


def frame_numbers(names: Sequence[str]) -> list[int] | None:
    """The number of each frame; None unless every name ends in a number of its own.

    Nor where these are the decimals of seconds or scores: where numbers and a point come before the last number, and
    those numbers differ, or only some names have decimals.
    """
    points = {match and tuple(_NUMBERS.findall(match[1])) for match in map(_POINT_NUMBER.match, names)}
    if len(points if _decimals(names) else points - {None}) > 1:
        return None
    numbers = [number for name in names if (number := frame_number(name)) is not None]
    return numbers if len(set(numbers)) == len(names) else None


def frame_step(numbers: Sequence[int]) -> int:
    """What one step is in the numbers of a clip's frames, ascending: the greatest common divisor of their distances.

    1 of a single frame.

    >>> frame_step([30, 60, 120]), frame_step([7])
    (30, 1)
    """
    return math.gcd(*(number - numbers[0] for number in numbers)) or 1


def in_frame_order(names: Sequence[str]) -> list[str]:
    """Sorts by the numbers that names end in where all of these differ, else naturally: parts of digits as numbers.

    Decimals that names end in are sorted as such.

    >>> in_frame_order(["frame10.png", "frame2.png"]), in_frame_order(["9_1.png", "10_0.png", "9_0.png"])
    (['frame2.png', 'frame10.png'], ['9_0.png', '9_1.png', '10_0.png'])
    >>> in_frame_order(["3.05.png", "1.10.png", "2.20.png"])
    ['1.10.png', '2.20.png', '3.05.png']
    >>> in_frame_order(["0.5.png", "0.png", "1.png", "0.25.png"])
    ['0.png', '0.25.png', '0.5.png', '1.png']
    """
    if numbers := frame_numbers(names):
        return [name for _, name in sorted(zip(numbers, names, strict=True))]
    return sorted(names, key=_decimal_key if _decimals(names) else _natural_key)


def list_frames(folder: Path, roots: Sequence[Path] = ()) -> list[str]:
    """Names of the images directly in `folder`, in the order of the frames.

    Left out are hidden files, folders, names that are not text, and links, unless they lead to a file in `folder` or in
    one of `roots`, which are real paths. Raises OSError where the folder cannot be listed.
    """
    allowed = [Path(os.path.realpath(folder)), *roots]
    with os.scandir(folder) as children:
        return in_frame_order([child.name for child in children if _is_frame(child, allowed)])


def _is_frame(child: os.DirEntry[str], allowed: Sequence[Path]) -> bool:
    if child.name.startswith(".") or not child.name.lower().endswith(tuple(IMAGE_SUFFIXES)):
        return False
    try:
        child.name.encode()
        if not child.is_symlink():
            return not child.is_dir()
        target = Path(os.path.realpath(child.path))
        return child.is_file() and any(target.is_relative_to(root) for root in allowed)
    except (OSError, UnicodeEncodeError):  # a loop of links; a name that is not UTF-8
        return False


def _decimals(names: Sequence[str]) -> list[tuple[str, str]]:
    """What comes before and after the points of decimal numbers at the ends of names; empty where these are none.

    The numbers of `2.9.png` and `2.10.png` are none: decimals of different lengths do not end in 0. Nor is a number
    that belongs to a word, as in `scene2.0012.png`.
    """
    found = [(decimal[1], decimal[2]) for name in names if (decimal := _DECIMAL.search(name))]
    are_numbers = any(len(decimals) > 1 and decimals.endswith("0") for _, decimals in found)
    return [] if are_numbers and len({len(decimals) for _, decimals in found}) > 1 else found


def _decimal_key(name: str) -> tuple[list[str | int], str, str]:
    decimal = _DECIMAL.search(name)
    stem = name[: decimal.end(1)] if decimal else name.rpartition(".")[0]
    return _natural_key(stem)[0], decimal[2] if decimal else "", name


def _natural_key(name: str) -> tuple[list[str | int], str]:
    parts = _NUMBERS.split(name)  # digits are at the odd positions
    return [int(part) if number % 2 else part for number, part in enumerate(parts)], name
