"""The folders of published datasets, in small: their real names, filled with videos of facefeed's own sample.

Two people of the sample are filmed, each with fakes; every name of a dataset is a hard link to one of these files.
Which person stands behind which name does not matter to a layout: it reads names, and never opens a video.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from assets_shared import made_once
from facefeed.data.recipe import draw_clips
from facefeed.data.render import base_portrait, render_clip

_FILMED = ((0,), (4,))
"""Of the recipe's people: the two that take least time to film as mp4."""


@dataclass(frozen=True)
class Footage:
    """Filmed once a session: paths of real videos and of fakes."""

    real: tuple[Path, ...]
    fake: tuple[Path, ...]

    def lay(self, root: Path, *, real: Iterable[str] = (), fake: Iterable[str] = ()) -> Path:
        """Puts a video below every name of a dataset; returns its root."""
        for names, videos in ((real, self.real), (fake, self.fake)):
            for number, name in enumerate(names):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(videos[number % len(videos)], root / name)
        return root


def film_footage(folder: Path) -> Footage:
    """Films the originals and fakes that all datasets are made of, once in a test run."""
    clips = [clip for clip in draw_clips(0) if clip.people in _FILMED and clip.present]

    def film(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for clip in clips:
            render_clip(clip, base_portrait(clip.people), folder)

    made_once("footage", film, folder)
    real = tuple(folder / clip.name for clip in clips if clip.original is None)
    return Footage(real=real, fake=tuple(folder / clip.name for clip in clips if clip.original is not None))


# --- FaceForensics++

PAIRS = (("033", "097"), ("035", "036"), ("044", "945"), ("000", "003"), ("720", "672"))
SPLITS = {"train": PAIRS[:3], "val": PAIRS[3:4], "test": PAIRS[4:]}
METHODS = {"Deepfakes": ("c23", "raw"), "NeuralTextures": ("c23",)}
SCENES = ("kitchen_pan", "walking_outside_cafe_disgusted")
ACTORS = ("01", "02", "03", "04")


def fakes_of(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Both directions of each pair, as the files are called."""
    return [f"{target}_{source}" for pair in pairs for target, source in (pair, pair[::-1])]


def ffpp_names() -> tuple[list[str], list[str]]:
    """Real and fake files of the small FaceForensics++, sorted; DeepFakeDetection with them."""
    numbers = [number for pair in PAIRS for number in pair]
    real = [f"original_sequences/youtube/{grade}/videos/{number}.mp4" for grade in ("c23", "raw") for number in numbers]
    real += [f"original_sequences/actors/c23/videos/{actor}__{scene}.mp4" for actor in ACTORS for scene in SCENES]
    fake = [
        f"manipulated_sequences/{method}/{grade}/videos/{name}.mp4"
        for method, grades in METHODS.items()
        for grade in grades
        for name in fakes_of(PAIRS)
    ]
    fake += [
        f"manipulated_sequences/DeepFakeDetection/c23/videos/{target}_{source}__{scene}__YVGY8LOK.mp4"
        for target, source in (("01", "02"), ("02", "01"), ("03", "04"))
        for scene in SCENES
    ]
    return sorted(real), sorted(fake)


def lay_ffpp(root: Path, footage: Footage, *, splits: bool = True) -> Path:
    """The small FaceForensics++ with masks, extracted frames and, where `splits`, the official split files."""
    real, fake = ffpp_names()
    footage.lay(root, real=real, fake=fake)
    masks = [f"manipulated_sequences/Deepfakes/masks/videos/{name}.mp4" for name in fakes_of(PAIRS)]
    footage.lay(root, fake=masks)
    frames = root / "original_sequences/youtube/c23/images/033"
    frames.mkdir(parents=True)
    for number in range(3):
        (frames / f"{number:04}.png").touch()
    if splits:
        write_splits(root / "splits", SPLITS)
    return root


def write_splits(folder: Path, splits: dict[str, tuple[tuple[str, str], ...]]) -> None:
    """{train,val,test}.json as FaceForensics++ has them."""
    folder.mkdir(exist_ok=True)
    for split, pairs in splits.items():
        (folder / f"{split}.json").write_text(json.dumps(pairs))


# --- Celeb-DF

CELEB_REAL = ("id0_0000", "id0_0001", "id1_0000", "id2_0000", "id3_0000", "id4_0000", "id5_0000")
CELEB_FAKE = ("id0_id1_0000", "id1_id0_0000", "id0_id1_0001", "id2_id3_0000", "id3_id2_0000", "id4_id5_0000")
YOUTUBE_REAL = ("00000", "00001", "00002", "00003", "00004", "00005", "00006", "00170")
CLEAN_TEST = ("Celeb-real/id4_0000.mp4", "Celeb-real/id5_0000.mp4", "Celeb-synthesis/id4_id5_0000.mp4",
              "YouTube-real/00170.mp4")  # fmt: skip
"""A test list that shares nobody with the rest; the official one is not so."""


def celebdf_names() -> tuple[list[str], list[str]]:
    """Real and fake files of the small Celeb-DF, sorted."""
    real = [f"Celeb-real/{name}.mp4" for name in CELEB_REAL] + [f"YouTube-real/{name}.mp4" for name in YOUTUBE_REAL]
    return sorted(real), sorted(f"Celeb-synthesis/{name}.mp4" for name in CELEB_FAKE)


def lay_celebdf(root: Path, footage: Footage, test: Iterable[str] | None = CLEAN_TEST) -> Path:
    """The small Celeb-DF, with its list of `test` videos unless that is None."""
    real, fake = celebdf_names()
    footage.lay(root, real=real, fake=fake)
    if test is not None:
        lines = [f"{int('synthesis' not in name)} {name}\n" for name in test]
        (root / "List_of_testing_videos.txt").write_text("".join(lines))
    return root


# --- DFDC

DFDC_PARTS = {
    "dfdc_train_part_0": {"aaa.mp4": None, "bbb.mp4": "aaa.mp4", "ccc.mp4": "aaa.mp4", "ddd.mp4": None},
    "dfdc_train_part_1": {"eee.mp4": None, "fff.mp4": "eee.mp4", "ggg.mp4": "gone.mp4"},
    "dfdc_train_part_49": {"hhh.mp4": None, "iii.mp4": "hhh.mp4", "jjj.mp4": None},
}
"""Part -> file -> its original; gone.mp4 is in no part."""


def lay_dfdc(root: Path, footage: Footage) -> Path:
    """Three of DFDC's parts, and test videos without any labels."""
    for part, files in DFDC_PARTS.items():
        real = [f"{part}/{name}" for name, original in files.items() if original is None]
        fake = [f"{part}/{name}" for name, original in files.items() if original is not None]
        footage.lay(root, real=real, fake=fake)
        metadata = {
            name: {"label": "FAKE" if original else "REAL", "split": "train", "original": original}
            for name, original in files.items()
        }
        (root / part / "metadata.json").write_text(json.dumps(metadata))
    return footage.lay(root, real=["test_videos/zzz.mp4"])


# --- class folders, and a table of the same files

FOLDERS = {
    f"{split}/{kind}/{name}.mp4": (split, kind)
    for split, names in {"train": "abcdef", "val": "gh", "test": "ij"}.items()
    for kind in ("real", "fake")
    for name in names
}
"""Path -> (split, class)."""

TABLE = {
    path: {
        "path": path, "label": kind, "split": split, "source": path.replace("fake", "real") if kind == "fake" else "",
        "identity": f"person {Path(path).stem}", "method": "swap" if kind == "fake" else "", "compression": "phone",
        "dataset": "home",
    }
    for path, (split, kind) in FOLDERS.items()
}  # fmt: skip
"""Path -> its row."""


def lay_folders(root: Path, footage: Footage) -> Path:
    """Folders by split and class."""
    real, fake = ([path for path, (_, label) in FOLDERS.items() if label == kind] for kind in ("real", "fake"))
    return footage.lay(root, real=real, fake=fake)


def write_table(path: Path, rows: Iterable[dict[str, str]]) -> Path:
    """A CSV of rows that all have the same columns."""
    listed = list(rows)
    path.write_text("\n".join(",".join(row) for row in (listed[0], *(row.values() for row in listed))) + "\n")
    return path
