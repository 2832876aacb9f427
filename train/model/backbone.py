"""A timm network by name, with a new classification head, for images normalised by `facefeed.loaders`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from ...pipeline.errors import UsageError
from ..config.options import ModelOptions
from ..torch_internals import raising_memory_errors

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's mean and standard deviation, by which `facefeed.loaders` normalises."""


class Backbone(nn.Module):
    """A timm network, `net`: images float32 (N, 3, H, W) to logits (N, classes), or (N, 1) with the loss "bce".

    Pixels are renormalised for pretrained weights that were trained with another mean and deviation than ImageNet's.
    normalisation: mean and standard deviation (R, G, B) by which `net` gets its pixels.
    fetch: whether to load pretrained weights now. Raises `UsageError` on a name unknown to timm, on weights that
    cannot be downloaded, and on an option that the network does not take.
    """

    def __init__(self, options: ModelOptions, *, fetch: bool) -> None:
        super().__init__()
        self.name = options.backbone
        self.net = _create_network(options, fetch=fetch)
        config = getattr(self.net, "pretrained_cfg", {}) if options.pretrained else {}
        self._scale = self._shift = torch.empty(0)
        self.normalise_by(config.get("mean", _MEAN), config.get("std", _STD))

    def normalise_by(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Sets by which mean and standard deviation (R, G, B), of pixels in 0..1, `net` gets its pixels.

        Raises `ValueError` on what is no mean and no deviation.
        """
        values = torch.tensor([[*mean], [*std]], dtype=torch.float64)
        if values.shape != (2, 3) or not values.isfinite().all() or not (values[1] > 0).all():
            raise ValueError(f"mean={mean!r}, std={std!r}: must be three numbers each, std above 0")
        self.normalisation = [*mean], [*std]
        self._adapts = self.normalisation != ([*_MEAN], [*_STD])
        # No buffers: callbacks that average weights would put those of before a checkpoint was loaded in their place.
        new_std = torch.tensor(std)
        scale, shift = torch.tensor(_STD) / new_std, (torch.tensor(_MEAN) - torch.tensor(mean)) / new_std
        device = self._scale.device
        self._scale, self._shift = scale[:, None, None].to(device), shift[:, None, None].to(device)

    def _apply(self, fn: Any, *arguments: Any, **options: Any) -> Any:
        """Moves what is no buffer, too: called by `to`, `cuda`, `half` and the like."""
        self._scale, self._shift = fn(self._scale), fn(self._shift)
        return super()._apply(fn, *arguments, **options)  # type: ignore[no-untyped-call]

    def forward(self, images: Tensor) -> Tensor:
        """Returns logits, see the class."""
        if self._adapts:
            images = (images * self._scale + self._shift).to(images.dtype)  # ZeRO casts images and weights, not buffers
        logits: Tensor = self.net(images)
        return logits

    def no_weight_decay(self) -> set[str]:
        """Returns names of parameters that timm excludes from weight decay, such as tokens and position embeddings.

        They may be shell patterns, as `net.pos_embed.*` of XCiT.
        """
        names: set[str] = getattr(self.net, "no_weight_decay", set)()
        return {f"net.{name}" for name in names}

    def check_size(self, side_px: int) -> None:
        """Raises `UsageError` if the network cannot take square images of this size.

        Tried with another instance on torch's meta device, which propagates shapes and computes nothing.
        """
        usual_px = getattr(self.net, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[-1]
        error = None if side_px == usual_px else _size_error(self.name, side_px)
        if error and not _size_error(self.name, usual_px):  # else the meta device is what it cannot run on
            raise UsageError(
                f"image_size={side_px}: {self.name} cannot take it ({error}); take image_size={usual_px}, which it "
                "was made for, or another backbone"
            )


@cache
def _size_error(name: str, side_px: int) -> str | None:
    """Returns the error of a network on square images of a size; None if it takes them."""
    import timm  # noqa: PLC0415 (takes seconds)

    try:
        with torch.device("meta"), torch.no_grad():
            timm.create_model(name, num_classes=2).eval()(torch.zeros(1, 3, side_px, side_px))
    except Exception as error:  # networks check sizes in many ways, or torch rejects the shapes
        return shorten(str(error), 120, placeholder=" ...").rstrip(".") or type(error).__name__
    return None


def _create_network(options: ModelOptions, *, fetch: bool) -> nn.Module:
    import timm  # noqa: PLC0415 (takes seconds)

    name = options.backbone
    if not timm.is_model(name):
        matches = difflib.get_close_matches(name, timm.list_models(), 5, cutoff=0.5)
        suggestion = f"try {', '.join(matches)}" if matches else "timm.list_models() names all"
        raise UsageError(f"backbone={name!r}: timm {timm.__version__} has no network of this name; {suggestion}")
    arguments: dict[str, Any] = {"drop_rate": options.drop_rate} if options.drop_rate else {}
    classes = 1 if options.loss == "bce" else len(options.classes)
    try:
        with raising_memory_errors():
            net: nn.Module = timm.create_model(name, pretrained=fetch, num_classes=classes, **arguments)
    except MemoryError:
        raise
    except TypeError as error:
        raise UsageError(f"backbone={name!r}: does not take drop_rate={options.drop_rate}; leave it out") from error
    except Exception as error:  # the hub, the connection, a damaged cache, an unknown tag
        if not fetch and not isinstance(error, RuntimeError):
            raise
        raise UsageError(_creation_error_text(name, error, fetch=fetch)) from error
    return net


def _creation_error_text(name: str, error: Exception, *, fetch: bool) -> str:
    reason = shorten(str(error), 300, placeholder=" ...").rstrip(".")
    if not fetch or "pretrained" in reason.lower():
        import timm  # noqa: PLC0415

        tags = timm.list_pretrained(f"{name.split('.', maxsplit=1)[0]}.*")
        return f"backbone={name!r}: {reason}; there are {', '.join(tags) or 'none'}"
    return (
        f"pretrained=True: the weights of {name} could not be had ({reason}); fetch them once where there is a network "
        f"(`timm.create_model({name!r}, pretrained=True)` keeps them in its cache), or take pretrained=False"
    )
