"""What a verdict does not cover where a loader reads images from storage long before its workers need them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...loader.face_dataloader import FaceDataLoader
from .verdict import WARM_BYTES_PER_IMAGE, Verdict


def without_hidden_reads(verdict: Verdict, loader: Any) -> Verdict:
    """The verdict without headroom, and with a remark, where images were read ahead of the workers of `loader`.

    Workers then find them in memory, so their load times say nothing of how fast storage is. Where nothing came from
    storage, nothing is hidden; but what is fetched from a store is not among the bytes that the system reports.
    """
    if not isinstance(loader, FaceDataLoader) or not loader.reads_ahead:
        return verdict
    dataset: Any = loader.dataset
    sampler: Any = loader.sampler
    bytes_per_image = verdict.storage_bytes_per_image
    if not dataset.stores and bytes_per_image is not None and bytes_per_image < WARM_BYTES_PER_IMAGE:
        return verdict
    items = "images" if loader.clip is None else "clips"
    remark = (
        f"the loader reads up to two windows of {sampler.shuffling.window_images:,} {items} ahead: what that hides is "
        "not judged, and headroom is not known"
    )
    return replace(
        verdict, fastest_step_seconds=None, fastest_step_upper_seconds=None, remarks=(*verdict.remarks, remark)
    )
