"""Brings the face mesh's weights into the user's cache."""

from __future__ import annotations

import subprocess
import sys
import uuid
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ..errors import UsageError
from ..faces.landmarks.mesh.weights import FETCH_COMMAND, FILE_NAME, is_genuine, weights_path

PACKAGE: Final = "mediapipe==0.10.21"
"""The last wheel that holds the file; 36 MB. It is only unpacked: mediapipe is not installed."""
_MEMBER: Final = f"mediapipe/modules/face_landmark/{FILE_NAME}"
_PLATFORM: Final = ("--platform", "manylinux_2_28_x86_64", "--python-version", "3.11", "--implementation", "cp")


def fetch_face_mesh(source: Path | None = None) -> Path:
    """Stores the weights in the user's cache and returns their path; a genuine file that lies there stays.

    Args:
        source: the file itself, or a wheel that holds it; None: pip downloads the wheel, as it is configured here.

    Raises:
        UsageError: no network, no such file, or not the file that it should be; the cache is unchanged.

    """
    target = weights_path()
    if source is None and target.is_file() and is_genuine(target.read_bytes()):
        return target
    weights = _download() if source is None else _read(source)
    if not is_genuine(weights):
        raise UsageError(f"{source or PACKAGE}: holds another {FILE_NAME} than facefeed was tested with (SHA-256)")
    target.parent.mkdir(parents=True, exist_ok=True)
    attempt = target.with_name(f"{target.name}.{uuid.uuid4().hex}")
    try:
        attempt.write_bytes(weights)
        attempt.replace(target)
    finally:
        attempt.unlink(missing_ok=True)
    return target


def _download() -> bytes:
    with TemporaryDirectory(prefix="facefeed-models-") as folder:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary=:all:", *_PLATFORM, "--dest", folder, PACKAGE,
        ]  # fmt: skip
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = sorted(Path(folder).glob("*.whl"))
        if finished.returncode or not wheels:
            lines = [line for line in finished.stderr.splitlines() if line.strip()] or ["pip gave no wheel"]
            raise UsageError(
                f"{PACKAGE}: {lines[-1].removeprefix('ERROR: ')}; where there is no network, download its wheel "
                f"elsewhere (`pip download --no-deps {PACKAGE}`) and run `{FETCH_COMMAND} --from FILE.whl`"
            )
        return _read(wheels[0])


def _read(source: Path) -> bytes:
    """The weights in a wheel, or the bytes of a file."""
    try:
        content = source.read_bytes()
        if is_genuine(content) or not zipfile.is_zipfile(source):  # the file itself ends with a zip of its metadata
            return content
        with zipfile.ZipFile(source) as wheel:
            return wheel.read(_MEMBER)
    except (KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"{source}: holds no {_MEMBER}; take the wheel of {PACKAGE}") from error
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}; give the wheel of {PACKAGE}, or its {FILE_NAME}") from error
