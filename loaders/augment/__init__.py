"""Augmentations that know the face, as Albumentations transforms: `from facefeed.loaders.augment import FaceCompose`.

    train = FaceCompose([A.HorizontalFlip(p=0.5), AlignedMixup(p=0.2), FaceCutout(), A.ImageCompression(p=0.3)])
    FaceDataset("out", face_transform=train)

They compose with any transform of Albumentations, serialise (`A.to_dict`, `A.save`), pickle and repeat by a seed. All
that they need to know of a face lies in its row: nothing is detected at training time.

compose   `FaceCompose`, which takes landmarks, hull, regions and mask along
points    one array for all points of a face; which is left and which is right
follow    how the points follow a transform of Albumentations
transform what ours have in common
areas     the shapes that are blacked out
blackout  `LandmarkBlackout`, `HullHalfBlackout`, `BlockMask`
cutout    `FaceCutout`, the three in a chain
regions   `RegionDropout`, `RegionCrop`
mixup     `AlignedMixup`
pipeline_file, choice, gallery   the page of `facefeed augment`: a pipeline, some faces, what becomes of them

Re-encoding is Albumentations' own: `A.ImageCompression` (JPEG, WebP quality), `A.Downscale` (down and up again).
"""

from .blackout import BlockMask, HullHalfBlackout, LandmarkBlackout
from .compose import FaceCompose
from .cutout import FaceCutout
from .mixup import AlignedMixup
from .regions import RegionCrop, RegionDropout

__all__ = [
    "AlignedMixup",
    "BlockMask",
    "FaceCompose",
    "FaceCutout",
    "HullHalfBlackout",
    "LandmarkBlackout",
    "RegionCrop",
    "RegionDropout",
]
