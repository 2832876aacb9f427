"""The two public-domain portraits that all faces of the sample come from, with the positions of their faces.

They ship in the wheels of scikit-image and matplotlib; the files are found without importing either.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from ..pipeline.errors import FacefeedError

Image = NDArray[np.uint8]
"""An image, (height, width, 3), uint8, BGR (OpenCV's order)."""
Points = NDArray[np.float32]
"""Points, (n, 2), float32, image px, x right, y down."""

PortraitName = Literal["astronaut", "hopper"]


@dataclass(frozen=True, kw_only=True)
class Face:
    """One face of an image: `landmarks` (5, 2) and `hull` (n, 2), both float32 in image px.

    The landmarks are image-left eye, image-right eye, nose, image-left and image-right mouth corner.
    """

    landmarks: Points
    hull: Points

    @property
    def eye_distance(self) -> float:
        """Distance of the eyes in px: the unit of a manipulation's lengths."""
        return float(np.linalg.norm(self.landmarks[1] - self.landmarks[0]))

    @property
    def center(self) -> Points:
        """Centre of the hull's bounding box, (2,), image px."""
        center: Points = (self.hull.min(axis=0) + self.hull.max(axis=0)) / 2
        return center

    @property
    def height(self) -> float:
        """Height of the hull's bounding box in px."""
        return float(np.ptp(self.hull[:, 1]))

    def scaled(self, scale: float) -> Face:
        """The face in the image scaled by `scale`."""
        return Face(landmarks=self.landmarks * np.float32(scale), hull=self.hull * np.float32(scale))


@dataclass(frozen=True, kw_only=True)
class Portrait:
    """A still image and the faces in it."""

    image: Image
    faces: tuple[Face, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in px."""
        return self.image.shape[1], self.image.shape[0]


@dataclass(frozen=True, kw_only=True)
class _Source:
    package: str
    file: str
    size: tuple[int, int]
    landmarks: tuple[tuple[float, float], ...]
    hull: tuple[tuple[float, float], ...]


# Landmarks: facenet-pytorch 2.5.3, MTCNN.detect (score > 0.9999 on both). Hulls: traced by hand along jaw,
# cheeks and the upper edge of the forehead that hair and hat leave free.
_SOURCES: dict[PortraitName, _Source] = {
    "astronaut": _Source(
        package="skimage",
        file="data/astronaut.png",
        size=(512, 512),
        landmarks=((205.4, 101.5), (246.9, 103.1), (225.1, 129.2), (201.2, 139.6), (245.1, 141.1)),
        hull=((183, 84), (181, 105), (182, 125), (186, 150), (194, 169), (207, 183), (222, 188), (236, 185),
              (251, 174), (262, 155), (268, 130), (269, 104), (264, 91), (247, 84), (214, 77), (192, 77)),
    ),
    "hopper": _Source(
        package="matplotlib",
        file="mpl-data/sample_data/grace_hopper.jpg",
        size=(512, 600),
        landmarks=((220.3, 189.9), (308.5, 187.1), (269.2, 238.9), (230.4, 282.6), (306.8, 279.6)),
        hull=((180, 172), (182, 213), (190, 250), (200, 283), (216, 311), (240, 329), (267, 333), (293, 329),
              (313, 313), (331, 284), (344, 247), (352, 207), (355, 172), (346, 150), (307, 140), (267, 138),
              (220, 141), (190, 150)),
    ),
}  # fmt: skip


def portrait_path(name: PortraitName) -> Path:
    """Path of the portrait within the installed packages.

    Raises FacefeedError if the package is not installed or ships no such file.
    """
    source = _SOURCES[name]
    spec = importlib.util.find_spec(source.package)
    if spec is None or spec.origin is None:
        raise FacefeedError(
            f"{source.package}: not installed, but the sample is made from its {source.file}; "
            "install it with: pip install 'facefeed[sample]'"
        )
    path = Path(spec.origin).parent / source.file
    if not path.is_file():
        raise FacefeedError(
            f"{path}: not there, but the sample is made from it; reinstall {source.package} from its wheel"
        )
    return path


def load_portrait(name: PortraitName) -> Portrait:
    """Read one of the two portraits, with its face.

    Raises FacefeedError if the file is missing, unreadable or not the image that the landmarks belong to.
    """
    source, path = _SOURCES[name], portrait_path(name)
    # fromfile + imdecode: cv2.imread cannot open every path on every system.
    image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
    if image is None or image.shape[1::-1] != source.size:
        state = "unreadable" if image is None else f"{image.shape[1]}x{image.shape[0]} px"
        raise FacefeedError(
            f"{path}: {state}, must be {source.size[0]}x{source.size[1]} px, or the face is not where it is "
            f"expected; install a {source.package} release that ships the known picture"
        )
    face = Face(landmarks=np.array(source.landmarks, np.float32), hull=np.array(source.hull, np.float32))
    return Portrait(image=image, faces=(face,))
