"""MTCNN's weights are those in facenet-pytorch's files, and nothing else in such a file is run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.detectors.cascade import weights


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the weight files, in place of facenet-pytorch's."""
    monkeypatch.setattr(weights, "weights_folder", lambda: tmp_path)
    monkeypatch.setattr(weights, "read_weights", weights.read_weights.__wrapped__)
    return tmp_path


@pytest.mark.parametrize("file", weights.WEIGHT_FILES)
def test_the_weights_are_those_that_torch_reads(file: str) -> None:
    expected = torch.load(weights.weights_folder() / file, map_location="cpu", weights_only=True)
    actual = weights.read_weights(file)
    assert list(actual) == list(expected)
    for name, values in expected.items():
        assert actual[name].dtype == np.float32
        np.testing.assert_array_equal(actual[name], values.numpy())


def test_parts_of_a_shared_storage_are_read_in_their_places(folder: Path) -> None:
    values = torch.arange(24, dtype=torch.float32)
    tensors = {"part": values[4:16].reshape(3, 4), "turned": values.reshape(4, 6).T, "one": values[23]}
    torch.save(tensors, folder / "shared.pt", _use_new_zipfile_serialization=False)
    for name, array in weights.read_weights("shared.pt").items():
        np.testing.assert_array_equal(array, tensors[name].numpy())


class Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("was-run",)


def hostile(path: Path) -> None:
    path.write_bytes(pickle.dumps(Command()))


def cut_short(path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(64)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-8])


def of_a_newer_torch(path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(64)}, path)


def of_other_types(path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(64).double()}, path, _use_new_zipfile_serialization=False)


def of_another_version(path: Path) -> None:
    path.write_bytes(
        b"".join(pickle.dumps(part, 2) for part in (weights._MAGIC, 1002, {"little_endian": True}, {}, []))
    )


def empty(path: Path) -> None:
    path.touch()


def absent(_: Path) -> None:
    pass


@pytest.mark.parametrize(
    "make", [hostile, cut_short, of_a_newer_torch, of_other_types, of_another_version, empty, absent]
)
def test_a_file_with_anything_else_is_refused(make: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    make(folder / "pnet.pt")
    with pytest.raises(UsageError, match=r"pnet\.pt: not the weights .* pip install"):
        weights.read_weights("pnet.pt")
    assert not Path("was-run").exists()
