"""`JpegDecoder`: decodes the batches of JPEGs that workers deliver, on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...pipeline.errors import CorruptDataError, UsageError
from ..batching.shared_pool import SharedBatchPool
from ..batching.worker_batch import WorkerBatch
from ..device.jpegs import decode_jpegs


@dataclass(frozen=True, kw_only=True)
class JpegDecoder:
    """Decodes a batch of JPEGs; one that cannot be decoded is replaced as a worker would have replaced it.

    Args:
        pool: that worker batches refer to, or None.
        device: to decode on.
        side_px: of the images.
        reload: `reload(batch)` loads a batch once more, with those replaced that the CPU cannot decode either.

    """

    pool: SharedBatchPool | None
    device: torch.device
    side_px: int
    reload: Callable[[WorkerBatch], WorkerBatch]

    def __call__(self, batch: WorkerBatch) -> tuple[WorkerBatch, torch.Tensor]:
        """The batch, another one where images are replaced, and its images, (N, H, W, 3) on the device.

        Raises `CorruptDataError` where images are not to be replaced, or cannot be, and `UsageError` where the device
        cannot decode what the CPU can.
        """
        try:
            return batch, self._decode(batch)
        except CorruptDataError:
            batch = self.reload(batch)
        try:
            return batch, self._decode(batch)
        except CorruptDataError as error:
            raise UsageError(f"decode='device': {error}; the CPU can decode it: take decode='workers'") from error

    def _decode(self, batch: WorkerBatch) -> torch.Tensor:
        assert batch.jpegs is not None
        block = batch.images
        if block is None:
            assert self.pool is not None
            assert batch.slot is not None
            block = self.pool.borrow(batch.slot, (batch.jpegs.size_bytes,))
        return decode_jpegs(batch.jpegs.split(block), self.device, self.side_px, batch.jpegs.to_images)
