"""What `facefeed verify` says of a whole dataset and of each way to damage one."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from assets_dataset import (
    FILES,
    INPUTS,
    LABELS,
    LONG,
    NO_ROWS,
    ROWS,
    TEST,
    Clip,
    copy_dataset,
    finish_dataset,
    make_dataset,
    open_run_state,
)
from assets_docs import key_differences, keys
from assets_random import examples
from click.testing import CliRunner, Result
from facefeed.pipeline.cli import main
from facefeed.pipeline.commit.finalize import publish_manifest
from facefeed.pipeline.commit.lease import hold_lease
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dataset.schema import face_schema, parquet_writer_options
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.pipeline.files import sha256_of
from facefeed.pipeline.planning.failure_limit import Failure
from facefeed.pipeline.planning.plan import PlanPart
from facefeed.pipeline.verify import unfinished
from facefeed.pipeline.verify.check import VerifyResult, verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("verify") / "out"
    make_dataset(out)
    return out


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


def check_findings(out: Path) -> dict[str, str]:
    """Location of each finding by kind, after checking that the command exits 1 and names each of them."""
    verdict = verify(out)
    result = run(out)
    assert result.exit_code == 1
    assert not isinstance(result.exception, Exception)
    assert verdict.findings
    for finding in verdict.findings:
        assert finding.location in result.stderr
    return {finding.kind: finding.location for finding in verdict.findings}


def files(out: Path) -> list[Path]:
    return sorted((out / "faces").rglob("*.parquet"))


def long_file(out: Path) -> Path:
    return max(files(out), key=lambda path: path.stat().st_size)


def name(out: Path, path: Path) -> str:
    return path.relative_to(out).as_posix()


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data))


# ---- a whole dataset


def test_a_whole_dataset_has_no_findings(dataset: Path) -> None:
    verdict = verify(dataset)
    assert verdict.findings == []
    assert (verdict.files, verdict.rows) == (FILES, sum(ROWS.values()))
    assert verdict.size_bytes == sum(path.stat().st_size for path in files(dataset))
    result = run(dataset)
    assert result.exit_code == 0
    assert "whole" in result.stderr


def test_the_manifest_accounts_for_every_input_once(dataset: Path) -> None:
    manifest = Manifest.read(dataset)
    assert manifest.inputs == INPUTS
    assert {split: counts["rows"] for split, counts in manifest.splits.items()} == ROWS
    assert (
        INPUTS["total"] == INPUTS["ok"] + INPUTS["no_faces"] + sum(INPUTS["failed"].values())  # type: ignore[operator]
    )


def test_verifying_changes_nothing(dataset: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(dataset.rglob("*"))}

    before = state()
    verify(dataset)
    assert state() == before


def test_json_is_one_object_on_the_last_line(dataset: Path, copy: Path) -> None:
    good = json.loads(run(dataset, "--json").stdout.splitlines()[-1])
    size = sum(path.stat().st_size for path in files(dataset))
    assert good == {"files": FILES, "rows": sum(ROWS.values()), "bytes": size, "findings": [],
                    "finished": True, "pending": 0, "failed": {}, "exit": 0}  # fmt: skip
    long_file(copy).unlink()
    result = run(copy, "--json")
    bad = json.loads(result.stdout.splitlines()[-1])
    assert (bad["exit"], result.exit_code) == (1, 1)
    unfinished = {"failed": {"truncated": 1}}  # counted of such a dataset alone
    assert key_differences({*keys({**bad, **unfinished})}, "A verification") == (set(), set())
    (finding,) = bad["findings"]
    assert finding.pop("remedy")
    assert finding == {"what": "file", "where": name(dataset, long_file(dataset)), "detail": "missing"}


def test_an_index_that_may_not_be_written_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in files(copy)}
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)  # root may write to a folder whatever its mode
    result = run(copy, "--rebuild-index")
    assert result.exit_code == 2
    assert f"{str(copy)!r} may not be written to by this user, or is on a read-only file system" in result.stderr
    assert {path: path.read_bytes() for path in files(copy)} == before


def test_every_file_is_announced(dataset: Path) -> None:
    announced: list[str] = []
    verify(dataset, on_file=announced.append)
    assert sorted(announced) == [name(dataset, path) for path in files(dataset)]


@pytest.mark.parametrize("rebuilding", [[], ["--rebuild-index"]])
@pytest.mark.parametrize("kind", ["nothing", "empty folder", "file"])
def test_a_folder_without_a_dataset_is_refused(tmp_path: Path, kind: str, rebuilding: list[str]) -> None:
    out = tmp_path / "out"
    if kind == "empty folder":
        out.mkdir()
    elif kind == "file":
        out.write_text("hello")
    result = run(out, *rebuilding)
    assert result.exit_code == 2
    assert "no finished dataset" in result.stderr
    with pytest.raises(UsageError):
        verify(out)
    assert [path.name for path in tmp_path.rglob("*")] == ([] if kind == "nothing" else ["out"])


# ---- files


@examples(40, same_fixtures=True)
@given(data=st.data(), flip=st.integers(1, 255))
def test_a_changed_byte_anywhere_in_a_file_is_found(copy: Path, data: Any, flip: int) -> None:
    path = data.draw(st.sampled_from(files(copy)))
    content = path.read_bytes()
    # Half of all choices near the end: the footer is small, and where damage is most likely to confuse a reader.
    position = data.draw(
        st.one_of(st.integers(0, len(content) - 1), st.integers(max(0, len(content) - 9000), len(content) - 1))
    )
    damaged = bytearray(content)
    damaged[position] ^= flip
    try:
        path.write_bytes(damaged)
        findings = verify(copy).findings
    finally:
        path.write_bytes(content)
    assert ("hash", name(copy, path)) in {(finding.kind, finding.location) for finding in findings}


def test_a_changed_byte_in_an_image_is_found_by_hash_and_page(copy: Path) -> None:
    index = Index(copy)
    row = int(index.rows_where("split", "val")[3])
    path = copy / index.value("file", row)
    content = bytearray(path.read_bytes())
    content[index.value("image_offset", row) + 50] ^= 1
    path.write_bytes(content)
    assert check_findings(copy) == {"hash": name(copy, path), "content": name(copy, path)}


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.999])
def test_a_truncated_file_is_found(copy: Path, fraction: float) -> None:
    path = long_file(copy)
    path.write_bytes(path.read_bytes()[: int(fraction * path.stat().st_size)])
    kinds = check_findings(copy)
    assert kinds["size"] == kinds["hash"] == kinds["content"] == name(copy, path)


def test_a_missing_file_is_one_finding_with_one_remedy(copy: Path) -> None:
    path = long_file(copy)
    path.unlink()
    (finding,) = verify(copy).findings
    assert (finding.kind, finding.location, finding.detail) == ("file", name(copy, path), "missing")
    assert check_findings(copy) == {"file": name(copy, path)}
    last = run(copy).stderr.replace("\n", " ")
    assert "1 finding in" in last
    assert "precompute" in last
    assert "delete" not in last, "there is nothing to delete"


def test_a_missing_folder_of_faces_is_a_finding_for_each_of_its_files(copy: Path) -> None:
    names = sorted(path.relative_to(copy).as_posix() for path in (copy / "faces").rglob("*.parquet"))
    shutil.rmtree(copy / "faces")
    result = verify(copy)
    assert result.exit_code == 1
    assert sorted(finding.location for finding in result.findings) == names
    assert {finding.kind for finding in result.findings} == {"file"}


def test_a_missing_file_does_not_count_as_read(copy: Path) -> None:
    path = long_file(copy)
    num_rows = pq.read_metadata(path).num_rows
    path.unlink()
    verdict = verify(copy)
    assert (verdict.files, verdict.rows) == (FILES - 1, sum(ROWS.values()) - num_rows)
    assert verdict.size_bytes == sum(path.stat().st_size for path in files(copy))


@pytest.mark.parametrize("path", ["faces/train/other.parquet", "faces/notes.txt", "faces/new/a/b.parquet"])
def test_a_file_that_nobody_accounts_for_is_found(copy: Path, path: str) -> None:
    (copy / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(long_file(copy), copy / path)
    assert check_findings(copy) == {"unknown-file": path}


def test_two_files_that_changed_places_are_found(copy: Path) -> None:
    a, b = files(copy)[:2]
    content = a.read_bytes(), b.read_bytes()
    a.write_bytes(content[1])
    b.write_bytes(content[0])
    assert {finding.location for finding in verify(copy).findings if finding.kind == "hash"} == {
        name(copy, a),
        name(copy, b),
    }


def rewritten(out: Path, change: Callable[[pa.Table], pa.Table], *, rows_too: bool = False) -> str:
    """Rewrites the longest file as its own unit would have, receipt, index and manifest with it."""
    path = long_file(out)
    with pq.ParquetFile(path) as file:
        metadata = {k.decode(): v.decode() for k, v in file.metadata.metadata.items() if k != b"ARROW:schema"}
        table = change(file.read())
    with pq.ParquetWriter(path, table.schema, **parquet_writer_options(table.schema)) as writer:
        writer.write_table(table, row_group_size=256)
        writer.add_key_value_metadata(metadata)
    size, digest = path.stat().st_size, sha256_of(path)
    edit_json(out / "receipts" / f"{path.stem}.json", lambda data: data.update(bytes=size, sha256=digest))
    return name(out, path)


def replaced(table: pa.Table, column: str, values: Any) -> pa.Table:
    field = table.schema.field(column)
    return table.set_column(table.schema.get_field_index(column), field, pa.array(values, field.type))


def test_a_rewritten_file_that_says_the_same_is_whole(copy: Path) -> None:
    rewritten(copy, lambda table: table)
    finish_dataset(copy)
    assert verify(copy).findings == []


def test_a_row_of_another_split_is_found(copy: Path) -> None:
    location = rewritten(copy, lambda table: replaced(table, "split", ["test", *["train"] * (len(table) - 1)]))
    finish_dataset(copy)
    assert check_findings(copy) == {"split": location}


def test_a_wrong_checksum_of_an_image_is_found_and_its_face_named(copy: Path) -> None:
    location = rewritten(copy, lambda table: replaced(table, "image_crc32", [7, *table["image_crc32"].to_pylist()[1:]]))
    finish_dataset(copy)
    assert check_findings(copy) == {"image": f"{location}: {LONG[0].name}/0/0"}


def test_a_swapped_image_is_found(copy: Path) -> None:
    def swap(table: pa.Table) -> pa.Table:
        images = table["image"].to_pylist()
        assert zlib.crc32(images[0]) != zlib.crc32(images[1])
        return replaced(table, "image", [images[1], images[0], *images[2:]])

    location = rewritten(copy, swap)
    finish_dataset(copy)
    findings = verify(copy).findings
    assert [finding.location for finding in findings if finding.kind == "image"] == [
        f"{location}: {LONG[0].name}/{n}/0" for n in (0, 1)
    ]


def test_a_face_that_stands_there_twice_is_found(copy: Path) -> None:
    def twice(table: pa.Table) -> pa.Table:
        ids = table["face_id"].to_pylist()
        return replaced(table, "face_id", [ids[1], *ids[1:]])

    location = rewritten(copy, twice)
    finish_dataset(copy)
    assert check_findings(copy) == {"duplicate": location}


def test_rows_of_a_video_that_are_too_few_are_found(copy: Path) -> None:
    def renamed(table: pa.Table) -> pa.Table:
        videos = table["video_id"].to_pylist()
        return replaced(table, "video_id", [videos[-1], *videos[1:]])

    location = rewritten(copy, renamed)
    finish_dataset(copy)
    assert {finding.location for finding in verify(copy).findings} == {f"{location}: {clip.name}" for clip in LONG}
    assert check_findings(copy).keys() == {"rows"}


SCHEMAS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a column less": lambda table: table.drop_columns("sharpness"),
    "a column more": lambda table: table.append_column("extra", pa.array(range(len(table)))),
    "another type": lambda table: table.set_column(
        table.schema.get_field_index("label"), "label", table["label"].cast(pa.int32())
    ),
    "no image": lambda table: table.drop_columns("image"),
    "other labels": lambda table: table.replace_schema_metadata(face_schema(["fake", "real"]).metadata),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_file_of_another_schema_is_found(copy: Path, kind: str) -> None:
    location = rewritten(copy, SCHEMAS[kind])
    assert check_findings(copy)["schema"] == location


def test_a_video_in_two_units_is_found(tmp_path: Path) -> None:
    duplicate = Clip(LONG[0].name, 4)
    make_dataset(tmp_path / "out", (("train", (LONG[0],)), ("train", TEST), ("train", (duplicate, TEST[0]))))
    first, second, _ = open_run_state(tmp_path / "out").plan.units()
    findings = [finding for finding in verify(tmp_path / "out").findings if finding.kind == "duplicate"]
    expected = {
        f"faces/train/{first.unit_id}.parquet: {LONG[0].name}",
        f"faces/train/{second.unit_id}.parquet: {TEST[0].name}",
    }
    assert {finding.location for finding in findings} == expected
    assert run(tmp_path / "out").exit_code == 1


# ---- receipts


def receipt(out: Path) -> Path:
    return out / "receipts" / f"{long_file(out).stem}.json"


def test_a_missing_receipt_is_found(copy: Path) -> None:
    path = receipt(copy)
    path.unlink()
    assert check_findings(copy) == {"receipt": name(copy, path)}
    assert len(verify(copy).findings) == 1


def test_a_split_without_faces_is_not_among_those_of_the_manifest_and_older_ones_that_list_it_are_sound(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    make_dataset(out, (("train", LONG), ("test", NO_ROWS)))
    manifest = Manifest.read(out)
    assert set(manifest.splits) == {"train"}
    older = dataclasses.replace(manifest, splits={**manifest.splits, "test": {"rows": 0, "videos": 0}})
    (out / "manifest.json").write_text(older.to_json())
    assert verify(out).findings == []


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "7", "{}", '{"version": 1}', "[" * 100_000, "\0\xff"])
def test_a_damaged_receipt_is_found(copy: Path, content: str) -> None:
    receipt(copy).write_text(content)
    assert check_findings(copy)["receipt"] == name(copy, receipt(copy))


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir])
@pytest.mark.parametrize("kind", ["receipt", "plan", "manifest", "index", "content"])
def test_a_pipe_or_a_folder_in_place_of_a_file_is_found(copy: Path, kind: str, put: Callable[[Path], None]) -> None:
    """Reading a pipe would wait for a writer."""
    places = {"receipt": receipt(copy), "plan": copy / "plan" / "0.json", "manifest": copy / "manifest.json"}
    places["content"] = next((copy / "faces").rglob("*.parquet"))
    path = places.get(kind, copy / "index.arrow")
    path.unlink()
    put(path)
    assert check_findings(copy) == {kind: str(copy) if kind in {"plan", "manifest"} else name(copy, path)}
    text = " ".join(run(copy).stderr.split())
    assert "must be a file" in text
    if kind == "manifest":
        assert "remove it and run `facefeed precompute` again" in text


@pytest.mark.parametrize("place", ["index.arrow", "driver.lease", "_tmp"])
def test_an_index_is_not_rebuilt_where_a_folder_is_in_the_place_of_a_file(copy: Path, place: str) -> None:
    path = copy / place
    if path.is_dir():
        path.rmdir()
        path.touch()
    else:
        path.unlink(missing_ok=True)
        path.mkdir()
    result = run(copy, "--rebuild-index")
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert "move it away" in result.stderr


def _rows(data: dict[str, Any]) -> None:
    data["rows"] += 1
    data["inputs"][0]["faces"] += 1


LIES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "rows": ("content", _rows),
    "rows, but not of its inputs": ("receipt", lambda data: data.update(rows=data["rows"] + 1)),
    "an input of another unit": ("receipt", lambda data: data["inputs"][0].update(video_id=TEST[0].name)),
    "an input that nobody planned": ("receipt", lambda data: data["inputs"][0].update(video_id="real/nobody.mp4")),
    "an input less": ("receipt", lambda data: data.update(rows=data["rows"] - data["inputs"].pop()["faces"])),
    "an input twice": ("receipt", lambda data: data["inputs"].append({**data["inputs"][0], "faces": 0})),
    "another unit": ("receipt", lambda data: data.update(unit="0" * 32)),
    "another config": ("receipt", lambda data: data.update(config="0" * 16)),
    "bytes": ("size", lambda data: data.update(bytes=data["bytes"] + 1)),
    "hash": ("hash", lambda data: data.update(sha256="0" * 64)),
    "no file": ("receipt", lambda data: data.update(file=None)),
    "a file outside": ("receipt", lambda data: data.update(file="../../etc/passwd")),
    "a file below another split": ("receipt", lambda data: data.update(file=data["file"].replace("train", "test"))),
    "split, without halves": ("receipt", lambda data: data.update(outcome="split")),
    "an unknown outcome": ("receipt", lambda data: data.update(outcome="dine")),
    "rows in words": ("receipt", lambda data: data.update(rows="many")),
    "faces in words": ("receipt", lambda data: data["inputs"][0].update(faces="many")),
    "a reason that is a list": ("receipt", lambda data: data.update(inputs=[[]])),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_receipt_is_found(copy: Path, lie: str) -> None:
    kind, change = LIES[lie]
    edit_json(receipt(copy), change)
    findings = verify(copy).findings
    locations = [finding.location for finding in findings if finding.kind == kind]
    assert any(receipt(copy).stem in location for location in locations), findings
    check_findings(copy)


def test_a_split_receipt_that_names_other_halves_is_found(copy: Path) -> None:
    (path,) = [path for path in (copy / "receipts").iterdir() if json.loads(path.read_bytes())["outcome"] == "split"]
    edit_json(path, lambda data: data.update(children=data["children"][::-1]))
    assert check_findings(copy) == {"receipt": name(copy, path)}


def test_a_half_without_a_receipt_is_found(copy: Path) -> None:
    (path,) = [path for path in (copy / "receipts").iterdir() if json.loads(path.read_bytes())["outcome"] == "split"]
    half = json.loads(path.read_bytes())["children"][0]
    (copy / "receipts" / f"{half}.json").unlink()
    assert check_findings(copy)["receipt"] == f"receipts/{half}.json"


# ---- plan and manifest


FIGURES: dict[str, Callable[[dict[str, Any]], object]] = {
    "rows": lambda data: data.update(rows=data["rows"] + 1),
    "bytes": lambda data: data.update(bytes=0),
    "units": lambda data: data.update(units=99),
    "splits": lambda data: data["splits"]["val"].update(videos=3),
    "inputs": lambda data: data["inputs"]["failed"].update(truncated=2),
    "fingerprint": lambda data: data.update(fingerprint="0" * 64),
    "faces_without_mask": lambda data: data.update(faces_without_mask=data["faces_without_mask"] + 1),
    "faces_with_own_mask": lambda data: data.update(faces_with_own_mask=data["faces_with_own_mask"] + 1),
    "own_masks_unused": lambda data: data.update(own_masks_unused={"damaged": 1}),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_a_wrong_figure_in_the_manifest_is_found(copy: Path, figure: str) -> None:
    edit_json(copy / "manifest.json", FIGURES[figure])
    details = [finding.detail for finding in verify(copy).findings if finding.kind == "account"]
    assert any(detail.startswith(f"{figure}: says ") for detail in details)
    assert check_findings(copy)["account"] == "manifest.json"


NO_MANIFESTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "other labels": lambda data: data.update(labels=["fake", "real"]),
    "labels that are a number": lambda data: data.update(labels=5),
    "another config": lambda data: data["config"].update(margin=0.5),
    "a config that is a list": lambda data: data.update(config=[]),
    "inputs that are a list": lambda data: data.update(inputs=[]),
    "refused that is a list of numbers": lambda data: data.update(refused=[1]),
    "splits that are null": lambda data: data.update(splits=None),
    "an unknown version": lambda data: data.update(version=2),
    "a field more": lambda data: data.update(extra=1),
    "a field less": lambda data: data.pop("rows"),
}


@pytest.mark.parametrize("kind", NO_MANIFESTS)
def test_a_manifest_that_is_none_is_found(copy: Path, kind: str) -> None:
    edit_json(copy / "manifest.json", NO_MANIFESTS[kind])
    check_findings(copy)
    assert run(copy, "--rebuild-index").exit_code == 1


@examples(40, same_fixtures=True)
@given(data=st.data(), flip=st.integers(1, 255), folder=st.sampled_from(["manifest.json", "plan", "receipts"]))
def test_no_changed_byte_of_the_account_makes_it_raise(copy: Path, data: Any, flip: int, folder: str) -> None:
    target = copy / folder
    path = target if target.is_file() else data.draw(st.sampled_from(sorted(target.iterdir())))
    content = path.read_bytes()
    position = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[position] ^= flip
    try:
        path.write_bytes(damaged)
        verdict = verify(copy)
    finally:
        path.write_bytes(content)
    assert isinstance(verdict, VerifyResult)
    if folder == "plan":
        # A unit is named by a hash over its inputs, but that is the plan's own word: see `Unit.make`.
        return
    before, after = _meaning(content), _meaning(bytes(damaged))
    assert verdict.findings or before == after


def _meaning(text: bytes) -> Any:
    """What of a receipt or manifest is stored twice; seconds, times, details and the names of the refused are not."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    once = {"frames_wanted", "frames_decoded", "seconds", "detail", "size_bytes", "mtime_ns", "missing", "supersedes"}

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key not in once}
        return [strip(item) for item in value] if isinstance(value, list) else value

    meaning = strip(data)
    for refused in meaning.get("refused", []) if isinstance(meaning, dict) else []:
        refused.pop("video_id", None)
    return meaning


