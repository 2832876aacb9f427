"""SRC on a web server, whose listings have names alone."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from assets_clips import write_clip
from assets_in_process import in_process, new_folder
from assets_stores import without_delays
from assets_tiny_source import NAMES, TinySource
from click.testing import CliRunner
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.stores import stored_file
from facefeed.pipeline.dataset.stores.address import StoreAddress
from facefeed.pipeline.dataset.stores.counts import StoreCounter
from facefeed.pipeline.dataset.stores.remote_files import RemoteFiles
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.pipeline.execution.progress import Progress
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.stored_source.source import open_source
from facefeed.pipeline.video import Sampling

OPTIONS = Options(sampling=Sampling(every=1), keep=FaceFilter(min_face_px=16), size_px=32)
_LACKING = {"Content-Length": "unknown", "Last-Modified": "undated"}
"""How names of files begin whose responses lack a header."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder with pages that list it; without the sizes of files whose name begins with `unknown`, and without
    the times of those whose name begins with `undated`.

    With `gives_etags`, files have ETags that follow from their content.
    Without `redirects`, the address of a folder needs no slash at its end.
    The first `num_busy` requests for what is called `busy` are refused, as by a server that has too much to do.
    """

    num_busy = 0
    gives_etags = False
    redirects = True

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.answer(super().do_GET)

    def do_HEAD(self) -> None:
        self.answer(super().do_HEAD)

    def answer(self, usually: Callable[[], None]) -> None:
        if not self.redirects and Path(self.translate_path(self.path)).is_dir():
            self.path = f"{self.path.rstrip('/')}/"
        if "busy" not in self.path or Quiet.num_busy <= 0:
            usually()
            return
        Quiet.num_busy -= 1
        if Quiet.num_busy % 2:
            self.send_error(429)
        else:
            self.connection.shutdown(socket.SHUT_RDWR)  # as where it is started anew
            self.close_connection = True

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Last-Modified" and self.gives_etags:
            content = Path(self.translate_path(self.path)).read_bytes()
            super().send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        lacking = _LACKING.get(keyword)
        if lacking is None or f"/{lacking}" not in self.path:
            super().send_header(keyword, value)


@pytest.fixture
def source() -> TinySource:
    source = TinySource(new_folder() / "deepfakes")
    for name in NAMES:
        source.put(name, "one")
    return source


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def url(source: TinySource) -> Iterator[str]:
    with serve(source.folder) as address:
        yield address


def run(src: str | Path, out: Path, progress: Progress | None = None) -> Summary:
    with in_process():
        return precompute(
            src, out, options=OPTIONS, detector=FixedBoxDetector(), max_failed=FailureLimit.parse("1"),
            progress=progress,
        )  # fmt: skip


def rows(out: Path) -> pa.Table:
    return pads.dataset(out / "faces", partitioning=None).to_table().sort_by("face_id")


@pytest.mark.parametrize("table", ["", "/table.csv"], ids=["folder", "table"])
def test_rows_are_those_of_the_folder_that_it_serves(source: TinySource, url: str, table: str) -> None:
    out, local = new_folder() / "out", new_folder() / "out"
    run(f"{url}{table}", out)
    run(f"{source.folder}{table}", local)
    assert rows(out).num_rows > 0
    assert rows(out).equals(rows(local))
    assert not run(f"{url}{table}", out).changes.changed


def test_a_file_of_unknown_size_is_named_and_not_left_out(source: TinySource, url: str) -> None:
    source.put("real/unknown.mp4", "one")
    with pytest.raises(UsageError, match=r"does not say how large 'real/unknown.mp4' is"):
        run(url, new_folder() / "out")


@pytest.mark.parametrize("name", ["real/busy.mp4", "busy/real/a.mp4"], ids=["file", "folder"])
def test_what_a_busy_server_refuses_for_a_moment_is_asked_for_again_and_not_left_out(
    source: TinySource, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source.folder / name).parent.mkdir(parents=True, exist_ok=True)
    source.put(name, "one")
    monkeypatch.setattr(Quiet, "num_busy", 5)
    without_delays(monkeypatch)
    files = RemoteFiles(StoreAddress(url), StoreCounter())
    assert name in {stored.name for stored in files.list()}
    assert Quiet.num_busy == 0


def test_a_server_that_stays_busy_stops_the_run(source: TinySource, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source.put("real/busy.mp4", "one")
    monkeypatch.setattr(Quiet, "num_busy", 10**9)
    without_delays(monkeypatch)
    with pytest.raises(StoppedError, match="does not return"):
        list(RemoteFiles(StoreAddress(url), StoreCounter()).list())


def test_links_that_sort_a_page_are_no_files(tmp_path: Path) -> None:
    """Apache's pages have them."""
    (tmp_path / "index.html").write_text('<a href="?C=N;O=D">Name</a> <a href="/">Up</a> <a href="a.mp4">a.mp4</a>')
    (tmp_path / "a.mp4").write_bytes(b"film")
    with serve(tmp_path) as url:
        found = list(RemoteFiles(StoreAddress(url), StoreCounter()).list())
    assert [(stored.name, stored.size_bytes) for stored in found] == [("a.mp4", 4)]


