"""Frames have their own index and time in files that state none, or those of other pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from assets_video import numbered, read_number, write_video
from facefeed.pipeline.sources import Entry
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


@pytest.mark.parametrize("digits", [3, 4, 15])
@pytest.mark.parametrize(
    ("suffix", "codec"), [("mp4", "libx264"), ("mkv", "libx264"), ("flv", "flv"), ("ts", "libx264")]
)
def test_a_segment_begins_and_ends_with_the_same_frame_in_each_container(
    reader: MediaReader, tmp_path: Path, suffix: str, codec: str, digits: int
) -> None:
    """At 30 frames per second no frame but every third is at a whole millisecond, as Matroska and FLV round times."""
    path = write_video(tmp_path / f"a.{suffix}", map(numbered, range(40)), codec=codec, rate=30)
    frames = list(reader.frames(path, Sampling(every=1)))
    for first, end in ((7, 11), (20, 37), (8, 16)):
        segment = round(first / 30, digits), round(end / 30, digits)
        entry = Entry(video_id=path.name, label=1, fake_segments=(segment,), outside_label=0)
        fakes = [frame.frame_index for frame in frames if entry.label_at(frame.elapsed_seconds)]
        assert fakes == list(range(first, end)), segment
