"""Training on what `facefeed.loaders` feeds: `from facefeed.train import FaceClassifier, FaceDataModule, levers`.

    dataset -> batches -> module, with levers -> checkpoints, figures -> the table of a run, of datasets, of levers

In: OUT and a recipe. Out: a run's folder, figures by face and video, what each lever is worth.
Must not know: video, detection, Dask.

| room | what it holds |
|---|---|
| config/ | options, recipes, `--set`, and what this machine can do of them |
| model/, metrics/ | `FaceClassifier`; what is measured of faces and videos, exactly, over ranks |
| datamodule | `FaceDataModule`: resumed at the very next batch |
| checkpoints/ | checkpoints read as plain data |
| levers/ | what makes training faster or smaller, on any LightningModule |
| run/ | a run, from its config to its figures, on after any end |
| starvation/ | `StarvationMonitor`: how long a Trainer's steps wait for data |
| ladder/ | what each lever is worth on this machine |
| slurm/ | batch scripts |
| evaluate, cli | a checkpoint on datasets; the commands `train` and `evaluate` |
| lightning_internals | what leans on Lightning's private parts |
| machine | GPUs, cores and optional libraries of this machine |

Importing this package is light: Lightning comes with the first name that needs it. README.md beside this file is the
guide.
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
