"""`PackedJpegs`: the JPEGs of a batch, one after the other in one block of memory; `JpegBuffer` writes them there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..face import Face
from ..sampling.batch_request import BatchRequest
from .shared_pool import SharedBatchPool


@dataclass(frozen=True)
class PackedJpegs:
    """Where the JPEGs of a batch lie: `ends`, int64 (N,), the end of each in bytes; each begins where the last ends.

    request: that they answer, by which the batch can be loaded again where one of them cannot be decoded. to_images:
    float64 (N, 2, 3), maps px of each crop to px of its image, where a crop protocol cuts it; None: it is resized.
    """

    ends: NDArray[np.int64]
    request: BatchRequest
    to_images: NDArray[np.float64] | None = None

    @property
    def size_bytes(self) -> int:
        """Of all JPEGs."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def split(self, block: torch.Tensor) -> list[torch.Tensor]:
        """Each JPEG in the block, uint8 (size,), without a copy."""
        return list(torch.split(block[: self.size_bytes], np.diff(self.ends, prepend=0).tolist()))


class JpegBuffer:
    """Memory for the JPEGs of one batch, in place of a `BatchBuffer`: a slot of the shared pool, else a new tensor.

    ends: where each JPEG ends; see `PackedJpegs`.

    Args:
        num_images: in the batch.
        pool: shared memory, or None.
        slot: of the pool, or None.
        jpeg_bytes: size of the largest JPEG.
        image_size: (H, W) that the images will have.

    """

    def __init__(
        self, num_images: int, *, pool: SharedBatchPool | None, slot: int | None, jpeg_bytes: int,
        image_size: tuple[int, int],
    ) -> None:  # fmt: skip
        self.image_size = image_size
        self.ends = np.zeros(num_images, np.int64)
        shape = (num_images * jpeg_bytes,)
        block = None if pool is None or slot is None else pool.view(slot, shape)
        self._in_pool = block is not None
        self._block = torch.empty(shape, dtype=torch.uint8, device="cpu") if block is None else block

    def decode_target(self, _position: int) -> None:
        """Nothing is decoded."""

    def write(self, position: int, face: Face) -> None:
        """Writes the JPEG of a face behind the one before; of a clip that is replaced, over the earlier one."""
        jpeg = face.jpeg
        assert jpeg is not None
        start = int(self.ends[position - 1]) if position else 0
        self.ends[position] = start + len(jpeg)
        self._block.numpy()[start : start + len(jpeg)] = jpeg

    @property
    def images_outside_pool(self) -> torch.Tensor | None:
        """The JPEGs, uint8 (bytes,), unless they are in the slot."""
        size = int(self.ends[-1]) if len(self.ends) else 0
        return None if self._in_pool else self._block[:size].clone()
