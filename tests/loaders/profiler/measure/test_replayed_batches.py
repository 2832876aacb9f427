"""Steps that change the batch that they get: every replay is of the batch as the loader returned it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_profiles import SlowItems
from facefeed.loaders.profiler.profile import profile
from torch.utils.data import DataLoader


class Labelled(SlowItems):
    """Samples that are collated to a dict."""

    def __getitem__(self, index: int) -> Any:
        return {"image": torch.zeros(3), "label": super().__getitem__(index)}


def test_a_step_that_takes_images_and_labels_out_of_its_batch_is_replayed(clock: Clock) -> None:
    def step(batch: dict[str, torch.Tensor]) -> None:
        labels = batch.pop("label")
        clock.pass_by(0.001 * (len(labels) + len(batch.pop("image"))))

    found = profile(DataLoader(Labelled(clock, 0.001), 4), step, steps=60, quick=True)
    assert found.preloaded.step_seconds == pytest.approx(np.full(250, 0.008))
    assert set(found.live.num_images.tolist()) == set(found.preloaded.num_images.tolist()) == {4}


def test_a_step_that_moves_its_batch_in_place_gets_each_where_the_loader_left_it(clock: Clock) -> None:
    devices = set[str]()

    def step(batch: dict[str, torch.Tensor]) -> None:
        devices.update(tensor.device.type for tensor in batch.values())
        for name, tensor in batch.items():
            batch[name] = tensor.to("meta")  # in place, as many training steps do
        clock.pass_by(0.001)

    profile(DataLoader(Labelled(clock, 0.001), 4), step, steps=60, quick=True)
    assert devices == {"cpu"}
