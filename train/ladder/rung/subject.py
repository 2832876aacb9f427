"""Creates the module that a rung trains: `FaceClassifier` by a recipe, or the user's own module."""

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


def load_config(subject: Subject) -> Config:
    """Returns the config of the named recipe, else of the default of `facefeed train` on this machine."""
    name = subject.recipe or ("fast" if torch.cuda.is_available() else "quick")
    return with_overrides(RECIPES[name](), subject.changes)


def create_module(subject: Subject, config: Config) -> LightningModule:
    """Returns a new module, with the weights of `init_from`, else random ones by the process's seed.

    Raises `UsageError` if it cannot be created.
    """
    if subject.module is not None:
        return load_user_module(subject.module)
    assert subject.out is not None
    from ...datamodule import FaceDataModule  # noqa: PLC0415 (with timm two seconds, and a user's module needs neither)
    from ...model.face_classifier import FaceClassifier  # noqa: PLC0415
    from ...model.warm_start import warm_start  # noqa: PLC0415

    options = replace(config.model, classes=FaceDataModule(subject.out, config.data).classes)
    return FaceClassifier(options) if config.init_from is None else warm_start(options, config.init_from)[0]


def load_user_module(path_and_class: str) -> LightningModule:
    """Imports and constructs the user's module "PATH:CLASS". Raises `UsageError` if that fails."""
    path, _, name = path_and_class.rpartition(":")
    file = Path(path).resolve()
    if file.suffix == ".py" and not file.is_file():
        raise UsageError(f"--module {path_and_class}: {path} does not exist; name an existing file")
    if file.suffix != ".py":
        raise UsageError(
            f"--module {path_and_class}: must be PATH:CLASS, a Python file and a class in it; try model.py:Net"
        )
    path_before = [*sys.path]
    sys.path.insert(0, str(file.parent))  # for its own imports, and for workers and ranks that import it
    try:
        imported = importlib.import_module(file.stem)
        if Path(str(imported.__file__)).resolve() != file:
            raise UsageError(
                f"--module {path}: a module of that name is there already, {imported.__file__}; rename the file"
            )
        module_class = getattr(imported, name, None)
        if not (isinstance(module_class, type) and issubclass(module_class, LightningModule)):
            raise UsageError(
                f"--module {path_and_class}: has no LightningModule of the name {name!r}; {_classes_hint(imported)}"
            )
        return module_class()
    except UsageError:
        sys.path[:] = path_before
        raise
    except Exception as error:
        sys.path[:] = path_before
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"--module {path_and_class}: cannot be made ({reason}); it must be importable, with a constructor without "
            "arguments"
        ) from error


def has_train_dataloader(module: LightningModule) -> bool:
    """Whether a module overrides `train_dataloader`."""
    return bool(is_overridden("train_dataloader", module))


def _classes_hint(module: Any) -> str:
    names = [
        name for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, LightningModule) and value.__module__ == module.__name__
    ]  # fmt: skip
    return f"it has {', '.join(names)}" if names else "give PATH:CLASS"
