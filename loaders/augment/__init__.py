"""Face-aware augmentations as Albumentations transforms: `from facefeed.loaders.augment import FaceCompose`.

    train = FaceCompose([A.HorizontalFlip(p=0.5), AlignedMixup(p=0.2), FaceCutout(), A.ImageCompression(p=0.3)])
    FaceDataset("out", face_transform=train)

In: a `Face`: image, landmarks, hull, regions, mask, label. Out: the same, transformed.
Must not know: datasets, batches, processes.

They compose with any transform of Albumentations, serialise (`A.to_dict`, `A.save`), pickle and are reproducible by
seed. The geometry of a face is stored with its row: nothing is detected at training time.

| module | contents |
|---|---|
| compose | `FaceCompose`: transforms landmarks, hull, regions and mask with the image |
| points | all points of a face in one array; which is left and which is right |
| point_transforms | applies a transform of Albumentations to the points |
| sampling_map | inverts the map of an elastic warp |
| base | base class of our transforms; validation of arguments |
| areas, blackout, cutout | blackouts: `LandmarkBlackout`, `HullHalfBlackout`, `BlockMask`, `FaceCutout` |
| regions | `RegionDropout`, `RegionCrop` |
| mixup | `AlignedMixup` |
| published | `SelfBlend`, `FaceXRay`, `LandmarkJitter`, `MouthCrop`, `BackgroundRemoval` |
| similarity | the similarity transform between two sets of points |
| pipeline_file | reads and describes pipelines saved by `A.save` |
| albumentations_internals | everything that relies on Albumentations' private attributes |

published/ holds transforms that make of a stored face what a paper trains or tests on: its fakes, masks, alignment,
crops or controls. Those that only vary a face are in this folder, whoever published them.

For recompression use Albumentations' own: `A.ImageCompression` (JPEG, WebP quality), `A.Downscale` (down and up again).
"""

from .blackout import BlockMask, HullHalfBlackout, LandmarkBlackout
from .compose import FaceCompose
from .cutout import FaceCutout
from .mixup import AlignedMixup
from .published.background import BackgroundRemoval
from .published.self_blend import SelfBlend
from .published.warps import LandmarkJitter, MouthCrop
from .published.xray import FaceXRay
from .regions import RegionCrop, RegionDropout

__all__ = [
    "AlignedMixup",
    "BackgroundRemoval",
    "BlockMask",
    "FaceCompose",
    "FaceCutout",
    "FaceXRay",
    "HullHalfBlackout",
    "LandmarkBlackout",
    "LandmarkJitter",
    "MouthCrop",
    "RegionCrop",
    "RegionDropout",
    "SelfBlend",
]
