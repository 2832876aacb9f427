"""`JpegBatchDataset`: loads batches of JPEGs, which are decoded on the device."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from ..face import Face
from ..sampling.batch_request import BatchRequest
from .batch_dataset import BatchDataset
from .packed_jpegs import JpegBuffer, PackedJpegs

_JPEG_START = b"\xff\xd8"


class JpegBatchDataset(BatchDataset):
    """A `BatchDataset` whose batches hold JPEGs as they are stored, each checked by its CRC-32 and not decoded.

    Points and masks are those of the resized images; there are no transforms.
    """

    buffer_type = JpegBuffer
    checks_decoding = False
    """Whether each image is decoded, only to replace those that cannot be."""

    def with_decoding_checked(self) -> Self:
        """A copy that replaces images that cannot be decoded, too; it writes batches to new memory."""
        checked = copy.copy(self)
        checked.checks_decoding, checked.pool = True, None
        return checked

    @cached_property
    def largest_bytes(self) -> int:
        """Size of the largest of the selected JPEGs; computed by the loader's process, since workers get it with it."""
        sizes = self.index.numbers("image_bytes", self.rows)
        return int(sizes.max()) if len(sizes) else 1

    @property
    def max_image_numel(self) -> int | None:
        """See `BatchDataset`."""
        return self.largest_bytes

    def buffer(self, slot: int | None, num_images: int) -> JpegBuffer:
        """See `BatchDataset`."""
        assert self.image_size is not None
        return JpegBuffer(
            num_images, pool=self.pool, slot=slot, jpeg_bytes=self.largest_bytes,
            image_size=(self.image_size, self.image_size),
        )  # fmt: skip

    def packed(self, buffer: Any, request: BatchRequest, rows: NDArray[np.int64]) -> PackedJpegs:
        """See `BatchDataset`."""
        to_images = None
        if self.crop is not None:
            self._crop_mappings.prepare(rows.tolist())  # rows may have been replaced
            to_images = np.array([self._crop_mappings(row).to_image for row in rows.tolist()])
        return PackedJpegs(buffer.ends, request, to_images)

    def load_face(
        self, row: int, *, partner: Face | None, blend: bool | None,  # noqa: ARG002
        into: NDArray[np.uint8] | None,  # noqa: ARG002
    ) -> Face:  # fmt: skip
        """See `BatchDataset`; with its JPEG in place of pixels."""
        data = self._read_image(row)
        if data[:2] != _JPEG_START:
            raise UsageError(
                f"decode='device': the image of row {row} is no JPEG, and a device decodes no other; "
                "take decode='workers'"
            )
        if self.checks_decoding:
            self._decode(data)
        jpeg = np.frombuffer(data, np.uint8)
        if not self.needs_points:
            return Face.from_jpeg(jpeg)
        assert self.image_size is not None
        blank = np.broadcast_to(np.uint8(0), (self.image_size, self.image_size, 3))  # points are scaled to its size
        mapping = self._crop_mappings(row)
        mask = self._load_mask(row, mapping) if self._wants_mask else None
        return replace(self._with_points(row, blank, mapping), jpeg=jpeg, mask=mask, label=self._label(row))
