"""The people of the sample: two portraits and variants of them that stand for further people."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from .portraits import Face, Image, Points, Portrait, PortraitName, load_portrait
from .proportions import UNCHANGED_PROPORTIONS, Field, Proportions, warp_image, warp_points


@dataclass(frozen=True, kw_only=True)
class Person:
    """One person: a portrait, optionally mirrored, recoloured and with other proportions.

    `gamma` above 1 darkens, `warmth` above 0 shifts the light from blue to red, `hue_degrees` rotates the
    hue of saturated colours (clothes, flags, backdrop) outside the head.
    """

    portrait: PortraitName
    mirrored: bool = False
    gamma: float = 1.0
    warmth: float = 0.0
    hue_degrees: float = 0.0
    proportions: Proportions = UNCHANGED_PROPORTIONS


PEOPLE: tuple[Person, ...] = (
    Person(portrait="astronaut"),
    Person(portrait="hopper"),
    Person(portrait="astronaut", mirrored=True, gamma=1.25, hue_degrees=150,
           proportions=Proportions(jaw=0.16, width=0.10, eyes=-0.10)),
    Person(portrait="hopper", mirrored=True, warmth=0.10, hue_degrees=-60,
           proportions=Proportions(width=-0.10, jaw=0.10, mouth=0.10)),
    Person(portrait="astronaut", gamma=0.85, warmth=-0.08, hue_degrees=80,
           proportions=Proportions(width=-0.12, eyes=0.15, mouth=-0.12)),
    Person(portrait="hopper", gamma=1.35, hue_degrees=120,
           proportions=Proportions(width=0.14, nose=0.15, jaw=-0.10)),
    Person(portrait="astronaut", mirrored=True, warmth=0.12, hue_degrees=-110,
           proportions=Proportions(nose=0.18, jaw=-0.12)),
    Person(portrait="hopper", mirrored=True, gamma=0.8, warmth=-0.06, hue_degrees=45,
           proportions=Proportions(eyes=0.14, jaw=0.14, mouth=-0.10)),
    Person(portrait="astronaut", gamma=1.5, warmth=0.05, hue_degrees=200,
           proportions=Proportions(width=0.15, mouth=0.15, nose=-0.10)),
    Person(portrait="astronaut", mirrored=True, gamma=0.95, warmth=0.06, hue_degrees=30,
           proportions=Proportions(jaw=-0.14, eyes=0.10, width=0.06)),
    Person(portrait="hopper", gamma=1.1, warmth=-0.10, hue_degrees=170,
           proportions=Proportions(jaw=-0.12, nose=-0.12, eyes=-0.08)),
    Person(portrait="hopper", gamma=0.9, warmth=0.14, hue_degrees=-100,
           proportions=Proportions(width=0.08, jaw=0.18, eyes=0.08)),
    Person(portrait="astronaut", gamma=1.15, warmth=-0.12, hue_degrees=-40,
           proportions=Proportions(jaw=0.14, nose=0.10, eyes=0.12, width=-0.06)),
    Person(portrait="hopper", mirrored=True, gamma=1.2, warmth=0.04, hue_degrees=90,
           proportions=Proportions(width=-0.14, mouth=0.14, nose=0.10)),
    Person(portrait="astronaut", mirrored=True, gamma=1.05, warmth=-0.05, hue_degrees=240,
           proportions=Proportions(width=0.12, jaw=0.08, mouth=-0.12)),
)  # fmt: skip
"""The people of the table of groups, in a fixed order; every original of the sample shows a different person."""


def person(index: int) -> Person:
    """The person of this index: those of PEOPLE, and beyond them variants that are drawn from the index."""
    if index < len(PEOPLE):
        return PEOPLE[index]
    rng = np.random.default_rng(index)
    parts = dict(zip(("eyes", "nose", "mouth", "jaw", "width"), rng.uniform(-0.12, 0.12, 5).tolist(), strict=True))
    return Person(
        portrait=("astronaut", "hopper")[index % 2],
        mirrored=bool(rng.integers(2)),
        gamma=float(rng.uniform(0.8, 1.5)),
        warmth=float(rng.uniform(-0.12, 0.14)),
        hue_degrees=float(rng.uniform(-180, 180)),
        proportions=Proportions(**parts),
    )


def person_portrait(person: Person) -> Portrait:
    """The person's still image, with the landmarks and hull of the face."""
    base = load_portrait(person.portrait)
    face = base.faces[0]
    image = warp_image(base.image, face, person.proportions)
    face = Face(
        landmarks=warp_points(face.landmarks, face, person.proportions),
        hull=warp_points(face.hull, face, person.proportions),
    )
    if person.mirrored:
        image, face = np.ascontiguousarray(image[:, ::-1]), _mirror(face, image.shape[1])
    return Portrait(image=_recolour(image, face, person), faces=(face,))


