"""Fixtures shared by all rooms: real media where it is there, a real Dask cluster, small videos made on the spot."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from assets_paths import MEDIA, needs_program
from assets_random import load_profile
from assets_shared import share
from assets_video import numbered, write_video
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.video import Sampling

if TYPE_CHECKING:
    from assets_layouts import Footage

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would call the network on import
os.environ["TERM"] = "xterm-256color"  # on a dumb terminal there are no bars and no colours
load_profile()

# Whoever starts the fork server of this process, such as torch's own loader in a test: else each worker of all later
# tests would import torch anew.
multiprocessing.set_forkserver_preload(["facefeed.loaders.workers.preload", "albumentations"])

# A job in the background begins with Ctrl-C ignored, one below nohup with SIGHUP, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests and what they import stay to the end: of a million objects, none is looked at again for garbage.

    Each look took half a second, and every `gc.collect()` in a test or in facefeed is one.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests for a GPU where there is none; torch is imported for them alone."""
    if item.get_closest_marker("gpu"):
        import torch  # noqa: PLC0415 (seconds)

        if not torch.cuda.is_available():
            pytest.skip("there is no GPU here")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What a test leaves in the environment (Lightning's ranks) or on the path is not handed on to the next one."""
    environment, path = dict(os.environ), [*sys.path]
    yield
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path


@pytest.fixture(scope="session", autouse=True)
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The processes of a run, each of which has a folder of its own in that of the run, share one beside these."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    share(folder)
    yield
    share(None)


@pytest.fixture(scope="session")
def media() -> Path:
    """Real videos and photos beside the checkout; they are no part of it."""
    if not MEDIA.is_dir():
        pytest.skip("no real media beside the checkout")
    return MEDIA


@pytest.fixture(scope="session")
def strace() -> str:
    """The system call tracer, for injecting faults."""
    return needs_program("strace")


@pytest.fixture(scope="session")
def cluster_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real cluster of two worker processes for the whole session; runs join it as `--scheduler` does.

    Its certificate is in Dask's configuration, of this process and of those that it starts.
    """
    from assets_cluster import joinable_cluster  # noqa: PLC0415 (Dask, only where it is needed)

    with joinable_cluster(tmp_path_factory.mktemp("cluster") / "certificate.pem") as address:
        yield address


SMALL = Options(sampling=Sampling(every=5), keep=FaceFilter(min_face_px=16), size_px=64)
"""Options that suit the small videos: 25 frames of 160 x 120 px give five faces each."""


@pytest.fixture
def small_options() -> Options:
    return SMALL


MakeSource = Callable[..., Path]


@pytest.fixture(scope="session")
def small_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 frames of 160 x 120 px at 25 frames a second, each showing its number."""
    path = tmp_path_factory.mktemp("small") / "video.mp4"
    return write_video(path, [numbered(number, 160, 120) for number in range(25)])


@pytest.fixture
def make_source(tmp_path: Path, small_video: Path) -> MakeSource:
    """Makes a folder of small videos by name: `make_source("real/a.mp4", "fake/b.mp4")`."""

    def make(*names: str, root: Path | None = None) -> Path:
        source = root or tmp_path / "src"
        for name in names:
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(small_video, path)
        return source

    return make


@pytest.fixture(scope="session")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Footage:
    """A few real videos and fakes of the sample, to lay out as published datasets are."""
    from assets_layouts import film_footage  # noqa: PLC0415 (the sample's film, only where it is needed)

    return film_footage(tmp_path_factory.mktemp("footage"))
