"""A process that calls `precompute()` again and again: `python soak_python.py SRC OUT SAMPLES SECONDS`.

For each line on its input it makes one call, and prints a JSON object: the exit code that a command would have, and
the error.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from facefeed.pipeline.errors import FacefeedError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.video import Sampling
from soak_samples import Sampler

OPTIONS = Options(sampling=Sampling(every=2), keep=FaceFilter(min_face_px=16), size_px=32)


def call(source: str, out: str) -> dict[str, Any]:
    try:
        precompute(
            source, out, options=OPTIONS, detector=FixedBoxDetector(), workers=1, max_failed=FailureLimit(count=6)
        )
    except FacefeedError as error:
        return {"exit": error.exit_code, "error": str(error)}
    except Exception:
        return {"exit": -1, "error": traceback.format_exc()}
    return {"exit": 0, "error": ""}


def main(source: str, out: str, samples: str, seconds: str) -> None:
    sampler = Sampler(Path(samples), "producer", float(seconds))
    for _ in sys.stdin:
        answer = call(source, out)
        sampler.take()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
