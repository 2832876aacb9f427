"""`BatchBuffer`: the memory that the images of one batch are written to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from ..face import Face
from ..normalise import normalise_into
from .shared_pool import SharedBatchPool


class BatchBuffer:
    """Memory for the images of one batch: a slot of the shared pool if they fit, else a new tensor.

    Args:
        num_images: in the batch.
        pool: shared memory, or None.
        slot: of the pool, or None.
        normalised: whether images are written as normalised float32, else as uint8.
        direct_side_px: side of the square images that may be decoded right into the slot; None where a transform, which
            might keep a reference to its input, or the normalisation comes between.
        resizers: the options whose transforms may have resized images, for the error where sizes differ.

    """

    def __init__(
        self, num_images: int, *, pool: SharedBatchPool | None, slot: int | None, normalised: bool,
        direct_side_px: int | None, resizers: Sequence[str],
    ) -> None:  # fmt: skip
        self._num_images, self._normalised = num_images, normalised
        self._pool, self._slot, self._resizers = pool, slot, resizers
        self._images: torch.Tensor | None = None
        self._in_pool = False
        direct = None
        if direct_side_px is not None:
            direct = self._slot_view((num_images, direct_side_px, direct_side_px, 3))
        self._decode_targets = None if direct is None else direct.numpy()

    def _slot_view(self, shape: tuple[int, ...]) -> torch.Tensor | None:
        return None if self._pool is None or self._slot is None else self._pool.view(self._slot, shape)

    def decode_target(self, position: int) -> NDArray[np.uint8] | None:
        """Where an image may be decoded or resized to directly, uint8 (H, W, 3); None where that is not possible."""
        return None if self._decode_targets is None else self._decode_targets[position]

    def write(self, position: int, face: Face) -> None:
        """Writes the image of a face; raises `UsageError` where its size differs from those before."""
        image = face.image
        if position == 0:
            shape = (self._num_images, *image.shape)
            self._images = self._slot_view(shape)
            self._in_pool = self._images is not None
            if self._images is None:
                dtype = torch.float32 if self._normalised else torch.uint8
                self._images = torch.empty(shape, dtype=dtype, device="cpu")
        assert self._images is not None
        if self._images.shape[1:] != image.shape:
            sizes = [tuple(self._images.shape[1:3]), image.shape[:2]]
            options = " and ".join(self._resizers)
            raise UsageError(f"{options} returned images of sizes {sizes} for one batch: it needs one; resize last")
        pixels, target = torch.from_numpy(image), self._images[position]
        if self._normalised:
            normalise_into(target, pixels)
        elif pixels.data_ptr() != target.data_ptr():
            target.copy_(pixels)

    @property
    def image_size(self) -> tuple[int, ...]:
        """Height and width of its images; empty where none was written."""
        return () if self._images is None else tuple(self._images.shape[1:3])

    @property
    def images_outside_pool(self) -> torch.Tensor | None:
        """The images (N, H, W, 3), unless they are in the slot."""
        return None if self._in_pool else self._images
