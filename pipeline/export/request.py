"""What to export: the form, the rows, the size of shards."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

from ..dataset.schema import SPLITS
from ..errors import UsageError

FormName = Literal["deepfakebench", "folders", "webdataset", "hf"]
FORM_NAMES: Final[tuple[str, ...]] = get_args(FormName)
_SHARDED: Final = ("webdataset", "hf")
_WITHOUT_COLUMNS: Final = ("deepfakebench",)
DEFAULT_SHARD_MB: Final = 512


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """What the user asks for; an export is resumed only by an equal request.

    Args:
        form: the form of DEST.
        split: train, val or test; None for all.
        shard_mb: approximate size of a shard in MB (10^6 bytes); None: 512 where the form has shards.

    Raises:
        UsageError: a value is not allowed, or the form has no shards.

    """

    form: FormName
    split: str | None = None
    shard_mb: int | None = None

    def __post_init__(self) -> None:
        if self.form not in FORM_NAMES:
            raise UsageError(f"form={self.form!r}: must be one of {', '.join(FORM_NAMES)}")
        if self.split is not None and self.split not in SPLITS:
            raise UsageError(f"split={self.split!r}: must be one of {', '.join(SPLITS)}; leave it out for all")
        if self.form not in _SHARDED:
            if self.shard_mb is not None:
                raise UsageError(f"shard_mb={self.shard_mb}: {self.form} has no shards; leave it out")
        elif self.shard_mb is None:
            object.__setattr__(self, "shard_mb", DEFAULT_SHARD_MB)
        elif self.shard_mb < 1:
            raise UsageError(f"shard_mb={self.shard_mb}: must be at least 1; try {DEFAULT_SHARD_MB}")

    @property
    def shard_bytes(self) -> int:
        """Size of a shard in bytes, of the forms that have shards."""
        return (self.shard_mb or DEFAULT_SHARD_MB) * 1_000_000

    @property
    def has_columns(self) -> bool:
        """Whether the form holds the columns of OUT, added ones too."""
        return self.form not in _WITHOUT_COLUMNS

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the receipt."""
        return asdict(self)
