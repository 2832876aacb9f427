"""`TrainingWarning`: the category of all warnings of this package, which distinguishes them from those of libraries."""

from __future__ import annotations

from lightning.pytorch.utilities.rank_zero import rank_zero_warn


class TrainingWarning(UserWarning):
    """A warning about training or its data; `facefeed train` shows these alone."""


def warn(message: str) -> None:
    """Issues a `TrainingWarning` on the first rank."""
    rank_zero_warn(message, category=TrainingWarning, stacklevel=5)  # the caller, above three frames of Lightning
