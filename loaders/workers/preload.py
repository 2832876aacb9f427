"""Imported by the fork server, so that workers are forked with everything already imported.

A process must not fork once it has other threads: they do not exist in the child, the locks they held do. So libraries
that start threads on import are configured not to, before they are imported.
"""

from __future__ import annotations

import gc
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's copy of it, and OpenCV's
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # pyarrow's jemalloc
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask the network in every worker

from ..batching import batch_dataset as batch_dataset  # noqa: PLC0414

gc.collect()
gc.freeze()  # so that collections in workers do not write to these objects, and pages stay shared
