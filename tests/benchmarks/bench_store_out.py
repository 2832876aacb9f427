"""OUT in an S3 store beside OUT in a folder: seconds, requests, bytes; then a kill, a resume and epochs of that.

    python tests/benchmarks/bench_store_out.py [--groups 30] [--repeats 3] [--every 2]

Videos are those of `facefeed sample`, faces are fixed boxes, so that writing weighs most; two workers. The store is
moto's server, a process of its own on this machine, once faultless and once with 5 % of all requests answered by "503
Slow Down": it shows what is asked of a store and what retries cost, not how fast a real one is. The lanes take turns.
At the end, in the faulty store: a run killed at half of its units, its resumption, `verify`, an epoch with an empty
cache and the next one. Prints one JSON object with every repeat; a table goes to stderr.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import fsspec
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

BUCKET = "bench-out"
COUNTS = "/bench-counts"
FAULTS = 0.05
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


def serve(faults: float) -> None:
    """The server's process: prints its port, then answers until it is killed."""
    from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 (of this process alone)
    from werkzeug.serving import make_server  # noqa: PLC0415

    app, draw, lock = DomainDispatcherApplication(create_backend_app), random.Random(0), threading.Lock()
    counts: Counter[str] = Counter()

    def counting(environ: dict[str, Any], start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == COUNTS:
            with lock:
                body = json.dumps(counts).encode()
                counts.clear()
            start_response("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        is_file, length = path.count("/") > 1, int(environ.get("CONTENT_LENGTH") or 0)
        content = environ["wsgi.input"].read(None if environ.get("wsgi.input_terminated") else length)
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        environ |= {"wsgi.input": io.BytesIO(content), "CONTENT_LENGTH": str(len(content))}
        with lock:
            fails = is_file and draw.random() < faults
            counts[method] += 1
            counts["faults"] += fails
            counts["received_bytes"] += len(content)
        if fails:
            start_response("503 Slow Down", [("Content-Length", str(len(_SLOW_DOWN)))])
            return [_SLOW_DOWN]
        body = b"".join(app(environ, start_response))
        with lock:
            counts["sent_bytes"] += len(body) if method == "GET" else 0
        return [body]

    server = make_server("127.0.0.1", 0, counting, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


@contextmanager
def s3_server(faults: float) -> Iterator[dict[str, Any]]:
    """Yields the storage_options of a server with a bucket."""
    os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_DEFAULT_REGION="us-east-1")
    command = [sys.executable, __file__, "--serve", str(faults)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            options = {"endpoint_url": f"http://127.0.0.1:{int(server.stdout.readline())}"}
            fsspec.filesystem("s3", skip_instance_cache=True, **options).mkdir(BUCKET)
            yield options
        finally:
            server.kill()


def counts_of(options: dict[str, Any]) -> dict[str, int]:
    """What was asked of a server since the last call."""
    with urllib.request.urlopen(options["endpoint_url"] + COUNTS, timeout=60) as response:
        return dict(json.loads(response.read()))


def run(src: Path, out: str, every: int, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """One run of `precompute`."""
    if options:
        counts_of(options)
    started = time.perf_counter()
    summary = precompute(
        src, out, workers=2, storage_options=options, detector=FixedBoxDetector(),
        options=Options(sampling=Sampling(every=every), keep=FaceFilter(min_face_px=16)),
    )  # fmt: skip
    measured = {
        "seconds": time.perf_counter() - started, "units": summary.manifest.units, "rows": summary.manifest.rows,
        "stored_bytes": summary.manifest.bytes, "units_done": summary.totals.units,
    }  # fmt: skip
    return measured | (counts_of(options) if options else {})


def killed_and_resumed(src: Path, every: int, options: dict[str, Any], units: int) -> dict[str, Any]:
    """A run that is killed once half of the units have a receipt, and what comes after."""
    out = f"s3://{BUCKET}/killed"
    files = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False, **options)
    command = [sys.executable, __file__, "--run", str(src), out, str(every), json.dumps(options)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(receipts_in(files)) < units // 2:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    done = receipts_in(files)
    measured: dict[str, Any] = {"units": units, "receipts_at_kill": len(done), "resumed": run(src, out, every, options)}
    started = time.perf_counter()
    result = verify(out, storage_options=options)
    measured["verify"] = {
        "seconds": time.perf_counter() - started,
        "findings": len(result.findings),
        **counts_of(options),
    }
    with tempfile.TemporaryDirectory() as cache:
        loader = FaceDataLoader(out, 64, num_workers=2, cache=cache, storage_options=options, shuffle="window")
        for name in ("cold", "warm"):
            started = time.perf_counter()
            images = sum(len(labels) for _, labels in loader)
            measured[name] = {"images_per_second": images / (time.perf_counter() - started), "images": images}
            measured[name] |= counts_of(options)
    return measured


def receipts_in(files: Any) -> set[str]:
    return set(files.find(f"{BUCKET}/killed/receipts"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=30, help="groups of videos")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--every", type=int, default=2, help="every N-th frame")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, s3_server(0.0) as sound, s3_server(FAULTS) as faulty:
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        src = Path(made) / "sample"
        subprocess.run(
            [Path(sys.executable).with_name("facefeed"), "sample", src, "--groups", str(arguments.groups)],
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        rounds = []
        for number in range(arguments.repeats):
            folder = Path(made) / f"out-{number}"
            rounds.append({
                "folder": run(src, str(folder), arguments.every),
                "store": run(src, f"s3://{BUCKET}/{number}", arguments.every, sound),
                "store, 5 % of errors": run(src, f"s3://{BUCKET}/{number}", arguments.every, faulty),
                "store, nothing to do": run(src, f"s3://{BUCKET}/{number}", arguments.every, sound),
            })  # fmt: skip
            shutil.rmtree(folder)
        killed = killed_and_resumed(src, arguments.every, faulty, rounds[0]["folder"]["units"])
    for lane in rounds[0]:
        seconds = statistics.median(each[lane]["seconds"] for each in rounds)
        ratio = statistics.median(each[lane]["seconds"] / each["folder"]["seconds"] for each in rounds)
        print(f"{lane:22} {seconds:6.1f} s, {ratio:.2f} of the folder", file=sys.stderr)
    print(json.dumps({"rounds": rounds, "killed": killed}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(float(sys.argv[2]))
    elif sys.argv[1:2] == ["--run"]:
        run(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), json.loads(sys.argv[5]))
    else:
        main()
