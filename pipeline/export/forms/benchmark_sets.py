"""What DeepfakeBench calls sets, classes and folders (its preprocessing/rearrange.py and training/config).

A set that it does not know is called by its `dataset`, and its classes `<set>_Real`, `<set>_Fake` or `<set>_<class>`;
so are fakes of a method that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...dataset.schema import real_class
from ..naming import names_of_texts, safe_name

NO_COMPRESSION: Final = "unknown"
"""Where a set has grades of compression, but a video has none."""
_UNNAMED_SET: Final = "facefeed"
_FF: Final = "FaceForensics++"
_ACTORS: Final = re.compile(r"(?:.*/)?\d\d__[^/]*")  # an original of DeepFakeDetection: 01__kitchen_pan.mp4

DATASETS: Final[dict[str, tuple[str, ...]]] = {
    _FF: ("FF-real", "FF-DF", "FF-F2F", "FF-FS", "FF-NT"),
    "FF-DF": ("FF-real", "FF-DF"),
    "FF-F2F": ("FF-real", "FF-F2F"),
    "FF-FS": ("FF-real", "FF-FS"),
    "FF-NT": ("FF-real", "FF-NT"),
    "FaceShifter": ("FF-real", "FF-FH"),
    "DeepFakeDetection": ("DFD_real", "DFD_fake"),
    "Celeb-DF-v2": ("CelebDFv2_real", "CelebDFv2_fake"),
    "DFDCP": ("DFDCP_Real", "DFDCP_FakeA", "DFDCP_FakeB"),
    "DFDC": ("DFDC_Real", "DFDC_Fake"),
    "DeeperForensics-1.0": ("DF_real", "DF_fake"),
    "UADFV": ("UADFV_Real", "UADFV_Fake"),
}
"""Labels of each dataset JSON that DeepfakeBench knows; its own configuration maps them to 0 and 1."""

WITH_COMPRESSION: Final = frozenset({_FF, "FF-DF", "FF-F2F", "FF-FS", "FF-NT", "FaceShifter", "DeepFakeDetection"})
"""Datasets whose JSON has a level for the grade of compression."""

WITH_MASKS: Final = frozenset({"FF-DF", "FF-F2F", "FF-FS", "FF-NT", "DFD_fake"})
"""Labels whose videos list their masks in the JSON; the loader derives the paths of masks from those of frames."""

_FF_LABELS: Final = {
    "Deepfakes": "FF-DF", "Face2Face": "FF-F2F", "FaceSwap": "FF-FS", "NeuralTextures": "FF-NT",
    "FaceShifter": "FF-FH", "DeepFakeDetection": "DFD_fake",
}  # fmt: skip

_NAME_GROUPS: Final = {"DF_fake": "DeeperForensics-1.0/manipulated_videos", "CelebDFv2_real": "Celeb-DF-v2/real"}
"""Of labels whose videos lie in several folders, and that the JSON does not keep apart."""


@dataclass(frozen=True, slots=True)
class Video:
    """What decides where a video stands.

    `label`: name of its class. `grade`: name of its grade of compression, as `clean_name` makes it, or
    `NO_COMPRESSION`.
    """

    video_id: str
    split: str
    label: str
    dataset: str | None
    method: str | None
    grade: str = NO_COMPRESSION


@dataclass(frozen=True, slots=True)
class Place:
    """Label of a video, the folder of its class below `datasets/rgb`, and the value of the label (0: real).

    `name_group`: within it, names of videos are unique: all of the folder, and all that have one key in the JSON.
    `own_set`: what the video's set is called for what DeepfakeBench does not know of it.
    """

    label: str
    number: int
    folder: str
    name_group: str
    own_set: str


def places_of(videos: Sequence[Video], classes: Sequence[str]) -> list[Place]:
    """Where DeepfakeBench has a video of its sets; a place of its own for one of any other set.

    `classes`: names of all classes of the dataset, by number.
    """
    numbers = _numbers_of(classes)
    sets = names_of_texts(dict.fromkeys(video.dataset or _UNNAMED_SET for video in videos), _clean_set)
    names = names_of_texts(dict.fromkeys(video.label for video in videos), _clean_class)
    folders = [f"{sets[video.dataset or _UNNAMED_SET]}/{names[video.label]}" for video in videos]
    labels = names_of_texts(folders, lambda folder: folder.replace("/", "_"))  # a_b/c and a/b_c: not one label
    return [_place_of(video, folder, labels, numbers) for video, folder in zip(videos, folders, strict=True)]


def _numbers_of(classes: Sequence[str]) -> dict[str, int]:
    """The number of each class: DeepfakeBench takes 0 for real, and has 1 for the fakes of its own sets.

    Where no class is known to be real, they keep their numbers.

    >>> _numbers_of(["replay", "original", "fake"]), _numbers_of(["fake", "live"])
    ({'original': 0, 'fake': 1, 'replay': 2}, {'fake': 0, 'live': 1})
    """
    real = real_class(classes)
    first = [] if real is None else [classes[real], *(name for name in classes if name == "fake")]
    return {name: number for number, name in enumerate(dict.fromkeys([*first, *classes]))}


def clean_name(text: str) -> str:
    """A safe name in a path of DeepfakeBench, whose loader replaces each "frames" in it by "masks" or "landmarks"."""
    return safe_name(text).replace("frames", "Frames")


def _clean_set(text: str) -> str:
    name = clean_name(text)
    return f"{name}_" if name in DATASETS else name


def _clean_class(text: str) -> str:
    return {"real": "Real", "fake": "Fake"}.get(text) or clean_name(text)


def _place_of(video: Video, folder: str, labels: Mapping[str, str], numbers: Mapping[str, int]) -> Place:
    is_fake = {"real": False, "fake": True}.get(video.label)
    # Not where it has another number in this dataset, none of whose classes is known to be real.
    known = None if is_fake is None or numbers[video.label] != is_fake else _known_place(video, is_fake=is_fake)
    own_set = folder.partition("/")[0]
    if known:
        label, known_folder = known
        return Place(label, int(bool(is_fake)), known_folder, _NAME_GROUPS.get(label, known_folder), own_set)
    label = labels[folder]
    return Place(label, numbers[video.label], f"{own_set}/{label}", own_set, own_set)


_Known = tuple[str, str] | None  # label and folder


def _known_place(video: Video, *, is_fake: bool) -> _Known:
    """Label and folder in a set of DeepfakeBench's, None for any other set or method."""
    place = _PLACES.get(video.dataset or "")
    return place(video, is_fake) if place else None


