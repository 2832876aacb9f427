"""`RequestPreparer`: gives a request its slot of shared memory, and starts reading its window ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...pipeline.dataset.stores.counts import StoreCounts
from ..batching.batch_dataset import BatchDataset
from ..sampling.batch_request import BatchRequest
from ..sampling.epoch_sampler import EpochSampler
from .readahead import ReadAhead


class RequestPreparer:
    """Adds to requests what only the loader's process can; see `EpochSampler.prepare_requests_with`.

    Has no reference to the loader or its sampler, so that they are freed at once.
    """

    def __init__(self, dataset: BatchDataset) -> None:
        self._dataset = dataset
        self._readahead: ReadAhead | None = None
        self._next_step = (-1, -1)  # epoch and step of the request that would follow the last
        self._last_window = -1  # that was read ahead

    def __call__(self, sampler: EpochSampler, request: BatchRequest) -> BatchRequest:
        """Returns the request with its clips, and with a slot, where there is a pool with a free one."""
        if (clips := self._dataset.clips) is not None:
            request = replace(request, clips=clips.clips(request.rows, request.epoch))
        if self.reads_ahead(sampler):
            self._read_ahead(sampler, request)
        pool = self._dataset.pool
        return request if pool is None else replace(request, slot=pool.acquire())

    def reads_ahead(self, sampler: EpochSampler) -> bool:
        """Whether windows of images are read before workers need them."""
        return sampler.shuffling.mode == "window" or (bool(self._dataset.stores) and sampler.shuffling.mode == "none")

    def take_store_counts(self) -> StoreCounts | None:
        """What reading ahead from stores took since the last call; None where it does not."""
        return None if self._readahead is None else self._readahead.take_counts()

    def _read_ahead(self, sampler: EpochSampler, request: BatchRequest) -> None:
        """Submits the windows that a request's step reads from, and the one after them, each once."""
        if self._readahead is None:
            self._readahead = ReadAhead(self._dataset.out, self._dataset.index, self._dataset.stores)
        if self._next_step != (request.epoch, request.step):
            self._last_window = -1
        self._next_step = request.epoch, request.step + 1
        first, last = sampler.window_range(request)
        clips = self._dataset.clips
        for number in range(max(first, self._last_window + 1), min(last + 2, sampler.num_windows)):
            rows = sampler.window(request.epoch, number)
            self._readahead.submit(rows if clips is None else np.unique(clips.clips(rows, request.epoch).rows))
            self._last_window = number
