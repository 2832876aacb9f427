"""`Result`: what a run came to, over all its sessions; it is stored as result.json."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ...pipeline.errors import CorruptDataError
from ...pipeline.json_records import record_of

_RENAMED = {"told": "lever_metrics"}
"""Fields by the names that 0.1.0 gave them."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a run over all its sessions, as plain values; the field names are the keys of result.json.

    epochs, steps: done; steps of the optimizer. images: trained on. seconds: of training and validation.
    images_per_second, stall (fraction, 0 to 1): None for a run that is too short. memory: of `levers.peak_memory` in
    the last session. lever_metrics: of `levers.metrics`, by lever. frozen: rows of `FrozenRow`. val: metrics, such as
    "val/auc", of the weights in `checkpoint`, which are those of `best_step`; test: of the same weights. Without a best
    validation these are the last weights, and val is empty. val_faces, ...: numbers of faces and videos evaluated.
    """

    run: str
    dataset: str
    config: dict[str, Any]
    epochs: int
    steps: int
    images: int
    seconds: float
    images_per_second: float | None
    stall: float | None
    memory: dict[str, int | None]
    lever_metrics: dict[str, dict[str, Any]]
    frozen: list[dict[str, Any]]
    best_step: int
    checkpoint: str
    val: dict[str, float]
    test: dict[str, float]
    val_faces: int
    val_videos: int
    test_faces: int
    test_videos: int

    def moved_to(self, run: Path) -> Self:
        """The same of a run that is now, or is now called, `run`: results are stored with paths as they were given."""
        checkpoint = Path(self.checkpoint)
        return replace(self, run=str(run), checkpoint=str(run / checkpoint.parent.name / checkpoint.name))

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Self:
        """Returns what `dataclasses.asdict` has stored. Raises `CorruptDataError` on other fields, or other types."""
        try:
            return record_of(cls, {_RENAMED.get(name, name): value for name, value in stored.items()})
        except ValueError as error:
            raise CorruptDataError(
                "result.json: is none of this version of facefeed train; delete it, and the same command measures the "
                "run's weights anew"
            ) from error
