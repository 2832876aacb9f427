"""Every pair of levers trains as it should, or is refused: strategies on two CPU ranks, the others on one process.

    python tests/benchmarks/bench_lever_pairs.py [--strategies ddp fsdp ...] [--levers bf16 clip:1 ...]

Three steps of 8 images on a network without BatchNorm, whose statistics would be each rank's own, then validation and
test of the best weights. DeepSpeed runs on CPUs, where Lightning would ask for a GPU. Compared are both losses: of a
strategy beside a lever with those of one process under that lever; of two other levers, of which one leaves the
arithmetic as it is, with those of the other alone. Prints one JSON object, and the tables of `docs/guides/levers.md` on
stderr; fails where a pair neither trained nor was refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from assets_paths import support_folders

sys.path[1:1] = support_folders()
from assets_fit import config  # noqa: E402
from assets_processes import in_processes  # noqa: E402
from assets_train import small_dataset  # noqa: E402
from assets_zero import allow_zero_on_cpus  # noqa: E402
from facefeed.pipeline.errors import FacefeedError  # noqa: E402
from facefeed.train.metrics import plots  # noqa: E402
from facefeed.train.run.runner import train  # noqa: E402
from lightning.pytorch.callbacks import EMAWeightAveraging  # noqa: E402

BACKBONE = "test_efficientnet_ln"
STRATEGIES = ("ddp", "fsdp", "zero:1", "zero:2", "zero:3")
EMA = "EMAWeightAveraging"
"""Lightning's callback, which is no lever: `train(callbacks=[EMAWeightAveraging()])`."""
LEVERS = (
    "", "bf16", "clip:1", "accumulate:2", "checkpointing", "freeze:backbone.net.conv_stem", "channels_last", "fused",
    "adamw8bit", "compile", "best:val/loss", "early_stop:val/loss", "deterministic", EMA,
)  # fmt: skip
SAME_ARITHMETIC = (
    "checkpointing", "channels_last", "fused", "compile", "best:val/loss", "early_stop:val/loss", "deterministic",
)  # fmt: skip
"""Levers with which a step computes the same, but for rounding."""
TOLERANCE = 1e-4
"""Relative difference of losses up to which they are called the same: ranks sum in another order."""


def on_a_rank(out: str, run: str, levers: str, batch_size: int) -> None:
    """A process of a run; writes why it was refused, if it was."""
    allow_zero_on_cpus()
    plots.log_plots = lambda *_: None
    data = {"batch_size": batch_size}
    texts = levers.split(",")
    callbacks = [EMAWeightAveraging(decay=0.8)] if EMA in texts else []
    levers = ",".join(text for text in texts if text != EMA)
    try:
        train(
            out, config(epochs=1, steps=3, levers=levers, model={"backbone": BACKBONE}, data=data), run,
            callbacks=callbacks,
        )  # fmt: skip
    except FacefeedError as error:
        Path(run).mkdir(parents=True, exist_ok=True)
        Path(run, "refused.txt").write_text(str(error))


def outcome(run: Path, reference: dict[str, Any] | None = None) -> dict[str, Any]:
    """What became of a run: its losses, and how far they are from the reference's, or why it was refused."""
    if (run / "refused.txt").is_file():
        return {"refused": (run / "refused.txt").read_text()}
    if not (run / "result.json").is_file():
        return {"failed": True}
    result = json.loads((run / "result.json").read_text())
    losses = [result["val"]["val/loss"], result["test"]["test/loss"]]
    if not reference or "losses" not in reference:
        return {"losses": losses}
    apart = max(abs(loss - other) / other for loss, other in zip(losses, reference["losses"], strict=True))
    return {"losses": losses, "apart": apart}


def cell(found: dict[str, Any]) -> str:
    """What a table says of a run."""
    if "refused" in found:
        return "refused"
    if "losses" not in found:
        return "FAILED"
    if "apart" not in found:
        return "trains"
    return "the same" if found["apart"] <= TOLERANCE else f"{100 * found['apart']:.1f} % apart"


def named(lever: str) -> str:
    """A lever in a table."""
    return f"`{lever.split(':', maxsplit=1)[0]}`" if lever else "alone"


