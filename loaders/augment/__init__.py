"""Augmentations that know the face, as Albumentations transforms: `from facefeed.loaders.augment import FaceCompose`.

    train = FaceCompose([A.HorizontalFlip(p=0.5), AlignedMixup(p=0.2), FaceCutout(), A.ImageCompression(p=0.3)])
    FaceDataset("out", face_transform=train)

In: a `Face`: image, landmarks, hull, regions, mask. Out: the same, transformed.
Must not know: datasets, batches, processes.

They compose with any transform of Albumentations, serialise (`A.to_dict`, `A.save`), pickle and repeat by a seed. All
that they need to know of a face lies in its row: nothing is detected at training time.

| module | what it holds |
|---|---|
| compose | `FaceCompose`, which takes landmarks, hull, regions and mask along |
| points | one array for all points of a face; which is left and which is right |
| point_transforms | how the points follow a transform of Albumentations |
| base | what our transforms have in common |
| areas, blackout, cutout | black shapes: `LandmarkBlackout`, `HullHalfBlackout`, `BlockMask`, `FaceCutout` |
| regions | `RegionDropout`, `RegionCrop` |
| mixup | `AlignedMixup` |
| seeding | randomness that follows from the image's position in the epoch |
| pipeline_file | pipelines as `A.save` writes them |
| albumentations_internals | all that reaches into Albumentations |

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
