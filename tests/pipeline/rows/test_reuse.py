"""Of a unit that is replaced, what need not be decoded again; and how it is known that a file is as it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning import content_hash
from facefeed.pipeline.planning.content_hash import content_sha256, find_unchanged_content, stat_signature
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Plan, PlanPart, Unit
from facefeed.pipeline.planning.run_state import RunState
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import DecodeSummary, Frame, MediaReader, Sampling

NAMES = ("a.mp4", "b.mp4", "c.mp4")


class Source(MediaReader):
    """Frames whose grey is the first byte of the file; notes which files were decoded."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.decoded = root, list[str]()
        self.on_open: Callable[[Path], object] = lambda _: None

    def write(self, name: str, content: bytes) -> Entry:
        """Writes a file, and lists it."""
        path = self.root / name
        path.write_bytes(content)
        stat = path.stat()
        return Entry(video_id=name, size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, label=0)

    def frames(
        self, path: Path, sampling: Sampling, also: Sequence[int] = (), summary: DecodeSummary | None = None
    ) -> Iterator[Frame]:
        self.decoded.append(path.name)
        self.on_open(path)
        if summary is not None:
            summary.frames_wanted = summary.frames_decoded = 2
        for number in range(2):
            yield Frame(number, number / 25, np.full((96, 128, 3), path.read_bytes()[0], np.uint8))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "src").mkdir()
    return Source(tmp_path / "src")


@pytest.fixture
def job(tmp_path: Path, small_options: Options) -> JobSpec:
    labels = ("real", "fake")
    config_hash = hash_config(small_options.to_config(FixedBoxDetector(), labels))
    spec = JobSpec(root=tmp_path / "src", out=tmp_path / "out", options=small_options, detector=FixedBoxDetector(),
               labels=labels, config_hash=config_hash)  # fmt: skip
    make_folders(spec.paths)
    return spec


def work(job: JobSpec, source: Source, unit: Unit) -> Receipt:
    """Does one unit with one decoder."""
    worker = UnitWorker(job)
    worker.pipeline.reader = source
    source.decoded.clear()
    try:
        return worker.run(unit)
    finally:
        worker.close()


def rows(job: JobSpec, receipt: Receipt) -> dict[str, pa.Table]:
    """All columns of each input."""
    table = pq.read_table(job.out / str(receipt.file))
    return {name: table.filter(pa.compute.field("video_id") == name) for name in NAMES}


@pytest.fixture
def first(job: JobSpec, source: Source) -> tuple[Unit, Receipt]:
    """One unit of three inputs, done."""
    entries = [source.write(name, bytes([number]) * 9) for number, name in enumerate(NAMES)]
    unit = Unit.make(entries, "train", config_hash=job.config_hash, salt="0")
    return unit, work(job, source, unit)


def next_unit(job: JobSpec, source: Source, before: Unit, changed: str) -> Unit:
    entries = [
        source.write(entry.video_id, b"\xc8" * 5) if entry.video_id == changed else entry for entry in before.inputs
    ]
    reuses = [name for name in NAMES if name != changed]
    return Unit.make(
        entries, "train", config_hash=job.config_hash, salt="1", supersedes=[before.unit_id], reuses=reuses
    )


def test_only_the_changed_input_is_decoded_and_its_neighbours_rows_are_the_same_in_every_column(
    job: JobSpec, source: Source, first: tuple[Unit, Receipt]
) -> None:
    before = rows(job, first[1])
    receipt = work(job, source, next_unit(job, source, first[0], "b.mp4"))
    assert source.decoded == ["b.mp4"]
    after = rows(job, receipt)
    assert [after[name].equals(before[name]) for name in NAMES] == [True, False, True]
    assert [(outcome.video_id, outcome.reused, outcome.faces) for outcome in receipt.inputs] == [
        ("a.mp4", True, 2), ("b.mp4", False, 2), ("c.mp4", True, 2),
    ]  # fmt: skip
    assert [outcome.sha256 for outcome in receipt.inputs] == [
        hashlib.sha256((source.root / name).read_bytes()).hexdigest() for name in NAMES
    ]


