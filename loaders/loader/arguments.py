"""Checks and conversions of `FaceDataLoader` arguments that need the dataset."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from ...pipeline.dataset.frame_numbers import frame_numbers
from ...pipeline.dataset.manifest import Manifest
from ...pipeline.dataset.reserved_names import DATASET_COLUMN
from ...pipeline.errors import UsageError
from .. import validation
from ..adapters.by_kind import is_albumentations, is_v2
from ..clips.clip import Clip
from ..clips.clip_items import ClipItems
from ..dataset.columns import POINT_COLUMNS
from ..dataset.face_dataset import FaceDataset
from ..mixture.mixed_index import as_mixed
from ..mixture.mixture_balance import Weighting, mixture_balance
from ..mixture.mixture_dataset import MixtureDataset
from ..mixture.names import Rename, folders_by_name, is_several
from ..sampling.balance import Balance, BlendPairs, Pairs, Quotas, Unbalanced, check_balance
from ..sampling.epoch_sampler import EpochSampler
from ..whole_numbers import optional_int

_log = logging.getLogger("facefeed.loaders")

_MIXTURES_ALONE = "{}={!r}: for several datasets, FaceDataLoader(['ffpp', 'dfdc'], ...); leave it out"


Datasets: TypeAlias = str | Path | FaceDataset | Sequence[str | Path] | Mapping[str, str | Path]
"""The loader's first argument: a dataset, or several as a mixture."""


def as_dataset(dataset: Datasets, *, rename: Rename | None, **options: Any) -> FaceDataset:
    """The dataset of a folder, or of several, with these options, or the dataset itself.

    Raises `UsageError` where it has options, or methods, of its own.
    """
    if is_several(dataset):
        return MixtureDataset(folders_by_name(dataset), rename=rename, **options)  # type: ignore[arg-type]
    if isinstance(dataset, FaceDataset):
        validation.check_dataset_options_unset(options, FaceDataset)
        validation.check_no_overrides(dataset, FaceDataset)
    else:
        dataset = FaceDataset(dataset, **options)  # type: ignore[arg-type]
    if rename is not None and as_mixed(dataset.index) is None:
        raise UsageError(_MIXTURES_ALONE.format("rename", rename))
    return dataset


def epoch_balance(
    dataset: FaceDataset, balance: Balance | None, *, weights: Weighting | None, temperature: float | None,
    epoch_length: str | int | None,
) -> Balance:  # fmt: skip
    """The balance that epochs are ordered by: of a mixture, that of each dataset and the shares of these."""
    each = Unbalanced() if balance is None else balance
    check_balance(each)
    if isinstance(each, Quotas):
        each = each.in_order_of(dataset.index)
    if (index := as_mixed(dataset.index)) is not None:
        return mixture_balance(index, each, weights=weights, temperature=temperature, epoch_length=epoch_length)
    for name, value in {"weights": weights, "temperature": temperature, "epoch_length": epoch_length}.items():
        if value is not None:
            raise UsageError(_MIXTURES_ALONE.format(name, value))
    return each


def kept_columns(dataset: FaceDataset, balance: Balance | None) -> list[str]:
    """The columns whose values the replacement of a damaged image keeps, besides the label."""
    columns = [getattr(balance, "column", "label")]
    return columns if as_mixed(dataset.index) is None else [*columns, DATASET_COLUMN]


def check_epoch(sampler: EpochSampler) -> None:
    """Raises `UsageError` where the rows cannot provide the balance; logs a warning where an epoch has no batches."""
    num_faces = len(sampler.dataset)
    if not num_faces:
        _log.warning("no face of split=%s passes the filters: the loader has no batches", sampler.dataset.split)
        return
    _ = sampler.bound_balance
    if not len(sampler):
        _log.warning("drop_last leaves no batch of the %d faces: a step has more", num_faces)


def check_mixup(dataset: FaceDataset, balance: Balance | None) -> bool:
    """Whether the dataset's transform mixes pairs; raises `UsageError` where there are none."""
    mixes = bool(getattr(dataset.face_transform, "mixes", False))
    if mixes and not isinstance(balance, Pairs):
        raise UsageError("AlignedMixup: mixes a fake with the real frame before it; give balance=Pairs()")
    return mixes


def check_blend_pairs(dataset: FaceDataset, balance: Balance | None) -> bool:
    """Whether batches hold each face twice, the second time blended; raises `UsageError` where nothing blends them."""
    if not isinstance(balance, BlendPairs):
        return False
    self_blend = getattr(dataset.face_transform, "self_blend", None)
    if self_blend is None or not self_blend.p:
        raise UsageError(f"{balance}: needs a SelfBlend with p above 0, which makes the fakes, in face_transform")
    if (taken := dataset.labels[self_blend.real_label]) != balance.real:
        advice = f"BlendPairs(real={taken!r})"
        if balance.real in dataset.labels:
            advice += f" or SelfBlend(real={dataset.labels.index(balance.real)}, fake=...)"
        raise UsageError(f"{balance}: SelfBlend(real={self_blend.real_label}) takes {taken!r} for real; give {advice}")
    return True


def check_mask_size(mask_size: Any, fields: Sequence[str] | None, dataset: FaceDataset) -> int | None:
    """The cells of a mask along each axis; raises `UsageError` where batches have no mask, or a smaller one."""
    cells = optional_int("mask_size", mask_size, minimum=1, example=14)
    if cells is None:
        return None
    if "mask" not in (fields or ()):
        raise UsageError(f"mask_size={cells}: batches have no mask; give fields=('image', 'label', 'mask')")
    is_resized = dataset.transform is not None or dataset.face_transform is not None
    if not is_resized and dataset.image_size is not None and cells > dataset.image_size:
        raise UsageError(f"mask_size={cells}: must be at most image_size, {dataset.image_size}; try 14")
    return cells


