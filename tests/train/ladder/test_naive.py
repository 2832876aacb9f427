"""The rung that started it all: the same training, with every face decoded, found and cut anew in each step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import fsspec
import numpy as np
import pytest
import torch
from assets_dataset import finish_dataset
from assets_stores import uploaded
from assets_video import write_video
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit
from facefeed.pipeline.sources import list_source
from facefeed.pipeline.video import Sampling
from facefeed.train.ladder.messages import RungRequest, Subject

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own advice is none of ours

FRAMES, SIDE = 4, 160
WHOLE = FixedBoxDetector(((0.0, 0.0, 1.0, 1.0),))
SMALL = ("model.backbone=test_resnet", "data.image_size=32", "data.batch_size=2", "data.num_workers=0")


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Two films of one portrait, and their frames as precomputed faces."""
    root = tmp_path_factory.mktemp("naive")
    portrait = load_portrait("astronaut").image[:300, 75:375, ::-1]
    frames = [np.roll(cv2.resize(portrait, (SIDE, SIDE)), 2 * number, axis=1) for number in range(FRAMES)]
    for name in ("real/a.mp4", "fake/b.mp4"):
        path = root / "src" / name
        path.parent.mkdir(parents=True)
        write_video(path, frames)
    precomputed(root / "src", root / "out")
    return Subject(
        out=str(root / "out"),
        videos=str(root / "src"),
        module=None,
        recipe="quick",
        changes=(*SMALL, "data.balance=none"),
    )


def precomputed(src: Path, out: Path) -> None:
    options, listing = Options(sampling=Sampling(every=1), size_px=64), list_source(src)
    config = options.to_config(WHOLE, listing.labels)
    job = JobSpec(
        root=src, out=out, options=options, detector=WHOLE, labels=listing.labels, config_hash=hash_config(config)
    )
    make_folders(job.paths)
    unit = Unit.make(listing.entries, "train", config_hash=job.config_hash, salt="")
    Plan().append(job.paths, PlanPart(config=config, units=(unit,)))
    worker = UnitWorker(job)
    worker.run(unit)
    worker.close()
    finish_dataset(out)


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")
    before, threads = logging.getLogger("lightning.pytorch").level, torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    logging.getLogger("lightning.pytorch").setLevel(before)


def test_it_trains_a_few_steps_on_faces_made_from_the_videos_and_extrapolates_the_same_epoch(
    subject: Subject, tmp_path: Path
) -> None:
    from facefeed.train.ladder.rung.measure import measure  # noqa: PLC0415 (Lightning, which takes seconds)

    progress: list[tuple[int, int]] = []
    request = RungRequest(subject=subject, task="measure", data="naive", steps=1000)
    result = measure(request, tmp_path, lambda *step: progress.append(step))
    assert progress == [(step, 5) for step in range(6)]  # whatever others are measured by
    assert (result["steps"], result["samples"]) == (4, 8)
    assert result["steps_per_epoch"] == 2 * FRAMES / 2  # OUT's, not that of its own endless sampler
    assert result["stall_share"] is not None


@pytest.mark.parametrize("data", ["naive", "precomputed"])
def test_the_faces_may_lie_in_a_store(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    from facefeed.train.ladder.rung.measure import measure  # noqa: PLC0415

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    uploaded(Path(str(subject.out)), fsspec.filesystem("memory"), "/ladder")
    request = RungRequest(subject=replace(subject, out="memory://ladder"), task="measure", data=data, steps=4)
    result = measure(request, tmp_path, lambda *_: None)
    assert (result["steps"], result["steps_per_epoch"]) == (4, 2 * FRAMES / 2)


def test_the_wrong_videos_are_refused(subject: Subject, tmp_path: Path) -> None:
    from facefeed.train.ladder.rung.measure import measure  # noqa: PLC0415

    request = RungRequest(subject=replace(subject, videos=str(tmp_path)), task="measure", data="naive", steps=1)
    with pytest.raises(UsageError, match=r"made from .* as it is now"):
        measure(request, tmp_path, lambda *_: None)