def test_an_input_that_is_gone_keeps_its_rows_where_own_columns_had_another_order(job: JobSpec, source: Source) -> None:
    entries = [replace(source.write(name, b"x" * 9), values=(31.5, 7)) for name in NAMES]
    first = Unit.make(entries, "train", config_hash=job.config_hash, salt="0")
    before = rows(job, work(replace(job, columns={"age": "float", "views": "int"}), source, first))
    (source.root / "c.mp4").unlink()
    second = next_unit(job, source, first, "b.mp4")
    after = rows(job, work(replace(job, columns={"views": "int", "age": "float"}), source, second))
    assert after["c.mp4"].num_rows == 2
    assert after["c.mp4"].select(before["c.mp4"].column_names).equals(before["c.mp4"])


@pytest.mark.parametrize("damage", ["flipped", "truncated", "gone"])
def test_rows_of_a_damaged_file_are_made_anew(
    job: JobSpec, source: Source, first: tuple[Unit, Receipt], damage: str
) -> None:
    before, path = rows(job, first[1]), job.out / str(first[1].file)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flipped" else content[:-1])
    receipt = work(job, source, next_unit(job, source, first[0], "b.mp4"))
    assert source.decoded == [*NAMES]
    assert rows(job, receipt)["a.mp4"].equals(before["a.mp4"])
    assert not any(outcome.reused for outcome in receipt.inputs)


def test_an_input_that_changes_while_it_is_decoded_gets_no_hash(job: JobSpec, source: Source) -> None:
    entries = [source.write(name, b"x" * 9) for name in NAMES]
    source.on_open = lambda path: path.name == "b.mp4" and path.write_bytes(b"y" * 9)
    receipt = work(job, source, Unit.make(entries, "train", config_hash=job.config_hash, salt="0"))
    assert [outcome.sha256 is None for outcome in receipt.inputs] == [False, True, False]


def test_inputs_of_the_same_content_are_distinguished_from_changed_ones_by_all_of_their_bytes(
    job: JobSpec, source: Source, first: tuple[Unit, Receipt]
) -> None:
    plan = Plan()
    plan.append(job.paths, PlanPart(config={"labels": ["real", "fake"], "schema": 3}, units=(first[0],)))
    run_state = RunState(job.paths, plan, job.config_hash)
    same = source.write("a.mp4", b"\0" * 9)
    last_byte = source.write("b.mp4", b"\1" * 8 + b"\2")
    gone = replace(first[0].inputs[2])
    (source.root / "c.mp4").unlink()
    new = source.write("new.mp4", b"x")
    assert find_unchanged_content(run_state, job.roots, Progress.silent().comparing, [same, last_byte, gone, new]) == {
        "a.mp4"
    }


def test_a_receipt_without_hashes_vouches_for_no_content(
    job: JobSpec, source: Source, first: tuple[Unit, Receipt]
) -> None:
    """As every receipt is that was written before hashes were kept."""
    path = job.paths.receipt(first[0].unit_id)
    data = json.loads(path.read_bytes())
    for outcome in data["inputs"]:
        del outcome["sha256"], outcome["reused"], outcome["absent"]
    path.write_text(json.dumps(data))
    assert [outcome.sha256 for outcome in Receipt.from_json(path.read_bytes(), where="").inputs] == [None] * 3
    plan = Plan()
    plan.append(job.paths, PlanPart(config={"labels": ["real", "fake"], "schema": 3}, units=(first[0],)))
    entries = [source.write(name, bytes([number]) * 9) for number, name in enumerate(NAMES)]
    assert (
        find_unchanged_content(
            RunState(job.paths, plan, job.config_hash), job.roots, Progress.silent().comparing, entries
        )
        == set()
    )


def test_a_hash_is_of_the_whole_file_and_of_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_hash, "_CHUNK_BYTES", 4)
    path = tmp_path / "file"
    for content in (b"", b"abc", b"abcd", b"abcdefghi"):
        path.write_bytes(content)
        assert content_sha256(path) == hashlib.sha256(content).hexdigest()
    assert content_sha256(path, cancelled=lambda: True) is None
    assert content_sha256(tmp_path / "gone") is None
    os.mkfifo(tmp_path / "pipe")
    assert stat_signature(tmp_path / "pipe") is None
    assert content_sha256(tmp_path / "pipe") is None, "and nobody waits for a writer"
    assert stat_signature(tmp_path / "gone") is None