def _ffpp(video: Video, is_fake: bool) -> _Known:
    if is_fake:
        label = _FF_LABELS.get(video.method or "")
        return (label, f"{_FF}/manipulated_sequences/{video.method}/{video.grade}") if label else None
    if _ACTORS.fullmatch(video.video_id):
        return "DFD_real", f"{_FF}/original_sequences/actors/{video.grade}"
    return "FF-real", f"{_FF}/original_sequences/youtube/{video.grade}"


def _celebdf(video: Video, is_fake: bool) -> _Known:
    if video.method:  # Celeb-DF++
        return None
    if is_fake:
        return "CelebDFv2_fake", "Celeb-DF-v2/Celeb-synthesis"
    folder = "YouTube-real" if "youtube-real" in video.video_id.lower() else "Celeb-real"
    return "CelebDFv2_real", f"Celeb-DF-v2/{folder}"


def _dfdc(video: Video, is_fake: bool) -> _Known:
    return ("DFDC_Fake" if is_fake else "DFDC_Real"), f"DFDC/{video.split}"


def _dfdcp(video: Video, is_fake: bool) -> _Known:
    if not is_fake:
        return "DFDCP_Real", "DFDCP/original_videos"
    labels = {"method_A": "DFDCP_FakeA", "method_B": "DFDCP_FakeB"}
    return (labels[video.method], f"DFDCP/{video.method}") if video.method in labels else None


def _deeperforensics(video: Video, is_fake: bool) -> _Known:
    if is_fake:
        return "DF_fake", f"DeeperForensics-1.0/manipulated_videos/{clean_name(video.method or 'end_to_end')}"
    return "DF_real", "DeeperForensics-1.0/source_videos"


def _uadfv(video: Video, is_fake: bool) -> _Known:  # noqa: ARG001 (the signature of all of these)
    return ("UADFV_Fake", "UADFV/fake") if is_fake else ("UADFV_Real", "UADFV/real")


_PLACES: Final[dict[str, Callable[[Video, bool], _Known]]] = {
    "ffpp": _ffpp, "celebdf": _celebdf, "dfdc": _dfdc, "dfdcp": _dfdcp, "deeperforensics": _deeperforensics,
    "uadfv": _uadfv,
}  # fmt: skip
