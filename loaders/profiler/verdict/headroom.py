"""Where a verdict has no headroom: the queue's model has not seen all, or the clock contradicts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...loader.face_dataloader import FaceDataLoader
from .result import CurvePoint
from .verdict import FED_BELOW, WARM_BYTES_PER_IMAGE, Verdict


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
    return _without_headroom(verdict, remark)


def without_contradicted_headroom(verdict: Verdict, curve: Sequence[CurvePoint]) -> Verdict:
    """The verdict without headroom, and with a remark, where a measured step waits that the model says would not.

    That is a step no faster than `Verdict.fastest_step_seconds` that surely waits for more than 1 % of the time.
    """
    fastest_step_seconds = verdict.fastest_step_seconds
    contradicting = [
        point
        for point in curve
        if fastest_step_seconds is not None
        and point.step_seconds >= fastest_step_seconds
        and point.measured_wait_share_lower > FED_BELOW
    ]
    if not contradicting:
        return verdict
    worst = max(contradicting, key=lambda point: point.measured_wait_share_lower)
    remark = (
        f"headroom is not known: with steps of {worst.step_seconds * 1e3:.1f} ms, measured, the device waited "
        f"{worst.measured_wait_share:.1%} of the time, where the model says {worst.predicted_wait_share:.1%}"
    )
    return _without_headroom(verdict, remark)


def _without_headroom(verdict: Verdict, remark: str) -> Verdict:
    return replace(
        verdict, fastest_step_seconds=None, fastest_step_upper_seconds=None, remarks=(*verdict.remarks, remark)
    )
