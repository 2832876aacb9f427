"""`WorkerBatch`: a batch as it leaves its worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...pipeline.dataset.stores.counts import StoreCounts
from ...pipeline.errors import FacefeedError
from .packed_jpegs import PackedJpegs


@dataclass(frozen=True)
class Replacement:
    """A damaged image and the image that replaced it, by `face_id`; of clips, the first of the clip that did.

    `row`: of the damaged one, in the index.
    """

    face_id: str
    replaced_by: str
    reason: str
    row: int


@dataclass(frozen=True)
class WorkerBatch:
    """A batch as it leaves its worker. Columns are numpy arrays, since each tensor would take a file descriptor.

    epoch, step: which it is. count: images. slot: of the shared pool that the request named, or None. images: uint8 or
    float32 (count, H, W, 3); None where they are in the slot. columns: by name. collated: the output of the user's own
    collate_fn, in place of images and columns. error: why there is no batch. replaced: damaged images that were
    replaced. image_size: (H, W) of the images. made_fakes: real faces that `SelfBlend` made fakes of. seeds: of what is
    drawn on the device, one for each image or clip. jpegs: where `images`, or the slot, holds JPEGs
    that are not decoded yet; see `JpegBatchDataset`. store: what reading from a store took; None without one.
    """

    epoch: int
    step: int
    count: int
    slot: int | None
    images: torch.Tensor | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    collated: Any = None
    error: FacefeedError | None = None
    replaced: list[Replacement] = field(default_factory=list)
    image_size: tuple[int, ...] = ()
    made_fakes: int = 0
    seeds: NDArray[np.uint64] | None = None
    jpegs: PackedJpegs | None = None
    store: StoreCounts | None = None
