"""An environment for each peer that cannot be a part of facefeed's own: same versions of everything but the peer."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SHARED = (
    "torch", "torchvision", "albumentations", "albucore", "opencv-python-headless", "numpy", "simplejpeg", "pillow",
    "pyarrow",
)  # fmt: skip
"""Pinned to the versions of the environment that this runs in."""


@dataclass(frozen=True)
class Peer:
    """An entry of the benchmark: which module serves it, in which environment (None: this one)."""

    module: str
    env: str | None = None
    package: str | None = None


PEERS = {
    "facefeed": Peer("peer_facefeed"),
    "torch over files": Peer("peer_torch_files"),
    "webdataset": Peer("peer_webdataset", "all", "webdataset==1.0.2"),
    "litdata": Peer("peer_litdata", "all", "litdata==0.2.76"),
    "mosaicml-streaming": Peer("peer_mosaicml", "mosaicml", "mosaicml-streaming==0.10.0"),
    "huggingface map-style": Peer("peer_huggingface"),
}
"""mosaicml-streaming pins transformers below 5, which does not go with the others."""


def python_of(peer: Peer, envs: Path) -> Path:
    """The interpreter for a peer; makes its environment below `envs` if it is not there yet (minutes, gigabytes)."""
    if peer.env is None:
        return Path(sys.executable)
    python = envs / peer.env / "bin" / "python"
    requirements = [f"{name}=={importlib.metadata.version(name)}" for name in SHARED]
    requirements += [str(other.package) for other in PEERS.values() if other.env == peer.env]
    ready = envs / peer.env / ".ready"
    if ready.is_file() and ready.read_text() == "\n".join(requirements):
        return python
    sys.stderr.write(f"setting up {envs / peer.env}\n")
    uv = shutil.which("uv")
    if not python.exists():
        make = [uv, "venv", "--quiet", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
        subprocess.run([*make, str(envs / peer.env)], check=True, stdout=sys.stderr)
    install = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    subprocess.run([*install, "--quiet", *requirements], check=True, stdout=sys.stderr)
    ready.write_text("\n".join(requirements))
    return python


def versions(python: Path) -> dict[str, str]:
    """What is installed there, of what matters here."""
    names = [*SHARED, "webdataset", "litdata", "mosaicml-streaming", "datasets"]
    code = (
        "import importlib.metadata as m, json, sys\n"
        "print(json.dumps({d.name: d.version for d in m.distributions() if d.name in sys.argv[1:]}))"
    )
    completed = subprocess.run([str(python), "-c", code, *names], check=True, capture_output=True, text=True)
    return dict(sorted(json.loads(completed.stdout).items()))
