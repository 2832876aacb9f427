"""A folder of images is read as one clip: its order, times and sampling, its damage, and what it may not reach."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from assets_clips import truncate, write_clip, write_image
from assets_video import FAULTY_CHILD, read_number
from facefeed.pipeline.errors import InputError, UsageError
from facefeed.pipeline.video import DecoderLimits, DecodeSummary, Frame, MediaReader, Sampling
from facefeed.pipeline.video.image_folder import frame_numbers, in_frame_order, list_frames

ALL = Sampling(every=1)


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    with MediaReader() as reader:
        yield reader


def shown(frames: list[Frame]) -> list[int]:
    return [read_number(frame.rgb) for frame in frames]


def failure(reader: MediaReader, path: Path, sampling: Sampling = ALL) -> InputError:
    with pytest.raises(InputError) as caught:
        list(reader.frames(path, sampling))
    return caught.value


@pytest.mark.parametrize(
    "names",
    [
        ["frame1.png", "frame2.png", "frame10.png"],
        ["0001.png", "2.jpg", "0010.png"],
        ["b_1.png", "a_2.png", "c_10.png"],  # numbers come before what is in front of them
        ["9_0.png", "9_1.png", "10_0.png"],  # frame and face: the last numbers are not all different
        ["IMG_2.png", "IMG_2b.png", "IMG_10.png", "cover.png"],
        ["1.jpg", "1.png", "2.jpg"],
        ["0001_0.9512.png", "0002_0.9834.png", "0003_0.9121.png"],  # scores
        ["clip_0.5.png", "clip_0.15.png", "clip_0.25.png"],
        ["0.png", "0.5.png", "1.png", "1.25.png", "1.5.png", "10.png"],
        ["clip_0.9.png", "clip_0.10.png"],
        ["scene1.9.png", "scene1.10.png", "scene2.1.png"],
    ],
)
def test_frames_are_in_the_order_of_their_numbers_else_in_natural_order(names: list[str]) -> None:
    assert in_frame_order(names[::-1]) == in_frame_order(sorted(names)) == names


def test_numbers_count_only_where_every_name_has_one_of_its_own() -> None:
    assert frame_numbers(["frame_7.png", "frame_0008.png"]) == [7, 8]
    assert frame_numbers(["7.png", "7.jpg"]) is None
    assert frame_numbers(["7.png", "cover.png"]) is None
    assert frame_numbers([f"{1 << 63}.png"]) is None, "a number that no column of numbers holds"


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["frame_0012.png", "frame_0120.png"], [12, 120]),
        (["id0_id1_0003_9.png", "id0_id1_0003_120.png"], [9, 120]),
        (["left.png", "right.png"], [-1, -1]),
        (["9_0.png", "10_0.png"], [-1, -1]),
        (["t_1.80.png", "t_2.05.png"], [-1, -1]),
        (["clip_0.5.png", "clip_0.15.png"], [5, 15]),
        (["img.1.png", "img2.2.png"], [1, 2]),
        (["0001_0.9834.png", "0002_0.9512.png"], [-1, -1]),
        (["clip_0.9.png", "clip_0.10.png"], [9, 10]),
        (["scene2.0012.png", "scene2.0120.png"], [12, 120]),
        ([f"{(1 << 63) - 1}.png"], [(1 << 63) - 1]),
    ],
)
def test_frames_have_the_numbers_that_their_names_end_in(
    reader: MediaReader, tmp_path: Path, names: list[str], numbers: list[int]
) -> None:
    for name in names:
        write_image(tmp_path / name, 0)
    assert [frame.frame_number for frame in reader.frames(tmp_path, Sampling(frames=2))] == numbers


def test_a_folder_of_images_is_read_like_a_video(reader: MediaReader, tmp_path: Path) -> None:
    summary = DecodeSummary()
    frames = list(reader.frames(write_clip(tmp_path, range(12)), ALL, summary=summary))
    assert shown(frames) == [frame.frame_index for frame in frames] == list(range(12))
    assert summary == DecodeSummary(12, 12, "")


@pytest.mark.parametrize(
    ("sampling", "wanted"),
    [
        (Sampling.default(), list(range(12))),
        (Sampling(every=10), [0, 10]),
        (Sampling(frames=3), [2, 6, 10]),
        (Sampling(keyframes=True), list(range(12))),
        (Sampling(fps=5, fps_of_images=25), [0, 5, 10]),
    ],
    ids=["default", "every", "frames", "keyframes", "fps"],
)
def test_what_is_taken_of_a_clip_of_images(
    reader: MediaReader, tmp_path: Path, sampling: Sampling, wanted: list[int]
) -> None:
    folder = write_clip(tmp_path, range(12))
    assert shown(list(reader.frames(folder, sampling))) == wanted
    assert reader.times(folder, sampling).wanted_indices.tolist() == wanted


def test_images_count_seconds_unless_their_rate_is_given_and_then_missing_ones_leave_a_gap(
    reader: MediaReader, tmp_path: Path
) -> None:
    folder = write_clip(tmp_path, (5, 10, 25))
    assert [frame.pts_seconds for frame in reader.frames(folder, ALL)] == [0, 1, 2]
    at_rate = Sampling(every=1, fps_of_images=8)
    assert [frame.pts_seconds for frame in reader.frames(folder, at_rate)] == [0, 0.125, 0.5]
    unknown, known = reader.times(folder, ALL), reader.times(folder, at_rate)
    assert (unknown.is_timed, known.is_timed) == (False, True)
    assert known.pts_seconds.tolist() == [0, 0.125, 0.5]
    assert known.numbers is not None
    assert known.numbers.tolist() == [5, 10, 25]


def test_a_rate_of_images_must_be_one() -> None:
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match=r"fps_of_images=.*must be a finite number above 0; try 25"):
            Sampling(every=1, fps_of_images=value)


def test_frames_of_several_sizes_keep_theirs(reader: MediaReader, tmp_path: Path) -> None:
    write_image(tmp_path / "1.png", 1, 160, 120)
    write_image(tmp_path / "2.png", 2, 320, 64)
    frames = list(reader.frames(tmp_path, ALL))
    assert [(frame.width, frame.height) for frame in frames] == [(160, 120), (320, 64)]
    assert shown(frames) == [1, 2]
    info = reader.probe(tmp_path)
    assert (info.width, info.height, info.num_frames, info.is_image) == (160, 120, 2, False)


def test_a_broken_image_is_a_damaged_frame(tmp_path: Path) -> None:
    folder = write_clip(tmp_path, range(20))
    truncate(folder / "frame_3.png")
    (folder / "frame_7.png").write_text("no picture")
    with MediaReader() as reader:
        summary = DecodeSummary()
        frames = list(reader.frames(folder, ALL, summary=summary))
        assert shown(frames) == [frame.frame_index for frame in frames] == [n for n in range(20) if n not in (3, 7)]
        assert (summary.frames_wanted, summary.frames_decoded) == (20, 18)
        assert "2 of 20 wanted frames, first frame 3: frame_3.png (truncated" in summary.damage
    with MediaReader(DecoderLimits(max_damaged_percent=5)) as reader:
        error = failure(reader, folder)
    assert (error.reason, error.frames_wanted, error.frames_decoded) == ("decode_error", 20, 6)


def test_extra_images_that_are_broken_or_missing_are_skipped(reader: MediaReader, tmp_path: Path) -> None:
    folder = write_clip(tmp_path, range(10))
    truncate(folder / "frame_4.png")
    summary = DecodeSummary()
    frames = list(reader.frames(folder, Sampling(frames=2), [3, 4, 99], summary))
    assert shown(frames) == [2, 3, 7]
    assert summary == DecodeSummary(2, 2, "")


def test_an_image_that_is_a_bomb_costs_one_frame(tmp_path: Path) -> None:
    folder = write_clip(tmp_path, range(10))
    write_image(folder / "frame_5.png", 5, 800, 400)
    with MediaReader(DecoderLimits(max_pixels=160 * 120)) as reader:
        summary = DecodeSummary()
        assert shown(list(reader.frames(folder, ALL, summary=summary))) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert "too_large" in summary.damage


def test_a_clip_whose_disk_fails_is_unreadable_and_not_damaged(reader: MediaReader, tmp_path: Path) -> None:
    folder = write_clip(tmp_path, range(10))
    (folder / "frame_5.png").unlink()
    os.mkfifo(folder / "frame_5.png")  # whoever waits for a writer waits for ever
    error = failure(reader, folder)
    assert (error.reason, error.detail) == ("unreadable", "frame_5.png: it is not a regular file")


def test_a_folder_without_images_is_no_clip(reader: MediaReader, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "inner").mkdir()
    write_clip(tmp_path / "inner")
    write_image(tmp_path / ".hidden.png", 1)
    for read in (reader.probe, lambda path: reader.times(path, ALL), lambda path: list(reader.frames(path, ALL))):
        with pytest.raises(InputError, match="unreadable: it is a directory, and no image is in it"):
            read(tmp_path)


def test_links_are_followed_into_allowed_folders_alone(tmp_path: Path) -> None:
    outside = write_clip(tmp_path / "outside", range(6))
    folder = write_clip(tmp_path / "src/clip", range(3))
    (folder / "frame_3.png").symlink_to(outside / "frame_3.png")
    (folder / "frame_4.png").symlink_to(tmp_path / "nowhere.png")
    (folder / "frame_5.png").symlink_to(folder / "frame_1.png")
    (folder / "frame_6.png").symlink_to(outside)
    with MediaReader() as reader:
        assert shown(list(reader.frames(folder, ALL))) == [0, 1, 2, 1]
    with MediaReader(roots=[folder, outside]) as reader:
        assert shown(list(reader.frames(folder, ALL))) == [0, 1, 2, 3, 1]
    assert list_frames(folder, [outside])[3] == "frame_3.png"


def test_a_clip_that_hangs_its_decoder_is_given_up(tmp_path: Path) -> None:
    folder = write_clip(tmp_path, range(3))
    (folder / "frame_1.png").rename(folder / "hang_1.png")
    limits = DecoderLimits(deadline_seconds=3.0, command=(sys.executable, "-P", "-c", FAULTY_CHILD))
    with MediaReader(limits) as reader:
        error = failure(reader, folder)
        assert (error.reason, error.frames_wanted, error.frames_decoded) == ("timeout", 3, 1)
        assert shown(list(reader.frames(folder / "frame_2.png", ALL))) == [2], "and the next file gets a new one"
