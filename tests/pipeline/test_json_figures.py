"""The guide to figures has every key of `precompute --json`, of its dry run, of progress and of a receipt."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from assets_docs import key_differences, keys
from facefeed.pipeline import report
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dryrun import report as show
from facefeed.pipeline.dryrun.run import DryRunResult, dry_run
from facefeed.pipeline.errors import TooManyFailedError
from facefeed.pipeline.execution import progress as progress_module
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.precompute import Summary, precompute
from rich.console import Console

MakeSource = Callable[..., Path]


@pytest.fixture
def results(
    tmp_path: Path,
    make_source: MakeSource,
    small_options: Options,
    cluster_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[DryRunResult, TooManyFailedError, Summary]:
    """A dry run, a run that allows no failure and one that allows two: of a source with one of each kind of input."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    src = make_source("dfdc_train_part_0/a.mp4", "dfdc_train_part_0/b.mp4")
    part, out = src / "dfdc_train_part_0", tmp_path / "out"
    (part / "broken.mp4").write_bytes(b"not a video" * 100)
    (part / "link.mp4").symlink_to(make_source("c.mp4", root=tmp_path / "elsewhere") / "c.mp4")
    (part / "notes.txt").write_text("x")
    videos = {name: {"label": "REAL", "split": "train"} for name in ("a.mp4", "broken.mp4", "link.mp4", "lost.mp4")}
    fake = {"b.mp4": {"label": "FAKE", "split": "train", "original": "a.mp4"}}
    (part / "metadata.json").write_text(json.dumps({**videos, **fake}))
    settings: dict[str, Any] = {"options": small_options, "detector": FixedBoxDetector()}
    settings["scheduler"] = cluster_address
    tried = dry_run(src, out, **settings)
    with pytest.raises(TooManyFailedError) as failed:
        precompute(src, tmp_path / "other", max_failed=FailureLimit(count=1), **settings)
    return tried, failed.value, precompute(src, out, max_failed=FailureLimit(count=2), **settings)


def test_the_guide_to_figures_has_every_key_of_a_run_a_dry_run_and_a_receipt(
    results: tuple[DryRunResult, TooManyFailedError, Summary], tmp_path: Path
) -> None:
    tried, failed, summary = results
    summary = replace(summary, manifest=replace(summary.manifest, own_masks_unused={"truncated": 1}))  # not of DFDC
    equal = summary.equal_content
    summary = replace(summary, equal_content=equal._replace(repeated=equal.conflicting))
    of_failure = {**failed.details, "error": "as the command says it", "exit": 3}
    run = {*keys(json.loads(json.dumps(report.summary_json(summary)))), *keys(of_failure)}
    assert key_differences(run, "A run") == (set(), set())
    dry = {*keys(json.loads(json.dumps(show.dry_run_json(tried, 2))))}
    assert key_differences(dry, "A dry run") == (set(), set())
    receipts = [json.loads(path.read_bytes()) for path in OutPaths(tmp_path / "out").receipts.iterdir()]
    assert key_differences({key for receipt in receipts for key in keys(receipt)}, "A receipt") == (set(), set())


def test_the_guide_to_figures_has_every_key_of_a_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = count(0, 3600)
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    file = io.StringIO()
    progress = Progress(Console(file=file, highlight=False, soft_wrap=True))
    failed = InputOutcome(video_id="a.mp4", size_bytes=1, mtime_ns=1, outcome="failed", reason="empty")
    unit = Unit.make((), "train", config_hash="c", salt="0")
    with progress:
        progress.on_receipt(Receipt(unit="u", config_hash="c", outcome="done", inputs=[failed]))
    with progress.comparing(2, 200) as on_compared:
        on_compared(100)
    progress.warn("a warning")
    progress.on_wait("another run is at work")
    progress.on_lost(unit, "its worker was lost", "splitting it in two")
    progress.on_retired("worker 0", "MemoryError")
    progress.on_stopping()
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    progress_keys = {key for line in lines for key in keys({line.pop("event"): line or "alone"})}
    assert key_differences(progress_keys, "Progress in a pipe") == (set(), set())
