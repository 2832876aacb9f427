"""The sample: what someone who runs `facefeed sample DIR` finds in DIR."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from assets_docs import key_differences
from click.testing import CliRunner
from facefeed.data import recipe, render, scene
from facefeed.data.sample import PART_FOLDER, SampleReport, make_sample
from facefeed.pipeline.cli import main

CLIPS = {clip.name: clip for clip in recipe.draw_clips(0)}
PRESENT = [clip for clip in CLIPS.values() if clip.present]
READABLE = [clip for clip in PRESENT if clip.trait != "truncated"]
PAIRS = [clip for clip in PRESENT if clip.original is not None and CLIPS[clip.original].present]
ONE_OF_EACH = list({clip.people: clip for clip in READABLE}.values())
"""The last clip of every group: a fake, but for the group with nobody in it."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SampleReport:
    return make_sample(tmp_path_factory.mktemp("sample") / "set", seed=0)


@pytest.fixture(scope="module")
def part(report: SampleReport) -> Path:
    return report.path / PART_FOLDER


def frames_of(path: Path, *indices: int) -> list[np.ndarray]:
    """Frames as stored, uint8 BGR."""
    with av.open(str(path)) as container:
        frames = enumerate(container.decode(video=0))
        return [frame.to_ndarray(format="bgr24") for k, frame in frames if k in indices]


def times_of(path: Path) -> list[Fraction]:
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return [Fraction(frame.pts or 0) * (frame.time_base or 0) for frame in frames]


def named(trait: str) -> Iterator[recipe.Clip]:
    return (clip for clip in PRESENT if clip.trait == trait)


# What is in it


def test_the_sample_is_a_small_dfdc_part(report: SampleReport, part: Path) -> None:
    metadata = json.loads((part / "metadata.json").read_text())
    videos = {path.name for path in part.iterdir()} - {"metadata.json"}
    assert report.videos == len(videos) >= 24
    assert report.real + report.fake == report.videos
    assert report.size_bytes < 20e6
    assert videos < metadata.keys()
    assert [name in videos for name, entry in metadata.items() if entry.get("original", "") is None] == [True]
    for name, entry in metadata.items():
        assert re.fullmatch(r"[a-z]{10}\.(mp4|mov|mkv)", name)
        assert entry["split"] == "train"
        assert entry["label"] == ("FAKE" if entry.get("original") else "REAL")
    assert {Path(name).suffix for name in videos} == {".mp4", ".mov", ".mkv"}


def test_programs_read_one_object_whose_keys_are_documented(report: SampleReport) -> None:
    result = CliRunner().invoke(main, ["sample", str(report.path), "--json"])
    figures = json.loads(result.stdout)
    assert (figures["videos"], figures["path"], figures["already_there"]) == (report.videos, str(report.path), True)
    assert key_differences({*figures}, "A sample") == (set(), set())


def test_there_are_enough_independent_originals_for_three_splits(part: Path) -> None:
    metadata = json.loads((part / "metadata.json").read_text())
    originals = {entry["original"] for entry in metadata.values() if entry.get("original")}
    with_fakes = [name for name in originals if (part / name).exists()]
    assert len(with_fakes) >= 9
    assert not originals & {name for name, entry in metadata.items() if entry["label"] == "FAKE"}


def test_metadata_names_videos_and_an_original_that_are_not_there(part: Path) -> None:
    metadata = json.loads((part / "metadata.json").read_text())
    missing = {name: entry["label"] for name, entry in metadata.items() if not (part / name).exists()}
    assert sorted(missing.values()) == ["FAKE", "REAL", "REAL"]
    orphans = [name for name, entry in metadata.items()
               if (part / name).exists() and entry.get("original") in missing]  # fmt: skip
    assert len(orphans) == 1


