"""Applies a `face_transform`: called with a face's points and mask beside its image, it returns all of them moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from ..face import Face
from .functions import validated_image


def apply_face_transform(
    face_transform: Callable[..., Any], face: Face, names: Sequence[str], pairing: Mapping[str, Any]
) -> Face:
    """The face as the transform leaves it.

    Args:
        face_transform: called by keyword with the fields `names` of the face and with `pairing`.
        face: as it is stored, resized.
        names: fields that the transform must return, beside what else it returns.
        pairing: `partner`, and of blend pairs `blend`; see `FaceDataset.load_augmented`.

    Raises:
        UsageError: it returns no image, lacks a field or has points of another shape, or mixes labels where it does not
            say so.

    """
    output = face_transform(**{name: _writable(getattr(face, name)) for name in names}, **pairing)
    image = _image_of(output)
    if missing := [name for name in names if name not in output]:
        raise UsageError(f"face_transform returned no {', '.join(missing)}: must return all that it was given")
    points = _points_of(output, face, names)
    given = {"label": face.label, "manipulated": output.get("manipulated")}
    face = Face(**{**given, **{name: output[name] for name in names}, **points, "image": image})
    is_fraction = face.label is not None and not float(face.label).is_integer()
    if is_fraction and not getattr(face_transform, "mixes", False):  # would be cut
        raise UsageError(
            f"face_transform returned label {face.label!r}: must be a whole number, since labels are delivered as "
            "int64; mix with AlignedMixup and balance=Pairs(), or mix images and labels of a batch in collate_fn "
            "or in the training step"
        )
    return face


def _writable(value: Any) -> Any:
    """The value, arrays of it copied where they are views of the index: a function may change what it is given."""
    if isinstance(value, dict):
        return {name: _writable(item) for name, item in value.items()}
    return value.copy() if isinstance(value, np.ndarray) and not value.flags.writeable else value


def _points_of(output: Mapping[str, Any], face: Face, names: Sequence[str]) -> dict[str, Any]:
    """Its points and boxes as float32; raises `UsageError` where their shapes or names are not those of the face."""
    points: dict[str, Any] = {}
    for name in ("landmarks", "landmarks_68", "hull"):
        if name not in names:
            continue
        shape, expected = np.shape(output[name]), getattr(face, name).shape
        if shape != expected and not (name == "hull" and len(shape) == 2 and shape[1] == 2):
            raise UsageError(f"face_transform returned {name} of shape {shape}: must be {expected}, points as x, y")
        points[name] = np.asarray(output[name], np.float32)
    if "regions" in names:
        regions = output["regions"]
        if not isinstance(regions, Mapping) or any(np.shape(box) != (4,) for box in regions.values()):
            raise UsageError("face_transform returned no boxes as regions: must be a dict of name to x0, y0, x1, y1")
        if regions.keys() != face.regions.keys():
            raise UsageError(
                f"face_transform returned the regions {', '.join(regions)}: must be {', '.join(face.regions)}, as it "
                "was given; return boxes outside the image, too"
            )
        points["regions"] = {name: np.asarray(regions[name], np.float32) for name in face.regions}
    return points


def _image_of(output: Any) -> NDArray[np.uint8]:
    """The image of its output, uint8 (H, W, 3); raises `UsageError` where it is no dict with one."""
    if not isinstance(output, Mapping) or "image" not in output:
        kind = f"a dict of {', '.join(map(str, output))}" if isinstance(output, Mapping) else type(output).__name__
        raise UsageError(f"face_transform returned {kind}: must return a dict with 'image', as Albumentations does")
    return validated_image("face_transform", output["image"])
