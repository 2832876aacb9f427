"""Making a fake: a changed copy of a face is blended back into the same picture through the face's hull.

After the idea of self-blended images (Shiohara & Yamasaki, "Detecting Deepfakes with Self-Blended Images",
CVPR 2022): a fake that carries what face swaps leave behind (a blending border, landmarks out of place,
another colour and sharpness inside) without a second identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from .portraits import Face, Image, Portrait
from .proportions import Field, Proportions, change_picture


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is done to the copy of the face before it is blended back.

    `shift` is in eye distances, `degrees` counter-clockwise, `softness` the sigma of a blur in eye distances
    (0 none), `lightness`, `green_red` and `blue_yellow` are steps in L*a*b* on a scale of 0 to 255.
    """

    proportions: Proportions
    shift: tuple[float, float]
    scale: float
    degrees: float
    softness: float
    lightness: float
    green_red: float
    blue_yellow: float


def blend_fake(portrait: Portrait, face_index: int, change: Change) -> Portrait:
    """Replace one face of the portrait by its changed copy; outside the face's hull nothing differs."""
    face = portrait.faces[face_index]
    changed = _changed_copy(portrait.image, face, change)
    mask = hull_mask(portrait.image.shape[:2], face)
    # seamlessClone puts the middle of the mask's bounding box here; any other point would shift the face.
    x, y, width, height = cv2.boundingRect(mask)
    middle = (x + width // 2, y + height // 2)
    # It also writes into the mask that it is given: hence the copy.
    poisson = cv2.seamlessClone(changed, portrait.image, mask.copy(), middle, cv2.NORMAL_CLONE)
    # Poisson blending takes the border's colours over; the changed tone comes back through a soft mask that
    # lies wholly inside the hull.
    toned = _tone(poisson, _soft_inside(mask, face), change)
    # seamlessClone touches a few pixels beyond the mask as well.
    image = np.where(mask[..., None] > 0, toned, portrait.image)
    return Portrait(image=image, faces=portrait.faces)


def hull_mask(shape: tuple[int, int], face: Face) -> Image:
    """Draw 255 inside the face's hull, else 0; (height, width) uint8."""
    mask = np.zeros(shape, np.uint8)
    hull = cv2.convexHull(np.rint(face.hull).astype(np.int32))
    filled: Image = cv2.fillConvexPoly(mask, hull, 255)
    return filled


def _changed_copy(image: Image, face: Face, change: Change) -> Image:
    copy = change_picture(image, face, change.proportions)
    center = tuple(float(value) for value in face.center)
    matrix = cv2.getRotationMatrix2D(center, change.degrees, change.scale)
    matrix[:, 2] += np.array(change.shift) * face.eye_distance
    copy = cv2.warpAffine(copy, matrix, image.shape[1::-1], flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101)
    if change.softness > 0:
        copy = cv2.GaussianBlur(copy, (0, 0), change.softness * face.eye_distance)
    moved: Image = copy
    return moved


def _soft_inside(mask: Image, face: Face) -> Field:
    """1 well inside the mask, falling to 0 at its border; (height, width) float32."""
    reach = max(2.0, 0.18 * face.eye_distance)
    # A frame of zeros, so that a face at the picture's edge has a border there too.
    framed = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    depth = cv2.distanceTransform(framed, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[1:-1, 1:-1]
    soft: Field = np.clip(depth / reach, 0, 1).astype(np.float32)
    return soft


def _tone(image: Image, weight: Field, change: Change) -> Image:
    lab = cv2.cvtColor(image, cv2.COLOR_BGR2LAB).astype(np.float32)
    lab += weight[..., None] * np.array([change.lightness, change.green_red, change.blue_yellow], np.float32)
    toned: Image = cv2.cvtColor(np.rint(np.clip(lab, 0, 255)).astype(np.uint8), cv2.COLOR_LAB2BGR)
    return toned
