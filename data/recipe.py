"""The videos of the sample: what is drawn from the seed for the groups of `groups`."""

from __future__ import annotations

import string
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from .blend import Manipulation
from .encode import VideoEncoding
from .groups import GROUPS, Group, Trait, further_group
from .proportions import Proportions
from .scene import Shot


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


def draw_clips(seed: int, *, groups: int = len(GROUPS)) -> tuple[Clip, ...]:
    """All clips of the sample for a seed; originals come before their fakes.

    The first of the `groups` are those of the table, the others are drawn. Raises ValueError for a negative seed.
    """
    rng = np.random.default_rng(seed)
    names: set[str] = set()
    clips = [clip for group in GROUPS for clip in _draw_group(rng, group, names)]
    # Two more entries of metadata.json whose files are absent: a real video and a fake of a present one.
    absent = replace(clips[0], name=_draw_name(rng, "mp4", names), present=False)
    clips.append(absent)
    clips.append(replace(_draw_fake(rng, clips[0], GROUPS[0], 0, names), present=False))
    for number in range(groups - len(GROUPS)):
        clips += _draw_group(rng, further_group(number, rng), names)
    return tuple(clips)


def _draw_group(rng: np.random.Generator, group: Group, names: set[str]) -> list[Clip]:
    original = _draw_original(rng, group, names)
    return [original, *(_draw_fake(rng, original, group, number, names) for number in range(group.fakes))]


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
    # Its crf has the distribution of an original's, else the encoder alone would betray the class.
    crf = _draw_crf(rng)
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
    crf, count = _draw_crf(rng), round(group.seconds * group.rate)
    if group.trait != "variable_rate":
        return VideoEncoding(rate=group.rate, time_base=1 / group.rate, pts=tuple(range(count)), crf=crf)
    # A phone in changing light: the nominal interval, longer ones, and a gap, in milliseconds.
    steps = rng.choice([33, 33, 34, 41, 50, 66, 100], count - 1)
    steps[count // 2] = 400
    pts = (0, *np.cumsum(steps).tolist())
    return VideoEncoding(rate=group.rate, time_base=Fraction(1, 1000), pts=pts, crf=crf)


def _draw_crf(rng: np.random.Generator) -> int:
    return int(rng.integers(18, 35))


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
        shift=(signed_uniform(0.02, 0.05), signed_uniform(0.02, 0.05)),
        scale=float(rng.uniform(0.97, 1.06)),
        rotation_degrees=signed_uniform(1.0, 3.0),
        blur_sigma=float(rng.choice([0.0, 0.01, 0.02])),
        lightness=signed_uniform(6, 12),
        green_red=signed_uniform(3, 6),
        blue_yellow=signed_uniform(3, 7),
    )
