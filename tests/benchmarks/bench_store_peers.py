"""facefeed, LitData and WebDataset on the same S3 server, each with its cache: images/s cold and warm, and requests.

    python tests/benchmarks/bench_store_peers.py [--images 6000] [--repeats 3] [--envs DIR]

The crops are made up, 224 px, JPEG of quality 90. The server is moto's, a process of its own on this machine: it shows
what each library asks of a store, and what its cache costs, not how fast a real one is. Each library's own recipe
(`peers/`): flip, brightness and contrast, normalised float32, batches of 64, two workers; facefeed with
`shuffle="window"`, as its guide says. "cold" is the first epoch of a fresh process with an empty cache, the start of
its workers included, its imports not; "warm" is the next one of the same process. The libraries take turns within a
round. LitData and WebDataset need `--envs`, as `bench_loader.py` does. Prints one JSON object with every repeat; a
table goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_store import s3_server

import fsspec  # isort: skip (the former puts the folders of the tests' own modules on the path)
from assets_dataset import LONG, make_dataset  # isort: skip
from peers import envs, faces
from peers.entry import Entry

PEERS = {"facefeed": "facefeed", "litdata": "litdata-cv2", "webdataset": "webdataset"}
"""By name the folder of each one's container."""


def one_turn(name: str, python: Path, folder: Path, endpoint_url: str, num_requests: Callable[[], int]) -> Any:
    """A cold and a warm epoch of one library."""
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    measured: dict[str, Any] = {}
    arguments = ["--endpoint", endpoint_url, "--cache", str(cache)]
    with Entry(python, envs.PEERS[name].module, "A", folder, arguments=arguments) as entry:
        for lane, epoch in (("cold", lambda: entry.ask("first")), ("warm", entry.epoch)):
            before, answer = num_requests(), epoch()
            measured[lane] = {
                **answer, "images_per_second": answer["images"] / answer["seconds"],
                "requests": num_requests() - before,
            }  # fmt: skip
    measured["cache_bytes"] = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=6000, help="of an epoch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir()) / "facefeed-bench")
    arguments = parser.parse_args()
    pythons = {name: envs.python_of(envs.PEERS[name], arguments.envs) for name in PEERS}
    with (
        tempfile.TemporaryDirectory() as made, (Path(made) / "server.log").open("w+b") as log,
        s3_server(log) as storage_options,
    ):  # fmt: skip
        folder = Path(made) / "written"
        make_dataset(Path(made) / "made", (("train", LONG),), size_px=224)
        folder.mkdir()
        data = faces.write(faces.crops(Path(made) / "made", 224, 90)[0], arguments.images, folder)
        public = {"ACL": "public-read"}  # WebDataset fetches by curl, without credentials
        files = fsspec.filesystem("s3", **storage_options, s3_additional_kwargs=public)
        files.mkdir("datasets")
        stored_bytes = {}
        for name, container in PEERS.items():
            with Entry(pythons[name], envs.PEERS[name].module, "A", folder) as entry:
                entry.ask("prepare")
            files.put(str(folder / container), f"datasets/{container}", recursive=True)
            stored_bytes[name] = sum(path.stat().st_size for path in (folder / container).rglob("*.*"))

        def num_requests() -> int:
            return Path(log.name).read_bytes().count(b"GET /datasets")

        turns = [
            (name, one_turn(name, pythons[name], folder, storage_options["endpoint_url"], num_requests))
            for _ in range(arguments.repeats)
            for name in PEERS
        ]
    found = {name: [turn for each, turn in turns if each == name] for name in PEERS}
    for name, repeats in found.items():
        for lane in ("cold", "warm"):
            speed = statistics.median(each[lane]["images_per_second"] for each in repeats)
            requests = [each[lane]["requests"] for each in repeats]
            print(f"{name:12} {lane} {speed:7,.0f} images/s, requests {requests}", file=sys.stderr)
    print(json.dumps({"data": data, "stored_bytes": stored_bytes, "found": found}, indent=1))


if __name__ == "__main__":
    main()