def side_by_side(first: Person, second: Person) -> Portrait:
    """One image of two people side by side, with heads of equal size and a cross-fade between them."""
    portraits = [person_portrait(first), person_portrait(second)]
    scales = [240 / portrait.faces[0].height for portrait in portraits]
    halves = [_resize(portrait, scale) for portrait, scale in zip(portraits, scales, strict=True)]
    # Of each a strip 480 px wide around the face, with the heads' centres at the same height.
    # The right strip is 60 px wider on its left, where the two cross-fade.
    seam = 60
    strips, faces = [], []
    for side, half in enumerate(halves):
        face = half.faces[0]
        left, top = int(face.center[0]) - 240, int(face.center[1]) - 250
        start = left - seam * side
        shift = np.array([[1, 0, -start], [0, 1, -top]], np.float32)
        size = (480 + seam * side, 640)
        strips.append(cv2.warpAffine(half.image, shift, size, borderMode=cv2.BORDER_REFLECT_101))
        offset = np.array([480 * side - left, -top], np.float32)
        faces.append(Face(landmarks=face.landmarks + offset, hull=face.hull + offset))
    return Portrait(image=_concatenate(strips[0], strips[1], seam=seam), faces=tuple(faces))


def empty_backdrop() -> Portrait:
    """An image without a face: the astronaut's suit and helmet, from the chest down."""
    return Portrait(image=np.ascontiguousarray(load_portrait("astronaut").image[196:]), faces=())


def _resize(portrait: Portrait, scale: float) -> Portrait:
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    image = cv2.resize(portrait.image, None, fx=scale, fy=scale, interpolation=interpolation)
    return Portrait(image=image, faces=tuple(face.scaled(scale) for face in portrait.faces))


def _concatenate(left: Image, right: Image, *, seam: int) -> Image:
    """Concatenate two images of equal height, with a linear cross-fade over an overlap of `seam` px."""
    fade = np.linspace(1, 0, seam, dtype=np.float32)[None, :, None]
    overlap = left[:, -seam:] * fade + right[:, :seam] * (1 - fade)
    joined: Image = np.concatenate([left[:, :-seam], np.rint(overlap).astype(np.uint8), right[:, seam:]], axis=1)
    return joined


def _mirror(face: Face, width: int) -> Face:
    def flip(points: Points) -> Points:
        return np.stack([width - 1 - points[:, 0], points[:, 1]], axis=-1).astype(np.float32)

    # Swap left and right, so that the landmarks keep their order as the viewer sees them.
    return Face(landmarks=flip(face.landmarks)[[1, 0, 2, 4, 3]], hull=flip(face.hull))


def _recolour(image: Image, face: Face, person: Person) -> Image:
    hsv = cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_BGR2HSV)
    saturated = np.clip((hsv[..., 1] - 0.35) / 0.2, 0, 1) * (1 - _head_mask(image.shape[:2], face))
    rotated = hsv.copy()
    rotated[..., 0] = (hsv[..., 0] + person.hue_degrees) % 360
    before, after = cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR), cv2.cvtColor(rotated, cv2.COLOR_HSV2BGR)
    mixed = before + (after - before) * saturated[..., None]
    gains = np.array([1 - person.warmth, 1, 1 + person.warmth], np.float32)
    toned = np.clip(mixed, 0, 1) ** person.gamma * gains
    recoloured: Image = np.rint(np.clip(toned, 0, 1) * 255).astype(np.uint8)
    return recoloured


def _head_mask(shape: tuple[int, int], face: Face) -> Field:
    """1 inside an ellipse around face, hair and neck, fading to 0 outside; (height, width) float32."""
    width, height = int(0.95 * np.ptp(face.hull[:, 0])), int(1.1 * np.ptp(face.hull[:, 1]))
    mask = np.zeros(shape, np.float32)
    center = tuple(int(value) for value in face.center)
    cv2.ellipse(mask, center, (width, height), 0, 0, 360, 1.0, cv2.FILLED)
    soft: Field = cv2.GaussianBlur(mask, (0, 0), 0.12 * width)
    return soft
