"""An export that is killed, run again, checked, damaged, or sent to a folder that holds something else."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from assets_dataset import ROWS, Clip, copy_dataset, make_dataset
from assets_export import exported, files_below, listed, run_export, without
from assets_rows import damage, stored_rows
from assets_storage import FailingStorage
from facefeed.pipeline.dataset import byte_ranges
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.export import run as export_run
from facefeed.pipeline.export.destination import WORK, Destination
from facefeed.pipeline.export.forms.form import CLOSING
from facefeed.pipeline.export.receipt import PartReceipt
from facefeed.pipeline.lock import hold_lock

FORMS = ("folders", "webdataset", "hf", "deepfakebench")
TOTAL = sum(ROWS.values())

every_form = pytest.mark.parametrize("form", FORMS)

KILLED = """
import os, signal, sys
from pathlib import Path
from facefeed.pipeline.cli import main
from facefeed.pipeline.export.destination import Destination
moment, number, *arguments = sys.argv[1:]
count = 0
def counted(function, after):
    def wrapper(*args, **kwargs):
        global count
        count += 1
        if count == int(number) and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if count == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapper
if moment == "move":
    Path.replace = counted(Path.replace, True)
else:
    setattr(Destination, moment, counted(getattr(Destination, moment), moment == "finish"))
main(["export", *arguments])
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resume") / "out"
    make_dataset(path)
    return path


