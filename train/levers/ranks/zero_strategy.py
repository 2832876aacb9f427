"""Lightning's DeepSpeed strategy, with checkpoints loaded as plain data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import DeepSpeedStrategy

from ...checkpoints.plain import force_weights_only

_REMEDY = "continue without it in a run of its own (--run), or give a folder that training saved"


class ZeroStrategy(DeepSpeedStrategy):  # type: ignore[misc]  # Lightning is not followed
    """DeepSpeed strategy that loads checkpoints as plain data; by default DeepSpeed unpickles any object."""

    def load_checkpoint(self, checkpoint_path: str | Path, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Loads a checkpoint. Raises `UsageError` if a file of the folder would run code."""
        with force_weights_only(checkpoint_path, _deepspeed_classes(), remedy=_REMEDY):
            contents: dict[str, Any] = super().load_checkpoint(checkpoint_path, *arguments, **options)
        return contents


def _deepspeed_classes() -> list[Any]:
    """Returns the classes in DeepSpeed's optimizer state: plain records, whose constructors have no side effects."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler  # noqa: PLC0415 (optional)
    from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: PLC0415
    from deepspeed.utils.tensor_fragment import fragment_address  # noqa: PLC0415

    return [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address, (_zero_stage, "builtins.getattr")]


def _zero_stage(enumeration: Any, name: str) -> Any:
    """Stands for `getattr` in a checkpoint: Python before 3.11.4 saves a member of an enumeration by it.

    Returns a member of DeepSpeed's enumeration of stages. Raises `UnpicklingError` for any other attribute.
    """
    from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: PLC0415

    if enumeration is not ZeroStageEnum or name not in ZeroStageEnum.__members__:
        raise pickle.UnpicklingError("Unsupported global: GLOBAL getattr was not an allowed global by default.")
    return ZeroStageEnum[name]
