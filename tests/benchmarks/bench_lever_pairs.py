"""Every strategy of training beside every other lever, on two CPU ranks: the losses of one process, or refused.

    python tests/benchmarks/bench_lever_pairs.py [--strategies ddp fsdp ...] [--levers bf16 clip:1 ...]

Three steps of 8 images on a network without BatchNorm, whose statistics would be each rank's own, then validation and
test of the best weights. DeepSpeed runs on CPUs, where Lightning would ask for a GPU. Compared: both losses with those
of one process under the same lever. Prints one JSON object, and the table of `docs/guides/levers.md` on stderr; fails
where a pair neither trained nor was refused.
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


def table(results: dict[str, dict[str, Any]], strategies: Sequence[str], levers: Sequence[str]) -> str:
    """The pairs as Markdown."""
    lines = [f"| | {' | '.join(f'`{strategy}`' for strategy in strategies)} |", "|---" * (len(strategies) + 1) + "|"]
    for lever in levers:
        cells = []
        for strategy in strategies:
            found = results[lever][strategy]
            cells.append(
                "refused" if "refused" in found else "FAILED" if "apart" not in found
                else "the same" if found["apart"] <= TOLERANCE else f"{100 * found['apart']:.1f} % apart"
            )  # fmt: skip
        name = f"`{lever.split(':')[0]}`" if lever else "alone"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--levers", nargs="+", default=list(LEVERS))
    given = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = small_dataset(folder / "out")

        def stage(run: Path, levers: str, ranks: int) -> dict[str, Any]:
            arguments = {"out": str(out), "run": str(run), "levers": levers, "batch_size": 8 // ranks}
            return {"run": f"{__file__}:on_a_rank", "ranks": ranks, "arguments": arguments}

        for number, lever in enumerate(given.levers):
            started, runs = time.perf_counter(), {text: folder / f"{number}-{text}" for text in ("one", *STRATEGIES)}
            in_processes(
                stage(runs["one"], lever, 1),
                *(
                    stage(runs[text], ",".join(filter(None, (f"{text}:2", lever))), 2)
                    for text in given.strategies
                ),
            )  # fmt: skip
            reference = outcome(runs["one"])
            results[lever] = {"one process": reference} | {
                text: outcome(runs[text], reference) for text in given.strategies
            }
            seconds = time.perf_counter() - started
            print(f"{lever or 'alone'}: {seconds:.0f} s", file=sys.stderr, flush=True)
    print(table(results, given.strategies, given.levers), file=sys.stderr)
    print(json.dumps({"benchmark": "lever pairs", "tolerance": TOLERANCE, "pairs": results}))
    sys.exit(any("failed" in found for row in results.values() for found in row.values()))


if __name__ == "__main__":
    main()
