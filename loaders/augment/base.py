"""Base class of our transforms: a stable serialised name, access to the face, and validated arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from albumentations import BasicTransform
from numpy.typing import NDArray

from ...pipeline.dataset.stores.address import is_address
from ...pipeline.errors import UsageError
from ..face import BOX_CORNERS
from ..real_numbers import as_float
from .albumentations_internals import ALL_TARGETS
from .points import FACE_KEYS, HALF_PX, INITIAL_POINTS, POINTS, FacePoints

Matrix = NDArray[np.float64]


class StableClassName:
    """Mixin: a serialised transform names this package, not the module of the class, so modules can be renamed."""

    @classmethod
    def get_class_fullname(cls) -> str:
        """`facefeed.loaders.augment.<class>` for our classes; a user's subclass keeps its own module."""
        package = __name__.rpartition(".")[0]
        return f"{package if cls.__module__.startswith(f'{package}.') else cls.__module__}.{cls.__name__}"


class FaceTransform(StableClassName, BasicTransform):  # type: ignore[misc]  # Albumentations has no types
    """A transform that uses the geometry of the face; works within `FaceCompose`. The base class of yours, too.

    A subclass has what Albumentations asks of a transform: `targets`, the methods that these name, such as `apply`, and
    `get_params_dependent_on_data(params, data)` for what follows from the image, where `face(data)` gives its points.
    It draws from Albumentations' generators alone (`py_random`, `random_generator`), so a seed reproduces it.

    Args:
        p: probability that it is applied, 0..1.

    Raises:
        UsageError: `p` is no such number.

    """

    reads_mask = True
    """Whether its result may depend on the mask; where it is False, the mask need not be decoded for it."""

    needs_landmarks_68 = False
    """Whether it works only on datasets with `landmarks_68`."""

    allowed_in_clips = False
    """Whether it treats the images of a clip alike, given the same draws: it decides by no image's own mask, label or
    partner. Loaders of clips refuse a transform that does not state this."""

    _targets = ALL_TARGETS

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=require_fraction("p", p))

    def face(self, data: Mapping[str, Any]) -> FacePoints:
        """The points of the face at this step of the pipeline. Raises `UsageError` outside a `FaceCompose`."""
        try:
            return FacePoints(data[POINTS], data[INITIAL_POINTS])
        except KeyError:
            raise UsageError(
                f"{type(self).__name__}: there is no face in the data; use it within FaceCompose, called with "
                f"{', '.join(FACE_KEYS)} (in FaceDataset: face_transform=FaceCompose([...]))"
            ) from None

    def missing_landmarks_68(self, out: Path | str = "OUT") -> UsageError:
        """The error where the dataset, in `out` if that is known, has no `landmarks_68`, and it needs them."""
        dataset, remedy = "this dataset" if out == "OUT" else str(out), f"run `facefeed add {out} landmarks`"
        if is_address(out):
            remedy = "run `facefeed add OUT landmarks` on the folder that it was copied from, and copy it again"
        return UsageError(f"{type(self).__name__}: needs landmarks_68, which {dataset} lacks; {remedy}")

    def draw_name(self, weights: Mapping[str, float], available: Iterable[str]) -> str | None:
        """One of the `available` names, drawn by weight; None where none of them has a weight.

        The first of exponential arrivals at the rates of all `weights`. So it draws the same whatever is available, and
        names that are not change the result only where they would have been drawn: the images of a clip stay alike.
        """
        rates = sorted(weights.items())  # a saved pipeline has them in another order
        arrivals = {name: self.py_random.expovariate(rate) for name, rate in rates if rate > 0}
        return min((name for name in available if name in arrivals), key=arrivals.__getitem__, default=None)


class GeometricTransform(FaceTransform):
    """A transform that moves pixels, and mask, points and boxes with them.

    Its parameters are `matrix` (2, 3), from the image's pixel centres to those of the result, None where nothing moves,
    and `size`, (H, W) of the result.
    """

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Maps each target to the method that transforms it, as Albumentations requires."""
        return {
            "image": self.apply,
            "mask": self.apply_to_mask,
            "keypoints": self.apply_to_keypoints,
            "bboxes": self.apply_to_bboxes,
        }

    def apply_to_keypoints(
        self,
        keypoints: NDArray[np.float32],
        matrix: Matrix | None,
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Points (N, 5+), from the first pixel's centre."""
        if matrix is None:
            return keypoints
        moved = keypoints.copy()
        moved[:, :2] = keypoints[:, :2] @ matrix[:, :2].T + matrix[:, 2]
        moved[:, 4] *= np.linalg.norm(matrix[:, :2], axis=0).max()
        return moved

    def apply_to_bboxes(
        self,
        bboxes: NDArray[np.float32],
        matrix: Matrix | None,
        size: tuple[int, int],
        shape: tuple[int, ...],
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Boxes (N, 4+), as fractions of the image: those around the warped corners."""
        if matrix is None:
            return bboxes
        corners = (bboxes[:, BOX_CORNERS].reshape(-1, 4, 2) * shape[1::-1] - HALF_PX) @ matrix[:, :2].T + matrix[:, 2]
        corners = (corners + HALF_PX) / size[::-1]
        moved = bboxes.copy()
        moved[:, :4] = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        return moved


def require_fraction(name: str, value: float) -> float:
    """`value` as a float; raises `UsageError` outside 0..1."""
    number = as_float(value)
    if not 0 <= number <= 1:
        raise UsageError(f"{name}={value!r}: must be a number from 0 to 1; try 0.5")
    return number


def require_at_least(minimum: float, name: str, value: float, *, exclusive: bool = False, suggestion: float) -> float:
    """`value` as a float; raises `UsageError` below `minimum`, or at it where the bound is `exclusive`."""
    number = as_float(value)
    if not (minimum <= number < math.inf) or (exclusive and number == minimum):
        raise UsageError(
            f"{name}={value!r}: must be a number {'above' if exclusive else 'of at least'} {minimum:g}; "
            f"try {suggestion:g}"
        )
    return number


def require_weights(
    weights: Mapping[str, float], allowed_names: Iterable[str], *, suggestion: Mapping[str, float]
) -> dict[str, float]:
    """Weights by name, as floats; raises `UsageError` on another name, a negative weight, or no weight above 0."""
    known = tuple(allowed_names)
    if not isinstance(weights, Mapping) or not weights:
        raise UsageError(f"weights={weights!r}: must map names to numbers; try {dict(suggestion)}")
    for name, weight in weights.items():
        if name not in known:
            raise UsageError(f"weights: {name!r} is none of {', '.join(known)}")
        if not 0 <= as_float(weight) < math.inf:
            raise UsageError(f"weights: {name}={weight!r} must be a number of at least 0; try 1")
    if not any(weights.values()):
        raise UsageError(f"weights={dict(weights)}: one must be above 0; try {dict(suggestion)}")
    return {name: float(weight) for name, weight in weights.items()}
