"""What a user notices of a dataset that somebody else made or damaged: findings, faces, or one error that names it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assets_dataset import Clip, make_dataset
from assets_dataset_readers import EXPORT_REQUEST
from assets_hostile import damaged_bytes, damaged_json
from assets_random import examples
from assets_reader_process import Outcome, ReaderProcess
from facefeed.pipeline.dataset.added_columns import ColumnReceipt, ColumnSet
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dryrun.forecast import Forecast, Range
from facefeed.pipeline.export.receipt import ExportReceipt, PartReceipt
from facefeed.pipeline.planning.plan import Plan
from hypothesis import given
from hypothesis import strategies as st

HALVED = (Clip("real/anna.mp4", 5), Clip("fake/anna-swap.mp4", 4))
UNITS = (("train", HALVED), ("val", (Clip("real/dora.mp4", 3), Clip("real/cut.mp4", 4, "truncated"))))


@dataclass(frozen=True)
class Files:
    """A finished dataset, and the paths, relative to its parent, of the files of each kind."""

    folder: Path
    paths: dict[str, str]


def add_columns(out: Path) -> str:
    """A set of added columns that lacks all of its files but says what it is; returns its folder's name."""
    schema = pa.schema([pa.field("mood", pa.float32()), pa.field("added", pa.list_(pa.float32(), 4))])
    column_set = ColumnSet(paths=OutPaths(out), name="moods", fingerprint="m", source="/makers/moods.py", schema=schema)
    column_set.receipt_file("x").parent.mkdir(parents=True)
    column_set.record.write_text(column_set.to_json())
    for unit in Plan.load(OutPaths(out)).units():
        receipt = ColumnReceipt(unit=unit.unit_id, state="s", rows=9, bytes=3, sha256="0" * 64)
        column_set.receipt_file(unit.unit_id).write_text(receipt.to_json())
        column_set.unit_file(unit.unit_id).write_bytes(b"PAR")
    return column_set.folder.relative_to(out).as_posix()


EMPTY = hashlib.sha256(b"").hexdigest()


def write_export(dest: Path) -> None:
    part = PartReceipt(
        name="real-0", rows=2, skipped={"no face": 1}, notes={"n": 1}, files=2, size_bytes=7, sha256=EMPTY
    )
    receipt = ExportReceipt(fingerprint="f", request=EXPORT_REQUEST, finished=True, parts=[part], sums_sha256=EMPTY)
    (dest / "_facefeed_export/parts").mkdir(parents=True)
    (dest / "_facefeed_export/parts/real-0.json").write_text(part.to_json())
    (dest / "_facefeed_export/parts/real-0.sums").write_text("")
    (dest / "SHA256SUMS").touch()
    (dest / "export.json").write_text(receipt.to_json())


FORECAST = Forecast(
    seconds=Range(likely=9.0, low=8.0, high=10.5), size_bytes=Range(likely=9e6, low=8e6, high=1e7),
    faces=Range(likely=90.0, low=80.0, high=100.0), inputs=3, probed=1, workers=2, config="c", families=1, untried=0.5,
    others_per_core=0.1,
)  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("sound")
    out = folder / "out"
    make_dataset(out, UNITS)
    unit = next(unit.unit_id for unit in Plan.load(OutPaths(out)).units() if unit.split == "train")
    columns = add_columns(out)
    write_export(folder / "dest")
    (folder / "forecast.json").write_text(json.dumps(asdict(FORECAST)))
    (out / "driver.lease").write_text(
        json.dumps({"host": "elsewhere", "pid": 4194304, "since": "2026-01-01T00:00:00+00:00", "work": "precompute"})
    )
    return Files(folder, {
        "manifest": "out/manifest.json", "receipt": f"out/receipts/{unit}.json", "plan": "out/plan/0.json",
        "index": "out/index.arrow", "unit's file": f"out/faces/train/{unit}.parquet",
        "added columns' record": f"out/{columns}/_set.json",
        "added columns' receipt": f"out/{columns}/_receipts/{unit}.json",
        "lease": "out/driver.lease", "forecast": "forecast.json", "export": "dest/export.json",
        "part of an export": "dest/_facefeed_export/parts/real-0.json",
    })  # fmt: skip


