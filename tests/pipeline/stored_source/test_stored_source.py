"""SRC in a store: the same rows as of a folder, each file fetched once, and nothing of it left on the disk."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import cv2
import fsspec
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from assets_dataset import open_run_state
from assets_in_process import Process, in_process, new_folder, one_by_one
from assets_stores import MisbehavingServer, s3_server, without_delays
from assets_tiny_source import NAMES, TinySource, content_of
from assets_video import numbered
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.dataset.stores import stored_file
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.remote_files import RemoteFiles
from facefeed.pipeline.dataset.stores.stored_file import StoredFile
from facefeed.pipeline.dryrun.probe import probe_family
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.dryrun.trials import Trials
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.rows.input_pipeline import InputPipeline
from facefeed.pipeline.sources import Entry, Listing, listing_warnings
from facefeed.pipeline.sources.layouts.folder import Folder
from facefeed.pipeline.stored_source.staging import STAGING_PREFIX, StagedFiles
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

OPTIONS = Options(sampling=Sampling(every=1), keep=FaceFilter(min_face_px=16), size_px=32)
SETTINGS: dict[str, Any] = {
    "options": OPTIONS, "detector": FixedBoxDetector(), "max_failed": FailureLimit.parse("1"),
}  # fmt: skip
URL = "s3://media/deepfakes"


@pytest.fixture
def source() -> TinySource:
    """A table and six videos, of which one cannot be read and one has no face."""
    source = TinySource(new_folder() / "deepfakes")
    for name, content in zip(NAMES, ("one", "two", "cut", "long", "faceless", "one"), strict=True):
        source.put(name, content)
    return source


@pytest.fixture
def out() -> Path:
    return new_folder() / "out"


def run(src: str | Path, out: Path, **given: Any) -> Summary:
    with in_process():
        return precompute(src, out, **{**SETTINGS, **given})


def rows(out: Path) -> pa.Table:
    return pads.dataset(out / "faces", partitioning=None).to_table().sort_by("face_id")


def accounts(out: Path) -> list[tuple[object, ...]]:
    """What the receipts record of each input."""
    outcomes = (outcome for _, outcome in open_run_state(out).outcomes())
    return sorted(
        (each.video_id, each.outcome, str(each.reason), each.faces, str(each.sha256), each.size_bytes)
        for each in outcomes
    )


def frames_in(*folders: str) -> Path:
    """A source of folders of three images each."""
    source = new_folder() / "frames"
    for name in folders:
        (source / name).mkdir(parents=True)
        for number in range(3):
            cv2.imwrite(str(source / name / f"{number:03}.png"), numbered(number, 64, 48))
    return source


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was read from its beginning."""
    counts: Counter[str] = Counter()
    read = RemoteFiles.read

    def counting(files: RemoteFiles, name: str, start: int, end: int) -> bytes:
        counts[name] += start == 0
        return read(files, name, start, end)

    monkeypatch.setattr(RemoteFiles, "read", counting)
    return counts


@pytest.mark.parametrize("table", ["", "/table.csv"], ids=["folder", "table"])
def test_rows_and_account_are_those_of_the_same_folder(
    source: TinySource, out: Path, fetched: Counter[str], table: str
) -> None:
    local = run(f"{source.folder}{table}", out.with_name("local"))
    stored = run(f"file://{source.folder}{table}", out)
    assert rows(out).num_rows > 0
    assert rows(out).equals(rows(out.with_name("local")))
    assert accounts(out) == accounts(out.with_name("local"))
    assert stored.listing.layout == local.listing.layout
    assert {name: fetched[name] for name in NAMES} == dict.fromkeys(NAMES, 1)
    assert verify(out).findings == []


