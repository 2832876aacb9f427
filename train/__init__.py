"""Training with Lightning on `facefeed.loaders`: `from facefeed.train import FaceClassifier, FaceDataModule, levers`.

    dataset -> batches -> module, with levers -> checkpoints, metrics -> tables of a run, of datasets, of levers

In: OUT and a recipe. Out: a run's folder, metrics by face and video, the speed-up of each lever.
Must not know: video, detection, Dask.

| room | what it holds |
|---|---|
| config/ | options, recipes, overrides (`--set`), adaptation to the GPUs |
| model/, metrics/ | `FaceClassifier`; exact metrics of faces and videos over ranks |
| datamodule | `FaceDataModule`: resumes at the very next batch |
| checkpoints/ | loading of checkpoints as plain data |
| levers/ | settings that make training faster or smaller, for any LightningModule |
| run/ | one run: folder, checkpoints, signals, progress, result |
| starvation/ | `StarvationMonitor`: logs how long a Trainer waits for data |
| ladder/ | measures the speed-up of each lever on this machine |
| slurm/ | batch scripts |
| evaluate, cli | evaluation of a checkpoint on datasets; the commands `train` and `evaluate` |
| lightning_internals, torch_internals | all code that depends on private parts of Lightning and of torch |
| machine | GPUs, cores and optional libraries of this machine |
| process_groups | ends torch's process groups before the interpreter does |
| step_images | images of a training step over all ranks |
| warning | the category of warnings that a run shows |

Importing this package is light: Lightning is imported with the first name that needs it. The guide is
docs/guides/training.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config.options import DataOptions, ModelOptions
    from .datamodule import FaceDataModule
    from .model.face_classifier import FaceClassifier
    from .starvation.monitor import StarvationMonitor

_MODULE_OF = {
    "DataOptions": "config.options",
    "FaceClassifier": "model.face_classifier",
    "FaceDataModule": "datamodule",
    "ModelOptions": "config.options",
    "StarvationMonitor": "starvation.monitor",
}

__all__ = ["DataOptions", "FaceClassifier", "FaceDataModule", "ModelOptions", "StarvationMonitor"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
