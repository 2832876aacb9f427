"""A finding on a dataset, and the grammar of its sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "ok"]


@dataclass(frozen=True)
class Finding:
    """One sentence on the dataset and, where something can be done about it, a second one on the remedy.

    `level`: error: it spoils training or evaluation; warning: to be aware of; ok. Field names are keys of `--json`.
    """

    level: Level
    what: str
    remedy: str = ""


def sentence(clause: str) -> str:
    """A clause as a sentence of its own."""
    return f"{clause[0].upper()}{clause[1:]}."


def have(count: int) -> str:
    """The form of "have" for a number of things."""
    return "has" if count == 1 else "have"


def are(count: int) -> str:
    """The form of "are" for a number of things."""
    return "is" if count == 1 else "are"
