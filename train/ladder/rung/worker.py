"""The process of one rung: `python -m facefeed.train.ladder.rung.worker QUESTION ANSWER`; see `process.answer`.

Further ranks, which Lightning starts with the same arguments, take part and keep quiet.
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
from ..messages import Question


def main(asked: Path, answered: Path) -> None:
    """Answers with a JSON object; a line on standard output tells of each step."""
    threading.Thread(target=_end_with_asker, daemon=True).start()
    first = os.environ.get("LOCAL_RANK", "0") == "0"
    steps = os.fdopen(os.dup(1), "w", buffering=1) if first else open(os.devnull, "w")  # noqa: PTH123, SIM115
    os.dup2(2, 1)  # what the user's module prints is none of ours

    def tell(done: int, wanted: int) -> None:
        steps.write(f"{done} {wanted}\n")

    found = reply(Question.read(asked), asked.parent, tell)
    if first:
        written = answered.with_suffix(".part")
        written.write_text(json.dumps(found), encoding="utf-8")
        written.replace(answered)


def reply(question: Question, folder: Path, tell: Callable[[int, int], None]) -> dict[str, Any]:
    """What was asked; or as "refused" why it cannot be meant, or as "failed" why this rung came to no end."""
    try:
        if question.task == "measure":
            from .measure import measure  # noqa: PLC0415 (Lightning and torch, which take seconds)

            return measure(question, folder, tell)
        from .probe import combine, look  # noqa: PLC0415

        return look(question) if question.task == "look" else combine(question)
    except UsageError as error:
        return {"failed" if question.task == "measure" else "refused": str(error)}
    except Exception as error:  # whatever it is: the ladder goes on
        return {"failed": _told(error)}


def _told(error: Exception) -> str:
    """An error's kind and first words: torch's may go on for pages."""
    if isinstance(error, FacefeedError):
        return str(error)
    words = " ".join(str(error).split())[:_LONGEST]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}{': ' * bool(words)}{words} ({Path(last.filename).name}:{last.lineno})"


_LONGEST = 300


def _end_with_asker() -> None:
    """Its end of the pipe closes however it ends; a rung that nobody waits for would train on."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
