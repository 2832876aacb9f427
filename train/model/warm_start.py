"""A classifier that begins with the weights of another: of a checkpoint, or of a file of weights alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from ...pipeline.errors import UsageError
from ..checkpoints import plain as checkpoints
from ..config.options import ModelOptions
from .face_classifier import FaceClassifier

_BACKBONE = "backbone.net."


def warm_started(options: ModelOptions, path: str | Path) -> tuple[FaceClassifier, str | None]:
    """A `FaceClassifier` with the weights of a file, and what to say of it; fetches no pretrained weights.

    path: a checkpoint, or weights by name, of the classifier or of timm's network alone, as `torch.save` or
    safetensors writes them; read as plain data. The last layer stays as it is drawn where the file has none, or one for
    other classes, and this is said. Raises `UsageError` where the file cannot be used, its other weights are not those
    of the backbone, or it was trained on pixels that were normalised otherwise.
    """
    stored = checkpoints.weights(path)
    _check_pixels(options, stored, path)
    model = FaceClassifier(asdict(options))
    own = model.state_dict()
    given = {name if name in own else f"{_BACKBONE}{name}": one for name, one in stored["state_dict"].items()}
    head = _last_layer(model)
    whole = all(name in given and given[name].shape == own[name].shape for name in head)
    if not whole:
        given = {name: one for name, one in given.items() if name not in head}
    _check(own, given, set() if whole else head, options.backbone, path)
    model.load_state_dict(given, strict=False)
    return model, None if whole else f"{path}: has no last layer for these classes; it begins anew"


def _last_layer(model: FaceClassifier) -> set[str]:
    """Names of its weights; of some networks it is several layers."""
    net: Any = model.backbone.net
    found = net.get_classifier()
    layers = {id(one) for one in (found if isinstance(found, tuple) else (found,))}
    return {
        f"{name}.{inner}" for name, part in model.named_modules() if id(part) in layers for inner in part.state_dict()
    }


def _check_pixels(options: ModelOptions, stored: Mapping[str, Any], path: str | Path) -> None:
    """`pretrained` also decides by which mean and deviation pixels come."""
    parameters = stored.get("hyper_parameters")
    before = parameters.get("options") if isinstance(parameters, Mapping) else None
    if isinstance(before, Mapping) and before.get("pretrained", options.pretrained) != options.pretrained:
        told = str(bool(before["pretrained"])).lower()
        raise UsageError(
            f"init_from={path}: was trained with model.pretrained={told}, by which pixels are normalised; give "
            f"--set model.pretrained={told}"
        )


def _check(
    own: Mapping[str, Tensor], given: Mapping[str, Tensor], left_out: Collection[str], backbone: str, path: str | Path
) -> None:
    strange = given.keys() - own.keys()
    missing = own.keys() - given.keys() - {*left_out}
    other = {name for name in own.keys() & given.keys() if own[name].shape != given[name].shape}
    told = [
        f"{len(names)} {what} ({', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''})"
        for what, names in (("that it has not", strange), ("missing", missing), ("of another shape", other))
        if names
    ]
    if told:
        raise UsageError(
            f"init_from={path}: holds other weights than those of {backbone}: {'; '.join(told)}; take the backbone "
            "that they are of, or other weights"
        )
