"""Trees of published sets as they are shared: names as published, every file a hard link to a film of the sample.

Each tree is given by rows: a file, and the columns that its name and the set's own lists say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assets_layouts import Footage


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What a layout is to say of a file."""

    label: int
    split: str | None = None
    source_id: str | None = None
    identity: str | None = None
    related: tuple[str, ...] = ()
    method: str | None = None
    compression: str | None = None
    fake_segments: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedSet:
    """A tree, the name of its layout, and what a listing of it says."""

    layout: str
    folder: str
    files: Mapping[str, Columns]
    texts: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)

    def lay(self, root: Path, footage: Footage) -> Path:
        """Lays the tree below `root`; returns its folder."""
        src = root / self.folder
        footage.lay(
            src,
            real=[name for name, columns in self.files.items() if columns.label != 1],
            fake=[name for name, columns in self.files.items() if columns.label == 1],
        )
        for name, text in self.texts.items():
            (src / name).parent.mkdir(parents=True, exist_ok=True)
            (src / name).write_text(text, encoding="utf-8")
        return src


def _kaggle(spell: Callable[[str], str]) -> dict[str, Columns]:
    swap = {"label": 1, "compression": "c23"}
    source = f"{spell('original')}/033.mp4"
    return {
        f"{spell('original')}/033.mp4": Columns(label=0, identity="youtube/033", compression="c23"),
        f"{spell('original')}/097.mp4": Columns(label=0, identity="youtube/097", compression="c23"),
        **{
            f"{spell(method)}/033_097.mp4": Columns(
                **swap, source_id=source, identity="youtube/097", related=("youtube/033",), method=method
            )
            for method in ("Deepfakes", "FaceShifter", "FaceSwap")
        },
        **{
            f"{spell(method)}/033_097.mp4": Columns(
                **swap, source_id=source, identity="youtube/033", related=("youtube/097",), method=method
            )
            for method in ("Face2Face", "NeuralTextures")
        },
        f"{spell('DeepFakeDetection')}/01_02__kitchen_pan__YVGY8LOK.mp4": Columns(
            **swap, identity="actors/02", related=("actors/01",), method="DeepFakeDetection"
        ),
    }  # fmt: skip


FFPP_KAGGLE = PublishedSet(
    layout="ffpp", folder="FaceForensics++_C23", files=_kaggle(str),
    texts={"csv/FF++_Metadata.csv": "Unnamed: 0,File Path,Label\n0,original/033.mp4,REAL\n", "csv/original.csv": ""},
    ignored={".csv": 2},
)  # fmt: skip
FFPP_KAGGLE_LOWER = PublishedSet(layout="ffpp", folder="ff-c23", files=_kaggle(str.lower))

CELEBDF_PP = PublishedSet(
    layout="celebdf",
    folder="Celeb-DF++",
    files={
        "Celeb-real/id0_0000.mp4": Columns(label=0, split="train", identity="id0"),
        "Celeb-real/id1_0000.mp4": Columns(label=0, split="test", identity="id1"),
        "YouTube-real/00170.mp4": Columns(label=0, split="test"),
        "Celeb-synthesis/FaceSwap/Celeb-DF/id0_id1_0000.mp4": Columns(
            label=1,
            split="train",
            source_id="Celeb-real/id0_0000.mp4",
            identity="id1",
            related=("id0",),
            method="Celeb-DF",
        ),
        "Celeb-synthesis/FaceSwap/GHOST/id0_id1_0000.mp4": Columns(
            label=1, split="test", source_id="Celeb-real/id0_0000.mp4", identity="id1", related=("id0",), method="GHOST"
        ),
        "Celeb-synthesis/FaceReenact/LIA/id1_id0_0000.mp4": Columns(
            label=1, split="train", related=("id1", "id0"), method="LIA"
        ),
        "Celeb-synthesis/TalkingFace/FLOAT/id0_0000_driven_by_id2.mp4": Columns(
            label=1, split="test", related=("id0", "id2"), method="FLOAT"
        ),
    },
    texts={
        "List_of_testing_videos.txt": "1 Celeb-real/id1_0000.mp4\n1 YouTube-real/00170.mp4\n"
        "0 Celeb-synthesis/FaceSwap/GHOST/id0_id1_0000.mp4\n0 Celeb-synthesis/FaceSwap/GHOST/id5_id6_0000.mp4\n"
        "0 Celeb-synthesis/TalkingFace/FLOAT/id0_0000_driven_by_id2.mp4\n"
    },
    missing=("Celeb-synthesis/FaceSwap/GHOST/id5_id6_0000.mp4",),
)

