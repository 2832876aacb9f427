"""`FaceDataModule`: the splits of a finished dataset as a LightningDataModule that resumes at the very next batch."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule

from ..loaders import FaceDataLoader, FaceDataset
from ..loaders.sampling.balance import BlendPairs, Pairs, Quotas, balance_from_name, check_batch_size
from ..pipeline.dataset.stores.address import as_out, without_credentials
from ..pipeline.dataset.stores.opening import read_manifest
from ..pipeline.errors import UsageError
from .checkpoints.training_framing import framing_of
from .checkpoints.training_videos import hash_videos
from .config.options import DataOptions
from .lightning_internals import AlignProgress
from .warning import warn

__all__ = ["DataOptions", "FaceDataModule"]

FIELDS = ("image", "label", "row", "face_id", "video_id", "method")
"""Columns of a batch."""
VIDEOS_KEY = "videos"
"""Key of the state that holds `hash_videos` of the training split."""
PIPELINES_KEY = "pipelines"
"""Key of the state that holds `pipeline_hashes` of the options."""
FRAMING_KEY = "framing"
"""Key of the state that holds `framing_of` the dataset."""


class EvaluationLoader(FaceDataLoader):
    """A `FaceDataLoader` whose transforms draw the same for a face each time, and in which every iteration is epoch 0.

    Else `best` would compare unlike images, and the same checkpoint be judged by others on another number of ranks. A
    Trainer sets the epoch of validation loaders to that of training.
    """

    draws_by_row = True

    def __iter__(self) -> Any:
        """Iterates over epoch 0 from its beginning."""
        iterator = super().__iter__()  # ends an iteration in progress, which would move to the next epoch
        self.set_epoch(0)
        return iterator


class FaceDataModule(LightningDataModule):  # type: ignore[misc]  # Lightning is not followed
    """Splits train, val and test of a dataset by `FaceDataLoader`. `out`: the folder that `precompute` wrote, or its
    address in an object store.

    Batches are dicts: image float32 (N, 3, H, W), label int64 (N,), row int64 (N,), and lists of face_id, video_id and
    method. With CUDA they are on the Trainer's device. A split without faces has no loader.

    The position within an epoch is saved in the Trainer's checkpoints. Training resumed from one (mid-epoch, after
    SIGKILL, on several ranks) continues at the very next image, also with another batch size or number of ranks.
    Resuming is refused if the dataset or the options that decide the order differ. Checkpoints also record hashes of
    the training videos, see `hash_videos`, and of the files of pipelines, see `pipeline_hashes`, and how crops were
    stored, see `framing_of`.

    resumed_at: (epoch, step) at which training was resumed with another global batch size, else None.
    classes: names by label. Raises `UsageError` if `out` is not a finished dataset.
    """

    def __init__(self, out: str | Path, options: DataOptions = DataOptions()) -> None:  # noqa: B008 (frozen)
        super().__init__()
        self.out, self.options = as_out(out), options
        manifest = read_manifest(out, options.store)
        self.classes: tuple[str, ...] = tuple(manifest.labels)
        self._framing = framing_of(manifest)
        self.save_hyperparameters({"data": asdict(options)})
        self._loader: FaceDataLoader | None = None
        self._pending_state: dict[str, Any] | None = None
        self._pipeline_hashes: dict[str, str] = {}
        self.resumed_at: tuple[int, int] | None = None

    def train_dataloader(self) -> FaceDataLoader:
        """Returns a shuffled, balanced, augmenting loader; the first after loading a checkpoint resumes from it."""
        self._pipeline_hashes = pipeline_hashes(self.options)  # now, since the files may change while training runs
        loader = self._train_loader(self._training_dataset())
        if self._pending_state is not None:
            self._resume(loader, self._pending_state)
            self._pending_state = None
        self._loader = loader
        return loader

    @property
    def loads_training(self) -> bool:
        """Whether the training loader is its own, whose `position` is known; a subclass may have another."""
        return self._loader is not None

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, step) from which the training loader goes on, in steps of the present size."""
        assert self._loader is not None
        return self._loader.state_dict()["epoch"], self._loader.next_step

    def val_dataloader(self) -> FaceDataLoader | list[Any]:
        """Every face of val once, in the index's order, each time with the same draws of `eval_transform`."""
        return self._eval_loader("val")

    def test_dataloader(self) -> FaceDataLoader | list[Any]:
        """Every face of test once, in the index's order, each time with the same draws of `eval_transform`."""
        return self._eval_loader("test")

    def state_dict(self) -> dict[str, Any]:
        """Returns `FaceDataLoader.state_dict` and hashes of pipelines; on the first rank also those of videos."""
        if self._loader is None:
            return {}
        state = {
            **self._loader.state_dict(), PIPELINES_KEY: self._pipeline_hashes, FRAMING_KEY: self._framing
        }  # fmt: skip
        return (
            {**state, VIDEOS_KEY: self._training_video_hashes}
            if self.trainer is None or self.trainer.is_global_zero
            else state
        )

    @cached_property
    def _training_video_hashes(self) -> torch.Tensor:
        return hash_videos(self.dataset("train"))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Stores the state, from which the next training loader resumes.

        Lightning restores the states of loaders by itself only if no loader was created before: a module that reads
        `estimated_stepping_batches` in `configure_optimizers` would restart the epoch.
        """
        if self.trainer is None or self.trainer.state.fn == "fit":  # not where it is only validated or tested
            self._pending_state = state_dict

    def _resume(self, loader: FaceDataLoader, state: dict[str, Any]) -> None:
        """Restores a loader, and aligns the Trainer's counts with it."""
        loader.load_state_dict(state)
        if self.trainer is None:
            return
        before, now = state.get("global_batch"), loader.state_dict()["global_batch"]
        AlignProgress(loader, resized=now != before).attach(self.trainer)
        if now == before:
            return
        self.resumed_at = loader.state_dict()["epoch"], loader.next_step
        warn(
            f"global_batch={now}: the checkpoint is of {before} images a step; training continues at the "
            "same image, in steps of the new size. FaceClassifier's learning rate continues as in a run of such steps; "
            "a schedule of your own continues by its count of steps, so it may end too early or too late"
        )

    def dataset(self, split: str, **settings: Any) -> FaceDataset:
        """Returns the dataset of a split; `settings`: of `FaceDataset`, besides those of the options."""
        options = self.options
        return FaceDataset(
            self.out,
            split=split,
            image_size=options.image_size,
            crop=options.crop,
            frames_per_video=options.frames_per_video,
            cache=options.cache,
            cache_bytes=options.cache_bytes,
            **settings,
        )

    def loader_arguments(self) -> dict[str, Any]:
        """Returns the keyword arguments common to all loaders.

        With CUDA batches are copied to the device and normalised there, overlapping the step. Ranks of one machine
        share its cores; the Trainer knows their number, whichever launcher started them.
        """
        device = None if self.trainer is None else self.trainer.strategy.root_device
        return {
            "local_ranks": None if self.trainer is None else self.trainer.num_devices,
            "batch_size": self.options.batch_size, "num_workers": self.options.num_workers, "seed": self.options.seed,
            "fields": FIELDS, "device": device if device is not None and device.type == "cuda" else None,
        }  # fmt: skip

    def _eval_loader(self, split: str) -> FaceDataLoader | list[Any]:
        dataset = self.dataset(split, **eval_transform_arguments(self.options.eval_transform))
        if (one_label := self._one_label(dataset, split)) is not None:
            warn(
                f"{without_credentials(self.out)}: {one_label}, so its AUC is not defined, and its other metrics say "
                "nothing of other labels; see `facefeed inspect`"
            )
        return EvaluationLoader(dataset, **self.loader_arguments()) if len(dataset) else []

    def check(self) -> None:
        """Raises `UsageError` where the options cannot hold for the training split; loads no image."""
        self._balance_of(self._training_dataset())

    def _training_dataset(self) -> FaceDataset:
        return self.dataset("train", **transform_arguments(self.options.transform))

    def _train_loader(self, dataset: FaceDataset) -> FaceDataLoader:
        balance = self._balance_of(dataset)
        self_blend = getattr(dataset.face_transform, "self_blend", None)
        if (one_label := self._one_label(dataset, "train")) is not None and self_blend is None:
            warn(
                f"{without_credentials(self.out)}: {one_label}, so there is nothing to tell apart; see `facefeed "
                "inspect`. Real faces alone train with data.balance=blend_pairs"
            )
        loader = FaceDataLoader(dataset, balance=balance, **self.loader_arguments())
        if isinstance(balance, Pairs) and (notes := loader.describe().notes):
            warn(f"{without_credentials(self.out)}: data.balance=pairs trains on pairs alone: {'; '.join(notes)}")
        return loader

    def _balance_of(self, dataset: FaceDataset) -> Quotas | Pairs | BlendPairs | None:
        """The balance of the training split; raises `UsageError` where it cannot hold in batches of its faces."""
        if not len(dataset):
            raise UsageError(
                f"{without_credentials(self.out)}: has no face to train on, its split train is empty; see "
                "`facefeed inspect`"
            )
        self_blend = getattr(dataset.face_transform, "self_blend", None)
        if self.options.balance == "blend_pairs" and self_blend is None:
            raise UsageError(
                f"data.balance=blend_pairs: needs a SelfBlend, which makes the fakes, and data.transform="
                f"{self.options.transform} has none; try data.transform=self_blend.yaml"
            )
        balance = balance_from_name(self.options.balance, dataset.index, dataset.rows, self_blend)
        batch_size = self.options.batch_size
        remedy = "take --set data.batch_size={size} or data.balance=none, in Python DataOptions(batch_size={size})"
        check_batch_size(batch_size, balance, option=f"data.batch_size={batch_size}", remedy=remedy)
        return balance

    def _one_label(self, dataset: FaceDataset, split: str) -> str | None:
        """Returns which one label all labelled faces have, as a clause; None for several labels, and without faces."""
        labels = np.unique(dataset.index.numbers("label", dataset.rows))
        known = labels[labels >= 0]
        if len(known) > 1 or not len(labels):
            return None
        if not len(known):
            return f"no face of {split} has a label"
        which = "all faces" if len(known) == len(labels) else "all labelled faces"
        return f"{which} of {split} have the label {self.classes[known[0]]}"


