"""Last step of `make demo`: the classifier finds fakes of people it never saw, and one that sees no face does not.

    python tests/demo/check_learning.py RUN CONTROL

RUN and CONTROL are folders of `facefeed train`. Exit code 1 where a figure is not as docs/measured.md states, with
room for the small differences between machines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FIGURES = ("val/auc", "test/auc", "test/video_auc")
LEAST_AUC = 0.9
LARGEST_CONTROL_AUC = 0.65


def main(run: Path, control: Path) -> int:
    """Prints the AUC of both runs; returns the exit code."""
    print(f"{'AUC':<18}{'val':>8}{'test':>8}{'test, videos':>14}")
    aucs = {}
    for name, folder in (("the whole crop", run), ("without the face", control)):
        result = json.loads((folder / "result.json").read_text())
        # Of test, whose faces had no part in the choice of the best weights.
        val, aucs[name], video = (result[figure.partition("/")[0]][figure] for figure in FIGURES)
        print(f"{name:<18}{val:>8.3f}{aucs[name]:>8.3f}{video:>14.3f}")
    if aucs["the whole crop"] < LEAST_AUC:
        print(f"the classifier does not find the fakes: on test it must reach {LEAST_AUC}", file=sys.stderr)
        return 1
    if aucs["without the face"] > LARGEST_CONTROL_AUC:
        print(f"something but the face shows the fakes: on test at most {LARGEST_CONTROL_AUC}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
