"""The page of what a GPU showed, Markdown, from the JSON of each lane of `gpu.py`.

    python tests/benchmarks/gpu_page.py [--folder build/gpu]

Writes FOLDER/measured-gpu.md: a table a lane, from medians; the JSON has every repeat. A lane that failed, or was not
run, is named.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

NAME = "measured-gpu.md"


def write_page(folder: Path, names: Iterable[str]) -> Path:
    """Writes the page of the lanes `names`, from their `FOLDER/LANE.json`; returns its path."""
    outcomes = {name: _outcome(folder / f"{name}.json") for name in names}
    machine = next((outcome["machine"] for outcome in outcomes.values() if "machine" in outcome), {})
    lines = ["# Measured on a GPU", "", _machine_line(machine), ""]
    for name, outcome in outcomes.items():
        title, section = SECTIONS[name]
        lines += [f"## {title}", "", *_section_lines(outcome, section), ""]
    page = folder / NAME
    page.write_text("\n".join(lines))
    return page


def _outcome(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.is_file() else {}  # type: ignore[no-any-return]


def _machine_line(machine: dict[str, Any]) -> str:
    if not machine:
        return "Nothing was measured."
    if machine["gpu"] is None:
        where = "A trial on a CPU, which shows that the benchmarks run and nothing else"
    else:
        where = f"One {machine['gpu']} ({machine['gpu_memory_bytes'] / 1e9:.0f} GB)"
    return (
        f"{where}: {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB of memory, Python "
        f"{machine['python']}, torch {machine['torch']}, CUDA {machine['cuda']}. `make gpu` repeats it."
    )


def _section_lines(outcome: dict[str, Any], section: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    if not outcome:
        return ["Not run."]
    if "result" not in outcome:
        return [f"Failed after {outcome['seconds']:.0f} s: `{_last_line(outcome['error'])}`"]
    end = [] if outcome["exit"] == 0 else ["", f"The lane ended with exit code {outcome['exit']}."]
    return [*section(outcome["result"]), *end]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1].replace("`", "'")


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    names = list(header)
    return [_row(names), "|---" * len(names) + "|", *map(_row, rows)]


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _rate(per_second: float | None) -> str:
    return "-" if per_second is None else f"{per_second:,.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _engine(result: dict[str, Any]) -> list[str]:
    lines = []
    for min_face_px, lanes in result["min_face"].items():
        rows = []
        for name, clip in lanes["clips"].items():
            rates = {peer: 1e3 / statistics.median(runs) for peer, runs in clip["ms_a_frame"].items()}
            agreement = clip["agreement"]["ours"]
            rows.append((
                name, clip["size"], _rate(rates["facenet"]), f"{_rate(rates['facenet_batch'])} ({clip['best_batch']})",
                _rate(rates["ours"]), f"{clip['ratio']['facenet_batch']:.1f}", _share(agreement["recall"]),
                f"{agreement['box_px']:.4f}",
            ))  # fmt: skip
        lines += [
            f"Frames a second that lie in memory, `--min-face {min_face_px}`:", "",
            *_table(
                ("clip", "px", "facenet-pytorch, one by one", "in batches (of)", "`mtcnn`", "times the batches",
                 "its faces found", "boxes apart, px"), rows,
            ), "",
            "`track` beside facenet-pytorch frame by frame:", "",
            *_table(
                ("sampling", "times as fast", "`mtcnn`", "its strong faces found"),
                ((name, f"{total['ratio']:.1f}", f"{total['ratio_ours']:.1f}", _share(total["recall"]))
                 for name, total in lanes["track"]["total"].items()),
            ), "",
        ]  # fmt: skip
    return lines[:-1]


def _loader(result: dict[str, Any]) -> list[str]:
    medians = {name: statistics.median(run[name] for run in result["repeats"]) for name in result["repeats"][0]}
    parity = result["parity"]
    return [
        *_table(("what", "per second"), ((name, _rate(value)) for name, value in medians.items())), "",
        f"Pixels of both decoders: {parity['mean_levels']:.2f} grey levels apart in the mean, at most "
        f"{parity['max_levels']:.0f}.",
    ]  # fmt: skip


def _starvation(result: dict[str, Any]) -> list[str]:
    rows = []
    for name, profile in result["profiles"].items():
        verdict = profile["verdict"]
        live = verdict["live"]
        bounds = f"{_share(live['value'])} (at least {_share(live['lower'])}, at most {_share(live['upper'])})"
        step_ms = f"{profile['steps']['median_ms']['step']:.1f}"
        rows.append((name, verdict["word"], bounds, _share(verdict["starved"]["value"]), step_ms,
                     _rate(profile["images_per_second"])))  # fmt: skip
    return _table(("step", "verdict", "waits", "starved steps", "ms a step", "images a second"), rows)


def _selftest(result: dict[str, Any]) -> list[str]:
    return _table(
        ("check", "outcome", "detail"),
        ((check["name"], check["outcome"], check["detail"] or check["not_run"]) for check in result["checks"]),
    )


def _job(result: dict[str, Any]) -> list[str]:
    lines = []
    if "jobs" in result:
        lines += _table(
            ("precompute of the sample", "frames a second at work", "seconds in all"),
            ((name, _rate(job["summary"].get("frames_per_second")), f"{job['seconds']:.0f}")
             for name, job in result["jobs"].items()),
        )  # fmt: skip
    if "training" in result:
        lines += ["", *_table(
            ("training, `fast`", "images a second", "waits for data", "AUC of val", "of test", "seconds"),
            (_training_row(name, training) for name, training in result["training"].items()),
        )]  # fmt: skip
    return lines


def _training_row(name: str, training: dict[str, Any]) -> tuple[object, ...]:
    run = training["result"]
    if "error" in run:
        return name, f"`{_last_line(run['error'])}`", "-", "-", "-", f"{training['seconds']:.0f}"
    aucs = (run[split].get(f"{split}/auc") for split in ("val", "test"))
    scores = ("-" if auc is None else f"{auc:.3f}" for auc in aucs)
    return name, _rate(run["images_per_second"]), _share(run["stall"]), *scores, f"{training['seconds']:.0f}"


def _ladder(result: dict[str, Any]) -> list[str]:
    rows = []
    for rung in result["rungs"]:
        if rung["outcome"] != "ran":
            rows.append((rung["name"], rung["outcome"], rung["reason"], "-", "-", "-"))
            continue
        memory, energy = rung["memory"]["allocated_bytes"], rung["energy_joules_per_1000_samples"]
        rows.append((
            rung["name"], _rate(rung["samples_per_second"]["median"]), _ratio(rung["speed_up"]),
            "-" if memory is None else f"{memory / 1e9:.2f} GB", "-" if energy is None else f"{energy['median']:.0f} J",
            _loss(rung["validation_loss"]),
        ))  # fmt: skip
    return _table(
        ("rung", "samples a second", "speed-up", "memory", "energy of 1,000 samples", "validation loss"), rows
    )


def _ratio(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['median']:.2f}"


def _loss(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['median']:.4f}"


def _models(result: dict[str, Any]) -> list[str]:
    lines = []
    for name, report in result["models"].items():
        lines += [f"**{name}**", "", *_ladder(report), ""]
    return lines[:-1]


SECTIONS: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "engine": ("Detection", _engine),
    "loader": ("Loader, JPEGs to batches on the device", _loader),
    "starvation": ("Profiles of a real step", _starvation),
    "selftest": ("The profiler's own test", _selftest),
    "job": ("Precompute and training", _job),
    "ladder": ("Ladder of levers", _ladder),
    "models": ("Mixed precision by model", _models),
}
"""Of each lane: its title, and what makes its tables of its result."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/gpu"))
    print(write_page(parser.parse_args().folder, SECTIONS))


if __name__ == "__main__":
    main()