def pipeline_hashes(options: DataOptions) -> dict[str, str]:
    """Returns the SHA-256 of each pipeline's file in hexadecimal, by the name of its option.

    Raises `UsageError` where a file cannot be read.
    """
    files = {"transform": options.transform, "eval_transform": options.eval_transform}
    return {name: pipeline_sha256(file) for name, file in files.items() if file is not None}


def pipeline_sha256(file: str) -> str:
    """Returns the SHA-256 of a pipeline's file in hexadecimal; raises `UsageError` where it cannot be read."""
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    from ..loaders.augment.pipeline_file import sha256_of  # noqa: PLC0415

    return sha256_of(Path(file))


def transform_arguments(file: str | None) -> dict[str, Any]:
    """Returns the augmentation pipeline in a file, as the keyword argument of `FaceDataset` that takes it."""
    if file is None:
        return {}
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would call the network on import
    from ..loaders.augment.pipeline_file import dataset_arguments  # noqa: PLC0415 (takes half a second; rarely used)

    return dataset_arguments(Path(file))


def eval_transform_arguments(file: str | None) -> dict[str, Any]:
    """`transform_arguments` for evaluation; raises `UsageError` on a SelfBlend, whose fakes were real faces."""
    arguments = transform_arguments(file)
    if getattr(arguments.get("face_transform"), "self_blend", None) is not None:
        raise UsageError(
            f"data.eval_transform={file}: its SelfBlend makes fakes of real faces, so val and test would be judged by "
            "other labels than theirs; leave it out there"
        )
    return arguments
