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
from .backbone import Backbone
from .face_classifier import PIXEL_NORMALISATION, FaceClassifier

_BACKBONE = "backbone.net."


def warm_start(options: ModelOptions, path: str | Path) -> tuple[FaceClassifier, str | None]:
    """Returns a `FaceClassifier` with the weights of a file, and a note for the user; downloads no pretrained weights.

    path: a checkpoint, or a state dict of the classifier or of the timm network alone, as `torch.save` or safetensors
    writes them; loaded as plain data. Pixels are normalised as the checkpoint says. If the file has no head, or a head
    for other classes or another order of them, the head keeps its random initialisation and the note reports that; else
    the note is None. A state dict names no classes, so a head of the right shape is taken from it. Raises `UsageError`
    if the file cannot be used, if its other weights do not fit the backbone, or if it is of an earlier version, which
    did not store how pixels are normalised, and was trained on pixels normalised otherwise.
    """
    stored = read_weights(path)
    trained = _trained_options(stored)
    model = FaceClassifier(asdict(options))
    if stored.get(PIXEL_NORMALISATION) is not None:
        model.on_load_checkpoint(stored)
    else:
        _check_pixels(model, trained, path)
    expected = model.state_dict()
    loaded = {
        name if name in expected else f"{_BACKBONE}{name}": tensor for name, tensor in stored["state_dict"].items()
    }
    head = _last_layer(model)
    head_fits = _has_same_classes(options, trained) and all(
        name in loaded and loaded[name].shape == expected[name].shape for name in head
    )
    if not head_fits:
        loaded = {name: tensor for name, tensor in loaded.items() if name not in head}
    _check_weights(expected, loaded, set() if head_fits else head, options.backbone, path)
    model.load_state_dict(loaded, strict=False)
    return model, None if head_fits else f"{path}: has no last layer for these classes, so it is initialised at random"


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


def _trained_options(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the model options that a checkpoint was trained with; empty for a state dict."""
    parameters = stored.get("hyper_parameters")
    trained = parameters.get("options") if isinstance(parameters, Mapping) else None
    return trained if isinstance(trained, Mapping) else {}


def _has_same_classes(options: ModelOptions, trained: Mapping[str, Any]) -> bool:
    """Whether labels number the same classes as in the checkpoint, or that is unknown."""
    return trained.get("classes") in (None, list(options.classes), options.classes)


def _check_pixels(model: FaceClassifier, trained: Mapping[str, Any], path: str | Path) -> None:
    """Raises `UsageError` where the checkpoint was trained on pixels of another mean or standard deviation."""
    settings = {name: getattr(model.options, name) for name in ("backbone", "pretrained")}
    trained_settings = {name: trained.get(name, value) for name, value in settings.items()}
    if trained_settings == settings or not (trained_settings["pretrained"] or model.options.pretrained):
        return  # weights that were not pretrained get ImageNet's mean and deviation, whatever their backbone
    try:  # timm knows the normalisation of a name, also of a deprecated one, once it has created the network
        normalisation = Backbone(ModelOptions(**trained_settings), fetch=False).normalisation
    except UsageError as error:
        raise UsageError(
            f"init_from={path}: how its pixels were normalised is unknown ({error}); give its state_dict alone"
        ) from error
    if normalisation != model.backbone.normalisation:
        name, pretrained = trained_settings["backbone"], str(trained_settings["pretrained"]).lower()
        raise UsageError(
            f"init_from={path}: was trained with model.backbone={name} and model.pretrained={pretrained}, which "
            "normalise pixels by another mean and deviation than this run's; give "
            f"--set model.backbone={name} --set model.pretrained={pretrained}"
        )


def _check_weights(
    expected: Mapping[str, Tensor], loaded: Mapping[str, Tensor], optional: Collection[str], backbone: str,
    path: str | Path,
) -> None:  # fmt: skip
    """Raises `UsageError` unless names and shapes of the weights are those expected; `optional`: may be missing."""
    unexpected = loaded.keys() - expected.keys()
    missing = expected.keys() - loaded.keys() - {*optional}
    mismatched = {name for name in expected.keys() & loaded.keys() if expected[name].shape != loaded[name].shape}
    problems = [
        f"{len(names)} {kind} ({', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''})"
        for kind, names in (("unexpected", unexpected), ("missing", missing), ("of another shape", mismatched))
        if names
    ]
    if problems:
        raise UsageError(
            f"init_from={path}: holds other weights than those of {backbone}: {'; '.join(problems)}; set the backbone "
            "that was trained, or give another file"
        )