CELEBDF_SBI = PublishedSet(
    layout="celebdf",
    folder="Celeb-DF-v2",
    files={
        "Celeb-real/videos/id0_0000.mp4": Columns(label=0, split="train", identity="id0"),
        "Youtube-real/videos/00170.mp4": Columns(label=0, split="test"),
        "Youtube-real/videos/00001.mp4": Columns(label=0, split="train"),
        "Celeb-synthesis/videos/id0_id1_0000.mp4": Columns(
            label=1, split="test", source_id="Celeb-real/videos/id0_0000.mp4", identity="id1", related=("id0",)
        ),
    },
    texts={"List_of_testing_videos.txt": "1 YouTube-real/00170.mp4\n0 Celeb-synthesis/id0_id1_0000.mp4\n"},
)

DFDC_TEST = PublishedSet(
    layout="dfdc", folder="DFDC",
    files={"videos/aaa.mp4": Columns(label=0), "videos/bbb.mp4": Columns(label=1)},
    texts={"labels.csv": "filename,label\naaa.mp4,0\nbbb.mp4,1\nccc.mp4,1\n"},
    missing=("videos/ccc.mp4",),
)  # fmt: skip

DFDC_WHOLE = PublishedSet(
    layout="dfdc",
    folder="DFDC",
    files={
        "train/dfdc_train_part_0/aaa.mp4": Columns(label=0, split="train"),
        "train/dfdc_train_part_0/bbb.mp4": Columns(label=1, split="train", source_id="train/dfdc_train_part_0/aaa.mp4"),
        "test/videos/ccc.mp4": Columns(label=1, split="test"),
    },
    texts={
        "train/dfdc_train_part_0/metadata.json": json.dumps(
            {
                "aaa.mp4": {"label": "REAL", "split": "train"},
                "bbb.mp4": {"label": "FAKE", "split": "train", "original": "aaa.mp4"},
            }
        ),
        "test/labels.csv": "filename,label\nccc.mp4,1\n",
    },
)

_PREVIEW = {
    "original_videos/643049/643049_A_000.mp4": {
        "label": "real", "set": "train", "target_id": "643049", "swapped_id": None,
    },
    "method_A/643049/643049_A/1224068_643049_A_000.mp4": {
        "label": "fake", "set": "train", "target_id": "643049", "swapped_id": "1224068",
    },
    "method_B/1224068/1224068_C/643049_1224068_C_001.mp4": {
        "label": "fake", "set": "test", "target_id": "1224068", "swapped_id": "643049",
    },
    "method_B/1/1_C/gone.mp4": {"label": "fake", "set": "test", "target_id": "1", "swapped_id": "2"},
}  # fmt: skip


def _preview(videos: str) -> PublishedSet:
    """With `videos/` in each folder, as some copies have it, or without."""
    return PublishedSet(
        layout="dfdcp",
        folder="dfdc_preview_set",
        files={
            f"original_videos/{videos}643049/643049_A_000.mp4": Columns(label=0, split="train", identity="643049"),
            f"method_A/{videos}643049/643049_A/1224068_643049_A_000.mp4": Columns(
                label=1, split="train", identity="1224068", related=("643049",), method="method_A"
            ),
            f"method_B/{videos}1224068/1224068_C/643049_1224068_C_001.mp4": Columns(
                label=1, split="test", identity="643049", related=("1224068",), method="method_B"
            ),
            f"method_B/{videos}holiday.mp4": Columns(label=-1),
        },
        texts={"dataset.json": json.dumps(_PREVIEW)},
        missing=("method_B/1/1_C/gone.mp4",),
    )


