"""The classifier that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from ...pipeline.errors import UsageError
from ..checkpoints import plain as checkpoints
from .face_classifier import FaceClassifier


def stored_classifier(path: str | Path, held: Mapping[str, Any] | None = None) -> FaceClassifier:
    """The `FaceClassifier` that a checkpoint holds, on the CPU and in eval mode; fetches no pretrained weights.

    held: what `read` found in it, where that was asked before.
    Raises `UsageError` as `read` does, and where it holds another kind of module.
    """
    held = checkpoints.read(path) if held is None else held
    parameters = held.get("hyper_parameters")
    options = parameters.get("options") if isinstance(parameters, Mapping) else None
    if not isinstance(options, Mapping):
        raise UsageError(f"{path}: holds another kind of module than FaceClassifier; load it with that class")
    try:
        model: FaceClassifier = FaceClassifier(options)
        model.load_state_dict(held["state_dict"])
    except (TypeError, RuntimeError, UsageError) as error:
        reason = shorten(str(error), 300, placeholder=" ...")
        raise UsageError(f"{path}: holds no FaceClassifier of this version: {reason}") from error
    model.eval()
    return model
