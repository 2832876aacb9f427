"""Frames of any file, or one reason."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from assets_video import numbered, read_number, spoil, write_audio, write_video
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.video import DecoderLimits, DecodeSummary, Frame, MediaInfo, MediaReader, Sampling
from facefeed.pipeline.video.decoder.timeline import seconds_of_frames
from facefeed.pipeline.video.decoder.wanted_frames import DamageBudget
from PIL import Image

ALL = Sampling(every=1)


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    with MediaReader() as reader:
        yield reader


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 numbered frames, key frames at 0, 10 and 20, with B-frames."""
    path = tmp_path_factory.mktemp("video") / "numbered.mp4"
    options = {"g": "10", "sc_threshold": "0", "bf": "2"}
    return write_video(path, [numbered(index) for index in range(30)], options=options)


def indices(frames: list[Frame]) -> list[int]:
    assert [read_number(frame.rgb) for frame in frames] == [frame.frame_index for frame in frames]
    return [frame.frame_index for frame in frames]


def failure(reader: MediaReader, path: Path, sampling: Sampling = ALL) -> InputError:
    with pytest.raises(InputError) as caught:
        list(reader.frames(path, sampling))
    return caught.value


@pytest.mark.parametrize(
    ("sampling", "wanted"),
    [
        (ALL, list(range(30))),
        (Sampling(every=7), [0, 7, 14, 21, 28]),
        (Sampling(fps=5), [0, 5, 10, 15, 20, 25]),
        (Sampling(frames=3), [5, 15, 25]),
        (Sampling(frames=100), list(range(30))),
        (Sampling(keyframes=True), [0, 10, 20]),
    ],
)
def test_the_sampled_frames_are_decoded(
    reader: MediaReader, video: Path, sampling: Sampling, wanted: list[int]
) -> None:
    summary = DecodeSummary()
    frames = list(reader.frames(video, sampling, summary=summary))
    assert indices(frames) == wanted
    assert [frame.pts_seconds for frame in frames] == pytest.approx([index / 25 for index in wanted])
    assert summary == DecodeSummary(len(wanted), len(wanted), "")


@pytest.mark.parametrize("sampling", [Sampling(every=7), Sampling(frames=3), Sampling(keyframes=True)])
def test_the_times_of_frames_are_those_that_they_come_with(
    reader: MediaReader, video: Path, sampling: Sampling
) -> None:
    times, frames = reader.times(video, sampling), list(reader.frames(video, ALL))
    assert times.pts_seconds.tolist() == [frame.pts_seconds for frame in frames]
    assert times.wanted_indices.tolist() == indices(list(reader.frames(video, sampling)))


@pytest.mark.parametrize("sampling", [Sampling(frames=3), Sampling(keyframes=True)])
def test_extra_frames_are_yielded_in_presentation_order(reader: MediaReader, video: Path, sampling: Sampling) -> None:
    expected = reader.times(video, sampling).wanted_indices.tolist()
    summary = DecodeSummary()
    frames = list(reader.frames(video, sampling, [29, 4, expected[0], 11, 99], summary))
    assert indices(frames) == sorted({*expected, 4, 11, 29}), "but for a frame that the video does not have"
    assert summary.frames_wanted == summary.frames_decoded == len(expected)
    alone = {frame.frame_index: frame.rgb for frame in reader.frames(video, sampling)}
    assert all((frame.rgb == alone[frame.frame_index]).all() for frame in frames if frame.frame_index in alone)


