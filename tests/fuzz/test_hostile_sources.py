"""What a user notices of a source whose metadata somebody else wrote: a plan, or one error that names the file."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_hostile import LONG, damaged_bytes, damaged_json, damaged_lines
from assets_random import examples
from assets_reader_process import Outcome, ReaderProcess
from hypothesis import given
from hypothesis import strategies as st

REAL, FAKE = {"label": "REAL", "split": "train", "original": None}, {"label": "FAKE", "split": "train"}
FRAMES = "FaceForensics++/manipulated_sequences/Deepfakes/c23/frames"
PERIODS = {"file": "train/000001.mp4", "modify_video": True, "modify_audio": False, "fake_periods": [[0.5, 1.25]],
           "original": "train/000000.mp4", "split": "train", "n_fakes": 1}  # fmt: skip
PERSON = "id00012/21Uxsk56VDQ/00001"
TABLE = {
    "path": ["real/a.mp4", "fake/b.mp4", "real/c.mp4"], "label": ["real", "fake", "0"], "split": ["train", "train",
    "test"],
    "source": ["", "real/a.mp4", ""], "identity": ["ann", "ann", "bob"], "footage": ["f1", "f1", "f2"],
    "fake_segments": ["", "[[0.5, 1]]", ""], "whole_frame": ["false", "0", "no"], "mood": ["3", "4", "5"],
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source of which one file, `hostile`, is damaged.

    media: names of its videos, which listing never opens. sound: that file as it should be. texts: its other files.
    """

    reader: str
    media: tuple[str, ...]
    hostile: str
    sound: bytes
    damage: st.SearchStrategy[bytes]
    texts: Mapping[str, bytes] = field(default_factory=dict)

    def lay(self, folder: Path, content: bytes) -> None:
        """Lays it below `folder`, emptied before, with this content of its hostile file."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in self.media:
            (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "src" / name).write_bytes(b"x")
        for name, text in {**self.texts, self.hostile: content}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text)


def as_json(value: Any) -> dict[str, Any]:
    return {"sound": json.dumps(value).encode(), "damage": damaged_json(value)}


def as_lines(text: str, separator: str = ",") -> dict[str, Any]:
    return {"sound": text.encode(), "damage": damaged_lines(text, separator)}


def csv_of(columns: Mapping[str, list[str]]) -> str:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows([tuple(columns), *zip(*columns.values(), strict=True)])
    return sink.getvalue()


def parquet_of(columns: Mapping[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink, **options)
    return sink.getvalue()


ODD_COLUMNS: dict[str, pa.Array] = {
    "days": pa.array([2**31 - 1, None, -(2**31)], pa.date32()),
    "milliseconds": pa.array([2**62, 0, -(2**62)], pa.timestamp("ms")),
    "nanoseconds": pa.array([1, 2**62, None], pa.timestamp("ns")),
    "zone": pa.array([1, 2, 3], pa.timestamp("us", "Nowhere/AtAll")),
    "duration": pa.array([2**62, 1, -(2**62)], pa.duration("s")),
    "bytes": pa.array([b"\xff", b"", None], pa.binary()),
    "decimal": pa.array(["1e30", "0", None]).cast(pa.decimal128(38, 4)),
    "list": pa.array([[1], None, []], pa.list_(pa.int8())),
    "struct": pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int8())])),
    "unsigned": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
    "floats": pa.array([float("nan"), float("inf"), 1e308]),
    "null": pa.array([None, None, None], pa.null()),
    "not UTF-8": pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"\xffa\xc3")]
    ),
}


@st.composite
def damaged_tables(draw: st.DrawFn) -> bytes:
    """Parquet with columns of other types, or damaged anywhere."""
    columns: dict[str, Any] = dict(TABLE)
    for name in draw(st.lists(st.sampled_from(sorted(TABLE)), max_size=2)):
        columns[name] = ODD_COLUMNS[draw(st.sampled_from(sorted(ODD_COLUMNS)))]
    data = parquet_of(columns, compression=draw(st.sampled_from(["none", "snappy", "zstd", "brotli"])))
    return draw(damaged_bytes(data)) if draw(st.booleans()) else data


def dataset_json(clips: int = 2) -> dict[str, Any]:
    names = [f"{number:03}_{number + 1:03}" for number in range(clips)]
    return {"FF": {"FF-DF": {"train": {"c23": {
        name: {"label": "FF-DF", "frames": [f"{FRAMES}/{name}/000.png", f"{FRAMES}/{name}/001.png"]} for name in names
    }}}, "FF-real": {"test": {"x": {"label": "FF-real", "frames": ["real/000/000.png"]}}}}}  # fmt: skip


CELEB = ("Celeb-real/id0_0000.mp4", "YouTube-real/00170.mp4", "Celeb-synthesis/id0_id1_0000.mp4")
DEEPER = ("manipulated_videos/end_to_end/033_M101.mp4", "source_videos/M101/down/a.mp4")
AV_FAKES = ("FakeVideo-RealAudio/African/men/id00076/00109_id00166_w.mp4",
    "RealVideo-RealAudio/African/men/id00076/00109.mp4")  # fmt: skip
FRAME_FILES = tuple(f"{FRAMES}/{name}/{number:03}.png" for name in ("000_001", "001_002") for number in range(2))

SOURCES: dict[str, Source] = {
    "dfdc's metadata.json": Source(
        reader="plan_folder", media=("a.mp4", "b.mp4", "frames/c/001.png"), hostile="src/metadata.json",
        **as_json({"a.mp4": REAL, "b.mp4": {**FAKE, "original": "a.mp4"}, "gone.mp4": FAKE}),
    ),
    "dfdc's labels.csv": Source(
        reader="plan_folder", media=("videos/a.mp4", "videos/b.mp4"), hostile="src/labels.csv",
        **as_lines("filename,label\na.mp4,0\nb.mp4,1\ngone.mp4,1\n"),
    ),
    "dfdc-preview's dataset.json": Source(
        reader="plan_folder", media=("original_videos/1/a.mp4", "method_A/1/b.mp4"), hostile="src/dataset.json",
        **as_json({
            "original_videos/1/a.mp4": {"label": "real", "set": "train", "target_id": "1", "swapped_id": None},
            "method_A/1/b.mp4": {"label": "fake", "set": "test", "target_id": "1", "swapped_id": "2"},
        }),
    ),
    "lav-df's metadata.json": Source(
        reader="plan_folder", media=("train/000000.mp4", "train/000001.mp4", "test/000002.mp4"),
        hostile="src/metadata.json",
        **as_json([PERIODS, {**PERIODS, "file": "train/000000.mp4", "modify_video": False, "original": None}]),
    ),
    "av-deepfake1m's metadata": Source(
        reader="plan_folder", media=(f"train/{PERSON}/real.mp4", f"train/{PERSON}/fake.mp4", "val/a.mp4"),
        hostile="src/train_metadata.json",
        **as_json([
            {"file": f"{PERSON}/fake.mp4", "original": f"{PERSON}/real.mp4", "modify_type": "both_modified",
             "visual_fake_segments": [[0.5, 1.25]]},
            {"file": f"{PERSON}/real.mp4", "original": "vox", "modify_type": "real"},
        ]),
    ),
    "faceforensics' splits": Source(
        reader="plan_folder",
        media=("original_sequences/youtube/c23/videos/033.mp4",
        "manipulated_sequences/Deepfakes/c23/videos/033_097.mp4"),
        hostile="src/splits/train.json", **as_json([["033", "097"], ["035", "036"]]),
        texts={"src/splits/test.json": b'[["044", "945"]]'},
    ),
    "celeb-df's list": Source(
        reader="plan_folder", media=CELEB, hostile="src/List_of_testing_videos.txt",
        **as_lines("1 YouTube-real/00170.mp4\n0 Celeb-synthesis/id0_id1_0000.mp4\n", separator=" "),
    ),
    "deeperforensics' lists": Source(
        reader="plan_folder", media=DEEPER, hostile="src/lists/splits/train.txt",
        **as_lines("033_M101.mp4\n035_W102.mp4\n", separator="_"),
        texts={"src/lists/splits/test.txt": b"044_M103.mp4\n"},
    ),
    "fakeavceleb's table": Source(
        reader="plan_folder", media=AV_FAKES, hostile="src/meta_data.csv",
        **as_lines(
            "source,target1,target2,method,category,type,race,gender,path,\n"
            "id00076,id00166,-,faceswap,C,FakeVideo-RealAudio,African,men,00109_id00166_w.mp4,"
            "FakeAVCeleb/FakeVideo-RealAudio/African/men/id00076\n"
        ),
    ),
    "deepfakebench's dataset JSON": Source(
        reader="plan_file", media=(*FRAME_FILES, "real/000/000.png"), hostile="src/list.json",
        **as_json(dataset_json()),
    ),
    "a table": Source(
        reader="plan_file", media=("real/a.mp4", "fake/b.mp4", "real/c.mp4", "clip/1.png"), hostile="src/list.csv",
        **as_lines(csv_of(TABLE)),
    ),
    "a table in Parquet": Source(
        reader="plan_file", media=("real/a.mp4", "fake/b.mp4", "real/c.mp4"), hostile="src/list.parquet",
        sound=parquet_of(TABLE), damage=damaged_tables(),
    ),
    "a table's classes": Source(
        reader="plan_file", media=("real/a.mp4", "fake/b.mp4", "real/c.mp4"), hostile="src/list.classes.txt",
        **as_lines("real\nfake\n0\n"),
        texts={"src/list.csv": csv_of({name: TABLE[name] for name in ("path", "label")}).encode()},
    ),
    "--splits": Source(
        reader="plan_with_splits", media=("real/a.mp4", "fake/b.mp4", "real/000_001.mp4"), hostile="splits.json",
        **as_json({**dataset_json(), "train": ["real/a.mp4"], "test": ["b.mp4"]}),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReaderProcess]:
    process = ReaderProcess(tmp_path_factory.mktemp("reader"))
    yield process
    process.close()


BROKEN_LAYOUT = "; fix the layout"
"""What a layout is told that raises any other error than a `UsageError`, or lists what it must not."""


def read(reader: ReaderProcess, name: str, folder: Path, content: bytes) -> Outcome:
    SOURCES[name].lay(folder, content)
    return reader.read(f"assets_source_readers.{SOURCES[name].reader}", folder)


@pytest.mark.parametrize("name", SOURCES)
def test_the_sound_file_is_planned(reader: ReaderProcess, tmp_path: Path, name: str) -> None:
    assert read(reader, name, tmp_path / "source", SOURCES[name].sound) == Outcome(kind="read")


@pytest.mark.parametrize("name", SOURCES)
@examples(60, in_test=20, same_fixtures=True)
@given(data=st.data())
def test_a_hostile_file_ends_in_a_plan_or_a_refusal(
    reader: ReaderProcess, tmp_path: Path, name: str, data: Any
) -> None:
    outcome = read(reader, name, tmp_path / "source", data.draw(SOURCES[name].damage))
    assert outcome.is_sound, outcome
    assert BROKEN_LAYOUT not in outcome.text


# ---- what was found once


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def table_of(**columns: list[str]) -> bytes:
    return csv_of({**{name: TABLE[name] for name in ("path", "label")}, **columns}).encode()


LABELS = b"filename,label\na.mp4,0\n"
REFUSED: dict[str, tuple[str, bytes]] = {
    "bytes that are no text, behind the first row": (
        "dfdc's labels.csv", LABELS + b"a.mp4,0\n" * 2000 + b"\xff.mp4,1\n",
    ),
    "a field that is longer than csv reads": ("dfdc's labels.csv", LABELS + b"x" * LONG + b",1\n"),
    "half a character": (
        "dfdc-preview's dataset.json",
        b'{"method_A/1/b.mp4": {"label": "fake", "set": "test", "target_id": "\\ud800", "swapped_id": "2"}}',
    ),
    "a list for a label": ("dfdc-preview's dataset.json", b'{"method_A/1/b.mp4": {"label": ["fake"]}}'),
    "a value that is neither true nor false, in lines that end in CR": (
        "a table", table_of(whole_frame=["false", "0", "maybe"]).replace(b"\n", b"\r"),
    ),
    **{
        f"{name} for a path": ("a table in Parquet", parquet_of({**TABLE, "path": ODD_COLUMNS[name]}))
        for name in ("not UTF-8", "days", "milliseconds")
    },
    **{
        f"{source}: lists {depth} deep": (source, text.replace("DEEP", nested(depth)).encode())
        for depth in (500, *range(930, 1000, 3))
        for source, text in {
            "lav-df's metadata.json": json.dumps([{**PERIODS, "fake_periods": "DEEP"}]).replace('"DEEP"', "DEEP"),
            "--splits": '{"train": DEEP}', "faceforensics' splits": "[DEEP]",
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("title", REFUSED)
def test_what_cannot_be_used_is_refused(reader: ReaderProcess, tmp_path: Path, title: str) -> None:
    name, content = REFUSED[title]
    outcome = read(reader, name, tmp_path / "source", content)
    assert outcome.kind == "refused", outcome
    assert BROKEN_LAYOUT not in outcome.text


def test_classes_may_be_called_like_numbers_that_are_none(reader: ReaderProcess, tmp_path: Path) -> None:
    content = table_of(label=["1e99999999999999999999", "2", "3"])
    assert read(reader, "a table", tmp_path / "source", content) == Outcome(kind="read")
