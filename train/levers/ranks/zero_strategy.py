"""Lightning's strategy for DeepSpeed's ZeRO, with checkpoints that are read as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import DeepSpeedStrategy

from ...checkpoints.plain import force_weights_only

_REMEDY = "go on without it by a run of its own (--run), or give a folder that training saved"


class ZeroStrategy(DeepSpeedStrategy):  # type: ignore[misc]  # Lightning is not followed
    """DeepSpeed's engine, which by itself runs whatever the files of a checkpoint say."""

    def load_checkpoint(self, checkpoint_path: str | Path, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Raises `UsageError` where a file of the folder would run code."""
        with force_weights_only(checkpoint_path, _deepspeeds_own(), remedy=_REMEDY):
            held: dict[str, Any] = super().load_checkpoint(checkpoint_path, *arguments, **options)
        return held


def _deepspeeds_own() -> list[Any]:
    """Classes of which an optimizer's state has values: numbers with names, none with a constructor that acts."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler  # noqa: PLC0415 (it may not be there)
    from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: PLC0415
    from deepspeed.utils.tensor_fragment import fragment_address  # noqa: PLC0415

    return [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]
