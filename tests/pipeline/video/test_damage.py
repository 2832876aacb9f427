"""No frame is returned whose pixels are built on a damaged key picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
from assets_video import numbered, spoil, write_video
from facefeed.pipeline.video import DecoderLimits, DecodeSummary, MediaReader, Sampling
from facefeed.pipeline.video.decoder.decoding import DecoderHealth

ALL = Sampling(every=1)
NUM_FRAMES = 48
TS_PACKET_BYTES = 188


@pytest.fixture(scope="module")
def textured() -> list[npt.NDArray[np.uint8]]:
    """Numbered frames with noise below: key pictures of several kB."""
    frames = [numbered(index, 192, 128) for index in range(NUM_FRAMES)]
    noise = np.random.default_rng(0).integers(40, 200, (64, 192, 1), np.uint8)
    for frame in frames:
        frame[64:] = noise
    return frames


def key_packets(path: Path) -> list[int]:
    with av.open(str(path)) as container:
        return [index for index, packet in enumerate(container.demux(video=0)) if packet.size and packet.is_keyframe]


def without_ts_packet(path: Path, source: Path, index: int) -> Path:
    """A copy without one transport packet, in the middle of a video packet: a gap in reception."""
    data = source.read_bytes()
    with av.open(str(source)) as container:
        stream = container.streams.video[0]
        ends = [packet.pos for packet in container.demux(stream) if packet.size][index : index + 2]
        program_id = stream.id
    starts = range(ends[0], ends[1], TS_PACKET_BYTES)
    own = [at for at in starts if int.from_bytes(data[at + 1 : at + 3], "big") & 0x1FFF == program_id]
    assert len(own) > 2
    lost = own[len(own) // 2]
    path.write_bytes(data[:lost] + data[lost + TS_PACKET_BYTES :])
    return path


def intact_indices(path: Path, source: Path, threads: int = 1) -> list[int]:
    """Indices of the returned frames; all must be as `source` shows them."""
    with MediaReader(DecoderLimits(max_damaged_percent=100, threads=threads)) as reader:
        whole = {frame.frame_index: frame.rgb for frame in reader.frames(source, ALL)}
        assert [*whole] == [*range(NUM_FRAMES)]
        summary = DecodeSummary()
        frames = list(reader.frames(path, ALL, summary=summary))
    indices = [frame.frame_index for frame in frames]
    assert [frame.frame_index for frame in frames if not (frame.rgb == whole[frame.frame_index]).all()] == []
    assert bool(summary.damage) == (len(frames) < NUM_FRAMES)
    return indices


def lost_frames(indices: Sequence[int]) -> list[int]:
    lost = sorted(set(range(NUM_FRAMES)).difference(indices))
    assert lost == [*range(lost[0], lost[-1] + 1)]
    return lost


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("codec", ["mpeg1video", "mpeg2video"])
def test_a_key_picture_that_cannot_be_decoded_costs_its_whole_group(
    tmp_path: Path, textured: list[npt.NDArray[np.uint8]], codec: str, group: int, threads: int
) -> None:
    """With B-frames, these decoders return the damaged picture all the same, a few packets after the error."""
    whole = write_video(tmp_path / "whole.mkv", textured, codec=codec, options={"g": "12", "bf": "2", "b": "2M"})
    keys = key_packets(whole)
    path = spoil(tmp_path / "damaged.mkv", whole, range(keys[group], keys[group] + 1))
    lost = lost_frames(intact_indices(path, whole, threads))
    assert 12 <= len(lost) <= 12 + 5 + threads


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("codec", "options"),
    [
        pytest.param(
            "libx265",
            {"x265-params": "keyint=12:bframes=2:scenecut=0:open-gop=0:log-level=none"},
            marks=pytest.mark.skipif("libx265" not in av.codecs_available, reason="PyAV has no encoder for HEVC"),
        ),
        ("libx264", {"g": "12", "bf": "2", "sc_threshold": "0"}),
        ("mpeg2video", {"g": "12", "bf": "2", "b": "2M"}),
    ],
)
def test_a_key_picture_with_a_gap_in_reception_costs_its_whole_group(
    tmp_path: Path, textured: list[npt.NDArray[np.uint8]], codec: str, options: dict[str, str], group: int
) -> None:
    """A transport packet is missing; FFmpeg marks the picture before, and the HEVC decoder reports no error."""
    whole = write_video(tmp_path / "whole.ts", textured, codec=codec, options=options)
    path = without_ts_packet(tmp_path / "gap.ts", whole, key_packets(whole)[group])
    lost = lost_frames(intact_indices(path, whole))
    assert 12 <= len(lost) <= 12 + 5


@pytest.mark.parametrize("picture", ["key", "predicted"])
def test_a_picture_overwritten_by_zeros_costs_what_is_built_on_it(
    tmp_path: Path, textured: list[npt.NDArray[np.uint8]], picture: str
) -> None:
    """As in a download with a gap: the decoder skips the packet and predicts from an earlier picture."""
    whole = write_video(tmp_path / "whole.mp4", textured, codec="mpeg2video", options={"g": "12", "bf": "2", "b": "2M"})
    index = key_packets(whole)[1] + (3 if picture == "predicted" else 0)
    data = bytearray(whole.read_bytes())
    with av.open(str(whole)) as container:
        packet = [*container.demux(video=0)][index]
        assert packet.pos is not None
        data[packet.pos : packet.pos + packet.size] = bytes(packet.size)
    (tmp_path / "gap.mp4").write_bytes(data)
    lost = lost_frames(intact_indices(tmp_path / "gap.mp4", whole))
    assert 9 <= len(lost) <= 12 + 5


@pytest.mark.parametrize(("time", "text"), [(1.5, " at 1.500 s"), (math.nan, ""), (None, "")])
def test_a_damaged_frame_is_reported_with_its_time_if_it_has_one(time: float | None, text: str) -> None:
    """PyAV's frames have none, or nan, that leave the decoder after the last packet."""
    frame: Any = SimpleNamespace(is_corrupt=True, key_frame=False, time=time)
    health = DecoderHealth()
    assert not health.check_frame(frame, 0)
    assert health.first_error == f"the decoder marked the frame{text} as damaged"
