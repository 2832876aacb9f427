"""FaceDataLoader and its peers on the same JPEG bytes, side by side in one run, in turn.

    python tests/benchmarks/bench_loader.py [--out OUT] [--envs DIR] [--repeats 5] [--lanes A A1 B C D] [--quick]

Prints one JSON object with every repeat; a table goes to stderr. Peers that facefeed does not depend on get their own
environments below --envs (some gigabytes, with uv if it is there, else venv and pip), made on the first run.

A: each one's own recipe: 256 px, quality 95 -> 224 px, HorizontalFlip and RandomBrightnessContrast at 0.5, normalised
   float32 tensors, batches of 64, two workers. A1: the same from 224 px, quality 90.
B: the peer's container, but facefeed's decoder, order of transforms, normalisation and collating in it.
C: container and transport alone: of each image its first 768 bytes are handed out, nothing is decoded.
D: decoding alone at 256 px, uint8, against bare threads and bare processes that decode bytes from memory.

"epoch's first": seconds from the beginning of an epoch to its first batch, once workers run. facefeed's workers go on
to the next epoch meanwhile: they have made these batches at the end of the epoch before, within its time.

Every entry lives through all repeats of a lane in a process of its own, and is stopped while others are at work. A
repeat is one whole epoch, after one untimed epoch in which memory is measured. See `peers/` for the recipes.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers import envs, faces, report
from peers.entry import Entry
from peers.envs import PEERS, Peer

LANES = {
    "A": "own recipe, 256 px q95 -> 224 px float32",
    "A1": "own recipe, 224 px q90 -> 224 px float32",
    "B": "the peer's container, facefeed's decoder, transforms, normalisation, collating",
    "C": "container and transport, 768 bytes an image",
    "D": "decoding alone, 256 px uint8",
}
CEILING = {"2 threads": "threads", "2 processes": "processes"}
CHECKED_LANES = ("A", "A1", "B")


class Bench:
    """One run: its data, its interpreters, its options."""

    def __init__(self, arguments: argparse.Namespace, cache: Path) -> None:
        self.given = arguments
        self.peers = {name: PEERS[name] for name in arguments.peers}
        self.pythons = {name: envs.python_of(peer, arguments.envs) for name, peer in self.peers.items()}
        self.data: dict[str, Any] = {}
        self.folders = {side: cache / str(side) for side in (256, 224)}
        out = arguments.out or faces.finished_out(arguments.envs)
        table, stored = faces.crops(out, 256, 95)
        small = faces.resized(table, 224, 90)
        for side, rows in ((256, table), (224, small)):
            folder = self.folders[side]
            folder.mkdir(parents=True)
            written = faces.write(rows, arguments.images, folder)
            self.data[f"{side} px"] = {**written, "bytes_as_stored": stored and side == 256}
            for name, peer in self.peers.items():
                with self._entry(name, peer, "A", folder) as entry:
                    entry.ask("prepare")

    def _entry(self, name: str, peer: Peer, lane: str, folder: Path, **options: Any) -> Entry:
        return Entry(self.pythons[name], peer.module, lane, folder, **options)

    def lane(self, lane: str) -> dict[str, Any]:
        """One lane: equality, cold starts, and the repeats."""
        folder = self.folders[224 if lane == "A1" else 256]
        result: dict[str, Any] = {"about": LANES[lane]}
        if lane in CHECKED_LANES and report.OURS in self.peers:
            result["apart_from_facefeed"] = self._check(lane, folder)
        result["cold"] = self._cold(lane, folder) if lane == "A" else {}
        result["warm_up"], result["repeats"], result["load_before"] = self._repeats(lane, folder)
        result.update(report.summary(result["repeats"], lane))
        cold = report.medians(result["cold"])
        memory = {name: figures["peak_pss_mb"] for name, figures in result["warm_up"].items()}
        once = {name: {**cold.get(name, {}), "peak_pss_mb": size} for name, size in memory.items()}
        sys.stderr.write(report.table(lane, LANES[lane], result, once) + "\n")
        return result

    def _check(self, lane: str, folder: Path) -> dict[str, dict[str, float]]:
        saved = {}
        for name, peer in self.peers.items():
            saved[name] = folder / f"check-{peer.module}.npy"
            with self._entry(name, peer, lane, folder) as entry:
                entry.ask("check", to=str(saved[name]))
        return report.differences(saved)

    def _cold(self, lane: str, folder: Path) -> report.Repeats:
        """Fresh processes: construction to first batch, with workers and without; the difference is their start.

        facefeed's workers start after that batch.
        """
        cold_starts: report.Repeats = {name: [] for name in self.peers}
        for _ in range(self.given.repeats):
            for name, peer in self.peers.items():
                with self._entry(name, peer, lane, folder, whole=False) as entry:
                    cold = entry.ask("first")
                with self._entry(name, peer, lane, folder, whole=False, workers=0) as entry:
                    alone = entry.ask("first")["first_batch_seconds"]
                start = cold["first_batch_seconds"] - alone
                cold_starts[name].append(
                    {**cold, "first_batch_without_workers_seconds": alone, "workers_start_seconds": start}
                )
        return cold_starts

    def _wanted(self, lane: str) -> dict[str, tuple[Path, str, str]]:
        """The entries of a lane: interpreter, module, and what that module takes for the lane."""
        entries = {name: (self.pythons[name], peer.module, lane) for name, peer in self.peers.items()}
        if lane != "D":
            return entries
        ceilings = {name: (Path(sys.executable), "peer_ceiling", kind) for name, kind in CEILING.items()}
        return {name: entry for name, entry in entries.items() if name == report.OURS} | ceilings

    def _repeats(self, lane: str, folder: Path) -> tuple[dict[str, Any], report.Repeats, list[float]]:
        load = []
        with contextlib.ExitStack() as stack:
            entries: dict[str, Entry] = {}
            warm_up = {}
            for name, (python, module, kind) in self._wanted(lane).items():
                entries[name] = stack.enter_context(Entry(python, module, kind, folder))
                warm_up[name] = entries[name].first()
                entries[name].hold()
            repeats: report.Repeats = {name: [] for name in entries}
            for _ in range(self.given.repeats):  # in turn, so that a drifting machine drifts under all of them
                load.append(os.getloadavg()[0])
                for name, entry in entries.items():
                    entry.go_on()
                    repeats[name].append(entry.epoch())
                    entry.hold()
        return warm_up, repeats, load


def about(bench: Bench) -> dict[str, Any]:
    """What was measured where."""
    loaders = Path(__file__).resolve().parents[2] / "loaders"
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(loaders.rglob("*.py")))).hexdigest()
    return {
        "benchmark": "loader",
        "cores": len(os.sched_getaffinity(0)),
        "facefeed_loaders_sha256": code,
        "batch": 64,
        "workers": 2,
        "data": bench.data,
        "versions": {name: envs.versions(python) for name, python in bench.pythons.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a finished OUT; default: one is made")
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir()) / "facefeed-bench")
    parser.add_argument("--images", type=int, default=6400, help="of an epoch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lanes", nargs="+", choices=LANES, default=list(LANES))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--quick", action="store_true", help="few images, one repeat: does it run at all?")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.images, arguments.repeats = 512, 1
    arguments.envs.mkdir(parents=True, exist_ok=True)
    cache = Path(tempfile.mkdtemp(prefix="data-", dir=arguments.envs))
    started = time.perf_counter()
    try:
        bench = Bench(arguments, cache)
        lanes = {lane: bench.lane(lane) for lane in arguments.lanes}
        result = {**about(bench), "lanes": lanes, "seconds": round(time.perf_counter() - started)}
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
