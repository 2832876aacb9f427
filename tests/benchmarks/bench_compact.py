"""`facefeed compact` at scale: seconds, memory and files of an OUT of made-up rows, undisturbed and killed five times.

    python tests/benchmarks/bench_compact.py [--rows 200000] [--units 2000] [--repeats 3] [--workers 2] [--folder DIR]
                                             [--store]

The dataset is that of `bench_add.py`, with its added columns. Prints one JSON object with every repeat. `megabytes` is
the largest sum of the proportional memory (PSS) of the command, sampled twice a second. `copying`: megabytes of rows
that `shutil.copyfile` copies in a second, one file after the other, each synced: what a copy alone costs. `equal`:
whether a run that was killed five times with SIGKILL and resumed left the files of an undisturbed one. `opening`:
seconds to read one row of every file, before and after, in turns.

With `--store`, only: the same rows without added columns in a folder and in moto's S3 server on this machine, in turns,
with what was asked of the server; `equal`: whether both had the same files of rows then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import psutil
from bench_add import MAKER, Adding, copy_linked, make_out
from bench_million import tree_bytes
from bench_store_out import BUCKET, counts_of, s3_server
from facefeed.pipeline.dataset.open_dataset import open_dataset
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.verify.check import verify

SECONDS_BETWEEN_SAMPLES = 0.5
TARGET_MB = 32  # so that there are files to kill between


def command(out: Path | str, workers: int) -> list[str]:
    """What a user runs."""
    return [
        sys.executable, "-m", "facefeed.pipeline", "compact", str(out), "--target-mb", str(TARGET_MB),
        "--workers", str(workers), "--json",
    ]  # fmt: skip


def undisturbed(out: Path | str, workers: int, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The figures of a run to its end, and the most memory."""
    most = 0
    with tempfile.TemporaryFile("w+") as stdout:
        process = psutil.Popen(
            command(out, workers), stdout=stdout, stderr=subprocess.DEVNULL, env={**os.environ, **(variables or {})}
        )
        while process.poll() is None:
            most = max(most, tree_bytes(process))
            time.sleep(SECONDS_BETWEEN_SAMPLES)
        stdout.seek(0)
        figures: dict[str, Any] = json.loads(stdout.read().splitlines()[-1])
    return {**figures, "megabytes": round(most / 1e6)}


def kill_at(out: Path, workers: int, units: int) -> int:
    """Kills a run once that many merged files are there; returns how many were."""
    process = psutil.Popen(command(out, workers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    known = {path.name for path in (out / "receipts").iterdir()}
    merged = 0
    while process.poll() is None and merged < units:
        time.sleep(0.005)
        merged = len({path.name for path in (out / "receipts").iterdir()} - known)
    with suppress(psutil.NoSuchProcess):  # it may have come to its end
        process.kill()
    process.wait()
    return merged


def copying(out: Path, folder: Path) -> float:
    """Megabytes a second of plain copies."""
    files, started = sorted(out.glob("faces/*/*.parquet")), time.perf_counter()
    folder.mkdir()
    for path in files:
        shutil.copyfile(path, folder / path.name)
        with (folder / path.name).open("rb") as copied:
            os.fsync(copied.fileno())
    seconds = time.perf_counter() - started
    shutil.rmtree(folder)
    return round(sum(path.stat().st_size for path in files) / seconds / 1e6, 1)


def opening(out: Path, every: int) -> float:
    """Seconds to open the dataset and read one image in `every`."""
    started = time.perf_counter()
    _, index = open_dataset(out)
    images = StoredImages(index)
    for row in range(0, index.num_rows, every):
        images.image(row)
    return round(time.perf_counter() - started, 3)


def files_of(out: Path) -> dict[str, bytes]:
    """Files of rows and of added columns."""
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.parquet")}


def beside_a_store(out: Path, folder: Path, workers: int, repeats: int) -> dict[str, Any]:
    """Runs in a folder and in a store, in turns."""
    rounds: list[dict[str, Any]] = []
    with s3_server(0.0) as options:
        files = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False, **options)
        variables = {"AWS_ENDPOINT_URL": options["endpoint_url"], "XDG_CACHE_HOME": str(folder / "cache")}
        for number in range(repeats):
            path = f"{BUCKET}/{number}"
            files.put(f"{out}/", f"{path}/", recursive=True)
            local = undisturbed(copy_linked(out, folder / "local"), workers)
            counts_of(options)
            stored = undisturbed(f"s3://{path}", workers, variables)
            counts = counts_of(options)
            names = {name.removeprefix(f"{path}/") for name in files.find(f"{path}/faces")}
            expected = files_of(folder / "local")
            equal = names == expected.keys() and all(
                files.cat_file(f"{path}/{name}") == expected[name] for name in names
            )
            rounds.append({"folder": local, "store": {**stored, **counts}, "equal": equal})
            shutil.rmtree(folder / "local")
            files.rm(path, recursive=True)
    return {"benchmark": "compact in a store", "rounds": rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--store", action="store_true", help="beside a store, and nothing else")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench_compact") as name:
        folder = Path(name)
        (folder / "maker.py").write_text(MAKER)
        out, killed = folder / "out", folder / "killed"
        make_out(out, given.rows, given.units)
        if given.store:
            result = beside_a_store(out, folder, given.workers, given.repeats)
            sys.stdout.write(json.dumps({**result, "rows": given.rows, "units": given.units}) + "\n")
            return
        Adding(out, f"{folder / 'maker.py'}:Brightness", given.workers).run()
        repeats, copies = [], []
        for _ in range(given.repeats):
            copies.append(copying(out, folder / "copies"))
            shutil.copytree(out, folder / "compacted", copy_function=os.link)
            repeats.append(undisturbed(folder / "compacted", given.workers))
            if len(repeats) < given.repeats:
                shutil.rmtree(folder / "compacted")
        every = given.rows // given.units
        times = [(opening(out, every), opening(folder / "compacted", every)) for _ in range(2 * given.repeats)]
        shutil.copytree(out, killed, copy_function=os.link)
        merged = repeats[-1]["merged_files"]
        kills = [kill_at(killed, given.workers, max(1, merged * number // 6)) for number in range(1, 6)]
        resumed = undisturbed(killed, given.workers)
        verdict = verify(killed)
        result = {
            "benchmark": "compact",
            "rows": given.rows,
            "units": given.units,
            "repeats": repeats,
            "copying": copies,
            "opening": {"before": [a for a, _ in times], "after": [b for _, b in times]},
            "merged_at_each_kill": kills,
            "resumed": resumed,
            "equal": files_of(killed) == files_of(folder / "compacted"),
            "findings": len(verdict.findings),
            "rows_verified": verdict.rows,
        }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
