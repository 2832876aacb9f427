"""Entry point of a rung's process: `python -m facefeed.train.ladder.rung.worker REQUEST ANSWER`; see `rung_process`.

Further ranks, which Lightning starts with the same arguments, train too but write nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....pipeline.errors import FacefeedError, UsageError
from ..messages import RungRequest


def main(request_file: Path, answer_file: Path) -> None:
    """Writes the answer as a JSON object; prints a line for each step on standard output."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    is_first_rank = os.environ.get("LOCAL_RANK", "0") == "0"
    steps = os.fdopen(os.dup(1), "w", buffering=1) if is_first_rank else open(os.devnull, "w")  # noqa: PTH123, SIM115
    os.dup2(2, 1)  # keeps output of the user's module apart from the steps

    def on_step(done: int, total: int) -> None:
        steps.write(f"{done} {total}\n")

    answer = reply(RungRequest.read(request_file), request_file.parent, on_step)
    if is_first_rank:
        temporary = answer_file.with_suffix(".part")
        temporary.write_text(json.dumps(answer), encoding="utf-8")
        temporary.replace(answer_file)


def reply(request: RungRequest, folder: Path, on_step: Callable[[int, int], None]) -> dict[str, Any]:
    """Returns the result of a request, or {"refused": why} if it cannot be used, or {"failed": why}."""
    try:
        if request.task == "measure":
            from .measure import measure  # noqa: PLC0415 (Lightning and torch, which take seconds)

            return measure(request, folder, on_step)
        from .probe import combine, probe  # noqa: PLC0415

        return probe(request) if request.task == "probe" else combine(request)
    except UsageError as error:
        return {"failed" if request.task == "measure" else "refused": str(error)}
    except Exception as error:  # any error: the ladder continues
        return {"failed": _error_text(error)}


def _error_text(error: Exception) -> str:
    """Returns an error's type and first words: torch's messages may be pages long."""
    if isinstance(error, FacefeedError):
        return str(error)
    words = " ".join(str(error).split())[:_MAX_CHARACTERS]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}{': ' * bool(words)}{words} ({Path(last.filename).name}:{last.lineno})"


_MAX_CHARACTERS = 300


def _end_with_parent() -> None:
    """Kills this process when the parent ends: a rung that nobody waits for would train on."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
