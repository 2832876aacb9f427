"""The groups of the sample: a fixed table that covers the edge cases, and any number of plain groups beyond it.

A group is one original and the fakes made from it. No two groups share an original or a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from .people import PEOPLE

Trait = Literal["truncated", "rotated", "variable_rate", "original_missing"]
"""The edge case that a group covers; see docs/sample.md."""

NTSC = Fraction(30000, 1001)


@dataclass(frozen=True, kw_only=True)
class Group:
    """One original and its fakes, as planned; `people` are indices into `people.PEOPLE`.

    `size` is (width, height) in upright px; `face_share` as in `Shot`.
    """

    people: tuple[int, ...]
    suffix: Literal["mp4", "mov", "mkv"]
    size: tuple[int, int]
    rate: Fraction
    seconds: float
    fakes: int
    face_share: float
    trait: Trait | None = None


GROUPS: tuple[Group, ...] = (
    Group(people=(0,), suffix="mp4", size=(640, 360), rate=Fraction(30), seconds=2.5, fakes=2,
          face_share=0.42),
    Group(people=(1,), suffix="mp4", size=(1280, 720), rate=Fraction(24), seconds=2.0, fakes=1,
          face_share=0.56),
    Group(people=(2,), suffix="mov", size=(480, 270), rate=Fraction(24), seconds=3.0, fakes=2,
          face_share=0.40),
    Group(people=(3,), suffix="mkv", size=(640, 480), rate=Fraction(25), seconds=2.4, fakes=1,
          face_share=0.50),
    Group(people=(4,), suffix="mp4", size=(320, 240), rate=Fraction(15), seconds=4.0, fakes=2,
          face_share=0.38),
    Group(people=(5,), suffix="mp4", size=(854, 480), rate=NTSC, seconds=2.0, fakes=1,
          face_share=0.56),
    Group(people=(6,), suffix="mp4", size=(360, 640), rate=Fraction(25), seconds=2.6, fakes=1,
          face_share=0.22),
    Group(people=(7,), suffix="mkv", size=(960, 540), rate=Fraction(25), seconds=2.0, fakes=1,
          face_share=0.56),
    Group(people=(8,), suffix="mov", size=(640, 360), rate=NTSC, seconds=2.5, fakes=1,
          face_share=0.38),
    Group(people=(9, 10), suffix="mp4", size=(960, 540), rate=Fraction(24), seconds=2.0, fakes=1,
          face_share=0.46),
    Group(people=(11,), suffix="mov", size=(360, 640), rate=Fraction(30), seconds=2.0, fakes=1,
          face_share=0.30, trait="rotated"),
    Group(people=(12,), suffix="mp4", size=(640, 480), rate=Fraction(30), seconds=2.0, fakes=1,
          face_share=0.34, trait="variable_rate"),
    Group(people=(13,), suffix="mp4", size=(480, 360), rate=Fraction(25), seconds=2.2, fakes=1,
          face_share=0.50, trait="original_missing"),
    Group(people=(), suffix="mp4", size=(640, 360), rate=Fraction(30), seconds=2.0, fakes=0,
          face_share=1.14),
    Group(people=(14,), suffix="mp4", size=(480, 360), rate=Fraction(30), seconds=2.0, fakes=0,
          face_share=0.44, trait="truncated"),
)  # fmt: skip

_SIZES = ((320, 240), (426, 240), (360, 360), (480, 270), (480, 360), (270, 480))
_RATES = (Fraction(24), Fraction(25), Fraction(30), NTSC)


def further_group(number: int, rng: np.random.Generator) -> Group:
    """Draw a group beyond the table: a clip of half a second that shows one person, and its fake.

    `number` counts from 0 over the groups beyond the table; every one shows another person.
    """
    width, height = _SIZES[rng.integers(len(_SIZES))]
    return Group(
        people=(len(PEOPLE) + number,),
        suffix="mp4",
        size=(width, height),
        rate=_RATES[rng.integers(len(_RATES))],
        seconds=0.5,
        fakes=1,
        face_share=float(rng.uniform(110, 170)) / height,
    )
