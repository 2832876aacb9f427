"""What is measured: the rungs of a ladder, from the slowest way of making batches to the best set of levers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..levers.registry import LADDER_TEXTS, NOT_ON_LADDER

Data = Literal["naive", "precomputed", "own"]
"""Where batches come from: made from the videos in every step, from OUT, or from the module's own train_dataloader."""

NAIVE, PRECOMPUTED, AS_IT_IS, BEST = "naive on the fly", "precomputed", "as it is", "best set"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One way to train. levers: in their text form, none where empty. refusal: why it cannot run here, or None."""

    name: str
    data: Data
    levers: str = ""
    refusal: str | None = None


def planned(
    levers: Sequence[str], refusals: Mapping[str, Sequence[str]], *, own_data: bool, videos: bool
) -> tuple[Rung, ...]:
    """Returns all rungs but the best set, in the order of the table; with `LADDER_TEXTS` also `NOT_ON_LADDER`, refused.

    refusals: of each text of `levers`, and of the empty one, why it cannot run; none where it can. own_data: the module
    brings its own batches. videos: what OUT was made from is at hand.
    """
    if own_data:
        told = "the module brings its own batches: no faces are read"
        ways = [
            Rung(name=NAIVE, data="naive", refusal=told),
            Rung(name=PRECOMPUTED, data="precomputed", refusal=told),
            Rung(name=AS_IT_IS, data="own", refusal=_joined(refusals.get("", ()))),
        ]
    else:
        why = None if videos else "needs the videos that OUT was made from; name them by --videos SRC"
        ways = [
            Rung(name=NAIVE, data="naive", refusal=why),
            Rung(name=PRECOMPUTED, data="precomputed", refusal=_joined(refusals.get("", ()))),
        ]
    data: Data = "own" if own_data else "precomputed"
    alone = [Rung(name=text, data=data, levers=text, refusal=_joined(refusals.get(text, ()))) for text in levers]
    beside = NOT_ON_LADDER.items() if set(LADDER_TEXTS) <= set(levers) else ()
    needing = [Rung(name=name, data=data, refusal=why) for name, why in beside]
    return (*ways, *alone, *needing)


def _joined(reasons: Sequence[str]) -> str | None:
    return "; ".join(reasons) or None