_AV = "African/men/id00076"
_AV_FILES = {
    f"RealVideo-RealAudio/{_AV}/00109.mp4": Columns(label=0, identity="id00076"),
    f"FakeVideo-RealAudio/{_AV}/00109_id00166_wFV.mp4": Columns(
        label=1, source_id=f"RealVideo-RealAudio/{_AV}/00109.mp4", related=("id00076", "id00166"), method="faceswap"
    ),
    f"FakeVideo-FakeAudio/{_AV}/00109_10_id00476_wavtolip.mp4": Columns(
        label=1,
        source_id=f"RealVideo-RealAudio/{_AV}/00109.mp4",
        identity="id00076",
        related=("id00476",),
        method="wav2lip",
    ),
    f"RealVideo-FakeAudio/{_AV}/00109_fake.mp4": Columns(
        label=0, source_id=f"RealVideo-RealAudio/{_AV}/00109.mp4", identity="id00076", method="rtvc"
    ),
}
_AV_ROWS = (
    ("id00076,-,-,real,A,RealVideo-RealAudio,African,men", "00109.mp4", f"FakeAVCeleb/RealVideo-RealAudio/{_AV}"),
    ("id00076,id00166,-,faceswap,C,FakeVideo-RealAudio,African,men", "00109_id00166_wFV.mp4",
     f"FakeAVCeleb/FakeVideo-RealAudio/{_AV}"),
    ("id00076,id00476,10,wav2lip,D,FakeVideo-FakeAudio,African,men", "00109_10_id00476_wavtolip.mp4",
     f"FakeAVCeleb/FakeVideo-FakeAudio/{_AV}"),
    ("id00076,-,-,rtvc,B,RealVideo-FakeAudio,African,men", "00109_fake.mp4",
     f"FakeAVCeleb/RealVideo-FakeAudio/{_AV}"),
)  # fmt: skip
_AV_HEADER = "source,target1,target2,method,category,type,race,gender,path,\n"

FAKEAVCELEB = PublishedSet(
    layout="fakeavceleb", folder="FakeAVCeleb_v1.2", files=_AV_FILES,
    texts={"meta_data.csv": _AV_HEADER + "".join(",".join(row) + "\n" for row in _AV_ROWS)},
)  # fmt: skip

DEEPERFORENSICS = PublishedSet(
    layout="deeperforensics",
    folder="DeeperForensics-1.0",
    files={
        "source_videos/M101/BlendShape/camera_down/down.mp4": Columns(label=0, identity="M101"),
        "manipulated_videos/end_to_end/033_M101.mp4": Columns(
            label=1, split="train", identity="M101", related=("youtube/033",), method="end_to_end"
        ),
        "manipulated_videos/reenact_postprocess/033_M101.mp4": Columns(
            label=1, split="train", identity="M101", related=("youtube/033",), method="reenact_postprocess"
        ),
        "manipulated_videos/end_to_end/097_W006.mp4": Columns(
            label=1, split="test", identity="W006", related=("youtube/097",), method="end_to_end"
        ),
        "manipulated_videos/reenact_postprocess/097_W006.mp4": Columns(
            label=1, split="test", identity="W006", related=("youtube/097",), method="reenact_postprocess"
        ),
    },
    texts={"lists/splits/train.txt": "033_M101.mp4\n", "lists/splits/test.txt": "097_W006.mp4\n"},
)

UADFV = PublishedSet(
    layout="uadfv", folder="UADFV",
    files={
        "real/0000.mp4": Columns(label=0), "real/0001.mp4": Columns(label=0),
        "fake/0000_fake.mp4": Columns(label=1, source_id="real/0000.mp4"),
    },
)  # fmt: skip

FFIW = PublishedSet(
    layout="ffiw",
    folder="FFIW10K-v1-release",
    files={
        f"source/{split}/videos/{number}.mp4": Columns(label=0, split=split)
        for split, number in (("train", "00001"), ("val", "00002"))
    }
    | {
        f"target/{split}/videos/{number}.mp4": Columns(
            label=1, split=split, source_id=f"source/{split}/videos/{number}.mp4"
        )
        for split, number in (("train", "00001"), ("val", "00002"))
    },
)


def _lavdf(file: str, original: str | None = None, **changes: object) -> dict[str, object]:
    return {
        "file": file, "n_fakes": 0, "fake_periods": [], "duration": 1.0, "original": original, "modify_video": False,
        "modify_audio": False, "split": file.split("/", maxsplit=1)[0], "video_frames": 25, "audio_channels": 1,
        "audio_frames": 16000, **changes,
    }  # fmt: skip


