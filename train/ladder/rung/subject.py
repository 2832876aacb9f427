"""What a rung trains, made in its process: `FaceClassifier` by a recipe, or the user's own module."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.model_helpers import is_overridden

from ....pipeline.errors import UsageError
from ...config.recipes import RECIPES, Config
from ...config.settings import with_overrides
from ..messages import Subject


def config_of(subject: Subject) -> Config:
    """Model and data by the recipe: as named, else `facefeed train`'s for this machine."""
    name = subject.recipe or ("fast" if torch.cuda.is_available() else "quick")
    return with_overrides(RECIPES[name](), subject.changes)


def module_of(subject: Subject, config: Config) -> LightningModule:
    """A fresh module, with random weights by the process's seed. Raises `UsageError` where there is none to be made."""
    if subject.module is not None:
        return own_module(subject.module)
    assert subject.out is not None
    from ...datamodule import FaceDataModule  # noqa: PLC0415 (with timm two seconds, and a user's module needs neither)
    from ...model.face_classifier import FaceClassifier  # noqa: PLC0415

    classes = FaceDataModule(subject.out, config.data).classes
    return FaceClassifier(replace(config.model, classes=classes))


def own_module(named: str) -> LightningModule:
    """The user's module, of "PATH:CLASS". Raises `UsageError` where there is none, or making it goes wrong."""
    path, _, name = named.rpartition(":")
    file = Path(path).resolve()
    if file.suffix == ".py" and not file.is_file():
        raise UsageError(f"--module {named}: {path} is not there; name a file that is")
    if file.suffix != ".py":
        raise UsageError(f"--module {named}: must be PATH:CLASS, a Python file and a class in it; try model.py:Net")
    path_before = [*sys.path]
    sys.path.insert(0, str(file.parent))  # its neighbours, and for workers and ranks itself
    try:
        found = importlib.import_module(file.stem)
        if Path(str(found.__file__)).resolve() != file:
            raise UsageError(
                f"--module {path}: a module of that name is there already, {found.__file__}; rename the file"
            )
        kind = getattr(found, name, None)
        if not (isinstance(kind, type) and issubclass(kind, LightningModule)):
            raise UsageError(f"--module {named}: has no LightningModule of the name {name!r}; {_there(found)}")
        return kind()
    except UsageError:
        sys.path[:] = path_before
        raise
    except Exception as error:
        sys.path[:] = path_before
        told = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"--module {named}: cannot be made ({told}); it must be importable, with a constructor without arguments"
        ) from error


def has_batches(module: LightningModule) -> bool:
    """Whether a module brings its own batches for training."""
    return bool(is_overridden("train_dataloader", module))


def _there(module: Any) -> str:
    names = [
        name for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, LightningModule) and one.__module__ == module.__name__
    ]  # fmt: skip
    return f"it has {', '.join(names)}" if names else "give PATH:CLASS"
