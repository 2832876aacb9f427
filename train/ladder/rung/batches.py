"""Where a rung's batches come from: OUT, or the videos it was made from."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from torch.utils.data import DataLoader, RandomSampler

from ....loaders import FaceDataLoader
from ....loaders.workers.processes import default_num_workers
from ...config.recipes import Config
from ...datamodule import FaceDataModule
from ..messages import Subject


class Faces(FaceDataModule):
    """OUT's faces as `FaceDataModule` has them, or for training made from the videos in every step.

    Validation sees the same draw of OUT's val split in all rungs: with its videos one after another, the first batches
    would be of a few people, and maybe of one class. A user's module gets `(images, labels)` of both.
    """

    def __init__(self, subject: Subject, config: Config, *, naive: bool) -> None:
        assert subject.out is not None
        super().__init__(subject.out, config.data)
        self.is_naive = naive
        self._videos, self._plain = subject.videos, subject.module is not None

    def steps_per_epoch(self) -> int:
        """Of OUT's training split, in one process."""
        return len(super().train_dataloader())

    def train_dataloader(self) -> Any:
        """As `FaceDataModule` has it, or by torch's DataLoader."""
        return self._from_videos() if self.is_naive else super().train_dataloader()

    def val_dataloader(self) -> FaceDataLoader | list[Any]:
        """A draw of OUT's val split, the same each time."""
        dataset = self.dataset("val")
        return FaceDataLoader(dataset, shuffle=True, **self.loader_arguments()) if len(dataset) else []

    def loader_arguments(self) -> dict[str, Any]:
        """As `FaceDataModule` has them, with the fields that the module takes."""
        return {**super().loader_arguments(), **({"fields": None} if self._plain else {})}

    def _from_videos(self) -> DataLoader[Any]:
        """As a careful person writes it: each face decoded, found and cut in a worker of torch's DataLoader."""
        options = self.options
        baseline = entry_points(group="facefeed.baselines")["onthefly"].load()
        dataset = baseline(self._videos, self.out, split="train", image_size=options.image_size)
        dataset[0]  # says now whether these are the videos
        workers = default_num_workers() if options.num_workers is None else options.num_workers
        endless = RandomSampler(dataset, num_samples=_LONG_EPOCH_STEPS * options.batch_size)
        return DataLoader(
            dataset, options.batch_size, sampler=endless, num_workers=workers, prefetch_factor=1 if workers else None,
            multiprocessing_context="forkserver" if workers else None,
        )  # fmt: skip


_LONG_EPOCH_STEPS = 10_000  # more than anybody waits for when each batch is made from videos