LAVDF = PublishedSet(
    layout="lavdf",
    folder="LAV-DF",
    files={
        "train/000001.mp4": Columns(label=0, split="train"),
        "train/000002.mp4": Columns(
            label=1, split="train", source_id="train/000001.mp4", method="video", fake_segments=((0.2, 0.48),)
        ),
        "train/000003.mp4": Columns(label=0, split="train", method="audio"),
        "dev/000004.mp4": Columns(label=0, split="val"),
        "test/000005.mp4": Columns(label=0, split="test"),
        "test/000006.mp4": Columns(
            label=1, split="test", source_id="test/000005.mp4", method="audio and video",
            fake_segments=((0.0, 0.2), (0.6, 0.8)),
        ),
    },
    texts={
        "metadata.json": json.dumps([
            _lavdf("train/000001.mp4"),
            _lavdf("train/000002.mp4", "train/000001.mp4", modify_video=True, fake_periods=[[0.2, 0.48]]),
            _lavdf("train/000003.mp4", "train/000001.mp4", modify_audio=True, fake_periods=[[0.2, 0.48]]),
            _lavdf("dev/000004.mp4"),
            _lavdf("test/000005.mp4"),
            _lavdf("test/000006.mp4", "test/000005.mp4", modify_video=True, modify_audio=True,
                   fake_periods=[[0.6, 0.8], [0, 0.2]]),
        ])
    },
)  # fmt: skip


def _av1m(file: str, kind: str, visual: list[list[float]], audio: list[list[float]]) -> dict[str, object]:
    folder = file.rpartition("/")[0]
    return {
        "file": file, "original": f"{folder}/real.mp4" if kind != "real" else f"{folder}.mp4", "split": "train",
        "modify_type": kind, "audio_model": "vits", "fake_segments": [*visual, *audio], "audio_fake_segments": audio,
        "visual_fake_segments": visual, "video_frames": 25, "audio_frames": 16000,
    }  # fmt: skip


AV_DEEPFAKE1M = PublishedSet(
    layout="avdeepfake1m",
    folder="AV-Deepfake1M",
    files={
        "train/id00012/21Uxsk56VDQ/00001/real.mp4": Columns(label=0, split="train", identity="id00012"),
        "train/id00012/21Uxsk56VDQ/00001/fake_video_real_audio.mp4": Columns(
            label=1, split="train", identity="id00012", method="video", fake_segments=((0.2, 0.48),),
            source_id="train/id00012/21Uxsk56VDQ/00001/real.mp4",
        ),
        # The audio's segments are listed as the picture's too, in thousands of the published records.
        "train/id00012/21Uxsk56VDQ/00001/real_video_fake_audio.mp4": Columns(
            label=0, split="train", identity="id00012", method="audio"
        ),
        "val/id00076/qFmNnGyT3xs/00002/real.mp4": Columns(label=0, split="val", identity="id00076"),
        "val/id00076/qFmNnGyT3xs/00002/fake_video_fake_audio.mp4": Columns(
            label=1, split="val", identity="id00076", method="audio and video", fake_segments=((0.4, 0.6),),
            source_id="val/id00076/qFmNnGyT3xs/00002/real.mp4",
        ),
        "test/000000.mp4": Columns(label=-1, split="test"),
    },
    texts={
        "train_metadata.json": json.dumps([
            _av1m("id00012/21Uxsk56VDQ/00001/real.mp4", "real", [], []),
            _av1m("id00012/21Uxsk56VDQ/00001/fake_video_real_audio.mp4", "visual_modified", [[0.2, 0.48]], []),
            _av1m("id00012/21Uxsk56VDQ/00001/real_video_fake_audio.mp4", "audio_modified", [[0.2, 0.4]], [[0.2, 0.4]]),
        ], indent=1),
        "val_metadata.json": json.dumps([
            _av1m("id00076/qFmNnGyT3xs/00002/real.mp4", "real", [], []),
            _av1m("id00076/qFmNnGyT3xs/00002/fake_video_fake_audio.mp4", "both_modified", [[0.4, 0.6]], [[0, 0.2]]),
        ]),
        "test_files.txt": "000000.mp4\n",
    },
    ignored={".txt": 1},
)  # fmt: skip

PUBLISHED_SETS = {
    "FF++ on Kaggle": FFPP_KAGGLE,
    "FF++ on Kaggle in lower case": FFPP_KAGGLE_LOWER,
    "Celeb-DF++": CELEBDF_PP,
    "Celeb-DF as SelfBlendedImages has it": CELEBDF_SBI,
    "DFDC's test set": DFDC_TEST,
    "DFDC's training and test set": DFDC_WHOLE,
    "DFDC's preview": _preview(""),
    "DFDC's preview with a folder for videos": _preview("videos/"),
    "FakeAVCeleb": FAKEAVCELEB,
    "DeeperForensics": DEEPERFORENSICS,
    "UADFV": UADFV,
    "FFIW": FFIW,
    "LAV-DF": LAVDF,
    "AV-Deepfake1M": AV_DEEPFAKE1M,
}
