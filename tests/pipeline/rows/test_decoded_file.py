"""Whether what was decoded is what was planned: the mtime and the hash that an outcome records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from facefeed.pipeline.planning.content_hash import content_sha256
from facefeed.pipeline.rows.decoded_file import MTIME_OF_CHANGED_FILE, DecodedFile
from facefeed.pipeline.sources import Entry, FoundFile, find_media


def listed(root: Path) -> Entry:
    """The one input of a folder: a video, or a folder of images."""
    (file,) = find_media(root, Counter())
    return Entry.of_file(file)


def recorded(root: Path, entry: Entry, meanwhile: Callable[[], object] = lambda: None) -> tuple[int, str | None]:
    file = DecodedFile(entry, root / entry.video_id, [root], exists=True)
    meanwhile()
    return file.mtime_ns(), file.sha256(lambda: False)


@pytest.fixture
def video(tmp_path: Path) -> Path:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"content")
    os.utime(path, ns=(1000, 1000))
    return path


def test_a_video_that_stays_has_its_time_and_its_hash(video: Path) -> None:
    assert recorded(video.parent, listed(video.parent)) == (1000, content_sha256(video))


def test_one_that_is_replaced_and_put_back_meanwhile_has_the_time_of_no_file(video: Path) -> None:
    def replace_and_put_back() -> None:
        video.rename(video.with_suffix(".other"))
        video.write_bytes(b"other")
        video.with_suffix(".other").rename(video)

    assert recorded(video.parent, listed(video.parent), replace_and_put_back) == (MTIME_OF_CHANGED_FILE, None)


def test_one_that_is_not_there_has_the_time_that_was_planned(video: Path) -> None:
    entry = listed(video.parent)
    video.unlink()
    assert recorded(video.parent, entry) == (1000, None)


def test_a_clip_that_got_an_older_image_after_it_was_planned_has_the_time_of_no_file(tmp_path: Path) -> None:
    clip = tmp_path / "clip"
    clip.mkdir()
    for name, time_ns in (("1.png", 1000), ("2.png", 2000)):
        (clip / name).write_bytes(b"image")
        os.utime(clip / name, ns=(time_ns, time_ns))
    found = FoundFile.of_frames("clip", [("1.png", 5, 1000), ("2.png", 5, 2000)])
    assert recorded(tmp_path, Entry.of_file(found)) == (2000, content_sha256(clip))
    os.utime(clip / "1.png", ns=(900, 900))
    assert recorded(tmp_path, Entry.of_file(found))[0] == MTIME_OF_CHANGED_FILE
