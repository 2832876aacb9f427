"""A finished dataset as batches: `from facefeed.loaders import FaceDataset, FaceDataLoader`.

    index -> byte range -> checksum -> decode -> resize -> transform -> normalised batch

Importing this package is light: torch comes with the first name that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataloader import FaceDataLoader
    from .dataset import FaceDataset

__all__ = ["FaceDataLoader", "FaceDataset"]


def __getattr__(name: str) -> Any:
    if name == "FaceDataLoader":
        from .dataloader import FaceDataLoader  # noqa: PLC0415

        return FaceDataLoader
    if name == "FaceDataset":
        from .dataset import FaceDataset  # noqa: PLC0415

        return FaceDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
