"""The demo learns: AUC on people it never saw, by seed of the sample and of training, and of controls.

    python tests/benchmarks/bench_learning.py [--samples 0 1] [--seeds 0 1 2] [--groups 240] [--folder DIR]

Prints one JSON object: for each run the AUC of its best weights on val and test together, by face and by video, with a
95 % interval, CPU seconds, and the same of every step before it. Runs with the settings of `make demo`:

face: the crop as it is. background: without the face, in training and in validation. self_blend: trained on real faces
alone, with fakes that `SelfBlend` makes of them; validated on the sample's fakes. The last two with the first seed.

The interval is of 2,000 bootstrap draws of originals, each with its fakes: the videos of one original are no
independent ones. Steps that are finished in `--folder` are not repeated.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from facefeed.train.checkpoints.plain import read_checkpoint
from facefeed.train.datamodule import DataOptions, FaceDataModule
from facefeed.train.model.stored_classifier import load_classifier
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = ROOT / "loaders" / "augment"
SETTINGS = (
    "model.backbone=resnet10t", "model.learning_rate=1e-3", "data.image_size=64", "epochs=8",
)  # fmt: skip
KINDS: dict[str, tuple[str, ...]] = {
    "face": ("data.balance=pairs",),
    "background": (
        "data.balance=pairs", f"data.transform={PIPELINES / 'background.yaml'}",
        f"data.eval_transform={PIPELINES / 'background.yaml'}",
    ),
    "self_blend": (
        "data.balance=blend_pairs", "data.image_size=192", "epochs=60",
        f"data.transform={PIPELINES / 'self_blend_64.yaml'}", f"data.eval_transform={PIPELINES / 'resize_64.yaml'}",
    ),
}  # fmt: skip
DRAWS = 2000

Floats = NDArray[np.float64]


def cpu_seconds(*command: str) -> float:
    """User and system seconds of a command of facefeed and its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(Path(sys.executable).with_name("facefeed")), *command], check=True, stdout=sys.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def trained(out: Path, run: Path, kind: str, seed: int) -> float:
    """Trains one run; returns its CPU seconds."""
    changes = [*SETTINGS, *KINDS[kind], f"seed={seed}", f"data.seed={seed}"]
    sets = [part for change in changes for part in ("--set", change)]
    return cpu_seconds("train", str(out), "--recipe", "quick", *sets, "--run", str(run))


def predicted(run: Path, out: Path) -> tuple[Floats, NDArray[np.int64], list[str], list[str]]:
    """Scores, labels, videos and originals of all faces of val and test, by the best weights of a run."""
    checkpoint = run / "checkpoints" / "best.ckpt"
    model = load_classifier(checkpoint, read_checkpoint(checkpoint)).eval()
    options = json.loads((run / "config.json").read_text())["config"]["data"]
    data = FaceDataModule(out, DataOptions(**{**options, "num_workers": 0}))
    scores, labels, videos, originals = [], [], [], []
    for loader in (data.val_dataloader(), data.test_dataloader()):
        index = loader.dataset.index  # type: ignore[union-attr]
        for batch in loader:
            with torch.inference_mode():
                logits = model(batch["image"]).double()
            scores.append((logits[:, 1] - logits[:, 0]).numpy())
            labels.append(batch["label"].numpy())
            videos += batch["video_id"]
            sources = [index.text("source_id", int(row)) for row in batch["row"]]
            originals += [source or video for source, video in zip(sources, batch["video_id"], strict=True)]
    return np.concatenate(scores), np.concatenate(labels), videos, originals


def auc_with_interval(scores: Floats, labels: NDArray[np.int64], originals: list[str]) -> list[float]:
    """AUC, and the ends of its 95 % interval over originals."""
    fake, real = labels == 1, labels == 0
    above = (scores[fake][:, None] > scores[real]) + 0.5 * (scores[fake][:, None] == scores[real])
    _, group = np.unique(originals, return_inverse=True)
    draws = np.random.default_rng(0).multinomial(
        group.max() + 1, np.full(group.max() + 1, 1 / (group.max() + 1)), DRAWS
    )
    areas = []
    for counts in (np.ones(group.max() + 1, int), *draws):
        weights = counts[group].astype(float)
        areas.append(float(weights[fake] @ above @ weights[real] / (weights[fake].sum() * weights[real].sum())))
    return [round(float(figure), 3) for figure in (areas[0], *np.quantile(areas[1:], (0.025, 0.975)))]


def measured(run: Path, out: Path) -> dict[str, Any]:
    """AUC by face and by video, each with its interval."""
    scores, labels, videos, originals = predicted(run, out)
    names, first, of_video = np.unique(videos, return_index=True, return_inverse=True)
    means = np.bincount(of_video, 1 / (1 + np.exp(-scores))) / np.bincount(of_video)
    return {
        "faces": len(scores), "videos": len(names), "originals": len(set(originals)),
        "auc": auc_with_interval(scores, labels, originals),
        "video_auc": auc_with_interval(means, labels[first], [originals[place] for place in first]),
    }  # fmt: skip


def main() -> None:
    """Runs all steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--groups", type=int, default=240)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "facefeed-learning")
    arguments = parser.parse_args()
    report: dict[str, Any] = {"groups": arguments.groups, "samples": {}}
    for sample in arguments.samples:
        folder = arguments.folder / str(sample)
        videos, out = folder / "videos", folder / "faces"
        steps = {
            "sample_cpu_seconds": cpu_seconds(
                "sample", str(videos), "--seed", str(sample), "--groups", str(arguments.groups)
            ),
            "precompute_cpu_seconds": cpu_seconds(
                "precompute", str(videos), str(out), "--split-ratio", "70,15,15", "--boxes", "source"
            ),
        }
        runs = [("face", seed) for seed in arguments.seeds]
        runs += [(kind, arguments.seeds[0]) for kind in ("background", "self_blend")]
        figures = {}
        for kind, seed in runs:
            run = folder / f"{kind}-{seed}"
            seconds = trained(out, run, kind, seed)
            figures[run.name] = {**measured(run, out), "cpu_seconds": seconds}
            print(run, figures[run.name], file=sys.stderr)
        report["samples"][sample] = {**steps, "runs": figures}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
