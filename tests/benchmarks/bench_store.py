"""A dataset in an S3 store beside the same one in a folder: images/s cold and warm, requests, and two ranks on a cache.

    python tests/benchmarks/bench_store.py [--images 6000] [--repeats 3]

The crops are made up, 224 px, JPEG of quality 90. The store is moto's server, a process of its own on this machine: it
shows what the cache costs and how much is asked of the store, not how fast a real one is. All lanes normalise to
float32 with two workers and batches of 64, and take turns; "cold" begins with an empty cache, "warm" is the next epoch
of the same loader. Two ranks share a cold cache, with one worker each. Prints one JSON object with every repeat; a
table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from assets_paths import support_folders

sys.path[1:1] = support_folders()

import fsspec  # noqa: E402
from assets_dataset import LONG, make_dataset  # noqa: E402
from assets_stores import uploaded  # noqa: E402
from facefeed.loaders import FaceDataLoader  # noqa: E402
from peers import faces  # noqa: E402

URL = "s3://datasets/faces"
CACHE_BYTES = 8 << 30
START_SECONDS = 60


@contextmanager
def s3_server(log: IO[bytes] | int = subprocess.DEVNULL) -> Iterator[dict[str, Any]]:
    """Yields the storage_options of an S3 server in a process of its own; `log` gets a line a request."""
    os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_DEFAULT_REGION="us-east-1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as server:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not answers(f"http://127.0.0.1:{port}/moto-api/") and time.monotonic() < deadline:
                time.sleep(0.1)
            yield {"endpoint_url": f"http://127.0.0.1:{port}"}
        finally:
            server.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


def loader_of(source: str, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(source, 64, **{"num_workers": 2, **options})


def epoch(loader: FaceDataLoader) -> dict[str, Any]:
    started = time.perf_counter()
    images = sum(len(labels) for _, labels in loader)
    measured: dict[str, Any] = {"images_per_second": images / (time.perf_counter() - started)}
    if (counts := loader.stats().store) is not None:
        measured |= {
            "requests_per_image": counts.requests / images, "bytes_per_image": counts.fetched_bytes / images,
            "hit_share": counts.hit_share, **asdict(counts),
        }  # fmt: skip
    return measured


def rank_epoch(arguments: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    rank, options = arguments
    return epoch(loader_of(URL, rank=rank, num_replicas=2, **options | {"num_workers": 1}))


def one_round(local: str, cache: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Every lane once."""
    measured: dict[str, Any] = {}
    for shuffle in ("window", "full"):
        shutil.rmtree(cache, ignore_errors=True)
        stored, folder = loader_of(URL, shuffle=shuffle, **options), loader_of(local, shuffle=shuffle)
        epoch(folder)  # starts its workers
        measured[f"{shuffle}, cold"] = epoch(stored)
        measured[f"{shuffle}, warm"] = epoch(stored)
        measured[f"{shuffle}, folder"] = epoch(folder)
        measured[f"{shuffle}, warm again"] = epoch(stored)
    shutil.rmtree(cache, ignore_errors=True)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:  # its processes may start workers
        ranks = [*pool.map(rank_epoch, [(rank, {"shuffle": "window", **options}) for rank in range(2)])]
    blocks = sum(path.is_file() for path in cache.rglob("blocks/*/*/*"))
    measured["two ranks, cold"] = {
        "images_per_second": sum(each["images_per_second"] for each in ranks),
        "requests": sum(each["requests"] for each in ranks), "blocks": blocks,
    }  # fmt: skip
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=6000, help="of an epoch")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, s3_server() as storage_options:
        folder = Path(made)
        make_dataset(folder / "made", (("train", LONG),), size_px=224)
        (folder / "written").mkdir()
        faces.write(faces.crops(folder / "made", 224, 90)[0], arguments.images, folder / "written")
        local = folder / "written" / "facefeed"
        files = fsspec.filesystem("s3", **storage_options)
        files.mkdir("datasets")
        uploaded(local, files, "datasets/faces")
        options = {"cache": folder / "cache", "cache_bytes": CACHE_BYTES, "storage_options": storage_options}
        rounds = [one_round(str(local), folder / "cache", options) for _ in range(arguments.repeats)]
        stored_bytes = sum(path.stat().st_size for path in local.rglob("*.parquet"))
    for lane in rounds[0]:
        speed = statistics.median(each[lane]["images_per_second"] for each in rounds)
        print(f"{lane:20} {speed:7,.0f} images/s", file=sys.stderr)
    print(json.dumps({"images": arguments.images, "stored_bytes": stored_bytes, "rounds": rounds}))


if __name__ == "__main__":
    main()