def check_points_follow(transform: Any, fields: Sequence[str] | None, image_size: int | None) -> None:
    """Raises `UsageError` where Albumentations would move an image away from points or a mask that `fields` names, or
    is to change that mask; and where a `Lambda` of torchvision would change them as it changes the image.

    `image_size`: side of the images that it gets, px; None where they are of several sizes.
    """
    named = [name for name in fields or () if name in (*POINT_COLUMNS, "mask")]
    if named and is_v2(transform):
        from ..adapters.torchvision_v2 import check_lambdas  # noqa: PLC0415 (torchvision, as in `adapter_of`)

        check_lambdas(transform, named)
    if not named or not is_albumentations(transform):
        return
    from ..augment.albumentations_internals import (  # noqa: PLC0415 (half a second that others need not spend)
        first_changing_mask,
        first_moving_pixels,
    )

    if (moving := first_moving_pixels(transform, image_size)) is not None:
        raise UsageError(
            f"transform: {moving} would move the image without its {', '.join(named)}; give what moves pixels to "
            f"face_transform, a list such as [A.{moving}(...)], with which they move, or leave them out of fields"
        )
    if "mask" in named and (changing := first_changing_mask(transform)) is not None:
        name, argument = changing
        raise UsageError(
            f"transform: {name}({argument}=...) would change a mask, and gets none here; give it to face_transform, a "
            f"list such as [A.{name}(...)], or leave {argument} out"
        )


def clip_items(
    clip: Any, dataset: FaceDataset, *, balance: Balance | None, shuffle: bool | str, seed: int, collate_fn: Any
) -> ClipItems | None:
    """The clips of a dataset, None where images are asked for.

    Raises `UsageError` where there are none, or where they cannot be balanced by the column of `balance`. Logs
    a warning where tracks give no clip, or one that is filled up, and where clips have no pair.
    """
    if clip is None:
        return None
    if not isinstance(clip, Clip):
        raise UsageError(f"clip={clip!r}: must be a Clip, such as Clip(frames=16), or None")
    if clip.pad and collate_fn is not None:
        raise UsageError(
            "collate_fn: gets (clip, label) pairs, without `valid`, so Clip(pad=True) cannot hold: images that only "
            "fill a clip up would pass for real ones; leave one of them out"
        )
    _check_clip_transforms(dataset)
    _check_clip_times(dataset, clip)
    clip = replace(clip, pick=clip.pick or ("random" if shuffle else "even"))
    are_pairs = getattr(balance, "is_paired", False)
    items = ClipItems(dataset, clip, seed, _sampling(dataset, clip), are_pairs=are_pairs)
    items.check({name: rows for name, _, rows in _parts(dataset)})
    if (column := getattr(balance, "column", "label")) in dataset.index.categorical_columns:
        items.check_column(column)
    for note in items.notes:
        _log.warning("clip=%s, split=%s: %s", clip, dataset.split, note)
    return items


def _parts(dataset: FaceDataset) -> list[tuple[str, Any, tuple[int, int]]]:
    """Name, `Index`, and rows from and to of each dataset of a mixture; of a single one, "" and all rows."""
    mixture = as_mixed(dataset.index)
    if mixture is None:
        return [("", dataset.index, (0, len(dataset.index)))]
    return list(zip(mixture.names, mixture.indexes, pairwise(mixture.offsets), strict=True))


def _sampling(dataset: FaceDataset, clip: Clip) -> Mapping[str, Any]:
    """How the frames of a dataset were sampled; {} where those of a mixture were so differently.

    Raises `UsageError` where clips would be of all these frames.
    """
    manifests = [Manifest.read(index.out) for _, index, _ in _parts(dataset)]
    first, *others = (manifest.config.get("sampling", {}) for manifest in manifests)
    if all(sampling == first for sampling in others):
        all_images = {manifest.takes_all_images for manifest in manifests}
        return {**first, "all_images": all_images.pop() if len(all_images) == 1 else None}
    if clip.max_gap_seconds is None and dataset.frames_per_video is None:
        raise UsageError(
            "clip: the datasets were sampled by different rules, so that images in a row are of different times; run "
            "precompute with the same --every or --fps, or give Clip(max_gap_seconds=...)"
        )
    return {}


def _check_clip_times(dataset: FaceDataset, clip: Clip) -> None:
    """Raises `UsageError` on a gap in seconds for images of folders whose rate is unknown: these count as 1 s apart."""
    if clip.max_gap_seconds is None:
        return
    rows = dataset.rows[frame_numbers(dataset.index, dataset.rows) >= 0]
    for _, index, (start, end) in _parts(dataset):
        if ((rows >= start) & (rows < end)).any() and not Manifest.read(index.out).knows_times_of_clips:
            raise UsageError(
                f"Clip: max_gap_seconds={clip.max_gap_seconds!r}: {index.where} has folders of frames, whose times are "
                "not known; leave it out, so that their numbers count, or run precompute with --fps-of-images"
            )


def _check_clip_transforms(dataset: FaceDataset) -> None:
    """Raises `UsageError` on transforms that may treat the images of a clip differently; see `FaceTransform`."""
    if not hasattr(dataset.face_transform, "transforms"):
        return
    from ..augment.albumentations_internals import leaves  # noqa: PLC0415 (half a second that others need not spend)

    for transform in leaves(dataset.face_transform):
        if not getattr(transform, "allowed_in_clips", True):  # those of Albumentations state nothing
            raise UsageError(
                f"clip: {type(transform).__name__} decides by each image's own mask, label or partner, so it would "
                "change within a clip; take LandmarkBlackout, HullHalfBlackout or RegionDropout; in a class of your "
                "own that does not, set allowed_in_clips = True"
            )