def test_all_videos_but_the_broken_one_decode_whole(part: Path) -> None:
    sizes, rates = set(), set()
    for clip in READABLE:
        with av.open(str(part / clip.name)) as container:
            stream = container.streams.video[0]
            assert stream.codec_context.name == "h264"
            sizes.add((stream.width, stream.height))
            rates.add(round(float(stream.average_rate or 0), 2))
            frames = sum(1 for _ in container.decode(stream))
        assert frames == len(clip.encoding.pts)
        assert 1.9 < float(clip.encoding.pts[-1] * clip.encoding.time_base) < 4.5
    assert {(320, 240), (1280, 720)} <= sizes
    assert len(sizes) >= 6
    assert {15, 24, 25, 29.97, 30} <= rates


def test_the_broken_video_does_not_open(part: Path) -> None:
    (broken,) = named("truncated")
    assert (part / broken.name).stat().st_size > 1000
    with pytest.raises(av.error.InvalidDataError):
        av.open(str(part / broken.name))


def test_rotated_videos_are_stored_sideways_and_upright_when_the_tag_is_honoured(part: Path) -> None:
    rotated = list(named("rotated"))
    assert {clip.label for clip in rotated} == {"REAL", "FAKE"}
    for clip in rotated:
        with av.open(str(part / clip.name)) as container:
            frame = next(container.decode(video=0))
        assert (frame.width, frame.height) == clip.shot.size[::-1]
        assert frame.rotation == -90
        # The degrees count counter-clockwise, as rot90 does.
        shown = np.rot90(frame.to_ndarray(format="bgr24"), frame.rotation // 90)
        portrait = render.base_portrait(clip.people)
        upright = scene.Scene(portrait, clip.shot, seed=clip.grain_seed).frame(0, 0.0)
        assert np.abs(shown.astype(int) - upright).mean() < 12


def test_variable_frame_rate_has_odd_intervals_and_a_gap(part: Path) -> None:
    for clip in named("variable_rate"):
        intervals = np.diff(np.array(times_of(part / clip.name), float))
        assert len(set(intervals.round(4))) >= 5
        assert intervals.min() > 0
        assert intervals.max() == pytest.approx(0.4)


def test_the_empty_video_and_the_one_of_two_people_are_there() -> None:
    people = [len(clip.people) for clip in READABLE]
    assert people.count(0) == 1
    assert people.count(2) == 2


# The fakes


def hull_in_frame(clip: recipe.Clip, index: int) -> np.ndarray:
    """Where the changed face is in a frame, (height, width) bool, upright."""
    portrait = render.base_portrait(clip.people)
    scale, _ = scene._framing(portrait, clip.shot)
    camera = scene.Scene(portrait, clip.shot, seed=0).camera(float(clip.encoding.pts[index] * clip.encoding.time_base))
    hull = portrait.faces[clip.face_index].hull * scale @ camera[:, :2].T + camera[:, 2]
    mask = np.zeros(clip.shot.size[::-1], np.uint8)
    cv2.fillConvexPoly(mask, cv2.convexHull(np.rint(hull).astype(np.int32)), 1)
    return mask > 0


@pytest.mark.parametrize("fake", PAIRS, ids=lambda clip: clip.name)
def test_a_fake_differs_from_its_originals_same_frame_mainly_inside_the_face(part: Path, fake: recipe.Clip) -> None:
    original = CLIPS[fake.original or ""]
    assert times_of(part / fake.name) == times_of(part / original.name)
    indices = (3, len(fake.encoding.pts) - 4)
    pairs = zip(frames_of(part / fake.name, *indices), frames_of(part / original.name, *indices), strict=True)
    for index, (fake_frame, original_frame) in zip(indices, pairs, strict=True):
        difference = np.abs(fake_frame.astype(int) - original_frame).mean(axis=2)
        if fake.trait == "rotated":
            difference = np.rot90(difference, -1)
        face = hull_in_frame(fake, index)
        assert difference[face].mean() > 2 * difference[~face].mean()
        assert difference[face].mean() > 3
        assert difference[~face].mean() < 5


def test_every_face_is_found_by_mtcnn_where_the_recipe_put_it(part: Path) -> None:
    from facenet_pytorch import MTCNN  # noqa: PLC0415 (seconds, for this test alone)

    detector = MTCNN(keep_all=True, min_face_size=40, device="cpu")
    for clip in ONE_OF_EACH:
        middle = len(clip.encoding.pts) // 2
        (frame,) = frames_of(part / clip.name, middle)
        upright = np.ascontiguousarray((np.rot90(frame, -1) if clip.trait == "rotated" else frame)[..., ::-1])
        step = 2 if upright.shape[1] > 480 else 1  # what is large is found at half its size too, in half the time
        boxes, scores = detector.detect(np.ascontiguousarray(upright[::step, ::step]))
        scored = [] if boxes is None else zip(step * boxes, scores, strict=True)
        confident_boxes = [box for box, score in scored if score > 0.9]
        assert len(confident_boxes) == len(clip.people), clip
        if clip.people:
            ys, xs = np.nonzero(hull_in_frame(clip, middle))
            center = np.array([xs.mean(), ys.mean()])
            assert min(np.linalg.norm((box[:2] + box[2:]) / 2 - center) for box in confident_boxes) < np.ptp(ys) / 4
            assert np.ptp(ys) >= 60


# Determinism


def test_the_same_seed_gives_the_same_bytes(part: Path, tmp_path: Path) -> None:
    small = [clip for clip in PRESENT if clip.shot.size in {(320, 240), (480, 270)}]
    small += [*named("rotated"), *named("truncated"), next(clip for clip in PRESENT if clip.name.endswith("mkv"))]
    for clip in small:
        render.render_clip(clip, render.base_portrait(clip.people), tmp_path)
        assert (tmp_path / clip.name).read_bytes() == (part / clip.name).read_bytes(), clip.name


def test_another_seed_gives_other_videos_of_the_same_kinds() -> None:
    other = recipe.draw_clips(1)
    assert not {clip.name for clip in other} & CLIPS.keys()
    assert [clip.people for clip in other] == [clip.people for clip in CLIPS.values()]
    assert all(a.shot != b.shot for a, b in zip(other, CLIPS.values(), strict=True))


# More groups, for a model to learn from


def test_more_groups_add_people_and_leave_the_first_clips_as_they_are() -> None:
    clips = recipe.draw_clips(0, groups=40)
    assert clips[: len(CLIPS)] == tuple(CLIPS.values())
    further = clips[len(CLIPS) :]
    assert len(further) == 2 * (40 - 15)
    assert len({clip.people for clip in further}) == 40 - 15
    assert not {clip.people for clip in further} & {clip.people for clip in CLIPS.values()}


def test_a_fake_differs_from_its_original_by_its_manipulation_and_its_compression_alone() -> None:
    clips = {clip.name: clip for clip in recipe.draw_clips(0, groups=400)}
    pairs = [(clips[clip.original], clip) for clip in clips.values() if clip.original and clip.present]
    for original, fake in pairs:
        same = {"name", "original", "manipulation", "encoding", "face_index", "present"}
        assert {k: v for k, v in vars(fake).items() if k not in same} == {
            k: v for k, v in vars(original).items() if k not in same
        }
        assert (fake.encoding.pts, fake.encoding.time_base) == (original.encoding.pts, original.encoding.time_base)


def test_fakes_are_compressed_as_originals_are() -> None:
    clips = recipe.draw_clips(0, groups=1000)
    crf = {label: [clip.encoding.crf for clip in clips if clip.label == label] for label in ("REAL", "FAKE")}
    assert set(crf["REAL"]) == set(crf["FAKE"])
    # Three standard errors of the difference of two means over some 1,000 draws of 18 to 34.
    assert abs(np.mean(crf["REAL"]) - np.mean(crf["FAKE"])) < 3 * np.std(crf["REAL"]) * np.sqrt(2 / 1000)


@pytest.mark.parametrize("number", range(15, 19))
def test_further_people_differ_and_show_a_face_of_at_least_60_px(number: int) -> None:
    clip = recipe.draw_clips(0, groups=19)[2 * (number - 19)]
    assert np.ptp(np.nonzero(hull_in_frame(clip, 0))[0]) >= 60
