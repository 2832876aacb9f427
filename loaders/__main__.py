"""`python -m facefeed.loaders OUT`: one pass over every split, and what came out of it."""

from __future__ import annotations

import sys
import time

from ..pipeline.errors import FacefeedError
from ..pipeline.schema import SPLITS
from .dataloader import FaceDataLoader


def main(out: str) -> None:
    """Prints, for each split, the shape of a batch, how many faces of which label passed, and how fast."""
    for split in SPLITS:
        loader = FaceDataLoader(out, split=split, batch_size=64)
        counts = [0] * (len(loader.dataset.labels) + 1)  # type: ignore[attr-defined]  # the last one: unknown
        started, shape = time.monotonic(), "no batch"
        for images, labels in loader:
            shape = f"{str(images.dtype).removeprefix('torch.')} {tuple(images.shape)}"
            for label in labels.tolist():
                counts[label] += 1
        seconds = time.monotonic() - started
        names = [*loader.dataset.labels, "unknown"]  # type: ignore[attr-defined]
        held = ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True) if count)
        pace = f"{sum(counts) / seconds:,.0f} images/s" if seconds else ""
        sys.stdout.write(f"{split:<6} {sum(counts):>7} faces  ({held or 'none'})  last batch {shape}  {pace}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m facefeed.loaders OUT\n")
        sys.exit(2)
    try:
        main(sys.argv[1])
    except FacefeedError as error:
        sys.stderr.write(f"facefeed: {error}\n")
        sys.exit(error.exit_code)