@pytest.fixture(scope="module")
def undisturbed(out: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished export of each form; not to be changed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for form in FORMS:
        exported(out, folder / form, form)
    return {form: folder / form for form in FORMS}


@pytest.mark.parametrize(
    ("form", "moment", "number", "parts_before"),
    [
        ("folders", "move", 3, 0),  # in the middle of a part that is being moved into place
        ("folders", "publish", 3, 2),
        ("webdataset", "publish", 2, 1),
        ("hf", "publish", 4, 3),  # before the card
        ("deepfakebench", "publish", 2, 1),
        ("deepfakebench", "finish", 1, None),  # at the very end
    ],
)
def test_a_killed_export_is_finished_by_the_same_command(
    out: Path,
    undisturbed: dict[str, Path],
    tmp_path: Path,
    form: str,
    moment: str,
    number: int,
    parts_before: int | None,
) -> None:
    dest = tmp_path / "dest"
    arguments = [moment, str(number), str(out), str(dest), "--as", form]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    finished_parts = {path: path.stat().st_ino for path in dest.rglob("*") if path.suffix in {".tar", ".parquet"}}
    figures = exported(out, dest, form)
    assert figures["was_finished"] == (parts_before is None)
    assert figures["parts_before"] == (parts_before or 0)
    assert listed(dest) == listed(undisturbed[form])
    assert files_below(dest) == files_below(undisturbed[form])
    assert (dest / "export.json").read_bytes() == (undisturbed[form] / "export.json").read_bytes()
    for path, inode in finished_parts.items():
        if WORK not in path.parts:
            assert path.stat().st_ino == inode, "what was published is not written again"


def test_an_export_that_a_full_disk_stops_says_so_and_goes_on_later(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Destination.publish

    def publish(self: Destination, name: str, *arguments: Any) -> PartReceipt:
        if len([*(self.root / WORK / "parts").glob("*.json")]) == 2:
            raise OSError(28, "No space left on device")
        return original(self, name, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Destination, "publish", publish)
        stopped = run_export(out, tmp_path / "dest", "folders")
    assert stopped.exit_code == 75
    assert "make room and run the same command again" in stopped.stderr
    assert exported(out, tmp_path / "dest", "folders")["parts_before"] == 2


@every_form
def test_staged_files_that_cannot_be_listed_are_not_left_out(
    out: Path, undisturbed: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    list_folder = os.scandir

    def fail_once(folder: Any) -> Any:
        if "staged" in Path(folder).parts and Path(folder).is_relative_to(tmp_path):
            patched.undo()
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return list_folder(folder)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fail_once)
        stopped = run_export(out, tmp_path / "dest", form)
    assert stopped.exit_code == 75
    assert "Permission denied" in stopped.stderr
    exported(out, tmp_path / "dest", form)
    assert files_below(tmp_path / "dest") == files_below(undisturbed[form])


def test_a_part_whose_receipt_is_gone_at_the_end_is_not_left_out(
    out: Path, undisturbed: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Destination.publish

    def publish(self: Destination, name: str, *arguments: Any) -> PartReceipt:
        receipt = original(self, name, *arguments)
        if name == CLOSING:
            min((self.root / WORK / "parts").glob("train*.json")).unlink()
        return receipt

    with monkeypatch.context() as patched:
        patched.setattr(Destination, "publish", publish)
        stopped = run_export(out, tmp_path / "dest", "hf")
    assert stopped.exit_code == 75
    assert "the receipt of its part 'train-00000-of-00001' is missing or damaged" in stopped.stderr
    exported(out, tmp_path / "dest", "hf")
    assert files_below(tmp_path / "dest") == files_below(undisturbed["hf"])


@pytest.mark.parametrize(
    ("is_gone", "said"),
    [(True, "no manifest.json, .*: run the same command again"), (False, "has changed during the export; delete ")],
)
def test_an_export_of_a_dataset_that_goes_or_changes_meanwhile_is_not_finished(
    is_gone: bool, said: str, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, dest = copy_dataset(out, tmp_path / "out"), tmp_path / "dest"
    manifest, write_parts = mine / "manifest.json", export_run._write_parts
    text = manifest.read_text()
    fingerprint = json.loads(text)["fingerprint"]

    def write_then_change(*arguments: Any) -> int:
        parts_before = write_parts(*arguments)
        manifest.write_text(text.replace(fingerprint, fingerprint[::-1]))
        if is_gone:
            manifest.unlink()
        return parts_before

    with monkeypatch.context() as patch:
        patch.setattr(export_run, "_write_parts", write_then_change)
        result = run_export(mine, dest, "folders")
    assert result.exit_code == 75
    assert re.search(said, " ".join(result.stderr.split()))
    manifest.write_text(text)
    assert exported(mine, dest, "folders")["parts_before"] > 0


# ---- a finished export


@every_form
def test_a_finished_export_is_read_back_and_not_written_again(
    undisturbed: dict[str, Path], out: Path, form: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed[form].rglob("*")}
    result = run_export(out, undisturbed[form], form)
    assert result.exit_code == 0
    assert "was exported before; " in result.stderr
    assert "all files match SHA256SUMS" in result.stderr
    assert {path: path.stat().st_mtime_ns for path in undisturbed[form].rglob("*")} == before


@every_form
def test_a_changed_a_missing_and_a_foreign_file_are_found(
    undisturbed: dict[str, Path], out: Path, tmp_path: Path, form: str
) -> None:
    dest = copy_dataset(undisturbed[form], tmp_path / "dest")
    changed, missing = sorted(listed(dest))[:2]
    content = bytearray((dest / changed).read_bytes())
    content[len(content) // 2] ^= 1
    (dest / changed).write_bytes(content)
    (dest / missing).unlink()
    (dest / "stranger.jpg").write_bytes(b"?")
    findings = exported(out, dest, form, exit_code=1)["findings"]
    assert findings == [f"missing: {missing}", f"changed: {changed}", "not of this export: stranger.jpg"]


def test_a_damaged_list_of_files_is_found(undisturbed: dict[str, Path], out: Path, tmp_path: Path) -> None:
    dest = copy_dataset(undisturbed["hf"], tmp_path / "dest")
    (dest / "SHA256SUMS").write_text("nothing\n")
    assert "SHA256SUMS: missing or damaged" in exported(out, dest, "hf", exit_code=1)["findings"][0]


# ---- a folder that holds something else


def check_refused(out: Path, dest: Path, form: str, *arguments: str | int, reason: str) -> None:
    """Exit 2 with the reason, and the folder is as before."""
    before = files_below(dest) if dest.exists() else set()
    result = run_export(out, dest, form, *arguments)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert (files_below(dest) if dest.exists() else set()) == before


def test_a_folder_of_somebody_elses_is_refused(out: Path, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"mine")
    check_refused(out, tmp_path, "folders", reason="holds other files, such as 'photo.jpg'")
    check_refused(out, tmp_path / "photo.jpg", "folders", reason="is no folder")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("webdataset",), "(form is hf, not webdataset); nothing was written"),
        (("folders",), "(form is hf, not folders); nothing was written"),
        (("hf", "--split", "val"), "split is all, not val"),
        (("hf", "--shard-mb", 1), "shard_mb is 512, not 1"),
    ],
)
def test_another_export_is_refused(
    undisturbed: dict[str, Path], out: Path, arguments: tuple[str, ...], reason: str
) -> None:
    check_refused(out, undisturbed["hf"], *arguments, reason=reason)


def test_an_export_of_another_dataset_is_refused(undisturbed: dict[str, Path], tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", (Clip("real/a.mp4", 2),)),))
    check_refused(tmp_path / "out", undisturbed["hf"], "hf", reason="of another OUT, or OUT has changed")


def test_a_folder_that_is_no_export_though_it_says_so_is_refused(out: Path, tmp_path: Path) -> None:
    (tmp_path / "export.json").write_text("[]")
    result = run_export(out, tmp_path, "hf")
    assert result.exit_code == 1
    assert "not the receipt of an export" in result.stderr


def test_a_folder_in_the_dataset_or_around_it_is_refused(out: Path) -> None:
    check_refused(out, out / "export", "hf", reason="lies in OUT")
    check_refused(out, out.parent, "hf", reason="lies in OUT, or OUT in it")


def test_a_folder_that_another_process_exports_to_is_refused(out: Path, tmp_path: Path) -> None:
    (tmp_path / WORK).mkdir()
    with hold_lock(tmp_path / WORK / "lock", work="facefeed export"):
        check_refused(out, tmp_path, "hf", reason="facefeed export is working on it")


def test_a_form_without_shards_takes_no_size_of_them(out: Path, tmp_path: Path) -> None:
    check_refused(out, tmp_path / "dest", "folders", "--shard-mb", 5, reason="folders has no shards; leave it out")
    check_refused(out, tmp_path / "dest", "hf", "--shard-mb", 0, reason="must be at least 1")


def test_a_split_without_rows_cannot_be_exported(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", (Clip("real/a.mp4", 2),)),))
    check_refused(tmp_path / "out", tmp_path / "dest", "hf", "--split", "val", reason="has no rows of it")


def test_an_unfinished_dataset_cannot_be_exported(tmp_path: Path) -> None:
    check_refused(tmp_path / "nothing", tmp_path / "dest", "hf", reason="no finished dataset")


# ---- damage in OUT


@every_form
def test_damaged_rows_are_left_out_counted_and_named(out: Path, tmp_path: Path, form: str) -> None:
    copy = copy_dataset(out, tmp_path / "out")
    damage(copy, 1, 200)
    index = Index(copy)
    face_ids = [index.value("face_id", row) for row in (1, 200)]
    figures = exported(copy, tmp_path / "dest", form, exit_code=1)
    assert (figures["rows"], figures["damaged"], figures["findings"]) == (TOTAL - 2, 2, [])
    assert sorted(figures["damaged_rows"]) == sorted(face_ids)
    again = run_export(copy, tmp_path / "dest", form)
    assert again.exit_code == 1
    assert {f"  {face_id}" for face_id in face_ids} <= set(again.stderr.splitlines())
    assert "facefeed verify" in again.stderr
    text = b"".join((tmp_path / "dest" / path).read_bytes() for path in listed(tmp_path / "dest"))
    assert not any(face_id.encode() in text for face_id in face_ids)


def test_of_many_damaged_rows_the_first_are_named_and_the_receipt_names_all(out: Path, tmp_path: Path) -> None:
    copy = copy_dataset(out, tmp_path / "out")
    damage(copy, *range(12))
    result = run_export(copy, tmp_path / "dest", "hf")
    lines = result.stderr.splitlines()
    assert lines[0].split() == ["damaged", "12", "rows", "of", "OUT", "left", "out:"]
    assert lines[1:11] == [f"  {Index(copy).value('face_id', row)}" for row in range(10)]
    assert lines[11] == f"  and 2 more: {tmp_path / 'dest' / 'export.json'}"
    assert Index(copy).value("face_id", 11) in (tmp_path / "dest" / "export.json").read_text()


def test_a_row_with_a_damaged_mask_is_damaged(out: Path, tmp_path: Path) -> None:
    copy = copy_dataset(out, tmp_path / "out")
    index = Index(copy)
    row = next(row for row in range(len(index)) if index.value("mask_bytes", row))
    with (copy / index.value("file", row)).open("r+b") as file:
        file.seek(index.value("mask_offset", row) + 30)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    figures = exported(copy, tmp_path / "dest", "webdataset", exit_code=1)
    assert figures["damaged_rows"] == [index.value("face_id", row)]


def test_a_frame_left_out_for_damage_is_in_no_list_of_frames(out: Path, tmp_path: Path) -> None:
    copy = copy_dataset(out, tmp_path / "out")
    row = next(row for row in range(TOTAL) if Index(copy).value("video_id", row) == "real/emil.mp4")
    damage(copy, row)
    exported(copy, tmp_path / "dest", "deepfakebench", exit_code=1)
    frame = f"frames/emil/{Index(copy).value('frame_index', row):03d}.png"
    assert frame not in (tmp_path / "dest/preprocessing/dataset_json/noise.json").read_text()
    assert not any(path.endswith(frame) for path in files_below(tmp_path / "dest"))


def test_a_missing_file_of_the_dataset_stops_the_export(out: Path, tmp_path: Path) -> None:
    copy = copy_dataset(out, tmp_path / "out")
    (copy / stored_rows(copy)[0]["file"]).unlink()
    result = run_export(copy, tmp_path / "dest", "folders")
    assert result.exit_code == 1
    assert "No such file or directory; run `facefeed verify" in " ".join(result.stderr.split())
    shutil.rmtree(copy / "faces")
    shutil.copytree(out / "faces", copy / "faces")
    assert exported(copy, tmp_path / "dest", "folders")["rows"] == TOTAL


def test_a_disk_that_fails_stops_the_export_and_the_same_command_resumes(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FailingStorage(errno.EIO)
    with monkeypatch.context() as patched:
        patched.setattr(byte_ranges, "Storage", lambda: storage)
        exported(out, tmp_path / "passing", "folders")
        storage.failures = [errno.EIO] * 6
        stopped = run_export(out, tmp_path / "dest", "folders")
    assert len(storage.waited) == 1 + len(byte_ranges.RETRY_DELAYS_SECONDS)
    assert stopped.exit_code == 75
    assert "(EIO), also after 5 further attempts" in " ".join(stopped.stderr.split())
    assert exported(out, tmp_path / "dest", "folders")["damaged"] == 0


def test_an_index_of_another_state_is_refused(out: Path, tmp_path: Path) -> None:
    copy = copy_dataset(out, tmp_path / "out")
    manifest = OutPaths(copy).manifest
    manifest.write_text(manifest.read_text().replace(Index(copy).fingerprint, "0" * 64))
    result = run_export(copy, tmp_path / "dest", "folders")
    assert result.exit_code == 1
    assert "--rebuild-index" in result.stderr
    assert without(files_below(tmp_path), *(f"out/{path}" for path in files_below(copy))) == set()
