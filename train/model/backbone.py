"""A network of timm's by its name, its last layer new, for images as `facefeed.loaders` normalises them."""

from __future__ import annotations

import difflib
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from ...pipeline.errors import UsageError
from ..config.options import ModelOptions

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, by which `facefeed.loaders` normalises."""


class Backbone(nn.Module):
    """timm's network as `net`: images float32 (N, 3, H, W) to logits (N, classes), or (N, 1) with the loss "bce".

    Pretrained weights get the pixels as they knew them: some of timm's were trained with another mean and deviation
    than ImageNet's. `fetch`: whether pretrained weights are to be loaded now. Raises `UsageError` on a name that timm
    does not have, where weights cannot be had, and where the network does not take an option.
    """

    _scale: Tensor
    _shift: Tensor

    def __init__(self, options: ModelOptions, *, fetch: bool) -> None:
        super().__init__()
        self.name = options.backbone
        self.net = _made(options, fetch=fetch)
        known = getattr(self.net, "pretrained_cfg", {}) if options.pretrained else {}
        mean, std = (torch.tensor(known.get(name, usual)) for name, usual in (("mean", _MEAN), ("std", _STD)))
        self._adapts = (mean.tolist(), std.tolist()) != (torch.tensor(_MEAN).tolist(), torch.tensor(_STD).tolist())
        scale, shift = torch.tensor(_STD) / std, (torch.tensor(_MEAN) - mean) / std
        self.register_buffer("_scale", scale[:, None, None], persistent=False)
        self.register_buffer("_shift", shift[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """See the class."""
        if self._adapts:
            images = images * self._scale + self._shift
        logits: Tensor = self.net(images)
        return logits

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that are tokens or positions rather than weights, as timm says it of its networks."""
        told: set[str] = getattr(self.net, "no_weight_decay", set)()
        return {f"net.{name}" for name in told}

    def check_size(self, side_px: int) -> None:
        """Raises `UsageError` where the network cannot take square images of this size.

        Tried on torch's meta device, with shapes alone: nothing is computed, and this network is left as it is.
        """
        usual_px = getattr(self.net, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[-1]
        why_not = None if side_px == usual_px else _why_not_of_size(self.name, side_px)
        if why_not and not _why_not_of_size(self.name, usual_px):  # else it cannot be tried so
            raise UsageError(
                f"image_size={side_px}: {self.name} cannot take it ({why_not}); take image_size={usual_px}, which it "
                "was made for, or another backbone"
            )


def _why_not_of_size(name: str, side_px: int) -> str | None:
    """What a network says of square images of a size; None where it takes them."""
    import timm  # noqa: PLC0415 (takes seconds)

    try:
        with torch.device("meta"), torch.no_grad():
            timm.create_model(name, num_classes=2).eval()(torch.zeros(1, 3, side_px, side_px))
    except Exception as error:  # whatever its authors check, or torch of shapes
        return shorten(str(error), 120, placeholder=" ...").rstrip(".") or type(error).__name__
    return None


def _made(options: ModelOptions, *, fetch: bool) -> nn.Module:
    import timm  # noqa: PLC0415 (takes seconds)

    name = options.backbone
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 5, cutoff=0.5)
        tried = f"try {', '.join(near)}" if near else "timm.list_models() names all"
        raise UsageError(f"backbone={name!r}: timm {timm.__version__} has no network of this name; {tried}")
    given: dict[str, Any] = {"drop_rate": options.drop_rate} if options.drop_rate else {}
    classes = 1 if options.loss == "bce" else len(options.classes)
    try:
        net: nn.Module = timm.create_model(name, pretrained=fetch, num_classes=classes, **given)
    except TypeError as error:
        raise UsageError(f"backbone={name!r}: does not take drop_rate={options.drop_rate}; leave it out") from error
    except Exception as error:  # the hub, the network, a cache that is damaged, a tag that is not there
        if not fetch and not isinstance(error, RuntimeError):
            raise
        raise UsageError(_why_not(name, error, fetch=fetch)) from error
    return net


def _why_not(name: str, error: Exception, *, fetch: bool) -> str:
    reason = shorten(str(error), 300, placeholder=" ...").rstrip(".")
    if not fetch or "pretrained" in reason.lower():
        import timm  # noqa: PLC0415

        tags = timm.list_pretrained(f"{name.split('.', maxsplit=1)[0]}.*")
        return f"backbone={name!r}: {reason}; there are {', '.join(tags) or 'none'}"
    return (
        f"pretrained=True: the weights of {name} could not be had ({reason}); fetch them once where there is a network "
        f"(`timm.create_model({name!r}, pretrained=True)` keeps them in its cache), or take pretrained=False"
    )
