"""What can run here, and what goes together: asked of the module itself, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ....pipeline.errors import UsageError
from ... import levers as lever_texts
from ...machine import Machine
from ..messages import Question, Subject
from ..scheduler import Together
from .subject import config_of, has_batches, module_of


def look(question: Question) -> dict[str, Any]:
    """The recipe, the module, its machine, and of each text of levers why it cannot run here.

    The recipe's own levers, where it has some, are a text more. Raises `UsageError` where there is no module to be
    made, a text is no lever's, or there are no batches.
    """
    subject = question.subject
    config = config_of(subject)
    module, machine = module_of(subject, config), Machine.detect()
    own = has_batches(module)
    if own and subject.out is not None:
        raise UsageError(f"{subject.out}: --module {subject.module} brings its own batches; leave OUT out")
    if not own and subject.out is None:
        raise UsageError(f"--module {subject.module}: has no train_dataloader, so it needs batches of faces; give OUT")
    if subject.module is not None:
        _check_used(subject, "model", "data" if own else "model")
    texts = dict.fromkeys(["", *question.levers, config.levers])
    return {
        "recipe": config.recipe,
        "recipe_levers": config.levers,
        "own_data": own,
        "parameters": sum(one.numel() for one in module.parameters()),
        "refusals": {text: lever_texts.refusals(lever_texts.parse(text), module, machine) for text in texts},
        "machine": {**asdict(machine), "packages": sorted(machine.packages)},
    }


def _check_used(subject: Subject, *brought: str) -> None:
    """Raises `UsageError` on a setting of what the user's module brings itself."""
    for change in subject.changes:
        if (what := change.split(".")[0]) in brought:
            raise UsageError(f"--set {change}: --module {subject.module} brings its own {what}; leave it out")


def combine(question: Question) -> dict[str, Any]:
    """`Together` as plain values, of levers that each can run here."""
    module = module_of(question.subject, config_of(question.subject))
    return asdict(together(question.levers, module, Machine.detect()))


def together(texts: Sequence[str], module: Any, machine: Machine) -> Together:
    """Takes the texts one by one, each that can be combined with those taken before; what is in one of them is left."""
    taken: list[str] = []
    left_out: dict[str, str] = {}
    for text in texts:
        if set(text.split(",")) <= set(",".join(taken).split(",")):
            continue
        reasons = lever_texts.refusals(lever_texts.parse(",".join([*taken, text])), module, machine)
        if reasons:
            left_out[text] = "; ".join(reasons)
        else:
            taken.append(text)
    return Together(tuple(taken), left_out)
