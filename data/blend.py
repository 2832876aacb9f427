"""Generates a fake: a manipulated copy of a face is blended back into the same image inside the face's hull.

Follows self-blended images (Shiohara & Yamasaki, "Detecting Deepfakes with Self-Blended Images",
CVPR 2022): the fake has the artifacts of a face swap (a blending border, displaced landmarks, another colour and
sharpness inside) without a second identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from .portraits import Face, Image, Portrait
from .proportions import Field, Proportions, warp_image


@dataclass(frozen=True, kw_only=True)
class Manipulation:
    """Changes applied to the copy of the face before it is blended back.

    `shift` is in eye distances, `rotation_degrees` is counter-clockwise, `blur_sigma` is the sigma of a Gaussian blur
    in eye distances (0: none), `lightness`, `green_red` and `blue_yellow` are offsets in L*a*b* on a scale of 0 to 255.
    """

    proportions: Proportions
    shift: tuple[float, float]
    scale: float
    rotation_degrees: float
    blur_sigma: float
    lightness: float
    green_red: float
    blue_yellow: float


def blend_fake(portrait: Portrait, face_index: int, manipulation: Manipulation) -> Portrait:
    """Replace one face of the portrait by its manipulated copy; pixels outside the face's hull are unchanged."""
    face = portrait.faces[face_index]
    manipulated = _manipulated_copy(portrait.image, face, manipulation)
    mask = hull_mask(portrait.image.shape[:2], face)
    # seamlessClone moves the centre of the mask's bounding box here; any other point would shift the face.
    x, y, width, height = cv2.boundingRect(mask)
    centre = (x + width // 2, y + height // 2)
    # seamlessClone writes into its mask, hence the copy.
    poisson = cv2.seamlessClone(manipulated, portrait.image, mask.copy(), centre, cv2.NORMAL_CLONE)
    # Poisson blending adopts the colours of the border; the tone is changed afterwards, with a feathered mask
    # inside the hull.
    toned = _shift_tone(poisson, _feathered_mask(mask, face), manipulation)
    # seamlessClone also changes a few pixels outside the mask.
    image = np.where(mask[..., None] > 0, toned, portrait.image)
    return Portrait(image=image, faces=portrait.faces)


def hull_mask(shape: tuple[int, int], face: Face) -> Image:
    """Draw 255 inside the face's hull, else 0; (height, width) uint8."""
    mask = np.zeros(shape, np.uint8)
    hull = cv2.convexHull(np.rint(face.hull).astype(np.int32))
    filled: Image = cv2.fillConvexPoly(mask, hull, 255)
    return filled


def _manipulated_copy(image: Image, face: Face, manipulation: Manipulation) -> Image:
    copy = warp_image(image, face, manipulation.proportions)
    center = tuple(float(value) for value in face.center)
    matrix = cv2.getRotationMatrix2D(center, manipulation.rotation_degrees, manipulation.scale)
    matrix[:, 2] += np.array(manipulation.shift) * face.eye_distance
    copy = cv2.warpAffine(copy, matrix, image.shape[1::-1], flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101)
    if manipulation.blur_sigma > 0:
        copy = cv2.GaussianBlur(copy, (0, 0), manipulation.blur_sigma * face.eye_distance)
    result: Image = copy
    return result


def _feathered_mask(mask: Image, face: Face) -> Field:
    """1 well inside the mask, falling to 0 at its border; (height, width) float32."""
    feather_px = max(2.0, 0.18 * face.eye_distance)
    # A border of zeros, so that a face at the image's edge is feathered there too.
    framed = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    depth = cv2.distanceTransform(framed, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[1:-1, 1:-1]
    soft: Field = np.clip(depth / feather_px, 0, 1).astype(np.float32)
    return soft


def _shift_tone(image: Image, weight: Field, manipulation: Manipulation) -> Image:
    lab = cv2.cvtColor(image, cv2.COLOR_BGR2LAB).astype(np.float32)
    lab += weight[..., None] * np.array(
        [manipulation.lightness, manipulation.green_red, manipulation.blue_yellow], np.float32
    )
    toned: Image = cv2.cvtColor(np.rint(np.clip(lab, 0, 255)).astype(np.uint8), cv2.COLOR_LAB2BGR)
    return toned
