"""Frames have their own index and time in files that state none, or those of other pictures."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import pytest
from assets_video import numbered, read_number, spoil, write_video
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import DecoderLimits, DecodeSummary, MediaReader, Sampling


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


def copied_without_times(path: Path, source: Path, milliseconds: list[int]) -> Path:
    """The packets of `source`, whose times are replaced by `milliseconds` in decode order."""
    with av.open(str(source)) as original, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(original.streams.video[0])
        for packet, time in zip(original.demux(video=0), milliseconds, strict=False):
            packet.stream, packet.time_base, packet.pts, packet.dts = stream, Fraction(1, 1000), time, time
            target.mux(packet)
    return path


UNEVEN = [40 * index + 7 * (index % 3) for index in range(40)]


@pytest.mark.parametrize("sampling", [Sampling(every=1), Sampling(every=7), Sampling(frames=3), Sampling(fps=3)])
@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("libx264", {"bf": "3", "g": "15"}),
        ("libx265", {"x265-params": "log-level=none:bframes=3:keyint=15"}),
        ("mpeg2video", {"bf": "2"}),
    ],
)
def test_frames_that_were_copied_without_their_times_have_the_sorted_ones(
    reader: MediaReader, tmp_path: Path, codec: str, options: dict[str, str], suffix: str, sampling: Sampling
) -> None:
    """As from AVI or raw H.264: the n-th picture in decode order bears the n-th time."""
    sound = write_video(tmp_path / "sound.mkv", map(numbered, range(40)), codec=codec, options=options)
    path = copied_without_times(tmp_path / f"copied.{suffix}", sound, UNEVEN)
    times, summary = reader.times(path, sampling), DecodeSummary()
    frames = list(reader.frames(path, sampling, summary=summary))
    assert [read_number(frame.rgb) for frame in frames] == [frame.frame_index for frame in frames]
    assert [frame.frame_index for frame in frames] == times.wanted_indices.tolist()
    assert times.pts_seconds.tolist() == pytest.approx([time / 1000 for time in UNEVEN], abs=1e-3)
    assert [frame.pts_seconds for frame in frames] == times.pts_seconds[times.wanted_indices].tolist()
    assert (summary.frames_decoded, summary.damage) == (len(frames), "")


def test_a_damaged_frame_costs_no_others_where_the_codec_might_reorder_frames_and_does_not(tmp_path: Path) -> None:
    """MPEG-2 of a decoder's delay, and without B-frames: times rise in decode order, and are right."""
    sound = write_video(tmp_path / "sound.mkv", map(numbered, range(40)), codec="mpeg2video", options={"bf": "0"})
    with av.open(str(sound)) as container:
        assert container.streams.video[0].codec_context.has_b_frames
    path, summary = spoil(tmp_path / "spoiled.mkv", sound, range(35, 36)), DecodeSummary()
    with MediaReader(DecoderLimits(max_damaged_percent=50)) as reader:
        frames = list(reader.frames(path, Sampling(every=1), summary=summary))
    assert [read_number(frame.rgb) for frame in frames] == [frame.frame_index for frame in frames]
    assert [frame.frame_index for frame in frames] == [*range(34), *range(36, 40)]  # the key frame after it is 36
    assert summary.damage
