"""Extracted frames whose set gives masks as images: `.../masks/<clip>/<number>.png` beside `.../frames/<clip>/`."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from assets_clips import truncate
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.image_codec import decode_mask
from facefeed.pipeline.dataset.manifest import InputOutcome
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.sources import Entry, Listing, find_media
from facefeed.pipeline.video import Sampling
from numpy.typing import NDArray
from PIL import Image

DETECTOR = FixedBoxDetector(((0.2, 0.2, 0.8, 0.8),))
REAL = "original_sequences/youtube/c23/frames/033"
FAKE = "manipulated_sequences/Deepfakes/c23/frames/033_097"
MASK = "manipulated_sequences/Deepfakes/c23/masks/033_097"
NUMBERS = (0, 9, 18, 30, 120)
OPTIONS = Options(sampling=Sampling.default(), keep=FaceFilter(min_face_px=8), size_px=64)


def scene(number: int) -> NDArray[np.uint8]:
    """(96, 128, 3): another picture for every number."""
    coarse = np.random.default_rng(number).integers(0, 256, (4, 6, 3), np.uint8)
    return np.asarray(cv2.resize(coarse, (128, 96), interpolation=cv2.INTER_CUBIC), np.uint8)


def marked(number: int) -> NDArray[np.uint8]:
    """(96, 128): white as wide as the number is large, else black."""
    mask = np.zeros((96, 128), np.uint8)
    mask[:, 32 : 40 + number // 3] = 255
    return mask


def write(folder: Path, numbers: Iterable[int], draw: Callable[[int], NDArray[Any]], name: str = "{:03}.png") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        Image.fromarray(draw(number)).save(folder / name.format(number))
    return folder


@pytest.fixture
def ffpp(tmp_path: Path) -> Path:
    """An original, a fake that differs from it nowhere, and masks that say otherwise."""
    root = tmp_path / "set"
    for folder, draw in ((REAL, scene), (FAKE, scene), (MASK, marked)):
        write(root / folder, NUMBERS, draw)
    return root


def listed(src: Path, **given: Any) -> Listing:
    settings = {"options": OPTIONS, "detector": DETECTOR, "allow_unlabelled": True, **given}
    return prepare_job(src, src.parent / "out", **settings)[1]


def run(src: Path, **options: Any) -> tuple[dict[str, InputOutcome], dict[str, dict[int, dict[str, Any]]]]:
    """Outcomes by input, and its rows by the numbers of their frames."""
    job, listing, _ = prepare_job(src, src.parent / "out", options=Options(**{**vars_of(OPTIONS), **options}),
                                  detector=DETECTOR)  # fmt: skip
    make_folders(job.paths)
    worker = UnitWorker(job)
    entries = sorted(listing.entries, key=lambda entry: entry.source_id is not None)
    receipt = worker.run(Unit.make(entries, "train", config_hash=job.config_hash, salt="0"))
    worker.close()
    rows = pq.read_table(job.out / str(receipt.file)).to_pylist()
    outcomes = {outcome.video_id: outcome for outcome in receipt.inputs}
    return outcomes, {name: {row["frame_number"]: row for row in rows if row["video_id"] == name} for name in outcomes}


def vars_of(options: Options) -> dict[str, Any]:
    return {"sampling": options.sampling, "keep": options.keep, "size_px": options.size_px}


def shares(rows: dict[int, dict[str, Any]]) -> dict[int, float | None]:
    return {number: row["manipulated"] for number, row in rows.items()}


def true_share(row: dict[str, Any]) -> float:
    """Share of a row's crop that `marked` marks."""
    left, top, right, bottom = (round(value) for value in row["crop_xyxy"])
    inside = marked(row["frame_number"])[max(top, 0) : bottom, max(left, 0) : right]
    return float((inside > 0).sum()) / ((right - left) * (bottom - top))


def has_own_masks(rows: dict[int, dict[str, Any]]) -> bool:
    """Whether each row that has a mask has that of its own number."""
    return all(row["manipulated"] == pytest.approx(true_share(row), abs=0.02) for row in rows.values() if row["mask"])


