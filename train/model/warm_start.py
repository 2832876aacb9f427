"""Warm start: a `FaceClassifier` initialised from a checkpoint or a state dict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from ...pipeline.errors import UsageError
from ..checkpoints.plain import read_weights
from ..config.options import ModelOptions
from .face_classifier import FaceClassifier

_BACKBONE = "backbone.net."


def warm_start(options: ModelOptions, path: str | Path) -> tuple[FaceClassifier, str | None]:
    """Returns a `FaceClassifier` with the weights of a file, and a note for the user; downloads no pretrained weights.

    path: a checkpoint, or a state dict of the classifier or of the timm network alone, as `torch.save` or safetensors
    writes them; loaded as plain data. If the file has no head, or one for other classes, the head keeps its random
    initialisation and the note says so; else the note is None. Raises `UsageError` if the file cannot be used, if its
    other weights do not fit the backbone, or if it was trained with another pixel normalisation.
    """
    stored = read_weights(path)
    _check_pixels(options, stored, path)
    model = FaceClassifier(asdict(options))
    own = model.state_dict()
    loaded = {name if name in own else f"{_BACKBONE}{name}": tensor for name, tensor in stored["state_dict"].items()}
    head = _last_layer(model)
    head_fits = all(name in loaded and loaded[name].shape == own[name].shape for name in head)
    if not head_fits:
        loaded = {name: tensor for name, tensor in loaded.items() if name not in head}
    _check(own, loaded, set() if head_fits else head, options.backbone, path)
    model.load_state_dict(loaded, strict=False)
    return model, None if head_fits else f"{path}: has no last layer for these classes; it begins anew"


def _last_layer(model: FaceClassifier) -> set[str]:
    """Returns state-dict names of the classification head; some networks have several such layers."""
    net: Any = model.backbone.net
    classifier = net.get_classifier()
    layers = {id(layer) for layer in (classifier if isinstance(classifier, tuple) else (classifier,))}
    return {
        f"{name}.{key}"
        for name, submodule in model.named_modules()
        if id(submodule) in layers
        for key in submodule.state_dict()
    }


def _check_pixels(options: ModelOptions, stored: Mapping[str, Any], path: str | Path) -> None:
    """Raises `UsageError` on another value of `pretrained`, which also decides how pixels are normalised."""
    parameters = stored.get("hyper_parameters")
    before = parameters.get("options") if isinstance(parameters, Mapping) else None
    if isinstance(before, Mapping) and before.get("pretrained", options.pretrained) != options.pretrained:
        value = str(bool(before["pretrained"])).lower()
        raise UsageError(
            f"init_from={path}: was trained with model.pretrained={value}, by which pixels are normalised; give "
            f"--set model.pretrained={value}"
        )


def _check(
    own: Mapping[str, Tensor], loaded: Mapping[str, Tensor], left_out: Collection[str], backbone: str, path: str | Path
) -> None:
    unexpected = loaded.keys() - own.keys()
    missing = own.keys() - loaded.keys() - {*left_out}
    mismatched = {name for name in own.keys() & loaded.keys() if own[name].shape != loaded[name].shape}
    problems = [
        f"{len(names)} {kind} ({', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''})"
        for kind, names in (("that it has not", unexpected), ("missing", missing), ("of another shape", mismatched))
        if names
    ]
    if problems:
        raise UsageError(
            f"init_from={path}: holds other weights than those of {backbone}: {'; '.join(problems)}; take the backbone "
            "that they are of, or other weights"
        )
