"""Training on what `facefeed.loaders` feeds: `from facefeed.train import FaceClassifier, FaceDataModule, levers`.

    dataset -> batches -> module, with levers -> checkpoints, figures -> the table of a run, of datasets, of levers

| module | what it holds |
|---|---|
| options | what a classifier and its data are: `ModelOptions`, `DataOptions` |
| module, backbone, losses, schedule | `FaceClassifier` |
| scores, pictures | what is measured of faces and videos, exactly, over ranks |
| datamodule | `FaceDataModule`: resumed at the very next batch |
| checkpoint | checkpoints read as plain data |
| levers/, machine | what makes training faster or smaller, on any LightningModule |
| recipes, settings | whole configs, and changes to them |
| fit, folder, saving, signals, stop, pace | a run: from its config to its figures, on after any end |
| evaluate, table, progress, terminal | what it says |
| ladder/ | what each lever is worth on this machine |
| slurm/ | batch scripts |
| callbacks, waits | `StarvationMonitor`: how long a Trainer's steps wait for data, said while it trains |
| cli | the commands `train` and `evaluate` |

Importing this package is light: Lightning comes with the first name that needs it. README.md beside this file is the
guide.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callbacks import StarvationMonitor
    from .datamodule import FaceDataModule
    from .module import FaceClassifier
    from .options import DataOptions, ModelOptions

_WHERE = {
    "DataOptions": "options",
    "FaceClassifier": "module",
    "FaceDataModule": "datamodule",
    "ModelOptions": "options",
    "StarvationMonitor": "callbacks",
}

__all__ = ["DataOptions", "FaceClassifier", "FaceDataModule", "ModelOptions", "StarvationMonitor"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
