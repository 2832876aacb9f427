"""What the fork server imports, so that every worker starts as a copy of it with nothing left to import.

A process must not fork once it has other threads: they are gone in the copy, the locks they held are not. So the
libraries that start threads as they load are told not to, before they load.
"""

from __future__ import annotations

import gc
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's copy of it, and OpenCV's
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # pyarrow's jemalloc
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask the network in every worker

from ..batching import batch as batch  # noqa: PLC0414

gc.collect()
gc.freeze()  # collections in workers leave these objects alone, and so the pages that all of them share
