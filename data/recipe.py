"""The videos of the sample: a fixed table of groups, whose details are drawn from a seed.

A group is one original and the fakes made from it. No two groups share an original or a person.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from .blend import Manipulation
from .encode import VideoEncoding
from .proportions import Proportions
from .scene import Shot

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


@dataclass(frozen=True, kw_only=True)
class Clip:
    """One file of the sample. A real one has no `manipulation`; a fake names its `original`.

    `face_index` is the face that is manipulated; `present` is False for files that metadata.json lists but a partly
    downloaded set lacks.
    """

    name: str
    people: tuple[int, ...]
    shot: Shot
    encoding: VideoEncoding
    grain_seed: int
    trait: Trait | None
    original: str | None = None
    manipulation: Manipulation | None = None
    face_index: int = 0
    present: bool = True

    @property
    def label(self) -> Literal["REAL", "FAKE"]:
        """DFDC's name of the class."""
        return "REAL" if self.manipulation is None else "FAKE"


def draw_clips(seed: int) -> tuple[Clip, ...]:
    """All clips of the sample for a seed; originals come before their fakes.

    Raises ValueError for a negative seed.
    """
    rng = np.random.default_rng(seed)
    names: set[str] = set()
    clips: list[Clip] = []
    for group in GROUPS:
        original = _draw_original(rng, group, names)
        clips.append(original)
        for number in range(group.fakes):
            clips.append(_draw_fake(rng, original, group, number, names))  # noqa: PERF401 (draws in order)
    # Two more entries of metadata.json whose files are absent: a real video and a fake of a present one.
    absent = replace(clips[0], name=_draw_name(rng, "mp4", names), present=False)
    clips.append(absent)
    clips.append(replace(_draw_fake(rng, clips[0], GROUPS[0], 0, names), present=False))
    return tuple(clips)


def _draw_original(rng: np.random.Generator, group: Group, names: set[str]) -> Clip:
    shot = Shot(
        size=group.size,
        face_share=group.face_share * rng.uniform(0.94, 1.06),
        pan=(rng.uniform(0.02, 0.06), rng.uniform(0.01, 0.04)),
        zoom=rng.uniform(0.02, 0.10),
        sway_degrees=rng.uniform(1.0, 5.0),
        hertz=rng.uniform(0.25, 0.6),
        phase=rng.uniform(0, 6.28),
        flicker=rng.uniform(0.02, 0.18),
        blur_px=rng.uniform(0.0, 1.6) * group.size[1] / 720,
        grain=rng.uniform(0.5, 3.0),
    )
    return Clip(
        name=_draw_name(rng, group.suffix, names),
        people=group.people,
        shot=shot,
        encoding=_draw_encoding(rng, group),
        grain_seed=int(rng.integers(2**31)),
        trait=group.trait,
        present=group.trait != "original_missing",
    )


def _draw_fake(rng: np.random.Generator, original: Clip, group: Group, number: int, names: set[str]) -> Clip:
    # The same shot, times and grain: a fake is made from its original's frames, then encoded separately.
    crf = int(np.clip(original.encoding.crf + rng.integers(-3, 7), 18, 36))
    return replace(
        original,
        name=_draw_name(rng, group.suffix, names),
        encoding=replace(original.encoding, crf=crf),
        original=original.name,
        manipulation=_draw_manipulation(rng),
        face_index=number % max(1, len(group.people)),
        present=True,
    )


def _draw_name(rng: np.random.Generator, suffix: str, used: set[str]) -> str:
    """Ten letters, as in DFDC, not drawn before."""
    while True:
        stem = "".join(rng.choice(list(string.ascii_lowercase), 10))
        if stem not in used:
            used.add(stem)
            return f"{stem}.{suffix}"


def _draw_encoding(rng: np.random.Generator, group: Group) -> VideoEncoding:
    crf, count = int(rng.integers(20, 33)), round(group.seconds * group.rate)
    if group.trait != "variable_rate":
        return VideoEncoding(rate=group.rate, time_base=1 / group.rate, pts=tuple(range(count)), crf=crf)
    # A phone in changing light: the nominal interval, longer ones, and a gap, in milliseconds.
    steps = rng.choice([33, 33, 34, 41, 50, 66, 100], count - 1)
    steps[count // 2] = 400
    pts = (0, *np.cumsum(steps).tolist())
    return VideoEncoding(rate=group.rate, time_base=Fraction(1, 1000), pts=pts, crf=crf)


def _draw_manipulation(rng: np.random.Generator) -> Manipulation:
    def signed_uniform(low: float, high: float) -> float:
        """Draw a magnitude between low and high, with a random sign."""
        return float(rng.uniform(low, high) * rng.choice([-1, 1]))

    return Manipulation(
        proportions=Proportions(
            eyes=signed_uniform(0.06, 0.18),
            nose=signed_uniform(0.0, 0.15),
            mouth=signed_uniform(0.06, 0.18),
            jaw=signed_uniform(0.0, 0.10),
        ),
        shift=(signed_uniform(0.01, 0.04), signed_uniform(0.01, 0.04)),
        scale=float(rng.uniform(0.98, 1.05)),
        rotation_degrees=signed_uniform(0.5, 2.5),
        blur_sigma=float(rng.choice([0.0, 0.006, 0.012])),
        lightness=signed_uniform(2, 7),
        green_red=signed_uniform(1, 4),
        blue_yellow=signed_uniform(1, 5),
    )