def test_a_video_that_cannot_be_read_has_no_times(reader: MediaReader, tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("no video\n" * 50)
    with pytest.raises(InputError) as caught:
        reader.times(tmp_path / "a.mp4", ALL)
    assert caught.value.reason == failure(reader, tmp_path / "a.mp4").reason == "not_video"


def test_probe_says_what_a_video_is_without_reading_it_all(reader: MediaReader, video: Path) -> None:
    assert reader.probe(video) == MediaInfo(
        width=128, height=64, num_frames=30, duration_seconds=pytest.approx(1.2), is_image=False
    )


def test_probe_counts_the_frames_of_all_fragments(reader: MediaReader, tmp_path: Path) -> None:
    """The index of this file holds the first fragment alone."""
    frames = [np.full((64, 128, 3), 4 * number, np.uint8) for number in range(60)]
    fragments = {"container_options": {"movflags": "frag_keyframe"}, "options": {"g": "10"}}
    path = write_video(tmp_path / "fragments.mp4", frames, **fragments)  # type: ignore[arg-type]
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == 10
    assert reader.probe(path).num_frames == 60


def test_one_child_serves_many_files(reader: MediaReader, video: Path) -> None:
    list(reader.frames(video, ALL))
    first = reader.child_pid
    failure(reader, video.parent / "nothing.mp4")
    list(reader.frames(video, ALL))
    assert reader.child_pid == first


def test_a_run_of_pictures_is_read_by_one_child_though_some_are_broken(reader: MediaReader, tmp_path: Path) -> None:
    children = set()
    for number in range(6):
        path = tmp_path / f"{number}.png"
        Image.fromarray(numbered(number)).save(path)
        if number == 3:
            path.write_bytes(path.read_bytes()[:100])
            assert failure(reader, path).reason == "truncated"
        else:
            summary = DecodeSummary()
            (frame,) = reader.frames(path, ALL, summary=summary)
            assert (read_number(frame.rgb), frame.frame_index, summary.frames_wanted) == (number, 0, 1)
        children.add(reader.child_pid)
    assert len(children) == 1


def test_consumers_may_stop_early(reader: MediaReader, video: Path) -> None:
    for frame in reader.frames(video, ALL):
        if frame.frame_index == 2:
            break
    gc.collect()
    assert len(list(reader.frames(video, ALL))) == 30


def test_an_old_iterator_neither_disturbs_nor_mixes_with_the_next_file(reader: MediaReader, video: Path) -> None:
    old = reader.frames(video, ALL)
    next(old)
    new = reader.frames(video, Sampling(every=10))
    first = next(new)
    with pytest.raises(RuntimeError, match="another file"):
        next(old)
    assert indices([first, *new]) == [0, 10, 20]


def test_a_closed_reader_can_be_used_again(video: Path) -> None:
    reader = MediaReader()
    list(reader.frames(video, ALL))
    reader.close()
    assert reader.child_pid is None
    assert len(list(reader.frames(video, ALL))) == 30
    reader.close()


def test_true_times_of_a_variable_frame_rate(reader: MediaReader, tmp_path: Path) -> None:
    times = [0, 40, 45, 300, 1000, 1033]
    path = write_video(tmp_path / "vfr.mkv", [numbered(i) for i in range(6)], times=times)
    frames = list(reader.frames(path, ALL))
    assert [frame.pts_seconds for frame in frames] == pytest.approx([time / 1000 for time in times])
    assert indices(list(reader.frames(path, Sampling(fps=2)))) == [0, 4]


@pytest.mark.parametrize("index", [3, 5], ids=["middle", "last"])
def test_a_time_that_is_repeated_costs_no_other_frame_its_own(reader: MediaReader, tmp_path: Path, index: int) -> None:
    times = [1400, 1440, 1445, 1700, 2400, 2433]
    sound = write_video(tmp_path / "sound.mkv", [numbered(i) for i in range(6)], times=times, options={"bf": "0"})
    shown = [times[index - 1] if number == index else time for number, time in enumerate(times)]
    with av.open(str(sound)) as source, av.open(str(tmp_path / "repeated.mkv"), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet, milliseconds in zip(source.demux(video=0), shown, strict=False):
            packet.stream, packet.pts, packet.dts = stream, milliseconds, milliseconds - 2000
            target.mux(packet)
    frames = list(reader.frames(tmp_path / "repeated.mkv", ALL))
    assert indices(frames) == list(range(6))
    seconds = [frame.pts_seconds for frame in frames]
    assert seconds == sorted(set(seconds))
    assert np.delete(seconds, index) == pytest.approx(np.delete(times, index) / 1000)


@pytest.mark.parametrize(
    ("pts", "expected"),
    [
        ([0, 40, None, 130], [0, 0.04, 0.085, 0.13]),
        ([0, 40, 40, 40, 100], [0, 0.04, 0.06, 0.08, 0.1]),
        ([None, None, 500, 540, 600, None], [0.42, 0.46, 0.5, 0.54, 0.6, 0.64]),
        ([500, 500], [0.5, 0.54]),
        ([500, None, None], [0, 0.04, 0.08]),
        ([None, None, None], [0, 0.04, 0.08]),
        ([40, 120, 80, 200], [0, 0.04, 0.08, 0.12]),
    ],
    ids=["missing", "repeated", "both ends", "two frames", "most missing", "none", "back as in AVI"],
)
def test_frames_without_a_time_lie_between_their_neighbours(pts: list[int | None], expected: list[float]) -> None:
    assert seconds_of_frames(pts, Fraction(1, 1000), Fraction(25)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("packed.avi", "mpeg4", {"bf": "2"}),
        ("raw.h264", "libx264", {}),
        ("hidden.webm", "libvpx", {"auto-alt-ref": "1", "lag-in-frames": "16", "deadline": "good"}),
        ("superframes.webm", "libvpx-vp9", {"auto-alt-ref": "1", "lag-in-frames": "16", "cpu-used": "8"}),
        ("open_groups.mp4", "libx265", {"x265-params": "log-level=none:keyint=10:open-gop=1"}),
        ("stream.ts", "libx264", {}),
    ],
)
def test_frame_indices_are_right_where_packets_and_frames_differ(
    reader: MediaReader, tmp_path: Path, name: str, codec: str, options: dict[str, str]
) -> None:
    path = write_video(tmp_path / name, [numbered(i) for i in range(40)], codec=codec, options=options)
    frames = list(reader.frames(path, ALL))
    assert indices(frames) == list(range(40))
    steps = np.diff([frame.pts_seconds for frame in frames])
    assert steps == pytest.approx([0.04] * 39, abs=0.002)  # Matroska rounds to milliseconds
    assert indices(list(reader.frames(path, Sampling(frames=4)))) == [5, 15, 25, 35]


def test_an_empty_file_fails_as_empty(reader: MediaReader, tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").write_bytes(b"")
    assert failure(reader, tmp_path / "empty.mp4").reason == "empty"


@pytest.mark.parametrize("content", [b"Dear diary,\n" * 500, b"BMW, P5 and II* are no pictures\n", b"\0" * 5000])
def test_what_is_no_media_at_all_fails_as_not_video(reader: MediaReader, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "video.mp4").write_bytes(content)
    assert failure(reader, tmp_path / "video.mp4").reason == "not_video"


@pytest.mark.parametrize("suffix", ["avi", "mkv", "mp4"])
def test_a_title_that_is_not_utf_8_costs_nothing(reader: MediaReader, tmp_path: Path, suffix: str) -> None:
    path = write_video(tmp_path / f"titled.{suffix}", [numbered(7)], title="Müller")
    (frame,) = reader.frames(path, ALL)
    assert read_number(frame.rgb) == 7


def test_joined_files_are_counted_in_the_order_of_their_frames(reader: MediaReader, tmp_path: Path) -> None:
    """`cat a.ts b.ts`: both begin at about the same time, and no two of their times are equal."""
    first = write_video(tmp_path / "a.ts", map(numbered, range(20)), codec="mpeg2video")
    second = write_video(tmp_path / "b.ts", map(numbered, range(20, 40)), codec="mpeg2video", rate=24)
    joined = tmp_path / "joined.ts"
    joined.write_bytes(first.read_bytes() + second.read_bytes())
    frames = list(reader.frames(joined, Sampling(every=5)))
    assert [read_number(frame.rgb) for frame in frames] == indices(frames) == list(range(0, 40, 5))
    times = [frame.pts_seconds for frame in frames]
    assert times == sorted(times)


def test_what_cannot_be_read_fails_as_unreadable(reader: MediaReader, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    (tmp_path / "loop.mp4").symlink_to(tmp_path / "loop.mp4")
    for name in ("missing.mp4", "pipe.mp4", "loop.mp4", "."):
        assert failure(reader, tmp_path / name).reason == "unreadable"


def test_sound_without_pictures_fails_as_audio_only(reader: MediaReader, tmp_path: Path) -> None:
    assert failure(reader, write_audio(tmp_path / "sound.mp4")).reason == "audio_only"


def test_a_video_stream_without_a_frame(reader: MediaReader, video: Path, tmp_path: Path) -> None:
    data = bytearray(video.read_bytes())
    start = data.index(b"mdat") + 4
    data[start : data.index(b"moov") - 4] = bytes(data.index(b"moov") - 4 - start)
    (tmp_path / "blank.mp4").write_bytes(data)
    error = failure(reader, tmp_path / "blank.mp4")
    assert (error.reason, error.frames_wanted, error.frames_decoded) == ("no_frames", 30, 0)


def test_damage_fails_the_file_if_a_wanted_frame_is_built_on_it(tmp_path: Path, video: Path) -> None:
    path = spoil(tmp_path / "damaged.mp4", video, range(10, 11))  # the second key frame
    with MediaReader(DecoderLimits(max_damaged_percent=0)) as reader:
        error = failure(reader, path, Sampling(every=5))
        assert error.reason == "decode_error"
        assert (error.frames_wanted, error.frames_decoded) == (6, 2)
        assert len(list(reader.frames(path, Sampling(every=24)))) == 2  # frames 0 and 24 are whole


def test_one_damaged_frame_costs_itself_and_what_is_built_on_it_alone(
    reader: MediaReader, tmp_path: Path, video: Path
) -> None:
    path = spoil(tmp_path / "scratched.mp4", video, range(29, 30))  # the last packet
    summary = DecodeSummary()
    frames = list(reader.frames(path, ALL, summary=summary))
    lost = set(range(30)).difference(indices(frames))
    assert 1 <= len(lost) <= 3
    assert [frame.pts_seconds for frame in frames] == pytest.approx([frame.frame_index / 25 for frame in frames])
    assert (summary.frames_wanted, summary.frames_decoded) == (30, 30 - len(lost))
    assert f"{len(lost)} of 30" in summary.damage
    assert f"frame {min(lost)}" in summary.damage
    following = DecodeSummary()
    list(reader.frames(video, ALL, summary=following))
    assert following == DecodeSummary(30, 30, "")


def test_a_failure_counts_the_sampled_frames_alone(tmp_path: Path, video: Path) -> None:
    """An original is decoded at its fakes' moments too, which are no frames of its sampling."""
    path = spoil(tmp_path / "damaged.mp4", video, range(10, 11))
    with MediaReader(DecoderLimits(max_damaged_percent=0)) as reader, pytest.raises(InputError) as caught:
        list(reader.frames(path, Sampling(every=5), extra_indices=[1, 2, 3, 22, 23]))
    assert (caught.value.frames_wanted, caught.value.frames_decoded) == (6, 2)


def test_more_damage_than_allowed_fails_the_file(tmp_path: Path, video: Path) -> None:
    """The second key frame is damaged: with it go its group, and two frames that leave the decoder after it."""
    path = spoil(tmp_path / "damaged.mp4", video, range(10, 11))
    with MediaReader(DecoderLimits(max_damaged_percent=40)) as reader:
        summary = DecodeSummary()
        assert indices(list(reader.frames(path, ALL, summary=summary))) == [*range(8), *range(20, 30)]
        assert (summary.frames_wanted, summary.frames_decoded) == (30, 18)
    with MediaReader(DecoderLimits(max_damaged_percent=36)) as reader:
        error = failure(reader, path)
    assert (error.reason, error.frames_wanted) == ("decode_error", 30)


@pytest.mark.parametrize(
    ("num_wanted", "percent", "num_allowed"),
    [(8, 10.0, 1), (30, 10.0, 3), (31, 10.0, 4), (8, 0.0, 0), (8, 0.1, 1), (1, 10.0, 0), (2, 100.0, 1)],
)
def test_the_allowed_share_of_damaged_frames_is_rounded_up_but_never_all(
    num_wanted: int, percent: float, num_allowed: int
) -> None:
    damage = DamageBudget(range(num_wanted), percent)
    due = deque(range(num_wanted))
    damage.drop_due(due, "", before=num_allowed)
    assert damage.num_lost == num_allowed
    with pytest.raises(InputError, match=f"damaged or missing are {num_allowed + 1} of {num_wanted} wanted frames"):
        damage.drop_due(due, "", before=num_allowed + 1)


def test_one_damaged_frame_of_a_few_leaves_the_others_unless_none_may_be_damaged(tmp_path: Path, video: Path) -> None:
    path = spoil(tmp_path / "scratched.mp4", video, range(29, 30))  # the last packet
    eight = Sampling(every=4)
    with MediaReader(DecoderLimits(max_damaged_percent=0)) as reader:
        assert failure(reader, path, eight).reason == "decode_error"
    with MediaReader() as reader:
        summary = DecodeSummary()
        assert indices(list(reader.frames(path, eight, summary=summary))) == [0, 4, 8, 12, 16, 20, 24]
        assert "1 of 8 wanted frames" in summary.damage


def test_what_is_left_of_a_damaged_file_is_what_the_whole_file_shows(tmp_path: Path, video: Path) -> None:
    path = spoil(tmp_path / "damaged.mp4", video, range(12, 13))
    with MediaReader(DecoderLimits(max_damaged_percent=100)) as reader:
        whole = list(reader.frames(video, ALL))
        for sampling in (ALL, Sampling(every=3), Sampling(frames=7), Sampling(keyframes=True)):
            summary = DecodeSummary()
            left = list(reader.frames(path, sampling, summary=summary))
            assert len(left) == summary.frames_decoded > 0
            assert all((frame.rgb == whole[frame.frame_index].rgb).all() for frame in left)


def test_extra_frames_neither_count_nor_fail_the_file(reader: MediaReader, tmp_path: Path, video: Path) -> None:
    path = spoil(tmp_path / "damaged.mp4", video, range(12, 13))
    summary = DecodeSummary()
    frames = list(reader.frames(path, Sampling(every=20), [3, 15, 25, 99], summary))
    assert indices(frames) == [0, 3, 20, 25]
    assert summary == DecodeSummary(2, 2, "")


def test_a_file_of_which_every_wanted_frame_is_damaged_fails_at_any_limit(tmp_path: Path, video: Path) -> None:
    path = spoil(tmp_path / "damaged.mp4", video, range(10, 11))
    with MediaReader(DecoderLimits(max_damaged_percent=100)) as reader:
        assert failure(reader, path, Sampling(frames=1)).reason == "decode_error"  # frame 15


def test_sampling_keyframes_decodes_key_frames_only(reader: MediaReader, tmp_path: Path, video: Path) -> None:
    path = tmp_path / "only_keys.mp4"
    path.write_bytes(video.read_bytes())
    for group in (range(1, 10), range(11, 20), range(21, 30)):
        spoil(path, path, group)
    assert indices(list(reader.frames(path, Sampling(keyframes=True)))) == [0, 10, 20]
    assert failure(reader, path).reason == "decode_error"


@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])
def test_sampling_keyframes_takes_the_first_frame_where_an_edit_list_shows_no_key_frame(
    reader: MediaReader, tmp_path: Path, codec: str
) -> None:
    """As of a video that was trimmed without decoding it: it would count as one without faces."""
    frames = [numbered(index) for index in range(18)]
    whole = write_video(tmp_path / "whole.mp4", frames, codec=codec, options={"g": "20", "bf": "0"})
    path, options = tmp_path / "trimmed.mp4", {"avoid_negative_ts": "disabled"}
    with av.open(str(whole)) as source, av.open(str(path), "w", options=options) as container:
        stream = container.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.size]
        shown_from = packets[7].pts
        for packet in packets:
            packet.stream, packet.pts, packet.dts = stream, packet.pts - shown_from, packet.dts - shown_from
            container.mux(packet)
    for sampling, numbers in ((ALL, list(range(7, 18))), (Sampling(keyframes=True), [7])):
        assert [read_number(frame.rgb) for frame in reader.frames(path, sampling)] == numbers
        assert len(reader.times(path, sampling).wanted_indices) == len(numbers)