def test_each_frame_has_the_mask_of_its_number(ffpp: Path) -> None:
    outcomes, rows = run(ffpp)
    assert list(rows[FAKE]) == list(NUMBERS)
    assert has_own_masks(rows[FAKE])
    for row in rows[FAKE].values():
        assert decode_mask(row["mask"]).mean() == pytest.approx(row["manipulated"], abs=1e-6) != 0
    assert {row["mask"] for row in rows[REAL].values()} == {None}
    assert (outcomes[FAKE].faces_with_own_mask, outcomes[FAKE].faces_without_mask) == (5, 0)
    assert outcomes[FAKE].own_mask_problem is None


def test_masks_that_are_missing_are_counted_and_the_others_keep_their_frames(ffpp: Path) -> None:
    for number in (0, 18):
        (ffpp / MASK / f"{number:03}.png").unlink()
    outcomes, rows = run(ffpp)
    assert [number for number, share in shares(rows[FAKE]).items() if share is None] == [0, 18]
    assert has_own_masks(rows[FAKE])
    assert (outcomes[FAKE].faces_with_own_mask, outcomes[FAKE].faces_without_mask) == (3, 2)
    assert outcomes[FAKE].own_mask_problem == "missing_frames: 2 of 5 sampled frames; the first has the number 0"


def test_masks_of_frames_that_are_not_there_do_no_harm(ffpp: Path) -> None:
    write(ffpp / MASK, (1, 2, 500), marked)
    (ffpp / FAKE / "009.png").unlink()
    outcomes, rows = run(ffpp, sampling=Sampling(frames=2))
    assert list(rows[FAKE]) == [18, 120]
    assert has_own_masks(rows[FAKE])
    assert None not in shares(rows[FAKE]).values()
    assert outcomes[FAKE].own_mask_problem is None


@pytest.mark.parametrize("number", [0, 30])
def test_a_mask_that_cannot_be_decoded_costs_its_own_frame_alone(ffpp: Path, number: int) -> None:
    truncate(ffpp / MASK / f"{number:03}.png")
    outcomes, rows = run(ffpp)
    assert [missing for missing, share in shares(rows[FAKE]).items() if share is None] == [number]
    problem = "decode_error: damaged or missing are 1 of 5 wanted frames, first "
    assert str(outcomes[FAKE].own_mask_problem).startswith(problem)
    assert f"{number:03}.png" in str(outcomes[FAKE].own_mask_problem)
    assert outcomes[FAKE].outcome == "ok"


def spoil_two(folder: Path) -> None:
    for number in (9, 30):
        truncate(folder / f"{number:03}.png")


def spoil_all(folder: Path) -> None:
    for path in folder.iterdir():
        truncate(path)


def rename_all(folder: Path) -> None:
    for number in NUMBERS:
        (folder / f"{number:03}.png").rename(folder / f"{1000 + number}.png")


def redraw(draw: Callable[[int], NDArray[Any]]) -> Callable[[Path], object]:
    return lambda folder: write(folder, NUMBERS, draw)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (spoil_two, "decode_error: damaged or missing are 2 of 5 wanted frames"),
        (spoil_all, "truncated: 000.png: png: image file is truncated"),
        (rename_all, "missing_frames: 5 of 5 sampled frames; the first has the number 0"),
        (redraw(lambda number: np.hstack([marked(number)] * 2)), "other_shape: 256 x 96 px for 128 x 96 px"),
        (redraw(lambda number: marked(number) // 255), "too_dark: its brightest value is 1 of 255"),
        (redraw(lambda number: np.zeros_like(marked(number))), "too_dark: its brightest value is 0 of 255"),
        (redraw(lambda number: marked(number).astype(np.uint16)), "too_dark: its brightest value is 0 of 255"),
    ],
    ids=["damaged", "all damaged", "other numbers", "other shape", "0 and 1", "black", "16 bit, 0 and 255"],
)
def test_masks_of_which_none_can_be_used_are_counted_and_the_fake_is_compared(
    ffpp: Path, spoil: Callable[[Path], object], problem: str
) -> None:
    spoil(ffpp / MASK)
    outcomes, rows = run(ffpp)
    assert str(outcomes[FAKE].own_mask_problem).startswith(problem)
    assert set(shares(rows[FAKE]).values()) == {0.0}
    assert (outcomes[FAKE].faces_with_own_mask, outcomes[FAKE].faces_without_mask) == (0, 0)