def strategy_table(results: dict[str, dict[str, Any]], strategies: Sequence[str], levers: Sequence[str]) -> str:
    """Strategies beside levers as Markdown."""
    lines = [f"| | {' | '.join(f'`{strategy}`' for strategy in strategies)} |", "|---" * (len(strategies) + 1) + "|"]
    lines += [
        f"| {named(lever)} | {' | '.join(cell(results[lever][strategy]) for strategy in strategies)} |"
        for lever in levers
    ]
    return "\n".join(lines)


def lever_table(results: dict[str, dict[str, Any]], levers: Sequence[str]) -> str:
    """Levers beside levers as Markdown: half of a square, whose columns are the numbers of its rows."""
    lines = [f"| | | {' | '.join(map(str, range(1, len(levers))))} |", "|---" * (len(levers) + 1) + "|"]
    for number, lever in enumerate(levers):
        cells = [cell(results[lever][other]).replace("the same", "=") for other in levers[:number]]
        cells += [""] * (len(levers) - 1 - number)
        lines.append(" ".join(f"| {text}" if text else "|" for text in (str(number + 1), named(lever), *cells, "")))
    return "\n".join(lines)


class Runs:
    """Runs on one small dataset, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._out = folder, small_dataset(folder / "out")

    def stage(self, levers: str, ranks: int) -> dict[str, Any]:
        """What `in_processes` runs."""
        run = str(self._run(levers))
        arguments = {"out": str(self._out), "run": run, "levers": levers, "batch_size": 8 // ranks}
        return {"run": f"{__file__}:on_a_rank", "ranks": ranks, "arguments": arguments}

    def outcome(self, levers: str, reference: dict[str, Any] | None = None) -> dict[str, Any]:
        """What became of the run with these levers."""
        return outcome(self._run(levers), reference)

    def _run(self, levers: str) -> Path:
        return self._folder / levers.replace("/", "-") / "run"


def beside_strategies(runs: Runs, lever: str, strategies: Sequence[str]) -> dict[str, Any]:
    """A lever alone on one process, and beside each strategy on two ranks."""
    texts = {strategy: ",".join(filter(None, (f"{strategy}:2", lever))) for strategy in strategies}
    in_processes(runs.stage(lever, 1), *(runs.stage(text, 2) for text in texts.values()), timeout_seconds=900)
    alone = runs.outcome(lever)
    return {"one process": alone} | {strategy: runs.outcome(text, alone) for strategy, text in texts.items()}


def beside_levers(runs: Runs, lever: str, others: Sequence[str]) -> dict[str, Any]:
    """A lever beside each of the others on one process, on which each has run alone."""
    texts = {other: f"{other},{lever}" for other in others}
    in_processes(*(runs.stage(text, 1) for text in texts.values()), timeout_seconds=900)
    alone = {
        other: other if lever in SAME_ARITHMETIC else lever if other in SAME_ARITHMETIC else None for other in others
    }
    return {
        other: runs.outcome(text, None if alone[other] is None else runs.outcome(alone[other]))
        for other, text in texts.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="*", default=list(STRATEGIES))
    parser.add_argument("--levers", nargs="+", default=list(LEVERS))
    given = parser.parse_args()
    with_strategies: dict[str, dict[str, Any]] = {}
    with_levers: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        runs = Runs(Path(name))
        for lever in given.levers:
            started = time.perf_counter()
            with_strategies[lever] = beside_strategies(runs, lever, given.strategies)
            if lever:
                with_levers[lever] = beside_levers(runs, lever, list(with_levers))
            print(f"{lever or 'alone'}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    if given.strategies:
        print(strategy_table(with_strategies, given.strategies, given.levers), file=sys.stderr)
    print(lever_table(with_levers, list(with_levers)), file=sys.stderr)
    pairs = {"strategies": with_strategies, "levers": with_levers}
    print(json.dumps({"benchmark": "lever pairs", "tolerance": TOLERANCE, **pairs}))
    sys.exit(any("failed" in found for rows in pairs.values() for row in rows.values() for found in row.values()))


if __name__ == "__main__":
    main()
