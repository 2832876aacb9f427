"""Requests to the processes of rungs, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from .rungs import Data

_OF_A_RUN = ("epochs", "steps", "save_every_minutes")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is trained, and on which data; the same for all rungs of a ladder.

    out, videos: folders, or None. module: "PATH:CLASS" of the user's own LightningModule, None for `FaceClassifier`.
    recipe, changes: of `facefeed train`: `--recipe` (None: its default) and each `--set`.
    """

    out: str | None
    videos: str | None
    module: str | None
    recipe: str | None = None
    changes: tuple[str, ...] = ()

    @property
    def run_changes(self) -> tuple[str, ...]:
        """Those of `changes` that no rung depends on, since they say how long a run is and when it saves."""
        return tuple(change for change in self.changes if change.partition("=")[0].strip() in _OF_A_RUN)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Where all rungs of a ladder can stop after equally many samples: multiples of `group` batches in an epoch.

    ranks: common multiple of the ranks of all rungs. group: common multiple of the batches, over all ranks, that each
    rung takes for a step of the optimizer.
    """

    ranks: int = 1
    group: int = 1


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Steps of the rung whose samples the others see too, each of `devices` batches.

    warm_up_steps: before the measured `steps`. steps_per_epoch: None for an endless epoch.
    """

    warm_up_steps: int
    steps: int
    steps_per_epoch: int | None
    devices: int


@dataclass(frozen=True, kw_only=True)
class RungRequest:
    """Request to one process.

    task: "probe": which of `levers` can run here, each alone; "combine": which work together, earlier ones first;
    "measure": train with all `levers` at once. data, steps (None: an epoch), repeat, grid: for "measure", and
    reference, which replaces steps (None: there is none yet).
    """

    subject: Subject
    task: Literal["probe", "combine", "measure"]
    levers: tuple[str, ...] = ()
    data: Data = "precomputed"
    steps: int | None = None
    repeat: int = 0
    grid: Grid = Grid()
    reference: Reference | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a request that was written by `dataclasses.asdict` and `json`."""
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        subject = values.pop("subject")
        changes = tuple(subject.pop("changes"))
        levers, grid = tuple(values.pop("levers")), Grid(**values.pop("grid"))
        reference = values.pop("reference")
        return cls(
            subject=Subject(**subject, changes=changes), levers=levers, grid=grid,
            reference=None if reference is None else Reference(**reference), **values,
        )  # fmt: skip
