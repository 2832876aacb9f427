"""Frames have their own index and time in files that state none, or those of other pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from assets_video import numbered, read_number, write_video
from facefeed.pipeline.video import MediaReader, Sampling


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    with MediaReader() as reader:
        yield reader


@pytest.mark.parametrize("rate", [24, 30, 50])
@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("raw.h264", "libx264", {"bf": "2"}),
        ("raw.hevc", "libx265", {"x265-params": "log-level=none:bframes=2"}),
        ("raw.m4v", "mpeg4", {}),
    ],
)
def test_a_raw_stream_has_the_frame_rate_that_it_states(
    reader: MediaReader, tmp_path: Path, name: str, codec: str, options: dict[str, str], rate: int
) -> None:
    path = write_video(tmp_path / name, map(numbered, range(20)), codec=codec, options=options, rate=rate)
    frames = list(reader.frames(path, Sampling(every=1)))
    assert [read_number(frame.rgb) for frame in frames] == list(range(20))
    assert [frame.pts_seconds for frame in frames] == pytest.approx([index / rate for index in range(20)])


@pytest.mark.parametrize("suffix", ["avi", "flv", "mkv", "mp4", "mpg", "ts"])
def test_a_frame_rate_that_the_container_states_is_kept(reader: MediaReader, tmp_path: Path, suffix: str) -> None:
    codec = {"mpg": "mpeg2video"}.get(suffix, "libx264")
    path = write_video(tmp_path / f"a.{suffix}", map(numbered, range(20)), codec=codec, rate=50)
    times = [frame.pts_seconds for frame in reader.frames(path, Sampling(every=1))]
    assert [seconds - times[0] for seconds in times] == pytest.approx([index / 50 for index in range(20)], abs=1e-3)