ODD_NAMES = ("a b", "c'd", "e&f", "é", "100%", "x#y", "q?r", "a+b", "a%20b", "semi;colon", "dots..")


@pytest.mark.parametrize("table", ["", "/my%20table.csv"], ids=["folder", "table"])
def test_names_are_those_of_the_files_whatever_characters_they_have(source: TinySource, url: str, table: str) -> None:
    for name in ODD_NAMES:
        (source.folder / "real" / name).mkdir()
        source.put(f"real/{name}/{name}.mp4", "one")
    lines = "".join(f"real/{name}/{name}.mp4,real\n" for name in ODD_NAMES)
    (source.folder / "my table.csv").write_text(f"path,label\n{lines}fake/a.mp4,fake\n")
    out, local = new_folder() / "out", new_folder() / "out"
    assert run(f"{url}{table}", out).listing.missing == []
    run(f"{source.folder}{unquote(table)}", local)
    assert {f"real/{name}/{name}.mp4" for name in ODD_NAMES} <= {*rows(local)["video_id"].to_pylist()}
    assert rows(out).equals(rows(local))


def test_files_in_folders_with_odd_names_are_read_where_inputs_are_named_from_there(source: TinySource) -> None:
    source.folder.rename(source.folder.parent / "50% of a b")
    with serve(source.folder.parent) as above, open_source(above) as opened:
        files = opened.files_below(opened.path / "50% of a b")
        assert files is not None
        assert files.stat("real/a.mp4").size_bytes > 0


@pytest.mark.parametrize("folder", ["my films", "my%20films"])
def test_pages_link_names_in_many_ways(tmp_path: Path, folder: str) -> None:
    films = tmp_path / "my films"
    films.mkdir()
    for name in ("a b.mp4", "tom & jerry.mp4", "it's.mp4", "up.mp4", "o'clock.mp4"):
        (films / name).write_bytes(b"film")
    links = (
        "../", "./", ".", "./../", "?C=N;O=D", "/", "/my%20films/", "./a%20b.mp4", "a b.mp4", "a%20b.mp4",
        "tom%20&amp;%20jerry.mp4", "it&#x27;s.mp4", "/my%20films/up.mp4",
        "o'clock.mp4", "mailto:me@host", "http://[", "//host/a.mp4", "%2e%2e/", "x%2Fy.mp4", "zero%00.mp4",
        "gone%20film.mp4", "gone/",
    )  # fmt: skip
    (films / "index.html").write_text("".join(f'<a href="{link}">a film</a>' for link in links))
    unnameable, missing = list[str](), list[str]()
    with serve(tmp_path) as url:
        files = RemoteFiles(StoreAddress(f"{url}/{folder}"), StoreCounter())
        found = [*files.list(on_unnameable=unnameable.append, on_missing=missing.append)]
    names = ["a b.mp4", "it's.mp4", "o'clock.mp4", "tom & jerry.mp4", "up.mp4"]
    assert sorted(stored.name for stored in found) == names
    assert sorted(unnameable) == ["..", "x/y.mp4", "zero\0.mp4"]
    assert sorted(missing) == ["gone", "gone film.mp4"]


