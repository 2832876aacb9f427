"""Loading of a `FaceClassifier` from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from ...pipeline.errors import UsageError
from ..checkpoints.plain import read_checkpoint
from ..torch_internals import raising_memory_errors
from .face_classifier import FaceClassifier


def load_classifier(path: str | Path, contents: Mapping[str, Any] | None = None) -> FaceClassifier:
    """Loads a `FaceClassifier` from a checkpoint, on the CPU and in eval mode; downloads no pretrained weights.

    contents: of the checkpoint, if `read_checkpoint` has loaded it before.
    Raises `UsageError` as `read_checkpoint` does, and on a checkpoint of another module.
    """
    contents = read_checkpoint(path) if contents is None else contents
    parameters = contents.get("hyper_parameters")
    options = parameters.get("options") if isinstance(parameters, Mapping) else None
    if not isinstance(options, Mapping):
        raise UsageError(f"{path}: holds another kind of module than FaceClassifier; load it with that class")
    try:
        with raising_memory_errors():
            model: FaceClassifier = FaceClassifier(options)
            model.load_state_dict(contents["state_dict"])
            model.on_load_checkpoint(contents)
    except (TypeError, RuntimeError, UsageError) as error:
        reason = shorten(str(error), 300, placeholder=" ...")
        raise UsageError(f"{path}: holds no FaceClassifier of this version: {reason}") from error
    model.eval()
    return model