def test_nothing_of_the_source_is_left_on_the_disk(
    source: TinySource, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = new_folder()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    run(f"file://{source.folder}", out)
    assert [*(out / "_tmp").iterdir()] == []
    assert [*temporary.glob("facefeed-source-*")] == []


def test_what_a_killed_worker_had_fetched_is_removed_by_the_next_run(source: TinySource, out: Path) -> None:
    run(f"file://{source.folder}", out)
    left = out / "_tmp" / f"{STAGING_PREFIX}1"
    left.mkdir()
    (left / "video.mp4").write_bytes(b"half")
    run(f"file://{source.folder}", out)
    assert not left.exists()


def test_a_later_run_fetches_what_is_new_or_was_replaced_alone(
    source: TinySource, out: Path, fetched: Counter[str]
) -> None:
    source.remove("real/c.mp4")
    run(f"file://{source.folder}/table.csv", out)
    fetched.clear()
    run(f"file://{source.folder}/table.csv", out)
    assert [name for name in fetched if name.endswith(".mp4")] == []
    source.put("real/c.mp4", "two")
    source.put("real/d.mp4", "long")
    run(f"file://{source.folder}/table.csv", out)
    again = {"real/c.mp4", "real/d.mp4", "fake/d.mp4"}  # the last was compared with the one that was replaced
    assert {name for name in fetched if name.endswith(".mp4")} == again
    fresh = run(f"{source.folder}/table.csv", out.with_name("local"))
    assert rows(out).drop_columns(["split"]).equals(rows(out.with_name("local")).drop_columns(["split"]))
    assert fresh.manifest.inputs == run(f"file://{source.folder}/table.csv", out).manifest.inputs


def test_a_file_of_1970_that_another_of_its_size_replaces_is_done_again(source: TinySource, out: Path) -> None:
    os.utime(source.folder / "real/a.mp4", ns=(0, 0))
    run(f"file://{source.folder}", out)
    source.put("real/a.mp4", "two")
    changes = run(f"file://{source.folder}", out).changes
    assert [entry.video_id for entry in changes.changed] == ["real/a.mp4"]


def test_a_dry_run_keeps_no_video_that_it_has_tried(
    source: TinySource, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[list[str]] = []

    def try_all(job: JobSpec, families: Sequence[Sequence[Entry]], *_: object) -> Trials:
        make_folders(job.paths)
        with closing(InputPipeline(job)) as pipeline:
            for family in families:
                probes = probe_family(pipeline, family, 0.0)
                assert len(probes) == len(family)
                left.append([path.name for path in out.glob(f"_tmp/{STAGING_PREFIX}*/*")])
        return Trials()

    monkeypatch.setattr("facefeed.pipeline.dryrun.run.try_families", try_all)
    dry_run(f"file://{source.folder}", out, options=OPTIONS, detector=FixedBoxDetector())
    assert len(left) > 1
    assert left == [[]] * len(left)


def test_folders_of_frames_are_clips_there_too(out: Path) -> None:
    source = frames_in("real/a", "fake/b")
    summary = run(f"file://{source}", out)
    assert [clip.video_id for clip in summary.listing.clips] == ["fake/b", "real/a"]
    run(source, out.with_name("local"))
    assert rows(out).num_rows == 6
    assert rows(out).equals(rows(out.with_name("local")))
    assert not run(f"file://{source}", out).changes.changed


def test_messages_name_the_address_and_not_the_folder_that_stands_for_it(source: TinySource, out: Path) -> None:
    with pytest.raises(UsageError) as caught:
        run(f"file://{source.folder}", out, layout="celebdf")
    assert f"SRC='file://{source.folder}'" in str(caught.value)
    assert "facefeed-source-" not in str(caught.value)
    assert not out.exists()


@pytest.mark.parametrize(
    ("src", "given", "message"),
    [
        ("file:///nowhere/at/all", {}, "the store has no file there; check the address"),
        (
            Path("s3://media/deepfakes"),
            {},
            "s3://media/deepfakes: is the address of an object store; write it with two slashes",
        ),
        ("nosuch://media", {}, "check the address"),
        ("s3://", {}, "names no bucket; try 's3://bucket/videos'"),
        ("file://{}/..", {}, "write the address without them"),
        ("s3://media/table.csv?versionId=3L4kqtJlcpXroDTDmJ", {}, r"SRC='s3://media/table.csv': has a query"),
        ("https://host/videos?token=hidden/..", {}, r"SRC='https://host/videos': has a query"),
        ("https://host/take#2", {}, r"or a fragment \(#...\) behind it"),
        ("https://me:hidden@host/a/..", {}, r"SRC='https://host/a/..': has empty parts"),
        ("file://{}", {"allow_roots": ["/tmp"]}, "--allow-root: a store has no links"),
        ("file://{}", {"storage_options": "key"}, "storage_options: must be a dict"),
    ],
)
def test_what_cannot_be_listed_is_refused(
    source: TinySource, out: Path, src: str | Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        run(src.format(source.folder) if isinstance(src, str) else src, out, **given)
    assert "hidden" not in str(caught.value)
    assert not out.exists()


@dataclass(frozen=True)
class Rooted:
    """A layout whose inputs are named from another folder than SRC."""

    root: str
    name, needs = "rooted", "anything"

    def fits(self, src: Path) -> bool:
        return True

    def read(self, src: Path, allowed: Sequence[Path]) -> Listing:
        return Folder().read(Path(os.path.normpath(src / self.root)), allowed)


def test_inputs_that_are_named_from_a_folder_in_the_source_are_found(source: TinySource, out: Path) -> None:
    run(f"file://{source.folder.parent}", out, layout=Rooted("deepfakes"))
    run(source.folder.parent, out.with_name("local"), layout=Rooted("deepfakes"))
    assert rows(out).num_rows > 0
    assert rows(out).equals(rows(out.with_name("local")))


def test_a_part_of_a_set_is_refused_with_the_address_of_the_set(source: TinySource, out: Path) -> None:
    with pytest.raises(UsageError) as caught:
        run(f"file://{source.folder}/real", out, layout=Rooted(".."))
    assert f"is a part of the set at file://{source.folder}, and its inputs are named from there" in str(caught.value)


@pytest.mark.parametrize("levels", [0, 2])
def test_a_part_of_a_set_above_its_bucket_is_refused_without_an_address(
    source: TinySource, out: Path, levels: int
) -> None:
    up = "../" * (len(source.folder.parts) - 1 + levels)
    with pytest.raises(UsageError) as caught:
        run(f"file://{source.folder}", out, layout=Rooted(up))
    assert "is a part of the set that lies above its bucket" in str(caught.value)
    assert "facefeed-source-" not in str(caught.value)


def test_links_are_refused_and_not_left_out(source: TinySource, out: Path) -> None:
    (source.folder / "real/e.mp4").symlink_to(source.folder / "real/a.mp4")
    with pytest.raises(UsageError, match=r"holds symbolic links \(real/e.mp4\)"):
        run(f"file://{source.folder}", out)


def test_a_table_that_leads_out_of_the_source_is_not_told_to_allow_that(source: TinySource, out: Path) -> None:
    lists = source.folder / "lists"
    lists.mkdir()
    (lists / "table.csv").write_text("path,label\n../real/a.mp4,real\n../fake/a.mp4,fake\n")
    with pytest.raises(UsageError) as caught:
        run(f"file://{lists}/table.csv", out)
    assert "--allow-root" not in str(caught.value)
    assert "a SRC higher up in the store" in str(caught.value)
    assert "facefeed-source-" not in str(caught.value)


def test_an_original_outside_the_source_is_named_by_its_address_and_nothing_is_done_again(
    source: TinySource, out: Path
) -> None:
    fakes = source.folder / "fake"
    (fakes / "table.csv").write_text("path,label,source\na.mp4,fake,../real/a.mp4\nb.mp4,fake,../real/a.mp4\n")
    summary = run(f"file://{fakes}/table.csv", out)
    assert {*rows(out)["source_id"].to_pylist()} == {f"file://{source.folder}/real/a.mp4"}
    assert "facefeed-source-" not in " ".join(listing_warnings(summary.listing))
    assert not run(f"file://{fakes}/table.csv", out).changes.changed


def test_an_original_above_the_bucket_is_named_as_such_and_by_no_path_of_this_machine(
    source: TinySource, out: Path
) -> None:
    up = "../" * (len(source.folder.parts) + 1)  # two levels above the first folder of the address
    (source.folder / "up.csv").write_text(f"path,label,source\nfake/a.mp4,fake,{up}real.mp4\nreal/c.mp4,real,\n")
    summary = run(f"file://{source.folder}/up.csv", out)
    assert {*rows(out)["source_id"].to_pylist()} == {"file:///../../real.mp4", None}
    (warning,) = [text for text in listing_warnings(summary.listing) if "originals outside" in text]
    assert "(file:///../../real.mp4)" in warning
    assert tempfile.gettempdir() not in warning


def test_metadata_that_is_gone_when_it_is_fetched_is_as_if_it_had_not_been_listed(
    source: TinySource, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = RemoteFiles.list

    def with_one_more(files: RemoteFiles, below: str = "", **reports: Any) -> Iterator[StoredFile]:
        yield from listed(files, below, **reports)
        yield StoredFile(name="gone.json", size_bytes=7, mtime_ns=0, modified_ns=0, version="")

    monkeypatch.setattr(RemoteFiles, "list", with_one_more)
    run(f"file://{source.folder}", out)
    assert verify(out).findings == []


def test_an_original_that_lies_in_the_folder_of_its_fake_is_no_reason_to_miss_the_fakes_frames(out: Path) -> None:
    source = frames_in("v1", "v1/orig")
    (source / "table.csv").write_text("path,label,source\nv1/orig,real,\nv1,fake,v1/orig\n")
    run(f"file://{source}/table.csv", out)
    assert rows(out).num_rows == 6


def test_an_original_that_is_not_there_is_asked_for_once(
    source: TinySource, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, stat = list[str](), RemoteFiles.stat
    monkeypatch.setattr(RemoteFiles, "stat", lambda files, name: asked.append(name) or stat(files, name))
    source.remove("real/a.mp4")
    run(f"file://{source.folder}/table.csv", out)
    assert asked.count("real/a.mp4") == 1


def test_workers_of_a_cluster_fetch_for_themselves(source: TinySource, out: Path, cluster_address: str) -> None:
    forecast = dry_run(
        f"file://{source.folder}", out, options=OPTIONS, detector=FixedBoxDetector(), scheduler=cluster_address
    )
    assert forecast.pending == len(NAMES)
    assert not out.exists()
    precompute(f"file://{source.folder}", out, scheduler=cluster_address, **SETTINGS)
    run(source.folder, out.with_name("local"))
    assert rows(out).equals(rows(out.with_name("local")))


# --- a real S3 server


@pytest.fixture(scope="module")
def running() -> Iterator[MisbehavingServer]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as server:
        server.suffix = ".mp4"
        yield server


@pytest.fixture
def server(
    running: MisbehavingServer, source: TinySource, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MisbehavingServer]:
    """With the source in its bucket."""
    without_delays(monkeypatch)
    files = fsspec.filesystem("s3", skip_instance_cache=True, **running.options)
    files.mkdir("media")
    for name in (*NAMES, "table.csv"):
        files.pipe_file(f"media/deepfakes/{name}", (source.folder / name).read_bytes())
    running.faults, running.requests = (lambda number: None), 0
    yield running
    files.rm("media", recursive=True)


def test_a_bucket_whose_server_fails_now_and_then_gives_the_rows_of_the_folder(
    source: TinySource, server: MisbehavingServer, out: Path
) -> None:
    server.faults = {1: "slow_down", 3: "cut", 4: "slow_down"}.get
    run(f"{URL}/table.csv", out, storage_options=server.options)
    assert server.requests == len(NAMES) + 3
    run(source.table, out.with_name("local"))
    assert rows(out).equals(rows(out.with_name("local")))
    server.requests = 0
    run(f"{URL}/table.csv", out, storage_options=server.options)
    assert server.requests == 0


def test_a_file_that_the_store_refuses_is_a_failed_input_and_the_others_are_done(
    source: TinySource, server: MisbehavingServer, out: Path
) -> None:
    server.faults = {1: "denied"}.get
    summary = run(f"{URL}/table.csv", out, storage_options=server.options, max_failed=FailureLimit.parse("2"))
    (refused,) = [failure for failure in summary.failures if failure.reason == "unreadable"]
    assert "the store refuses to read it (AccessDenied" in refused.detail
    assert summary.manifest.inputs["ok"] == 3


def test_a_folder_that_is_marked_by_an_empty_file_keeps_what_is_in_it(server: MisbehavingServer, out: Path) -> None:
    files = fsspec.filesystem("s3", skip_instance_cache=True, **server.options)
    for marker in ("real", "fake/", "notes.json", "notes.json/x.txt"):
        files.pipe_file(f"media/deepfakes/{marker}", b"")
    summary = run(URL, out, storage_options=server.options)
    assert len(summary.listing.entries) == len(NAMES)
    assert not [text for text in listing_warnings(summary.listing) if "left out" in text]


def test_a_clip_whose_folder_is_marked_by_an_empty_file_has_its_frames(server: MisbehavingServer, out: Path) -> None:
    files = fsspec.filesystem("s3", skip_instance_cache=True, **server.options)
    source = frames_in("real/a", "fake/b")
    for image in source.rglob("*.png"):
        files.pipe_file(f"media/frames/{image.relative_to(source).as_posix()}", image.read_bytes())
    for marker in ("real/a", "fake/b"):
        files.pipe_file(f"media/frames/{marker}", b"")
    run("s3://media/frames", out, storage_options=server.options)
    run(source, out.with_name("local"))
    assert rows(out).num_rows == 6
    assert rows(out).equals(rows(out.with_name("local")))


def test_credentials_that_expire_stop_the_run_and_no_input_fails(
    source: TinySource, server: MisbehavingServer, out: Path
) -> None:
    server.faults = lambda number: "refused" if number >= 2 else None
    with pytest.raises(StoppedError, match="the store refuses to read it") as caught:
        run(f"{URL}/table.csv", out, storage_options=server.options)
    assert server.options["secret"] not in str(caught.value)
    server.faults = lambda number: None
    run(f"{URL}/table.csv", out, storage_options=server.options)
    run(source.table, out.with_name("local"))
    assert accounts(out) == accounts(out.with_name("local"))


def test_names_that_no_path_can_have_are_left_out_with_a_warning_by_the_run_and_its_dry_run(
    server: MisbehavingServer, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fsspec.filesystem("s3", skip_instance_cache=True, **server.options)
    files.pipe_file(f"media/deepfakes/real/{'x' * 300}.mp4", b"video")
    warnings: list[str] = []
    progress = Progress.silent()
    progress.warn = warnings.append  # type: ignore[method-assign]
    monkeypatch.setattr("facefeed.pipeline.dryrun.run.try_families", lambda *_: Trials())
    settings: dict[str, Any] = {"options": OPTIONS, "detector": FixedBoxDetector(), "storage_options": server.options}
    survey = dry_run(URL, out, **settings).survey
    run(URL, out, storage_options=server.options, progress=progress)
    for texts in (survey.caveats, warnings):
        assert f"1 file left out, since no path can have such a name (real/{'x' * 300}.mp4)" in texts


def test_a_clip_is_fetched_without_an_image_whose_name_no_path_can_have() -> None:
    """It is left out of the listing; to write it would stop the run, at every attempt."""
    bucket = f"memory://{new_folder().name}"
    for name in ("000.png", "001.png", f"{'x' * 300}.png"):
        fsspec.filesystem("memory").pipe_file(f"{bucket}/real/clip/{name}", b"image")
    with closing(StagedFiles(RemoteFiles(StoreAddress(bucket, {}), StoreCounter()), new_folder())) as staged:
        assert staged.fetch("real/clip") is None
        assert sorted(path.name for path in (staged.root / "real/clip").iterdir()) == ["000.png", "001.png"]


def upload_again(server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes) -> None:
    """An object gets this content, as of 2020."""
    with monkeypatch.context() as patch:
        patch.setattr("moto.s3.models.utcnow", lambda: datetime(2020, 1, 1))
        files = fsspec.filesystem("s3", skip_instance_cache=True, **server.options)
        files.pipe_file(f"media/deepfakes/{name}", content)


def test_an_object_that_was_uploaded_again_as_it_was_is_not_done_again(
    server: MisbehavingServer, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(URL, out, storage_options=server.options)
    upload_again(server, monkeypatch, "real/a.mp4", content_of("one"))
    server.requests = 0
    assert run(URL, out, storage_options=server.options).changes.changed == []
    assert server.requests == 0
    upload_again(server, monkeypatch, "real/a.mp4", content_of("two"))  # of the same size
    changes = run(URL, out, storage_options=server.options).changes
    assert [entry.video_id for entry in changes.changed] == ["real/a.mp4"]


def stop(*_: object) -> None:
    raise StoppedError("stopped")


@pytest.mark.parametrize("process", [one_by_one, stop])
def test_what_was_planned_by_times_before_etags_counted_is_done_once(
    server: MisbehavingServer, out: Path, monkeypatch: pytest.MonkeyPatch, process: Process
) -> None:
    source = frames_in("real/clip")
    for image in source.rglob("*.png"):
        upload_again(server, monkeypatch, image.relative_to(source).as_posix(), image.read_bytes())
    with monkeypatch.context() as patch, in_process(process), suppress(StoppedError):
        patch.setattr(stored_file, "_CONTENT_KEYS", ())
        precompute(URL, out, storage_options=server.options, **SETTINGS)
    changes = run(URL, out, storage_options=server.options).changes
    assert (len(changes.touched), changes.changed) == (len(NAMES) + 1, [])
    assert server.requests == len(NAMES), "each was fetched once, before or now"
    changes = run(URL, out, storage_options=server.options).changes
    assert (changes.touched, changes.changed) == ([], []), "the ETags are known now"
    assert server.requests == len(NAMES)
