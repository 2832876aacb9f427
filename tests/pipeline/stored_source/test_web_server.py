"""SRC on a web server, whose listings have names alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.dataset as pads
import pytest
from assets_in_process import in_process, new_folder
from assets_tiny_source import NAMES, TinySource
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.video import Sampling

OPTIONS = Options(sampling=Sampling(every=1), keep=FaceFilter(min_face_px=16), size_px=32)


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder with pages that list it; without the sizes of files whose name begins with `unknown`."""

    def log_message(self, *_: object) -> None: ...

    def send_header(self, keyword: str, value: str) -> None:
        if not (keyword == "Content-Length" and "/unknown" in self.path):
            super().send_header(keyword, value)


@pytest.fixture
def source() -> TinySource:
    source = TinySource(new_folder() / "deepfakes")
    for name in NAMES:
        source.put(name, "one")
    return source


@pytest.fixture
def url(source: TinySource) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(source.folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def run(src: str | Path, out: Path) -> Summary:
    with in_process():
        return precompute(src, out, options=OPTIONS, detector=FixedBoxDetector(), max_failed=FailureLimit.parse("1"))


@pytest.mark.parametrize("table", ["", "/table.csv"], ids=["folder", "table"])
def test_rows_are_those_of_the_folder_that_it_serves(source: TinySource, url: str, table: str) -> None:
    out, local = new_folder() / "out", new_folder() / "out"
    run(f"{url}{table}", out)
    run(f"{source.folder}{table}", local)
    rows, expected = (
        pads.dataset(each / "faces", partitioning=None).to_table().sort_by("face_id") for each in (out, local)
    )
    assert rows.num_rows > 0
    assert rows.equals(expected)
    assert not run(f"{url}{table}", out).changes.changed


def test_a_file_of_unknown_size_is_named_and_not_left_out(source: TinySource, url: str) -> None:
    source.put("real/unknown.mp4", "one")
    with pytest.raises(UsageError, match=r"does not say how large 'real/unknown.mp4' is"):
        run(url, new_folder() / "out")