def test_single_masks_of_another_shape_are_counted(ffpp: Path) -> None:
    Image.fromarray(marked(9)[:48]).save(ffpp / MASK / "009.png")
    outcomes, rows = run(ffpp)
    assert [number for number, share in shares(rows[FAKE]).items() if share is None] == [9]
    assert outcomes[FAKE].own_mask_problem == "other_shape: 1 frame with faces"


def palette(number: int) -> Image.Image:
    image = Image.fromarray(marked(number) // 255, "P")
    image.putpalette([0, 0, 0, 128, 0, 0])
    return image


@pytest.mark.parametrize(
    "draw",
    [
        lambda number: Image.fromarray(marked(number)).resize((64, 48)),
        lambda number: Image.fromarray(marked(number).astype(np.uint16) * 257),
        lambda number: Image.fromarray(marked(number)).convert("1"),
        lambda number: Image.merge("LA", [Image.fromarray(marked(number))] * 2),
        palette,
    ],
    ids=["half the size", "16 bit", "1 bit", "alpha", "palette"],
)
def test_masks_may_be_any_kind_of_image(ffpp: Path, draw: Callable[[int], Image.Image]) -> None:
    for number in NUMBERS:
        draw(number).save(ffpp / MASK / f"{number:03}.png")
    outcomes, rows = run(ffpp)
    assert outcomes[FAKE].own_mask_problem is None
    assert has_own_masks(rows[FAKE])
    assert None not in shares(rows[FAKE]).values()


# ---- which folders are masks


def masks_of(listing: Listing) -> dict[str, str | None]:
    return {entry.video_id: entry.mask_id for entry in listing.entries}


@pytest.mark.parametrize("kind", ["frames", "images"])
@pytest.mark.parametrize("masks", ["c23/masks/033_097", "masks/033_097", "masks/{kind}/033_097"])
def test_of_faceforensics_masks_lie_beside_the_frames_or_once_for_all_grades(ffpp: Path, masks: str, kind: str) -> None:
    fake, mask = FAKE.replace("frames", kind), f"manipulated_sequences/Deepfakes/{masks.format(kind=kind)}"
    (ffpp / FAKE).parent.rename((ffpp / fake).parent)
    (ffpp / MASK).rename(ffpp / "aside")
    (ffpp / mask).parent.mkdir(parents=True, exist_ok=True)
    (ffpp / "aside").rename(ffpp / mask)
    listing = listed(ffpp)
    assert masks_of(listing) == {REAL: None, fake: mask}
    assert listing.ignored == {}
    (entry,) = (entry for entry in listing.entries if entry.mask_id)
    assert entry.mask_size_bytes == sum(path.stat().st_size for path in (ffpp / mask).iterdir())


@pytest.mark.parametrize(
    ("frames", "masks"),
    [
        ("fake/frames/a", "fake/masks/a"),
        ("fake/a/frames", "fake/a/masks"),
        ("frames/fake/a", "masks/fake/a"),
        ("fake/a/images", "fake/a/Masks"),
        ("fake/frames/a", "fake/mask/a"),
        ("fake/a/frames", "fake/a/mask_videos"),
    ],
)
def test_in_folders_of_one_s_own_masks_lie_beside_the_frames_too(tmp_path: Path, frames: str, masks: str) -> None:
    src = tmp_path / "src"
    write(src / "real/frames/a", range(3), scene)
    write(src / frames, range(3), scene)
    write(src / masks, range(3), marked)
    write(src / "real/masks/a", range(2), marked)
    listing = listed(src)
    assert masks_of(listing) == {"real/frames/a": None, frames: masks}
    assert listing.ignored == {"in masks/": 2}


@pytest.mark.parametrize("name", ["masks", "mask", "Mask", "mask_videos", "Masks_Videos"])
def test_a_folder_of_masks_is_never_an_input(tmp_path: Path, name: str) -> None:
    src = tmp_path / "src"
    write(src / "fake/a", range(3), scene)
    write(src / f"fake/{name}/a", range(3), marked)
    write(src / f"{name}/a", range(4), marked)
    listing = listed(src)
    assert masks_of(listing) == {"fake/a": None}
    assert listing.ignored == {f"in {name.lower()}/": 7}
    shutil.rmtree(src / "fake/a")
    with pytest.raises(UsageError, match=f"holds no video and no image but 7 in {name.lower()}/"):
        listed(src)


def test_a_layout_that_lists_everything_gets_masks_in_place_of_inputs(ffpp: Path) -> None:
    class Everything:
        name, needs = "everything", "a folder"

        def fits(self, src: Path) -> bool:
            return src.is_dir()

        def read(self, src: Path, allowed: Sequence[Path]) -> Listing:
            files = list(find_media(src, Counter(), allowed=allowed))
            entries = [Entry.of_file(file, label=int("manipulated" in file.relative)) for file in files]
            return Listing(layout=self.name, root=src, labels=("real", "fake"), entries=entries)

    assert masks_of(listed(ffpp, layout=Everything())) == {REAL: None, FAKE: MASK}


def test_masks_behind_a_link_count_where_their_folder_is_allowed(ffpp: Path, tmp_path: Path) -> None:
    (ffpp / MASK).rename(tmp_path / "elsewhere")
    (ffpp / MASK).symlink_to(tmp_path / "elsewhere")
    (allowed,) = (entry for entry in listed(ffpp, allow_roots=[tmp_path / "elsewhere"]).entries if entry.mask_id)
    assert (allowed.mask_id, allowed.mask_size_bytes > 0) == (MASK, True)
    outcomes, _ = run(ffpp)
    assert str(outcomes[FAKE].own_mask_problem).startswith("outside_root")


def test_with_masks_source_no_folder_of_masks_is_used(ffpp: Path) -> None:
    assert masks_of(listed(ffpp, options=Options(masks="source"))) == {REAL: None, FAKE: None}


def table(src: Path, *rows: str) -> Path:
    (src / "list.csv").write_text("\n".join(["path,label,source,mask", *rows]) + "\n")
    return src / "list.csv"


def make_folders_of_a_table(src: Path, names: Sequence[str] = ("a", "b", "marks")) -> None:
    for name in names:
        write(src / name, range(3), marked if name == "marks" else scene)


def test_a_table_names_folders_of_masks(tmp_path: Path) -> None:
    make_folders_of_a_table(tmp_path / "src")
    (tmp_path / "src/empty").mkdir()
    src = table(tmp_path / "src", "a,real,,", "b,fake,a,marks")
    outcomes, rows = run(src)
    assert outcomes["b"].faces_with_own_mask == 3
    assert has_own_masks(rows["b"])
    assert listed(table(tmp_path / "src", "a,real,,", "b,fake,a,empty")).missing == ["empty"]


@pytest.mark.parametrize("real", ["real", "original"])
def test_a_mask_of_a_real_clip_is_not_used_and_that_is_said(tmp_path: Path, real: str) -> None:
    make_folders_of_a_table(tmp_path / "src")
    listing = listed(table(tmp_path / "src", f"a,{real},,marks", "b,fake,a,"))
    assert masks_of(listing) == {"a": None, "b": None}
    assert [text for text in listing.warnings if f"1 input of the class {real} with a mask" in text]


def test_a_table_with_a_mask_as_an_input_is_refused(tmp_path: Path) -> None:
    make_folders_of_a_table(tmp_path / "src")
    with pytest.raises(UsageError, match="names 'marks' as a path and as a mask"):
        listed(table(tmp_path / "src", "a,real,,", "b,fake,a,marks", "marks,fake,,"))
