"""Batches of a rung: from OUT, or decoded from the videos on the fly."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from torch.utils.data import DataLoader, RandomSampler

from ....loaders import FaceDataLoader
from ....loaders.sampling.balance import fitting_batch_size, images_per_unit
from ....loaders.workers.processes import default_num_workers
from ....pipeline.errors import UsageError
from ...config.recipes import Config
from ...datamodule import EvaluationLoader, FaceDataModule, eval_transform_arguments
from ..messages import Subject


class RungDataModule(FaceDataModule):
    """`FaceDataModule` of OUT, whose training batches may instead be decoded from the videos in every step.

    Validation is shuffled, identically in all rungs: in the order of videos, the first batches would be of a few
    people, and maybe of one class. A user's module gets batches `(images, labels)`.
    """

    def __init__(self, subject: Subject, config: Config, *, naive: bool) -> None:
        assert subject.out is not None
        super().__init__(subject.out, config.data)
        self.is_naive = naive
        self._videos, self._as_tuples = subject.videos, subject.module is not None

    def check(self) -> None:
        """Raises `UsageError` where no rung can run, or steps would be of fewer images than the batch size says."""
        dataset, batch_size = self._training_dataset(), self.options.batch_size
        largest = fitting_batch_size(len(dataset), images_per_unit(self._balance_of(dataset)))
        if batch_size > largest:
            raise UsageError(
                f"data.batch_size={batch_size}: the split train has {len(dataset)} images, so that no batch would be "
                f"full; take --set data.batch_size={largest} or less, or a dataset of more images"
            )

    def steps_per_epoch(self) -> int:
        """Returns the steps per epoch of OUT's training split, in one process."""
        return len(super().train_dataloader())

    def train_dataloader(self) -> Any:
        """Returns the loader of `FaceDataModule`, or torch's DataLoader over the videos."""
        return self._on_the_fly_loader() if self.is_naive else super().train_dataloader()

    def val_dataloader(self) -> FaceDataLoader | list[Any]:
        """Returns a loader over OUT's val split by `eval_transform`, shuffled by the seed."""
        dataset = self.dataset("val", **eval_transform_arguments(self.options.eval_transform))
        return EvaluationLoader(dataset, shuffle=True, **self.loader_arguments()) if len(dataset) else []

    def loader_arguments(self) -> dict[str, Any]:
        """Returns the arguments of `FaceDataModule`, without fields for a user's module."""
        return {**super().loader_arguments(), **({"fields": None} if self._as_tuples else {})}

    def _on_the_fly_loader(self) -> DataLoader[Any]:
        """Returns a loader that decodes, detects and crops each face in a worker, as a well-written script would."""
        options = self.options
        baseline = entry_points(group="facefeed.baselines")["onthefly"].load()
        dataset = baseline(self._videos, self.out, split="train", image_size=options.image_size)
        dataset[0]  # fails now if these are not the videos
        workers = default_num_workers() if options.num_workers is None else options.num_workers
        sampler = RandomSampler(dataset, num_samples=_LONG_EPOCH_STEPS * options.batch_size)
        return DataLoader(
            dataset, options.batch_size, sampler=sampler, num_workers=workers, prefetch_factor=1 if workers else None,
            multiprocessing_context="forkserver" if workers else None,
        )  # fmt: skip


_LONG_EPOCH_STEPS = 10_000  # more than any measurement takes