@pytest.mark.parametrize("content", ["", "[]", "{", "7", '{"version": 1, "units": 3}'])
def test_a_damaged_plan_is_found(copy: Path, content: str) -> None:
    (copy / "plan" / "0.json").write_text(content)
    assert check_findings(copy) == {"plan": str(copy)}


def test_a_plan_part_of_another_name_is_found(copy: Path) -> None:
    (copy / "plan" / "copy.json").write_text("{}")
    assert check_findings(copy) == {"plan": str(copy)}


def test_a_plan_that_is_gone_is_found(copy: Path) -> None:
    shutil.rmtree(copy / "plan")
    assert check_findings(copy) == {"plan": "plan"}
    assert "restore" in verify(copy).findings[0].remedy


def next_plan_part(out: Path) -> None:
    """As if a later run had been stopped right after it had planned its work."""
    plan = open_run_state(out).plan
    plan.append(OutPaths(out), PlanPart(config=plan.parts[0].config, units=()))


def test_a_plan_that_has_grown_since_the_manifest_is_an_unfinished_run(copy: Path) -> None:
    next_plan_part(copy)
    assert (verify(copy).findings, verify(copy).is_finished) == ([], False)
    assert "a later run did not come to its end" in run(copy).stderr


def test_an_account_from_before_plan_parts_were_counted_is_whole(copy: Path) -> None:
    edit_json(copy / "manifest.json", lambda data: data.pop("plan_parts"))
    next_plan_part(copy)
    assert run(copy).exit_code == 0


