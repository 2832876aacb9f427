"""What a training loop notices where batches do not come in the order of the epoch."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from facefeed.loaders.batching.worker_batch import WorkerBatch
from facefeed.loaders.loader.epoch_iterator import iterate_in_order
from facefeed.loaders.loader.stats import EpochMeter
from facefeed.pipeline.errors import FacefeedError


def test_batches_in_another_order_end_the_iteration_with_an_error_of_facefeed() -> None:
    batches = iter([WorkerBatch(0, 1, 8, None), WorkerBatch(0, 0, 8, None)])
    with pytest.raises(FacefeedError, match=r"step 1 .* in place of step 0 .* order of the epoch"):
        list(iterate_in_order(batches, range(2), EpochMeter(0), nullcontext, on_batch=range))
