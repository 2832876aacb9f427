"""`python -m facefeed.loaders OUT`: iterates over every split once and prints a summary."""

from __future__ import annotations

import sys

from ..pipeline.dataset.schema import SPLITS
from ..pipeline.errors import FacefeedError
from .loader.face_dataloader import FaceDataLoader


def main(out: str) -> None:
    """Prints, for each split, the number of faces of each label, the shape of the last batch, and its start-up time."""
    for split in SPLITS:
        loader = FaceDataLoader(out, split=split, batch_size=64)
        names = [*loader.dataset.labels, "unknown"]  # type: ignore[attr-defined]
        counts = [0] * len(names)  # the last one counts the label -1
        shape = "no batch"
        for images, labels in loader:
            shape = f"{str(images.dtype).removeprefix('torch.')} {tuple(images.shape)}"
            for label in labels.tolist():
                counts[label] += 1
        by_label = ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True) if count)
        startup = f"first batch after {loader.stats().first_batch_seconds:.1f} s" if sum(counts) else ""
        sys.stdout.write(f"{split:<6} {sum(counts):>7} faces  ({by_label or 'none'})  last batch {shape}  {startup}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m facefeed.loaders OUT\n")
        sys.exit(2)
    try:
        main(sys.argv[1])
    except FacefeedError as error:
        sys.stderr.write(f"facefeed: {error}\n")
        sys.exit(error.exit_code)
