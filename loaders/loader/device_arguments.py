"""The `FaceDataLoader` arguments `device_transform` and `decode`: checks, and the decoder of batches of JPEGs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ...pipeline.dataset.manifest import Manifest
from ...pipeline.errors import UsageError
from ..adapters.by_kind import is_albumentations
from ..batching.batch_dataset import BatchDataset
from ..batching.jpeg_batch_dataset import JpegBatchDataset
from ..batching.worker_batch import WorkerBatch
from ..dataset.columns import POINT_COLUMNS
from ..dataset.face_dataset import FaceDataset
from ..device.jpegs import check_can_decode
from ..device.seeded_transform import name_of, steps_of
from ..mixture.mixed_index import as_mixed
from ..transfer.jpeg_decoder import JpegDecoder
from ..validation import binding_error
from ..whole_numbers import require_int
from .stats import EpochMeter


def check_device_transform(
    transform: Any, *, dtype: str, fields: Sequence[str] | None, collate_fn: Any, device: Any, pin_memory: bool
) -> None:
    """Raises `UsageError` where a `device_transform` is no transform, or cannot hold beside these options."""
    if transform is None:
        return
    for step in steps_of(transform):
        if not callable(step) or isinstance(step, type):
            raise UsageError(
                f"device_transform={step!r}: must be callable with images (N, 3, H, W), or a list of such; a class has "
                "to be called first"
            )
        if is_albumentations(step):
            raise UsageError(
                f"device_transform {name_of(step)}: a transform of Albumentations takes one image, on the CPU; give it "
                "to transform or face_transform, or take one of torchvision.transforms.v2"
            )
        if hasattr(step, "draws"):
            require_int(f"device_transform {name_of(step)}.draws", step.draws, example=1)
        _check_call(step)
        if dtype == "float32" and _normalises(step):
            raise UsageError(
                f"device_transform {name_of(step)}: the loader normalises what it returns, so Normalize would do it a "
                "second time; leave it out, or give dtype='uint8', whose images are delivered as it leaves them"
            )
        moved = [name for name in fields or () if name in (*POINT_COLUMNS, "mask")]
        if moved and getattr(step, "moves_pixels", True):
            raise UsageError(
                f"device_transform: {', '.join(moved)} would not follow {name_of(step)}; give what moves pixels "
                "to face_transform, which moves points and masks too; or state that it moves none, by an attribute "
                "moves_pixels = False"
            )
    if collate_fn is not None:
        raise UsageError("device_transform: the output of collate_fn is delivered unchanged; leave one of them out")
    _check_pin_memory("device_transform", device, pin_memory=pin_memory)


def _normalises(step: Any) -> bool:
    """Whether a transform of torchvision or Kornia is, or holds, a `Normalize`."""
    parts = [*getattr(step, "transforms", ()), *(step.children() if isinstance(step, torch.nn.Module) else ())]
    return type(step).__name__ == "Normalize" or any(map(_normalises, parts))


def _check_call(step: Any) -> None:
    """Raises `UsageError` where a transform cannot be called as the loader calls it."""
    has_draws = hasattr(step, "draws")
    if (error := binding_error(step, *(None, None) if has_draws else (None,))) is not None:
        call = "images (N, 3, H, W) and numbers (N, draws)" if has_draws else "images (N, 3, H, W)"
        reason = ", as it has `draws`" if has_draws else ""
        raise UsageError(
            f"device_transform {name_of(step)}: is called with {call}{reason}: {error}; see BatchedTransform"
        ) from error


def check_device_decoding(decode: Any, dataset: FaceDataset, *, collate_fn: Any, device: Any, pin_memory: bool) -> None:
    """Raises `UsageError` where `decode` is unknown, or JPEGs cannot be decoded on the device."""
    if decode == "workers":
        return
    if decode != "device":
        raise UsageError(f"decode={decode!r}: must be 'workers' or 'device'")
    asked = {"face_transform": dataset.face_transform, "transform": dataset.transform, "collate_fn": collate_fn}
    if given := [name for name, value in asked.items() if value is not None]:
        raise UsageError(
            f"decode='device': workers see no pixels, so {' and '.join(given)} cannot hold; give device_transform, or "
            "take decode='workers'"
        )
    mixed = as_mixed(dataset.index)
    indexes: Sequence[Any] = [dataset.index] if mixed is None else mixed.indexes
    for index in indexes:
        stored = Manifest.read(index.out).image_format
        if stored != "jpeg":
            raise UsageError(
                f"decode='device': the crops of {index.where} are {stored}, not JPEG; take decode='workers'"
            )
    _check_pin_memory("decode='device'", device, pin_memory=pin_memory)
    check_can_decode(torch_device(device))


def jpeg_decoder(dataset: BatchDataset, device: torch.device, meter: EpochMeter) -> JpegDecoder | None:
    """Decodes the batches of a `JpegBatchDataset`, and counts what it replaces; None for others."""
    if not isinstance(dataset, JpegBatchDataset):
        return None

    def reload(batch: WorkerBatch) -> WorkerBatch:
        assert batch.jpegs is not None
        reloaded = dataset.with_decoding_checked().load_batch(replace(batch.jpegs.request, slot=None))
        for replaced in batch.replaced:  # counted as the batch came
            meter.replaced.remove(replaced)
        meter.replaced += reloaded.replaced
        return reloaded

    assert dataset.image_size is not None
    return JpegDecoder(pool=dataset.pool, device=device, side_px=dataset.image_size, reload=reload)


def _check_pin_memory(option: str, device: Any, *, pin_memory: bool) -> None:
    if pin_memory and torch_device(device).type == "cpu":
        raise UsageError(f"{option}: its output is in new memory, so pin_memory cannot hold; give device='cuda'")


def torch_device(device: Any) -> torch.device:
    """The device of an argument `device`; None: the CPU."""
    return torch.device("cpu" if device is None else device)  # 0 is the first GPU