def test_a_stream_of_jpegs_is_a_video_and_a_single_one_is_a_picture(reader: MediaReader, tmp_path: Path) -> None:
    frames = [numbered(index) for index in range(5)]
    stream = write_video(tmp_path / "camera.mjpeg", frames, codec="mjpeg", pix_fmt="yuvj420p")
    assert [read_number(frame.rgb) for frame in reader.frames(stream, ALL)] == list(range(5))
    Image.fromarray(frames[3]).save(tmp_path / "single.mjpeg", "JPEG")
    assert [read_number(frame.rgb) for frame in reader.frames(tmp_path / "single.mjpeg", ALL)] == [3]
    photo = tmp_path / "photo.jpg"
    Image.fromarray(frames[4]).save(photo)
    photo.write_bytes(photo.read_bytes() * 2)  # the second as a gain map
    assert [read_number(frame.rgb) for frame in reader.frames(photo, ALL)] == [4]


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("xvid.avi", "mpeg4"),
        ("old.avi", "msmpeg4"),
        ("windows.wmv", "wmv2"),
        ("sorenson.flv", "flv"),
        ("a.3gp", "h263"),
    ],
)
def test_frames_before_the_first_key_frame_are_damaged(tmp_path: Path, name: str, codec: str) -> None:
    """As where a recording was cut within a GOP: these decoders predict the first frames from grey."""
    frames = [numbered(index, 176, 144) for index in range(30)]
    whole, path = write_video(tmp_path / f"whole_{name}", frames, codec=codec, options={"g": "10"}), tmp_path / name
    with av.open(str(whole)) as source, av.open(str(path), "w") as container:
        stream = container.add_stream_from_template(source.streams.video[0])
        for packet in [packet for packet in source.demux(video=0) if packet.size][5:]:
            packet.stream = stream
            container.mux(packet)
    with MediaReader(DecoderLimits(max_damaged_percent=50)) as reader:
        summary = DecodeSummary()
        assert [read_number(frame.rgb) for frame in reader.frames(path, ALL, summary=summary)] == list(range(10, 30))
        assert summary.damage == (
            "damaged or missing are 5 of 25 wanted frames, first frame 0: no key frame comes before it"
        )
        assert [frame.frame_index for frame in reader.frames(whole, ALL)] == list(range(30))


def test_decoders_write_nothing_to_the_terminal(capfd: pytest.CaptureFixture[str], tmp_path: Path, video: Path) -> None:
    path = spoil(tmp_path / "damaged.mp4", video, range(30))
    with MediaReader() as reader:
        failure(reader, path)
    assert capfd.readouterr() == ("", "")


def test_a_cover_picture_is_no_video(reader: MediaReader, tmp_path: Path) -> None:
    path = tmp_path / "song.mp4"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("aac", rate=16000)
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
        container.mux(cover.encode(frame))
        container.mux(cover.encode())
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 16000
        container.mux(sound.encode(silence))
        container.mux(sound.encode())
    assert failure(reader, path).reason == "audio_only"
