"""What one slot is at, and what it waits for: decode, read, find faces, cut; at once, and one after the other.

    python tests/benchmarks/bench_slot.py [--videos DIR] [--every 10] [--repeats 3] [--serial] [--page FILE.html]
        [--decoders 1] [--threads 1] [--device cpu|cuda]

One real `UnitWorker` in this process makes one unit of all videos; without --videos the built-in sample is used.
--threads: of torch and the detector, as a slot of so many cores has. --decoders: how many children feed the detector.
--serial also runs the stages one after the other, in turn with the others, another one first each time.

Prints one JSON object with every repeat. For each stage: the seconds it was at work, as a share of the run, and the
shares in which it waited for what comes (upstream: nothing was there) or for whoever takes it (downstream: the one list
that may wait was waiting). Of several decoders' stages, the mean; these also wait for their turn at the detector.
decode: how much of a core its child computed; what it waits for cannot be seen from outside. In series, a stage "waits"
while the others work. --page writes the timelines of the last repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from facefeed.data.sample import make_sample
from facefeed.pipeline.commit.publish import make_folders
from facefeed.pipeline.execution.decode_pool import _LockedDetector
from facefeed.pipeline.execution.unit_worker import UnitWorker
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.planning.options import JobSpec, Options, hash_config
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry, list_source
from facefeed.pipeline.video import Sampling
from slot_page import Run, write_page
from slot_spans import DOWNSTREAM, STAGES, UPSTREAM, WORK, RecordingDetector, Spans, recorded

AT_ONCE, IN_SERIES = "at once", "in series"


def ordered(entries: list[Entry]) -> list[Entry]:
    """As a plan has them: originals before their fakes."""
    return sorted(entries, key=lambda entry: (entry.source_id or entry.video_id, entry.source_id is not None))


def run(source: Path, detector: Any, arguments: argparse.Namespace, *, in_series: bool) -> Run:
    """Makes one unit of all videos, in a fresh OUT, with the decoders' children started before the clock."""
    listing, spans = list_source(source), Spans()
    decoders = 1 if in_series else arguments.decoders
    options = Options(sampling=Sampling(every=arguments.every))
    watched = RecordingDetector(detector, spans)
    shared = _LockedDetector(watched) if decoders == 1 else watched  # several lanes take turns of themselves
    with tempfile.TemporaryDirectory() as out:
        config_hash = hash_config(options.to_config(detector, listing.labels))
        job = JobSpec(
            root=source, out=Path(out), options=options, detector=shared, labels=listing.labels, config_hash=config_hash
        )
        make_folders(job.paths)
        entries = ordered([entry for entry in listing.entries if not entry.problem])
        worker = UnitWorker(job, decoders=decoders)
        for pipeline in worker._pool._pipelines:
            pipeline.warm_up(entries[0].video_id)
        with recorded(worker, spans, watched, in_series=in_series):
            computed, began = time.process_time(), time.perf_counter()
            receipt = worker.run(Unit.make(entries, "train", config_hash=config_hash, salt="0"))
            ended = time.perf_counter()
        computed = time.process_time() - computed
        worker.close()
    frames = sum(entry.frames_decoded for entry in receipt.inputs)
    return Run(began=began, ended=ended, frames=frames, faces=receipt.rows, decoders=decoders, spans=spans.all,
               figures=figures(spans, ended - began, computed, frames, decoders))  # fmt: skip


def figures(spans: Spans, seconds: float, computed: float, frames: int, decoders: int) -> dict[str, Any]:
    """What the spans come to."""
    own = spans.own_seconds()

    def total(stage: str, *names: str | None) -> float:
        return sum(own[lane, stage, name] for lane in range(decoders) for name in names if name is not None)

    stages: dict[str, Any] = {}
    for stage in STAGES:
        busy, whole = total(stage, *WORK[stage]), seconds * decoders
        stages[stage] = {
            "busy_seconds": round(busy, 3), "share": round(busy / whole, 4), "idle_share": round(1 - busy / whole, 4),
        }  # fmt: skip
        for name, what in (("waits_upstream_share", UPSTREAM[stage]), ("waits_downstream_share", DOWNSTREAM[stage])):
            stages[stage][name] = None if what is None else round(total(stage, what) / whole, 4)
        if stage == "find" and decoders > 1:
            stages[stage]["waits_turn_share"] = round(total(stage, "waits for its turn") / whole, 4)
        stages[stage]["seconds_of"] = {what: round(total(stage, what), 3) for what in WORK[stage]}
    return {
        "seconds": round(seconds, 3), "frames": frames, "frames_per_second": round(frames / seconds, 2),
        "detector_share": round(total("find", "detect") / seconds, 4), "slot_cpu_seconds": round(computed, 3),
        "children_cpu_seconds": stages["decode"]["busy_seconds"], "stages": stages,
    }  # fmt: skip


def main() -> None:
    """Prints the figures; writes the page that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=Path)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--serial", action="store_true")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--decoders", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    detector = MTCNNDetector(device=arguments.device).load()
    names = [AT_ONCE, IN_SERIES] if arguments.serial else [AT_ONCE]
    runs: dict[str, list[Run]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        source = arguments.videos or Path(folder) / "sample"
        if arguments.videos is None:
            make_sample(source)
        for number in range(arguments.repeats):
            for name in names if number % 2 == 0 else names[::-1]:
                runs[name].append(run(source, detector, arguments, in_series=name == IN_SERIES))
                print(f"{name}: {runs[name][-1].figures['frames_per_second']} frames a second", file=sys.stderr)
    about = {"benchmark": "slot", "cores": len(os.sched_getaffinity(0)), "threads": arguments.threads,
             "decoders": arguments.decoders, "device": str(detector.device or "cuda where there is one")}  # fmt: skip
    if arguments.serial:
        about["seconds_in_series_over_at_once"] = [
            round(serial.figures["seconds"] / other.figures["seconds"], 3)
            for serial, other in zip(runs[IN_SERIES], runs[AT_ONCE], strict=True)
        ]
    rates = {name: statistics.median(serial.figures["frames_per_second"] for serial in of) for name, of in runs.items()}
    repeats = {name: [serial.figures for serial in of] for name, of in runs.items()}
    print(json.dumps({**about, "median_frames_per_second": rates, "repeats": repeats}, indent=1))
    if arguments.page is not None:
        write_page(arguments.page, {name: of[-1] for name, of in runs.items()}, about)


if __name__ == "__main__":
    main()
