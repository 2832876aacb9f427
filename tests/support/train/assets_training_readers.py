"""Readers of what a training run is given or resumes from, for `ReaderProcess`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from assets_train import BACKBONE
from facefeed.pipeline.console import printable
from facefeed.train.config.options import DataOptions, ModelOptions
from facefeed.train.config.recipes import Config
from facefeed.train.evaluate import evaluate
from facefeed.train.model.warm_start import warm_start
from facefeed.train.run.folder import RunFolder
from facefeed.train.run.result import Result

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would call the network on import

from facefeed.loaders.augment.pipeline_file import describe_pipeline, read_pipeline

CONFIG = Config(
    recipe="quick",
    model=ModelOptions(backbone=BACKBONE),
    data=DataOptions(batch_size=8, image_size=32, num_workers=0),
    epochs=2,
)
"""Of the run that `resume_run` resumes."""


def load_pipeline(folder: Path) -> None:
    """A pipeline of augmentations, described as `facefeed augment` does."""
    pipeline = read_pipeline(folder / "pipeline.yaml")
    assert all(line.name and line.probability for line in describe_pipeline(pipeline))


def resume_run(folder: Path) -> None:
    """The checks of `facefeed train` before it resumes the run in `run`, or reports its result."""
    run = RunFolder(folder / "run")
    run.check(CONFIG, folder / "out")
    with run.locked(replace(CONFIG), folder / "out", ranks=2):
        pass
    if (stored := run.read_result()) is not None:
        result = Result.read(stored)
        figures = [f"{printable(name)}={value:.3f}" for name, value in (*result.val.items(), *result.test.items())]
        figures.append(f"{result.steps:,} {result.seconds:.1f} {result.val_faces:,}")
        assert "".join(figures).isprintable()


def evaluate_checkpoint(folder: Path) -> None:
    """`facefeed evaluate` of a checkpoint."""
    [evaluation] = evaluate(folder / "last.ckpt", [folder / "out"], num_workers=0)
    assert np.isfinite(evaluation.faces)


def start_warm(folder: Path) -> None:
    """A warm start from weights by name."""
    [weights] = folder.glob("weights.*")
    warm_start(CONFIG.model, weights)
