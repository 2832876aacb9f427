"""The rungs of a ladder: from training on videos decoded on the fly to the best set of levers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..levers.registry import LADDER_TEXTS, NOT_ON_LADDER

Data = Literal["naive", "precomputed", "own"]
"""Source of batches: videos decoded in every step, OUT, or the module's own train_dataloader."""

NAIVE, PRECOMPUTED, OWN_DATA, BEST = "naive on the fly", "precomputed", "as it is", "best set"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One way to train. levers: in their text form, empty for none. refusal: why it cannot run here, or None."""

    name: str
    data: Data
    levers: str = ""
    refusal: str | None = None


def plan_rungs(
    levers: Sequence[str], refusals: Mapping[str, Sequence[str]], *, own_data: bool, videos: bool
) -> tuple[Rung, ...]:
    """Returns all rungs but the best set, in the order of the table; with `LADDER_TEXTS` also `NOT_ON_LADDER`, refused.

    refusals: for each text of `levers`, and the empty one, why it cannot run; empty if it can. own_data: the module has
    its own train_dataloader. videos: the videos that OUT was made from are available.
    """
    if own_data:
        why_not = "the module brings its own batches: no faces are read"
        baselines = [
            Rung(name=NAIVE, data="naive", refusal=why_not),
            Rung(name=PRECOMPUTED, data="precomputed", refusal=why_not),
            Rung(name=OWN_DATA, data="own", refusal=_join_reasons(refusals.get("", ()))),
        ]
    else:
        why = None if videos else "needs the videos that OUT was made from; name them by --videos SRC"
        baselines = [
            Rung(name=NAIVE, data="naive", refusal=why),
            Rung(name=PRECOMPUTED, data="precomputed", refusal=_join_reasons(refusals.get("", ()))),
        ]
    data: Data = "own" if own_data else "precomputed"
    single = [Rung(name=text, data=data, levers=text, refusal=_join_reasons(refusals.get(text, ()))) for text in levers]
    not_measured = NOT_ON_LADDER.items() if set(LADDER_TEXTS) <= set(levers) else ()
    not_measured_rungs = [Rung(name=name, data=data, refusal=why) for name, why in not_measured]
    return (*baselines, *single, *not_measured_rungs)


def _join_reasons(reasons: Sequence[str]) -> str | None:
    return "; ".join(reasons) or None