READERS = {
    "manifest": ("verify_all", "load", "inspect_all"),
    "receipt": ("verify_all", "finish", "inspect_all", "describe_unfinished"),
    "plan": ("verify_all", "finish", "inspect_all", "describe_unfinished"),
    "index": ("load", "inspect_all", "verify_all"),
    "unit's file": ("verify_all", "rebuild_index", "finish", "load"),
    "added columns' record": ("load", "verify_all", "rebuild_index"),
    "added columns' receipt": ("rebuild_index", "verify_all"),
    "lease": ("lock",),
    "forecast": ("forecast",),
    "export": ("export",),
    "part of an export": ("export",),
}
"""Of each kind of file."""
CASES = [(file, reader) for file, readers in READERS.items() for reader in readers]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReaderProcess]:
    process = ReaderProcess(tmp_path_factory.mktemp("reader"))
    yield process
    process.close()


def damage_of(content: bytes) -> st.SearchStrategy[bytes]:
    """JSON is damaged value by value, all else byte by byte."""
    try:
        return damaged_json(json.loads(content))
    except ValueError:
        return damaged_bytes(content)


def read(reader: ReaderProcess, function: str, sound: Files, folder: Path, changes: dict[str, bytes]) -> Outcome:
    """Runs a reader on a copy of the sound files with others in place of some, by kind."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound.folder, folder)
    for kind, content in changes.items():
        (folder / sound.paths[kind]).write_bytes(content)
    os.utime(folder / sound.paths["lease"], (0, 0))  # stale, whoever holds it
    return reader.read(f"assets_dataset_readers.{function}", folder)


@pytest.mark.parametrize(("kind", "function"), CASES)
def test_the_sound_file_is_read(reader: ReaderProcess, sound: Files, tmp_path: Path, kind: str, function: str) -> None:
    assert read(reader, function, sound, tmp_path / "copy", {}) == Outcome(kind="read")


@pytest.mark.parametrize(("kind", "function"), CASES)
@examples(40, in_test=10, same_fixtures=True)
@given(data=st.data())
def test_a_hostile_file_ends_in_rows_findings_or_an_error_of_its_own(
    reader: ReaderProcess, sound: Files, tmp_path: Path, kind: str, function: str, data: Any
) -> None:
    content = data.draw(damage_of((sound.folder / sound.paths[kind]).read_bytes()))
    outcome = read(reader, function, sound, tmp_path / "copy", {kind: content})
    assert outcome.is_sound, outcome


# ---- what contradicts itself


def other_video(data: dict[str, Any]) -> None:
    inputs = data["inputs"] if "inputs" in data else data["units"][0]["inputs"]
    inputs[0]["video_id"] = "real/other.mp4"


def other_class(data: dict[str, Any]) -> None:
    data["units"][0]["inputs"][0]["label"] = 2


def no_video(data: dict[str, Any]) -> None:
    data.update(inputs=[], rows=0)


CONTRADICTIONS: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "a receipt of another video": ("receipt", other_video),
    "a receipt of no video": ("receipt", no_video),
    "a plan of another video": ("plan", other_video),
    "a plan with a class that it does not name": ("plan", other_class),
    "a manifest without a format": ("manifest", lambda manifest: manifest["config"].pop("format")),
    "a manifest that lacks a class": ("manifest", lambda manifest: manifest["labels"].pop(0)),
}


@pytest.mark.parametrize(
    ("title", "function"),
    [(title, function) for title, (kind, _) in CONTRADICTIONS.items() for function in READERS[kind]],
)
def test_files_that_contradict_each_other_end_in_rows_findings_or_an_error(
    reader: ReaderProcess, sound: Files, tmp_path: Path, title: str, function: str
) -> None:
    kind, change = CONTRADICTIONS[title]
    data = json.loads((sound.folder / sound.paths[kind]).read_text())
    change(data)
    outcome = read(reader, function, sound, tmp_path / "copy", {kind: json.dumps(data).encode()})
    assert outcome.is_sound, outcome


# ---- what leads out of OUT

AWAY = "../../../../owned"
"""A unit whose file and receipt would lie beside the dataset, or above it."""


def of_unit(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["units"][0].update(values)


def replaced_unit(data: dict[str, Any]) -> None:
    data["units"][0]["supersedes"] = [AWAY]
    data["units"].append({**data["units"][1], "unit": AWAY, "supersedes": []})


ESCAPES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "a unit": ("plan", of_unit(unit=AWAY)),
    "a unit that is replaced": ("plan", replaced_unit),
    "a split": ("plan", of_unit(split="../../..")),
    "the file of a receipt": ("receipt", lambda data: data.update(file="../../owned.parquet", bytes=5)),
    "a child of a receipt": ("receipt", lambda data: data.update(outcome="split", children=[AWAY, AWAY])),
    "a unit that a receipt replaces": ("receipt", lambda data: data.update(supersedes=[AWAY])),
}


@pytest.mark.parametrize("function", ["verify_all", "finish", "rebuild_index", "describe_unfinished", "load"])
@pytest.mark.parametrize("title", ESCAPES)
def test_no_name_leads_out_of_the_dataset(
    reader: ReaderProcess, sound: Files, tmp_path: Path, title: str, function: str
) -> None:
    kind, change = ESCAPES[title]
    data = json.loads((sound.folder / sound.paths[kind]).read_text())
    change(data)
    beside = [tmp_path / name for name in ("owned.parquet", "owned.json", "owned")]
    for path in beside:
        path.write_text("mine!")
    outcome = read(reader, function, sound, tmp_path / "copy", {kind: json.dumps(data).encode()})
    assert outcome.is_sound, outcome
    assert [path.read_text() for path in beside] == ["mine!"] * 3


@pytest.mark.parametrize(
    "name", ["../../owned.parquet", "/etc/passwd", "faces/../../owned", "", "faces/train/a\0.parquet"]
)
@pytest.mark.parametrize("function", ["load", "inspect_all", "verify_all"])
def test_an_index_leads_to_files_of_the_dataset_alone(
    reader: ReaderProcess, sound: Files, tmp_path: Path, name: str, function: str
) -> None:
    index = index_with(
        sound, "file", lambda files: pa.DictionaryArray.from_arrays(files.indices, [name] * len(files.dictionary))
    )
    outcome = read(reader, function, sound, tmp_path / "copy", {"index": index})
    assert outcome.kind == "refused" if function == "load" else outcome.is_sound, outcome


@pytest.mark.parametrize("code", [99, -2])
@pytest.mark.parametrize("name", ["file", "split", "method"])
@pytest.mark.parametrize("function", ["load", "load_split", "inspect_all", "verify_all"])
def test_an_index_whose_codes_are_none_of_its_strings_is_refused_where_they_are_used(
    reader: ReaderProcess, sound: Files, tmp_path: Path, function: str, name: str, code: int
) -> None:
    def other_code(column: pa.DictionaryArray) -> pa.DictionaryArray:
        codes = pa.array([code] * len(column), column.indices.type)
        return pa.DictionaryArray.from_arrays(codes, column.dictionary, safe=False)

    outcome = read(reader, function, sound, tmp_path / "copy", {"index": index_with(sound, name, other_code)})
    uses = {"load": ("file", "split", "method"), "load_split": ("split",), "inspect_all": ("split", "method")}
    assert outcome.kind == "refused" if name in uses.get(function, ()) else outcome.is_sound, outcome


def index_with(sound: Files, name: str, change: Callable[[pa.DictionaryArray], pa.Array]) -> bytes:
    """The sound index with another column of that name."""
    with pa.ipc.open_file(pa.memory_map(str(sound.folder / sound.paths["index"]))) as stored:
        batch = stored.get_batch(0)
    columns = [change(batch.column(each)) if each == name else batch.column(each) for each in batch.schema.names]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=batch.schema))
    return bytes(sink.getvalue().to_pybytes())
