"""The options of `facefeed profile` as a picklable value, and how they are run."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ...pipeline.console import plural
from ...pipeline.dataset.stores.address import without_credentials
from ...pipeline.errors import UsageError
from ..dataset.face_dataset import FaceDataset
from ..loader.face_dataloader import FaceDataLoader
from ..sampling.balance import balance_from_name, check_batch_size
from ..sampling.balance_names import BalanceName
from ..workers.processes import default_num_workers
from .measure.steps import EmulatedDevice, EmulatedRank
from .measure.variants import with_longer_epoch
from .profile import profile
from .trials.sweep import Settings, describe_settings, failure_reason, run_sweep, settings_grid
from .verdict.advice import acceptable_wait_share, advise, unexplained_wait_share
from .verdict.loader_verdict import Progress
from .verdict.result import Profile

_ENDLESS_EPOCH_BATCHES = 10_000  # more than any run reads when each is decoded from videos


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """The options of `facefeed profile OUT`. sweep: the numbers to try, by "workers" and "prefetch"."""

    out: str | Path
    step_ms: float
    host_share: float
    steps: int
    confidence: float
    split: str
    batch_size: int
    image_size: int
    workers: int | None
    prefetch: int | None
    shuffle: Literal["full", "window", "none"]
    balance: BalanceName
    transform: Path | None
    ranks: int
    sweep: Mapping[str, Sequence[int]] = field(default_factory=dict)
    videos: Path | None = None
    verify: bool = False
    quick: bool = False

    def run(self, progress: Progress) -> Profile:
        """The profile of these settings, on one rank; `sweep` is not regarded."""
        loader, num_epoch_batches = self._loader()
        device_class = EmulatedRank if self.ranks > 1 else EmulatedDevice
        other_loaders = {} if self.videos is None else {"naive": self._naive(self._decoded(self.videos), loader)}
        return profile(
            loader,
            device_class(self.step_ms / 1e3, self.host_share),
            steps=self.steps,
            confidence=self.confidence,
            epoch_batches=num_epoch_batches,
            against=other_loaders,
            verify=self.verify,
            quick=self.quick,
            progress=progress,
        )

    def run_sweep(self, progress: Progress, run: Callable[[ProfileRequest, Progress], Profile]) -> Profile:
        """The profile of the best settings in `sweep`, measured once more; as in the sweep where that fails.

        run: measures one of them, also on several ranks, which then begin anew with each: a rank that fails alone would
        leave the others waiting for it in a setting that goes on with the same ones.
        """
        self._loader()  # what is wrong with all settings is refused now, and not after the last of them
        if self.videos is not None:
            self._decoded(self.videos)
        grid = settings_grid(self.sweep, *self._settings)

        def measured(settings: Settings) -> Profile:
            progress_text = f"setting {grid.index(settings) + 1} of {len(grid)}, {describe_settings(settings)}"
            request = replace(self._with_settings(settings), quick=True, videos=None)
            return run(request, lambda _, *done: progress(progress_text, *done))

        swept = run_sweep(grid, measured)
        try:
            best = run(self._with_settings((swept.sweep[0].num_workers, swept.sweep[0].prefetch_factor)), progress)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they hold the loader, with its workers and memory
            return self._as_swept(swept, failure_reason(error))
        return replace(best, sweep=swept.sweep, sweep_failures=swept.sweep_failures)

    def _as_swept(self, swept: Profile, reason: str) -> Profile:
        """The quick profile of the best settings, which could not be measured again, with what advice it allows."""
        if self.quick:
            return replace(swept, sweep_note=reason)
        advice = advise(
            swept.live, swept.num_cores, acceptable_share=acceptable_wait_share(swept.verdict),
            unexplained_share=unexplained_wait_share(swept.verdict),
        )  # fmt: skip
        return replace(swept, sweep_note=reason, advice=tuple(advice), is_explained=True)

    def _with_settings(self, settings: Settings) -> ProfileRequest:
        return replace(self, sweep={}, workers=settings[0], prefetch=settings[1])

    @property
    def _settings(self) -> Settings:
        workers = default_num_workers(self.ranks) if self.workers is None else self.workers
        return workers, (self.prefetch or 2) if workers else None

    def _loader(self) -> tuple[FaceDataLoader, int]:
        """Training's loader with a longer epoch, and the number of batches of training's own epoch."""
        workers, prefetch = self._settings
        transforms: dict[str, Any] = {}
        if self.transform is not None:
            from ..augment.pipeline_file import dataset_arguments  # noqa: PLC0415 (half a second, only for who uses it)

            transforms = dataset_arguments(self.transform)
        dataset = FaceDataset(self.out, split=self.split, image_size=self.image_size, **transforms)
        self_blend = getattr(dataset.face_transform, "self_blend", None)
        balance = balance_from_name(self.balance, dataset.index, dataset.rows, self_blend)
        remedy = "take --batch-size {size} or --balance none"
        check_batch_size(self.batch_size, balance, option=f"--batch-size {self.batch_size}", remedy=remedy)
        loader = FaceDataLoader(
            dataset, self.batch_size, shuffle=False if self.shuffle == "none" else self.shuffle, balance=balance,
            num_workers=workers, prefetch_factor=prefetch, local_ranks=self.ranks,
            on_corrupt="raise",  # a verdict on images in place of others is no verdict on this dataset
        )  # fmt: skip
        sampler: Any = loader.sampler
        images = sampler.num_images
        if not images:
            name = without_credentials(self.out)
            raise UsageError(f"--split {self.split}: split {self.split} of {name} has no faces; name another one")
        if images < self.ranks:
            raise UsageError(f"--ranks {self.ranks}: an epoch has {plural(images, 'image')}; take {images} or less")
        if images < self.batch_size * self.ranks:
            raise UsageError(
                f"--batch-size {self.batch_size}: an epoch of {images:,} images has no whole step of {self.ranks} x "
                f"{self.batch_size}; take {images // self.ranks} or less"
            )
        num_epoch_batches = len(loader)
        return with_longer_epoch(
            loader, math.ceil(4 * (self.steps + 10 * workers * (prefetch or 0)) / num_epoch_batches)
        ), num_epoch_batches

    def _decoded(self, videos: Path) -> Any:
        """The same faces as a dataset that decodes them from the videos."""
        from importlib.metadata import entry_points  # noqa: PLC0415

        baseline = entry_points(group="facefeed.baselines")["onthefly"].load()
        dataset = baseline(videos, self.out, split=self.split, image_size=self.image_size)
        dataset[0]  # says now whether these are the videos
        return dataset

    def _naive(self, dataset: Any, loader: FaceDataLoader) -> Any:
        """A loader of such a dataset with the same batches and workers."""
        from torch.utils.data import DataLoader, RandomSampler  # noqa: PLC0415

        workers = loader.num_workers
        sampler = RandomSampler(dataset, num_samples=_ENDLESS_EPOCH_BATCHES * self.batch_size)
        return DataLoader(
            dataset, self.batch_size, sampler=sampler, num_workers=workers, prefetch_factor=1 if workers else None,
            multiprocessing_context="forkserver" if workers else None,
        )  # fmt: skip