def test_a_plan_that_has_lost_its_last_part_is_found(copy: Path) -> None:
    next_plan_part(copy)
    finish_dataset(copy)
    (copy / "plan" / "1.json").unlink()
    assert check_findings(copy) == {"plan": "plan"}
    assert "1 part, the manifest accounts for 2" in run(copy).stderr


def test_failures_of_an_unfinished_dataset_are_counted_with_the_ways_out(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    result = run(copy, "--json")
    assert result.exit_code == 1
    text = result.stderr.replace("\n", " ")
    assert "unfinished: 5 of 5 units are done, 0 inputs left to do" in text
    assert "1 input failed: 1 truncated" in text
    assert "--retry-failed does the failed inputs again, --max-failed 1 or more accepts them" in text
    assert "those that are no longer in SRC do not count then" in text
    figures = json.loads(result.stdout)
    assert (figures["finished"], figures["pending"], figures["failed"]) == (False, 0, {"truncated": 1})


@pytest.mark.parametrize(
    ("reasons", "advice"),
    [
        (["outside_root"], "--max-failed 1 or more accepts them; outside_root: --allow-root FOLDER; "),
        (["bridges_splits"], "--max-failed 1 or more accepts them; bridges_splits: a new OUT; "),
        (
            ["crashed", "outside_root"],
            "--retry-failed does the failed inputs again, --max-failed 2 or more accepts them; outside_root: ",
        ),
    ],
)
def test_an_unfinished_dataset_advises_to_retry_only_what_would_not_fail_again(
    copy: Path, monkeypatch: pytest.MonkeyPatch, reasons: list[str], advice: str
) -> None:
    (copy / "manifest.json").unlink()
    failures = [Failure(f"{reason}.mp4", reason, "") for reason in reasons]
    monkeypatch.setattr(unfinished, "failures_in_source", lambda *_: (failures, 9))
    stderr = run(copy).stderr.replace("\n", " ")
    assert advice in stderr
    assert ("--retry-failed" in stderr) == ("--retry-failed" in advice)


def test_an_input_that_failed_and_was_removed_counts_as_failed_in_no_later_unfinished_run(copy: Path) -> None:
    manifest = Manifest.read(copy)
    (failed,) = [outcome.video_id for _, outcome in open_run_state(copy).outcomes() if outcome.outcome == "failed"]
    publish_manifest(OutPaths(copy), dataclasses.replace(manifest, removed=[failed]))
    next_plan_part(copy)
    result = run(copy, "--json")
    assert "a later run did not come to its end" in result.stderr
    assert " failed: " not in result.stderr
    assert "--retry-failed" not in result.stderr
    assert json.loads(result.stdout)["failed"] == {}


def test_an_unfinished_dataset_without_failures_is_not_advised_to_accept_any(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", LONG),))
    (tmp_path / "out/manifest.json").unlink()
    stderr = run(tmp_path / "out").stderr
    assert "with the same options" in stderr
    assert "-failed" not in stderr


def test_an_unfinished_dataset_without_a_face_says_what_finds_more(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", NO_ROWS),))
    (tmp_path / "out/manifest.json").unlink()
    stderr = run(tmp_path / "out").stderr
    assert "no face in any of 1 input" in stderr
    assert "--min-face" in stderr


# ---- index


@examples(25, same_fixtures=True)
@given(data=st.data(), flip=st.integers(1, 255))
def test_a_changed_byte_of_the_index_is_found_or_changes_nothing(copy: Path, data: Any, flip: int) -> None:
    path = copy / "index.arrow"
    content = path.read_bytes()
    position = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[position] ^= flip
    expected = Index(copy).column("image_offset").to_pylist(), Index(copy).column("label").to_pylist()
    try:
        path.unlink()
        path.write_bytes(damaged)
        verdict = verify(copy)
        if not verdict.findings:
            index = Index(copy)
            assert (index.column("image_offset").to_pylist(), index.column("label").to_pylist()) == expected
    finally:
        path.unlink()
        path.write_bytes(content)
    assert {finding.kind for finding in verdict.findings} <= {"index"}


def damage_index(out: Path, damage: str) -> None:
    path = out / "index.arrow"
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-500])
    elif damage == "of another dataset":
        make_dataset(out.parent / "other", (("train", TEST),))
        shutil.copyfile(out.parent / "other" / "index.arrow", path)
    else:
        table = _read_index(path)
        labels = pc.subtract(pa.scalar(1, pa.int8()), table["label"])
        changed = replaced(table, "label", labels.to_pylist())
        path.unlink()
        with pa.ipc.new_file(path, changed.schema) as writer:
            writer.write_table(changed)


def with_dictionary(path: Path, column: str, change: Callable[[list[str]], list[str]]) -> None:
    """Writes an index of the same values with another dictionary of a column."""
    table = _read_index(path)
    values = table[column].combine_chunks().dictionary_decode()
    dictionary = pa.array(change(table[column].chunk(0).dictionary.to_pylist()), pa.string())
    encoded = pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=dictionary), dictionary)
    changed = table.set_column(table.schema.get_field_index(column), table.schema.field(column), encoded)
    assert changed[column].to_pylist() == table[column].to_pylist()
    path.unlink()
    with pa.ipc.new_file(path, changed.schema) as writer:
        writer.write_table(changed)


