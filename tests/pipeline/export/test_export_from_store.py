"""`facefeed export` of an OUT in a store: the files of an export of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from assets_dataset import HALVED, Clip, copy_dataset, make_dataset
from assets_export import files_below, run_export
from assets_out_in_store import URL, StoredOut, contents_of
from assets_rows import damage
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.errors import RefusedError, StoppedError, UsageError
from facefeed.pipeline.export import run as export_run
from facefeed.pipeline.export.request import ExportRequest
from facefeed.pipeline.export.rows import StoredRows
from facefeed.pipeline.export.run import export


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "out"
    make_dataset(out, (("train", HALVED), ("val", (Clip("real/ines.mp4", 2),))))
    return out


@pytest.fixture
def store(store: StoredOut, out: Path, monkeypatch: pytest.MonkeyPatch) -> StoredOut:
    store.restore({name: (out / name).read_bytes() for name in contents_of(out)})
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.server.url)
    return store


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


@pytest.mark.parametrize("form", ["folders", "webdataset", "hf"])
def test_the_files_are_those_of_an_export_of_the_folder(store: StoredOut, out: Path, tmp_path: Path, form: str) -> None:
    store.server.faults = lambda number: None if number % 2 else "slow_down"
    assert run_export(out, tmp_path / "local", form).exit_code == 0
    result = run_export(URL, tmp_path / "stored", form)
    assert result.exit_code == 0, result.output
    assert contents(tmp_path / "stored") == contents(tmp_path / "local")
    assert store.server.requests > 2


def test_a_finished_export_is_read_back(store: StoredOut, tmp_path: Path) -> None:
    for was_finished in (False, True):
        result = export(URL, tmp_path / "dest", ExportRequest(form="folders"), storage_options=store.server.options)
        assert (result.was_finished, result.exit_code) == (was_finished, 0)


def test_a_store_that_stops_answering_stops_the_export_which_is_resumed(store: StoredOut, tmp_path: Path) -> None:
    store.server.faults = lambda number: "slow_down" if number else None
    request, dest = ExportRequest(form="folders"), tmp_path / "dest"
    with pytest.raises(StoppedError, match=URL):
        export(URL, dest, request, storage_options=store.server.options)
    store.server.behave()
    assert export(URL, dest, request, storage_options=store.server.options).parts_before == 1


def test_an_export_whose_files_a_compaction_removes_meanwhile_says_that_the_dataset_has_changed(
    store: StoredOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parts = export_run._write_parts

    def compact_then_write(*given: Any) -> int:
        compact(URL, workers=1, storage_options=store.server.options)
        return write_parts(*given)

    monkeypatch.setattr(export_run, "_write_parts", compact_then_write)
    with pytest.raises(StoppedError, match=rf"^{URL}: has changed during the export; delete {tmp_path}/dest and"):
        export(URL, tmp_path / "dest", ExportRequest(form="folders"), storage_options=store.server.options)


def test_credentials_in_an_address_are_not_printed(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = copy_dataset(out, tmp_path / "out")
    damage(mine, 1)
    monkeypatch.setattr(export_run, "StoredRows", lambda *_: StoredRows(mine))
    fingerprints = iter(("another", StoredRows(mine).manifest.fingerprint))
    monkeypatch.setattr(export_run, "_fingerprint_now", lambda *_: next(fingerprints))
    address, options = "https://me:secret@host.example/faces", (["--split", "test"], [], [])
    results = [run_export(address, tmp_path / "dest", "folders", *given) for given in options]
    assert [result.exit_code for result in results] == [2, 75, 1]
    for result in results:
        assert "https://host.example/faces" in result.stderr
        assert "secret" not in result.output + result.stderr


def test_an_export_into_the_dataset_is_refused_where_that_is_named_by_an_address_of_this_machine(out: Path) -> None:
    with pytest.raises(RefusedError, match="lies in OUT"):
        export(f"file://{out}", out / "export", ExportRequest(form="folders"))
    assert not (out / "export").exists()


def test_an_address_without_a_finished_dataset_is_named(store: StoredOut, tmp_path: Path) -> None:
    store.remove("manifest.json")
    with pytest.raises(UsageError, match=rf"^{URL}: no manifest.json"):
        export(URL, tmp_path / "dest", ExportRequest(form="folders"), storage_options=store.server.options)
    assert not (tmp_path / "dest").exists()


def test_an_export_is_not_written_to_a_store(store: StoredOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_export(URL, "s3://faces-out/exported", "folders")
    assert result.exit_code == 2
    assert (
        "s3://faces-out/exported: is the address of an object store; an export is written to a folder" in result.stderr
    )
    assert [*tmp_path.iterdir()] == []
