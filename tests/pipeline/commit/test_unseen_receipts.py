"""A receipt that one look does not find, as on a network mount: what is published counts it, or nothing is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from assets_columns import Colour
from assets_dataset import Clip, make_dataset
from assets_in_process import Job, new_folder
from assets_video import numbered, write_video
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dataset.added_columns import ColumnReceipt, ColumnSet
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.errors import CorruptDataError, FacefeedError, StoppedError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.receipts import ReceiptReader
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

OPTIONS = Options(sampling=Sampling(every=2), keep=FaceFilter(min_face_px=16), size_px=32, seed=3)
UNITS = (
    ("train", (Clip("real/anna.mp4", 3), Clip("fake/anna-swap.mp4", 2))),
    ("train", (Clip("real/emil.mp4", 1),)),
    ("train", (Clip("real/finn.mp4", 2),)),
    ("val", (Clip("real/dora.mp4", 2),)),
)


@contextmanager
def missed(look: int) -> Iterator[Callable[[], bool]]:
    """Within the block, the `look`-th look for a receipt finds none; yields whether there was that look."""
    looks, find = 0, ReceiptReader.trusted

    def find_all_but_one(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return None if looks == look else find(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReceiptReader, "trusted", find_all_but_one)
        yield lambda: looks >= look


def check_every_look(
    before: Path, out: Path, command: Callable[[], object], refused_with: tuple[type[FacefeedError], ...]
) -> None:
    """Runs the command once for each of its looks: some runs are refused, and some finish."""
    shutil.copytree(before, out)
    command()
    expected, endings, look = Manifest.read(out), {"refused": 0, "finished": 0}, 0
    while look := look + 1:
        shutil.rmtree(out)
        shutil.copytree(before, out)
        with missed(look) as was_missed:
            try:
                command()
                ending = "finished"
            except refused_with:
                ending = "refused"
        if not was_missed():
            break
        endings[ending] += 1
        if ending == "refused":
            command()
        verdict = verify(out)
        assert (verdict.findings, verdict.unfinished) == ([], None), f"look {look}, {ending}"
        manifest = Manifest.read(out)
        assert (manifest.rows, manifest.splits, manifest.inputs) == (expected.rows, expected.splits, expected.inputs)
    assert min(endings.values()) > 0


def test_a_run_that_accounts_for_its_units_ends_with_all_of_them_or_is_resumed() -> None:
    folder = new_folder()
    source = folder / "source"
    for number, name in enumerate(("train/real/a.mp4", "val/fake/b.mp4")):
        (source / name).parent.mkdir(parents=True)
        write_video(source / name, [numbered(9 * number + frame, 64, 48) for frame in range(2)])
    (source / "val/real").mkdir()
    (source / "val/real/broken.mp4").write_bytes(b"none")
    job = Job(source, folder / "out", OPTIONS)
    with job.stack:
        job.run()
        shutil.copytree(job.out, folder / "before")
        (folder / "before/manifest.json").unlink()
        shutil.rmtree(job.out)
        check_every_look(folder / "before", job.out, job.run, (StoppedError, CorruptDataError))


@pytest.mark.parametrize("name", ["add", "compact"])
def test_columns_are_added_and_files_are_merged_for_all_units_or_the_command_is_refused(
    name: str, tmp_path: Path
) -> None:
    before, out = tmp_path / "before", tmp_path / "out"
    make_dataset(before, UNITS)

    def command() -> object:
        return add_columns(out, Colour(), workers=1) if name == "add" else compact(out, workers=1)

    check_every_look(before, out, command, (StoppedError, CorruptDataError))


def test_columns_whose_receipt_is_missed_once_they_are_there_are_in_the_index_or_the_run_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(tmp_path, UNITS)
    looks, find = list[str](), ColumnSet.receipt

    def find_at_first(column_set: ColumnSet, unit: str) -> ColumnReceipt | None:
        looks.append(unit)
        return None if looks.count(unit) == 2 and unit == looks[0] else find(column_set, unit)

    monkeypatch.setattr(ColumnSet, "receipt", find_at_first)
    with pytest.raises(StoppedError, match=r"columns/colour: files are not there any more: .*rows? lacks? them; run"):
        add_columns(tmp_path, Colour(), workers=1)
    monkeypatch.undo()
    assert [finding.detail for finding in verify(tmp_path).findings] == ["not in the index"]
    assert add_columns(tmp_path, Colour(), workers=1).rows == 0
    assert verify(tmp_path).findings == []
