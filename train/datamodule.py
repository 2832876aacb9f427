"""`FaceDataModule`: a finished dataset's splits as a Trainer takes them, resumed at the very next batch."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from ..loaders import FaceDataLoader, FaceDataset
from ..loaders.sampling.balance import balance_from_name
from ..pipeline.dataset.manifest import Manifest
from ..pipeline.errors import UsageError
from .checkpoints.training_videos import videos_of
from .config.options import DataOptions
from .lightning_internals import CountAnew

__all__ = ["DataOptions", "FaceDataModule"]

FIELDS = ("image", "label", "row", "face_id", "video_id", "method")
"""What a batch holds."""
VIDEOS = "videos"
"""Under which name the state has `videos_of` the training split."""


class FaceDataModule(LightningDataModule):  # type: ignore[misc]  # Lightning is not followed
    """Train, val and test of the dataset in `out`, the folder that `precompute` made, by `FaceDataLoader`.

    Batches are dicts: image float32 (N, 3, H, W), label int64 (N,), row int64 (N,), and lists of face_id, video_id and
    method. On CUDA they come on the Trainer's device. A split without faces has no loader.

    Where training stands in an epoch travels in the Trainer's checkpoints; a Trainer that is resumed from one, also
    in mid-epoch, after SIGKILL, and on several ranks, goes on at the very next image, also with another batch size or
    number of ranks. It is refused where the dataset or the options that decide the order differ. The checkpoints also
    hold which videos are trained on, by hashes: see `trained_on`.

    resumed_at: epoch and step at which training went on with another global batch than before, if it did.
    classes: names by label number. Raises `UsageError` where `out` is no finished dataset.
    """

    def __init__(self, out: str | Path, options: DataOptions = DataOptions()) -> None:  # noqa: B008 (frozen)
        super().__init__()
        self.out, self.options = Path(out), options
        self.classes: tuple[str, ...] = tuple(Manifest.read(self.out).labels)
        self.save_hyperparameters({"data": asdict(options)})
        self._loader: FaceDataLoader | None = None
        self._due: dict[str, Any] | None = None
        self.resumed_at: tuple[int, int] | None = None

    def train_dataloader(self) -> FaceDataLoader:
        """Shuffled, balanced and augmented; begins where a checkpoint left off, the first time after it was loaded."""
        loader = self._balanced(self.dataset("train", **_transforms(self.options.transform)))
        if self._due is not None:
            self._go_on(loader, self._due)
            self._due = None
        self._loader = loader
        return loader

    def val_dataloader(self) -> FaceDataLoader | list[Any]:
        """Every face of val once, in the index's order."""
        return self._in_order("val")

    def test_dataloader(self) -> FaceDataLoader | list[Any]:
        """Every face of test once, in the index's order."""
        return self._in_order("test")

    def state_dict(self) -> dict[str, Any]:
        """Where training stands, see `FaceDataLoader.state_dict`; on the first rank also which videos it is of."""
        if self._loader is None:
            return {}
        state = self._loader.state_dict()
        return {**state, VIDEOS: self._trained_on} if self.trainer is None or self.trainer.is_global_zero else state

    @cached_property
    def _trained_on(self) -> torch.Tensor:
        return videos_of(self.dataset("train"))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Has the next training loader go on there.

        Lightning itself also hands its loaders their states, but only if none was made before: a module that asks for
        `estimated_stepping_batches` in `configure_optimizers` would begin the epoch anew.
        """
        if self.trainer is None or self.trainer.state.fn == "fit":  # not where it is only validated or tested
            self._due = state_dict

    def _go_on(self, loader: FaceDataLoader, state: dict[str, Any]) -> None:
        """Has a loader go on at a state's image, and the Trainer count along where steps are of another size."""
        loader.load_state_dict(state)
        before, now = state.get("global_batch"), loader.state_dict()["global_batch"]
        if now == before or self.trainer is None:
            return
        self.resumed_at = loader.state_dict()["epoch"], loader.next_step
        CountAnew(loader).attach(self.trainer)
        rank_zero_warn(
            f"global_batch={now}: the checkpoint is of {before} images a step; training goes on at the "
            "same image, in steps of the new size. FaceClassifier's learning rate goes on as in a run of such steps; a "
            "schedule of your own goes on by its count of steps, so it may end too early or too late"
        )

    def dataset(self, split: str, **transforms: Any) -> FaceDataset:
        """A split as the options have it."""
        options = self.options
        return FaceDataset(
            self.out,
            split=split,
            image_size=options.image_size,
            frames_per_video=options.frames_per_video,
            **transforms,
        )

    def loader_arguments(self) -> dict[str, Any]:
        """What all loaders are given. On CUDA batches come normalised on the device, copied beside the step.

        Ranks of one machine share its cores; how many there are the Trainer knows, whoever started them.
        """
        device = None if self.trainer is None else self.trainer.strategy.root_device
        return {
            "local_ranks": None if self.trainer is None else self.trainer.num_devices,
            "batch_size": self.options.batch_size, "num_workers": self.options.num_workers, "seed": self.options.seed,
            "fields": FIELDS, "device": device if device is not None and device.type == "cuda" else None,
        }  # fmt: skip

    def _in_order(self, split: str) -> FaceDataLoader | list[Any]:
        dataset = self.dataset(split)
        return FaceDataLoader(dataset, **self.loader_arguments()) if len(dataset) else []

    def _balanced(self, dataset: FaceDataset) -> FaceDataLoader:
        if not len(dataset):
            raise UsageError(f"{self.out}: has no face to train on, its split train is empty; see `facefeed inspect`")
        balance = balance_from_name(self.options.balance, dataset.index, dataset.rows)
        return FaceDataLoader(dataset, balance=balance, **self.loader_arguments())


def _transforms(file: str | None) -> dict[str, Any]:
    """The pipeline in a file, under the name of the argument of `FaceDataset` that takes it."""
    if file is None:
        return {}
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would call the network on import
    from ..loaders.augment.pipeline_file import dataset_arguments  # noqa: PLC0415 (half a second, only for who uses it)

    return dataset_arguments(Path(file))
