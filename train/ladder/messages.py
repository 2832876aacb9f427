"""What a child process is asked, and what it answers: as JSON in files, since the two share nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from .rungs import Data


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is trained, and on what; the same for all rungs of a ladder.

    out, videos: folders, None where not given. module: "PATH:CLASS" of the user's own LightningModule, None for
    `FaceClassifier`. recipe, changes: as `facefeed train` takes them, `--recipe` (None: its default) and each `--set`.
    """

    out: str | None
    videos: str | None
    module: str | None
    recipe: str | None = None
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Question:
    """One task of one process.

    task: "look": which of `levers` can run here, each alone; "combine": which go together, the first before the others;
    "measure": train with the levers of `levers` at once. data, steps (None: an epoch), repeat: for "measure".
    """

    subject: Subject
    task: Literal["look", "combine", "measure"]
    levers: tuple[str, ...] = ()
    data: Data = "precomputed"
    steps: int | None = None
    repeat: int = 0

    @classmethod
    def read(cls, path: Path) -> Self:
        """What `dataclasses.asdict` and `json` made of one."""
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        subject = values.pop("subject")
        changes = tuple(subject.pop("changes"))
        levers = tuple(values.pop("levers"))
        return cls(subject=Subject(**subject, changes=changes), levers=levers, **values)
