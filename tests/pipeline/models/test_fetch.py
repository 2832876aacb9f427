"""`facefeed models fetch face-mesh` stores the one right file, or says why not."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from assets_mesh import mesh_landmarker
from click.testing import CliRunner, Result
from facefeed.pipeline.cli import main
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.landmarks.by_name import make_landmarker

MEMBER = "mediapipe/modules/face_landmark/face_landmark.tflite"


@pytest.fixture(autouse=True)
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file is to lie, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/facefeed/models/face_landmark.tflite"


@pytest.fixture(scope="module")
def weights() -> bytes:
    return mesh_landmarker().weights


def wheel_with(path: Path, member: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, content)
    return path


def fetch(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["models", "fetch", "face-mesh", *arguments])


def test_the_file_is_taken_as_it_is_or_out_of_the_wheel(tmp_path: Path, stored: Path, weights: bytes) -> None:
    file = tmp_path / "mine.tflite"
    file.write_bytes(weights)
    for source in (file, wheel_with(tmp_path / "mediapipe.whl", MEMBER, weights)):
        result = fetch("--from", str(source))
        assert result.exit_code == 0, result.output
        assert str(stored) in result.stderr
        assert stored.read_bytes() == weights
        assert [path.name for path in stored.parent.iterdir()] == [stored.name]
        stored.unlink()


def test_another_file_is_refused_and_what_is_there_stays(tmp_path: Path, stored: Path, weights: bytes) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(weights[:-1])
    stored.parent.mkdir(parents=True)
    stored.write_bytes(weights)
    refusals = {
        str(other): "SHA-256",
        str(wheel_with(tmp_path / "empty.whl", "mediapipe/__init__.py", b"")): "holds no mediapipe/modules",
        str(wheel_with(tmp_path / "later.whl", MEMBER, b"another")): "SHA-256",
        str(tmp_path / "absent.whl"): "No such file",
    }
    for source, reason in refusals.items():
        result = fetch("--from", source)
        assert result.exit_code == 2, source
        assert reason in result.stderr
        assert stored.read_bytes() == weights


def test_a_file_that_is_there_needs_no_network(monkeypatch: pytest.MonkeyPatch, stored: Path, weights: bytes) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    stored.parent.mkdir(parents=True)
    stored.write_bytes(weights)
    assert fetch().exit_code == 0


def test_without_a_network_the_way_by_a_file_is_named(monkeypatch: pytest.MonkeyPatch, stored: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    result = fetch()
    assert result.exit_code == 2
    assert "facefeed models fetch face-mesh --from FILE.whl" in result.stderr
    assert not stored.exists()


def test_missing_and_damaged_weights_name_the_command_that_brings_them(stored: Path) -> None:
    with pytest.raises(UsageError, match="run `facefeed models fetch face-mesh` once"):
        make_landmarker("mesh")
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"cut short")
    with pytest.raises(UsageError, match="run `facefeed models fetch face-mesh` again"):
        make_landmarker("mesh")
