"""Names that no further column of a dataset may have: those of facefeed's own columns and of loaders' own fields."""

from __future__ import annotations

from typing import Final

from .index import INDEX_COLUMNS
from .schema import face_schema

CLIP_COLUMNS: Final = ("valid", "labels_per_frame")
"""Fields that batches of clips have besides the columns of the index."""
DATASET_COLUMN: Final = "dataset_index"
"""The field that a mixture of datasets adds: int64, which dataset each row is of."""
RESERVED_NAMES: Final = frozenset(
    [*face_schema((), has_dense_landmarks=True).names, *INDEX_COLUMNS, "row", *CLIP_COLUMNS, DATASET_COLUMN]
)
