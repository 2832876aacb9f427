"""What the command is asked to profile, as a value that processes can be sent; and how it is done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ...pipeline.errors import UsageError
from ..dataset.face_dataset import FaceDataset
from ..loader.face_dataloader import FaceDataLoader
from ..sampling.balance import BalanceName, balance_from_name
from ..workers.processes import default_num_workers
from .measure.steps import EmulatedDevice, EmulatedRank
from .measure.variants import prolonged
from .profile import profile
from .trials.sweep import Settings, settings_of, swept, told
from .verdict.loader_verdict import Progress
from .verdict.result import Profile

_LONG_EPOCH = 10_000  # batches: more than anybody waits for when each is made from videos


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `facefeed profile OUT`, as they are named there. sweep: the numbers to try, by "workers" and
    "prefetch".
    """

    out: Path
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

    def profiled(self, progress: Progress) -> Profile:
        """The profile; of a sweep, of its best settings, measured once more than the others."""
        if self.sweep:
            return self._swept(progress)
        loader, epoch = self._loader()
        device = EmulatedRank if self.ranks > 1 else EmulatedDevice
        beside = {} if self.videos is None else {"naive": self._naive(self.videos, loader)}
        return profile(
            loader, device(self.step_ms / 1e3, self.host_share), steps=self.steps, confidence=self.confidence,
            epoch_batches=epoch, against=beside, verify=self.verify, quick=self.quick, progress=progress,
        )  # fmt: skip

    def _swept(self, progress: Progress) -> Profile:
        wanted = settings_of(self.sweep, *self._settings)

        def measured(settings: Settings) -> Profile:
            what = f"setting {wanted.index(settings) + 1} of {len(wanted)}, {told(settings)}"
            one = replace(self._with(settings), quick=True, videos=None)
            return one.profiled(lambda _, *done: progress(what, *done))

        tried = swept(wanted, measured)
        best = self._with((tried[0].num_workers, tried[0].prefetch_factor))
        return replace(best.profiled(progress), sweep=tried)

    def _with(self, settings: Settings) -> Asked:
        return replace(self, sweep={}, workers=settings[0], prefetch=settings[1])

    @property
    def _settings(self) -> Settings:
        workers = default_num_workers(self.ranks) if self.workers is None else self.workers
        return workers, (self.prefetch or 2) if workers else None

    def _loader(self) -> tuple[FaceDataLoader, int]:
        """As training would make it, but with an epoch that is long enough; and how many batches training's own has."""
        workers, prefetch = self._settings
        transforms: dict[str, Any] = {}
        if self.transform is not None:
            from ..augment.pipeline_file import dataset_arguments  # noqa: PLC0415 (half a second, only for who uses it)

            transforms = dataset_arguments(self.transform)
        dataset = FaceDataset(self.out, split=self.split, image_size=self.image_size, **transforms)
        loader = FaceDataLoader(
            dataset, self.batch_size, shuffle=False if self.shuffle == "none" else self.shuffle,
            balance=balance_from_name(self.balance, dataset.index, dataset.rows), num_workers=workers,
            prefetch_factor=prefetch, local_ranks=self.ranks,
        )  # fmt: skip
        sampler: Any = loader.sampler
        if (images := sampler.num_images) < self.batch_size * self.ranks:
            raise UsageError(
                f"--batch-size {self.batch_size}: an epoch of {images:,} images has no whole step of {self.ranks} x "
                f"{self.batch_size}; take {images // self.ranks} or less"
            )
        epoch = len(loader)
        return prolonged(loader, math.ceil(4 * (self.steps + 10 * workers * (prefetch or 0)) / epoch)), epoch

    def _naive(self, videos: Path, loader: FaceDataLoader) -> Any:
        """The same faces, batches and workers, but made from the videos in every step."""
        from importlib.metadata import entry_points  # noqa: PLC0415

        from torch.utils.data import DataLoader, RandomSampler  # noqa: PLC0415

        baseline = entry_points(group="facefeed.baselines")["onthefly"].load()
        dataset = baseline(videos, self.out, split=self.split, image_size=self.image_size)
        dataset[0]  # says now whether these are the videos
        workers = loader.num_workers
        endless = RandomSampler(dataset, num_samples=_LONG_EPOCH * self.batch_size)
        return DataLoader(
            dataset, self.batch_size, sampler=endless, num_workers=workers, prefetch_factor=1 if workers else None,
            multiprocessing_context="forkserver" if workers else None,
        )  # fmt: skip