@pytest.mark.parametrize("change", [lambda names: names[::-1], lambda names: [*names, "more"]])
@pytest.mark.parametrize("column", ["video_id", "file"])
def test_an_index_that_codes_its_values_otherwise_is_found(
    copy: Path, column: str, change: Callable[[list[str]], list[str]]
) -> None:
    with_dictionary(copy / "index.arrow", column, lambda names: names)
    assert verify(copy).findings == []
    with_dictionary(copy / "index.arrow", column, change)
    assert [(finding.kind, finding.detail) for finding in verify(copy).findings] == [
        ("index", "does not say what the files say")
    ]


def test_an_index_whose_rows_changed_places_is_found(copy: Path) -> None:
    path = copy / "index.arrow"
    table = _read_index(path)
    changed = table.take([1, 0, *range(2, len(table))])
    path.unlink()
    with pa.ipc.new_file(path, changed.schema) as writer:
        writer.write_batch(changed.combine_chunks().to_batches()[0])
    assert [finding.kind for finding in verify(copy).findings] == ["index"]


def _read_index(path: Path) -> pa.Table:
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "of another dataset", "with labels the wrong way"])
def test_a_damaged_index_is_found_and_mended(copy: Path, damage: str) -> None:
    damage_index(copy, damage)
    assert check_findings(copy) == {"index": "index.arrow"}
    (finding,) = verify(copy).findings
    assert "--rebuild-index" in finding.remedy
    result = run(copy, "--rebuild-index", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout.splitlines()[-1])["findings"] == []
    assert _read_index(copy / "index.arrow").num_rows == sum(ROWS.values())


