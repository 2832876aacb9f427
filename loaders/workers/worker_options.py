"""`WorkerOptions`: how many workers a loader has, and how they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

from ...pipeline.errors import UsageError
from .. import validation
from ..whole_numbers import optional_int
from .processes import WorkerInit, default_num_workers, start_method_name, worker_context


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The arguments of `FaceDataLoader` that concern workers; raises `UsageError` on values that cannot hold."""

    num_workers: int | None
    local_ranks: int | None
    prefetch_factor: int | None
    persistent_workers: bool | None
    timeout: float
    worker_init_fn: Callable[[int], Any] | None
    multiprocessing_context: str | BaseContext | None

    def __post_init__(self) -> None:
        validation.check_options(
            worker_init_fn=self.worker_init_fn, timeout=self.timeout, persistent_workers=self.persistent_workers
        )
        for name, minimum, example in (("local_ranks", 1, 8), ("num_workers", 0, 2), ("prefetch_factor", 1, 2)):
            number = optional_int(name, getattr(self, name), minimum=minimum, example=example)
            object.__setattr__(self, name, number)
        for name in ("prefetch_factor", "persistent_workers", "timeout"):
            if self.num_workers == 0 and (value := getattr(self, name)):
                raise UsageError(
                    f"{name}={value!r}: num_workers=0 starts no workers; leave it out, or try num_workers=2"
                )
        start_method_name(self.multiprocessing_context)

    def torch_arguments(self) -> dict[str, Any]:
        """The keyword arguments of torch's DataLoader."""
        workers = default_num_workers(self.local_ranks) if self.num_workers is None else self.num_workers
        user_init = self.worker_init_fn
        return {
            "num_workers": workers,
            "prefetch_factor": self.prefetch_factor,
            "persistent_workers": workers > 0 if self.persistent_workers is None else self.persistent_workers,
            "timeout": self.timeout,
            "worker_init_fn": user_init if isinstance(user_init, WorkerInit) else WorkerInit(user_init),
            "multiprocessing_context": worker_context(self.multiprocessing_context) if workers else None,
        }
