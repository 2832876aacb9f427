"""Steps that change the batch that they get: every replay is of the batch as the loader returned it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_profiles import SlowItems, TwoAlike
from facefeed.loaders.profiler.measure.ranks import RankGroup
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.verdict.loader_verdict import LoaderMeasurement
from facefeed.loaders.profiler.verdict.result import Profile
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


class OtherRankFails(TwoAlike):
    """Two ranks, of which the other one's step raises on batches on its device."""

    was_on_device = False

    def all_max(self, value: int) -> int:
        value, self.was_on_device = max(value, int(self.was_on_device)), False
        return value


def measured_on_meta(clock: Clock, step: Callable[[Any], None], ranks: RankGroup) -> Profile:
    """A profile with the device "meta", which any machine has."""
    return LoaderMeasurement(
        DataLoader(Labelled(clock, 0.001), 4), step, num_steps=60, confidence=0.95, device="meta",
        num_epoch_batches=None, progress=lambda *_: None, ranks=ranks,
    ).measure()  # fmt: skip


def test_a_step_that_needs_a_tensor_on_the_host_is_profiled_without_the_copy_on_its_own(clock: Clock) -> None:
    def step(batch: dict[str, torch.Tensor]) -> None:
        clock.pass_by(0.001)
        if batch["label"].device.type != "cpu":
            raise RuntimeError("'lengths' argument should be a 1D CPU int64 tensor")

    found = measured_on_meta(clock, step, RankGroup())
    assert found.preloaded_on_device is None
    assert "copy" not in found.step_part_seconds
    assert found.preloaded.step_seconds == pytest.approx(np.full(250, 0.001))


@pytest.mark.parametrize("fails", [False, True])
def test_no_rank_tries_batches_on_its_device_again_where_the_step_of_another_failed(clock: Clock, fails: bool) -> None:
    ranks, num_on_device = OtherRankFails(), 0

    def step(batch: dict[str, torch.Tensor]) -> None:
        nonlocal num_on_device
        clock.pass_by(0.001)
        is_on_device = batch["label"].device.type != "cpu"
        num_on_device += is_on_device
        ranks.was_on_device = is_on_device and fails

    found = measured_on_meta(clock, step, ranks)
    assert num_on_device == (125 if fails else 250)
    assert (found.preloaded_on_device is None) is fails