def test_files_that_a_page_lists_and_the_server_lacks_are_named(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="a.mp4">a</a> <a href="gone%20one.mp4">b</a>')
    (tmp_path / "a.mp4").write_bytes(b"film")
    warning = r"1 file left out: listed, but missing in the store \(gone one.mp4\)"
    with serve(tmp_path) as url:
        with open_source(url) as opened:
            assert [*opened.warnings] == [warning.replace("\\", "")]
        (tmp_path / "a.mp4").unlink()
        (tmp_path / "index.html").write_text('<a href="gone%20one.mp4">b</a>')
        with pytest.raises(UsageError, match=f"has no file there; {warning}; check"), open_source(url):
            pass


@pytest.mark.parametrize("redirects", [True, False])
def test_a_folder_with_a_dot_in_its_name_is_no_table(
    source: TinySource, monkeypatch: pytest.MonkeyPatch, redirects: bool
) -> None:
    monkeypatch.setattr(Quiet, "redirects", redirects)
    folder = source.folder.rename(source.folder.with_name("faceforensics.v2"))
    out, local = new_folder() / "out", new_folder() / "out"
    with serve(folder.parent) as url:
        run(f"{url}/faceforensics.v2", out)
    run(folder, local)
    assert rows(out).equals(rows(local))


@pytest.mark.parametrize("redirects", [True, False])
def test_folders_of_frames_are_clips_there_too(monkeypatch: pytest.MonkeyPatch, redirects: bool) -> None:
    monkeypatch.setattr(Quiet, "redirects", redirects)
    source, out, local = new_folder(), new_folder() / "out", new_folder() / "out"
    for name in ("real/a", "fake/b"):
        write_clip(source / name)
    with serve(source) as url:
        run(url, out)
    run(source, local)
    assert rows(out).num_rows == 12
    assert rows(out).equals(rows(local))


def test_a_video_that_a_server_takes_for_a_page_is_read_all_the_same(
    source: TinySource, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Quiet, "extensions_map", {".mp4": "text/html"})
    out, local = new_folder() / "out", new_folder() / "out"
    run(url, out)
    run(source.folder, local)
    assert rows(out).equals(rows(local))


def changed(summary: Summary) -> list[str]:
    """Ids of the inputs that were done again."""
    return [entry.video_id for entry in summary.changes.changed]


def test_a_file_that_another_of_its_size_replaces_is_done_again(source: TinySource, url: str) -> None:
    out, local = new_folder() / "out", new_folder() / "out"
    run(url, out)
    source.put("real/a.mp4", "two")
    assert changed(run(url, out)) == ["real/a.mp4"]
    run(source.folder, local)
    assert rows(out).drop_columns(["split"]).equals(rows(local).drop_columns(["split"]))
    assert changed(run(url, out)) == []


def test_a_server_that_does_not_say_when_a_file_was_replaced_is_warned_of_once(source: TinySource, url: str) -> None:
    source.put("real/undated.mp4", "one")
    warnings: list[str] = []
    progress = Progress.silent()
    progress.warn = warnings.append  # type: ignore[method-assign]
    run(url, new_folder() / "out", progress)
    assert [text for text in warnings if "undated" in text] == [
        "1 file without ETag and time: one that another of its size replaces stays unnoticed (real/undated.mp4)"
    ]


def test_what_was_planned_before_times_of_web_servers_were_read_is_not_done_again(
    source: TinySource, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = new_folder() / "out"
    with monkeypatch.context() as patch:
        patch.setattr(stored_file, "_TIME_KEYS", ())
        run(url, out)
    before = rows(out)
    source.put("real/c.mp4", "two")  # of the same size: nobody can know
    assert changed(run(url, out)) == []
    assert rows(out).equals(before)
    source.put("real/c.mp4", "long")
    source.put("real/d.mp4", "two")
    assert changed(run(url, out)) == ["real/c.mp4", "real/d.mp4"], "the times are known now"


def test_a_file_that_was_only_touched_is_not_done_again_where_the_server_has_etags(
    source: TinySource, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Quiet, "gives_etags", True)
    source.put("real/undated.mp4", "one")
    out = new_folder() / "out"
    run(url, out)
    source.touch("real/a.mp4")
    assert changed(run(url, out)) == []
    source.put("real/a.mp4", "two")
    source.put("real/undated.mp4", "two")
    assert changed(run(url, out)) == ["real/a.mp4", "real/undated.mp4"]
    assert changed(run(url, out)) == []


def test_credentials_in_an_address_are_in_no_row(source: TinySource, url: str) -> None:
    (source.folder / "fake/table.csv").write_text("path,label,source\na.mp4,fake,../real/a.mp4\nb.mp4,fake,\n")
    out = new_folder() / "out"
    run(f"{url.replace('//', '//me:hidden@')}/fake/table.csv", out)
    assert {*rows(out)["source_id"].to_pylist()} == {f"{url}/real/a.mp4", None}


@pytest.mark.processes
@pytest.mark.parametrize("option", ["--max-failed=1", "--dry-run"])
def test_credentials_in_an_address_are_in_no_line_that_a_command_prints(
    source: TinySource, url: str, option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    out = new_folder() / "out"
    with in_process():
        command = ["precompute", url.replace("//", "//me:s3cr@3t@"), str(out), "--detector", "whole-frame", option]
        ended = CliRunner().invoke(main, command)
    printed = ended.output + "".join(capfd.readouterr())
    assert url in printed
    assert "s3cr" not in printed
    assert "3t@" not in printed
