"""What mixed precision is worth to models of very different size: time and memory of a step, side by side.

    python tests/benchmarks/bench_ladder.py [--models Mlp UNet Bert] [--repeats 3] [--steps 20]

The modules of `foreign_models.py`, each climbed as `facefeed ladder --module` does: fp32, bf16, and on a GPU fp16, each
repeat in a process of its own, in turn. Prints one JSON object with every repeat; a table goes to stderr. Memory is the
GPU's; without one the host's, less what was taken before the model was made.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODULES = Path(__file__).with_name("foreign_models.py")
MODELS = ("Mlp", "UNet", "Bert")
LEVERS = ("bf16", "fp16")
PATIENCE_SECONDS = "900"


def climbed(model: str, repeats: int, steps: int) -> dict[str, Any]:
    """One model's ladder, all of its figures."""
    levers = [part for lever in LEVERS for part in ("--levers", lever)]
    with tempfile.TemporaryDirectory() as folder:
        completed = subprocess.run(
            [sys.executable, "-m", "facefeed.pipeline", "ladder", "--module", f"{MODULES}:{model}", *levers,
             "--repeats", str(repeats), "--steps", str(steps), "--patience", PATIENCE_SECONDS,
             "--page", f"{folder}/ladder.html", "--json"],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    report: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return report


def table_rows(model: str, report: dict[str, Any]) -> str:
    """The rows of the table: a rung each."""
    lines = []
    for rung in report["rungs"]:
        name = "fp32" if rung["name"] == "as it is" else rung["name"]
        if name in ("fp32", *LEVERS) and not rung["measured"]:
            lines.append(f"{model:<6} {name:<6} {rung['reason']}")
        elif name in ("fp32", *LEVERS):
            step_ms = statistics.median(run["seconds"] / run["steps"] for run in rung["measured"]) * 1e3
            speed = rung["speed_up"] or dict.fromkeys(("median", "least", "most"), float("nan"))
            lines.append(
                f"{model:<6} {name:<6} {step_ms:9.1f} ms a step  {speed['median']:5.2f}x ({speed['least']:.2f} to "
                f"{speed['most']:.2f})  {memory_bytes(rung) / 1e6:9,.0f} MB"
            )
    return "\n".join(lines)


def memory_bytes(rung: dict[str, Any]) -> int:
    """The most that training took."""
    sizes = [size["memory"] for size in rung["measured"]]
    return max(size["allocated_bytes"] or size["host_bytes"] - size["host_before_bytes"] for size in sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    began, reports = time.perf_counter(), {}
    for model in arguments.models:
        reports[model] = climbed(model, arguments.repeats, arguments.steps)
    sys.stderr.write("\n".join(table_rows(model, report) for model, report in reports.items()) + "\n")
    print(json.dumps({"benchmark": "ladder", "seconds": round(time.perf_counter() - began), "models": reports}))


if __name__ == "__main__":
    main()
