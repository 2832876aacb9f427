"""A real Slurm cluster and a store for the tests of this folder, each started once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import assets_slurm
import fsspec
import pytest
from assets_paths import needs_program
from assets_slurm import Slurm, running_slurm
from assets_stores import s3_server


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    for program in assets_slurm.PROGRAMS:
        needs_program(program)
    with running_slurm() as cluster:
        yield cluster


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that must be quoted, as the one where scripts are written."""
    folder = tmp_path / 'it\'s $HOME "here" #1'
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """A bucket of a store that this process is; its address and the credentials are in the environment."""
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as server:
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("slurm")
        yield "slurm"