def test_an_index_is_not_rebuilt_while_another_run_is_at_work(copy: Path) -> None:
    before = (copy / "index.arrow").read_bytes()
    damage_index(copy, "truncated")
    damaged = (copy / "index.arrow").read_bytes()
    with hold_lease(OutPaths(copy), work="facefeed compact"):
        result = run(copy, "--rebuild-index")
        assert result.exit_code == 2
        assert "facefeed compact" in result.stderr
        assert (copy / "index.arrow").read_bytes() == damaged
    assert run(copy, "--rebuild-index").exit_code == 0
    assert (copy / "index.arrow").read_bytes() == before


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a file less": lambda out: long_file(out).unlink(),
    "a truncated file": lambda out: long_file(out).write_bytes(long_file(out).read_bytes()[:-1]),
    "a receipt less": lambda out: receipt(out).unlink(),
    "no plan": lambda out: shutil.rmtree(out / "plan"),
    "no manifest to speak of": lambda out: (out / "manifest.json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_index_is_never_made_of_fewer_rows_than_the_manifest_promises(copy: Path, damage: str) -> None:
    before = (copy / "index.arrow").read_bytes()
    DAMAGES[damage](copy)
    assert not rebuild_index_file(copy)
    assert (copy / "index.arrow").read_bytes() == before
    result = run(copy, "--rebuild-index", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[-1])["findings"]


def test_labels_of_the_dataset_are_kept_in_the_manifest(dataset: Path) -> None:
    assert Manifest.read(dataset).labels == list(LABELS)
    assert dataclasses.asdict(Manifest.read(dataset))["config"]["labels"] == list(LABELS)


@pytest.mark.parametrize("reader", ["pyarrow.parquet.ParquetFile", "pyarrow.ipc.open_file"])
def test_what_memory_does_not_suffice_to_read_is_not_called_damaged(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise pa.ArrowMemoryError("malloc of size 4096 failed")

    monkeypatch.setattr(reader, refuse)
    with pytest.raises(StoppedError, match="Cannot allocate memory"):
        verify(dataset)
