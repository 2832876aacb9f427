"""What users of Accelerate and of the Hugging Face Trainer notice: a refusal with the way out, and that way works."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_rows import make_small, rows_seen
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.errors import UsageError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(out, 10, **{"num_workers": 0, "image_size": 8, "fields": ("image", "row"), **options})


def test_a_loader_that_torchs_own_batching_would_be_put_over_is_refused_with_the_way_out(dataset: Path) -> None:
    loader = loader_of(dataset)
    for options in ({}, {"batch_size": 10}, {"batch_sampler": [[0, 1], [2]]}):
        rebuilt = torch.utils.data.DataLoader(loader.dataset, collate_fn=loader.collate_fn, **options)
        with pytest.raises(UsageError, match=r"leave it out of prepare\(\).*device=accelerator.device.*FaceDataset"):
            next(iter(rebuilt))


def test_single_faces_of_its_dataset_can_be_looked_at(dataset: Path) -> None:
    image, label = loader_of(dataset).dataset[3]
    assert (image.shape, label) == ((3, 8, 8), 0)


def test_accelerate_refuses_at_prepare_and_runs_beside_it(dataset: Path) -> None:
    accelerate = importlib.import_module("accelerate") if importlib.util.find_spec("accelerate") else None
    if accelerate is None:
        pytest.skip("accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True)
    with pytest.raises(UsageError, match=r"leave it out of prepare\(\)"):
        accelerator.prepare(loader_of(dataset))
    with pytest.raises(UsageError, match=r"leave it out of prepare\(\)"):
        accelerator.prepare_data_loader(loader_of(dataset))
    model = torch.nn.Linear(8 * 8 * 3, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = loader_of(dataset, device=accelerator.device)
    rows = []
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch["image"].flatten(1)).mean())
            optimizer.step()
            optimizer.zero_grad()
        rows += rows_seen([batch])
        if len(rows) == 50:
            state = json.loads(json.dumps(loader.state_dict()))
    assert rows == rows_seen(loader_of(dataset))
    resumed = loader_of(dataset)
    resumed.load_state_dict(state)
    assert rows_seen(resumed) == rows[50:]
