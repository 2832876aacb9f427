"""Loaders that read images ahead of their workers, who find them in memory however slow storage is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_clock import Clock
from assets_profiles import STEP, recording_of
from assets_rows import make_small
from facefeed.loaders import Clip, FaceDataLoader
from facefeed.loaders.profiler.measure import page_cache
from facefeed.loaders.profiler.measure.variants import with_longer_epoch
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.headroom import without_hidden_reads
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.verdict import Verdict

FROM_STORAGE, FROM_MEMORY = 20_000, 20
"""Bytes from storage an image."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("ahead") / "out")


def loader_of(source: Path | str, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(source, 10, **{"image_size": 16, "num_workers": 0, **options})


def verdict_of(bytes_per_image: int) -> Verdict:
    recording = recording_of(np.full(4000, STEP))
    read = replace(recording, storage_bytes=bytes_per_image * int(recording.num_images.sum()))
    verdict = judge(read, emulated=True, num_cores=4)
    assert verdict.headroom is not None
    return verdict


def test_no_headroom_is_claimed_of_workers_whose_images_were_read_from_storage_ahead(dataset: Path) -> None:
    loader = loader_of(dataset, shuffle="window", window_images=512)
    verdict = without_hidden_reads(verdict_of(FROM_STORAGE), loader)
    assert (verdict.headroom, verdict.headroom_lower) == (None, None)
    assert "sustains" not in str(verdict)
    assert "the loader reads up to two windows of 512 images ahead" in str(verdict)
    assert Gate(min_headroom=1.1).failures(verdict) == ["headroom not known, wanted 1.1x"]


def test_windows_of_clips_are_counted_in_clips(dataset: Path) -> None:
    clip = Clip(frames=4, clips_per_video=9)
    loader = loader_of(dataset, shuffle="window", window_images=512, clip=clip)
    assert "two windows of 128 clips ahead" in str(without_hidden_reads(verdict_of(FROM_STORAGE), loader))


@pytest.mark.parametrize(
    ("bytes_per_image", "shuffle"), [(FROM_MEMORY, "window"), (FROM_STORAGE, "full"), (FROM_STORAGE, False)]
)
def test_headroom_is_known_where_nothing_was_read_ahead_from_storage(
    dataset: Path, bytes_per_image: int, shuffle: Any
) -> None:
    verdict = verdict_of(bytes_per_image)
    assert without_hidden_reads(verdict, loader_of(dataset, shuffle=shuffle)) == verdict
    assert without_hidden_reads(verdict, [1, 2]) == verdict


def test_what_is_fetched_ahead_from_a_store_counts_as_read_although_the_system_does_not_see_it(
    dataset: Path, tmp_path: Path
) -> None:
    verdict, stored = verdict_of(FROM_MEMORY), f"file://{dataset}"
    in_order, shuffled = (
        loader_of(stored, cache=tmp_path / "cache", cache_bytes=1 << 30, shuffle=shuffle) for shuffle in (False, True)
    )
    assert without_hidden_reads(verdict, in_order).headroom is None
    assert without_hidden_reads(verdict, shuffled) == verdict


def test_a_profile_states_what_was_read_ahead(clock: Clock, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten megabytes in each run of steps, of ten images each."""
    read_bytes = itertools.count(0, 10_000_000)
    monkeypatch.setattr(page_cache, "storage_bytes_read", lambda: next(read_bytes))

    def slow(image: Any) -> Any:
        clock.pass_by(0.0001)
        return image

    loader = loader_of(dataset, shuffle="window", window_images=128, transform=slow)
    found = profile(with_longer_epoch(loader, 40), lambda _: clock.pass_by(STEP), steps=60, quick=True)
    assert found.verdict.headroom is None
    assert "two windows of 128 images ahead" in found.verdict.remarks[-1]
