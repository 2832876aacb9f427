"""What precomputing buys: the same faces from a finished OUT and made on the fly, side by side in one run, in turn.

    python tests/benchmarks/bench_onthefly.py [--real OUT] [--repeats 3] [--faces 128] [--sets sample real hd] [--quick]

Prints one JSON object with every repeat; a table goes to stderr. On the fly is `OnTheFlyFaces` (open, seek, decode,
MTCNN, crop) under torch's DataLoader, facefeed is `FaceDataLoader`; both with two workers, no augmentation, normalised
float32 of 224 px. Everything lies in the page cache: what is compared is work, not disks.

sample: the built-in sample, 270 to 720 lines. real: the videos of `shared/media` beside the checkout, if it is there,
240 lines to 1080p. hd: those of them with a shorter side of at least 700 px, as the usual deepfake sets have.

Of each set `--faces` are drawn. A repeat on the fly is every drawn face once, in batches of 16, so that both workers
have as much to do; a repeat of facefeed is 6,400 images: the same faces again and again, in batches of 64. Each lives
through all repeats in a process of its own, and is stopped while the other is at work. The time to the first batch is
that of 64 images, from the loader's construction in a fresh process that has imported everything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from facefeed.data.sample import make_sample
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.video.decoder.sniffing import open_media_file
from peers import faces, report
from peers.entry import Entry

HERE = Path(__file__).resolve().parent
DEMO = HERE.parents[1] / ".demo"
NAIVE = "on the fly"
HD_PX = 700
SIDE_PX = 224
SETS = ("sample", "real", "hd")


def loader(order: Any) -> Any:
    """Called by `peers/serve.py` in the entry's process: the loader that `order.lane` names."""
    import torch  # noqa: PLC0415 (the benchmark's own process needs none of these)
    from facefeed.loaders import FaceDataLoader  # noqa: PLC0415
    from facefeed.pipeline.baselines.onthefly import OnTheFlyFaces  # noqa: PLC0415

    if order.lane == report.OURS:
        out = order.folder / "facefeed"
        return FaceDataLoader(out, order.batch, split="train", image_size=SIDE_PX, num_workers=order.workers)
    drawn = json.loads((order.folder / "drawn.json").read_text())
    dataset = OnTheFlyFaces(drawn["src"], drawn["out"], split=None, image_size=SIDE_PX)
    sampler = torch.utils.data.SubsetRandomSampler(drawn["positions"])
    size = order.batch if order.lane.endswith("first batch") else order.batch // 4
    return torch.utils.data.DataLoader(dataset, size, sampler=sampler, **order.loading())


def precomputed(src: Path, out: Path) -> Path:
    """OUT, made from SRC where it is not there yet."""
    if not OutPaths(out).manifest.is_file():
        command = [sys.executable, "-m", "facefeed.pipeline", "precompute", str(src), str(out)]
        subprocess.run([*command, "--max-failed", "100%", "--allow-unlabelled"], check=True, stdout=sys.stderr)
    return out


def sources(arguments: argparse.Namespace) -> dict[str, tuple[Path, Path, int]]:
    """Of each set: the videos, the finished OUT, and the least shorter side of a frame."""
    sources_by_name: dict[str, tuple[Path, Path, int]] = {}
    if "sample" in arguments.sets:
        if OutPaths(DEMO / "faces").manifest.is_file():
            sources_by_name["sample"] = (DEMO / "videos", DEMO / "faces", 0)
        else:
            make_sample(arguments.envs / "sample")
            out = precomputed(arguments.envs / "sample", arguments.envs / "sample-out")
            sources_by_name["sample"] = (arguments.envs / "sample", out, 0)
    if faces.MEDIA.is_dir() and {"real", "hd"} & {*arguments.sets}:
        out = precomputed(faces.MEDIA, arguments.real or arguments.envs / "out")
        sources_by_name |= {
            name: (faces.MEDIA, out, least) for name, least in (("real", 0), ("hd", HD_PX)) if name in arguments.sets
        }
    return sources_by_name


def draw(src: Path, out: Path, least_px: int, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Chooses the faces; lays down in `folder` which they are, and an OUT of nothing but them; what was drawn."""
    index = Index(out)
    all_rows = np.arange(len(index))
    names = index.categories("video_id")
    moving = np.array([is_video(src / name) for name in names])
    sides = np.minimum(index.numbers("frame_width", all_rows), index.numbers("frame_height", all_rows))
    fit = all_rows[moving[index.codes("video_id", all_rows)] & (sides >= least_px)]
    drawn = np.random.default_rng(0).permutation(fit)[: arguments.faces]
    ids = pa.array([index.value("face_id", int(row)) for row in drawn])
    table = pa.concat_tables(pq.read_table(path) for path in sorted(OutPaths(out).faces.rglob("*.parquet")))
    written = faces.write(table.filter(pc.is_in(table["face_id"], ids)), arguments.images, folder)
    shutil.rmtree(folder / "files")
    positions = np.resize(drawn, arguments.faces).tolist()  # where there are fewer, some come again
    (folder / "drawn.json").write_text(json.dumps({"src": str(src), "out": str(out), "positions": positions}))
    pixels = index.numbers("frame_width", drawn) * 1e-6 * index.numbers("frame_height", drawn)
    return {
        "faces_on_the_fly": len(positions),
        "distinct_faces": len(drawn),
        "videos": len(np.unique(index.codes("video_id", drawn))),
        "frame_megapixels": {"least": pixels.min(), "mean": pixels.mean(), "most": pixels.max()},
        "images_of_facefeed": written["images"],
        "mean_bytes": written["mean_bytes"],
    }


def is_video(path: Path) -> bool:
    content = open_media_file(str(path))
    os.close(content.fd)
    return content.kind == "video"


def measure(folder: Path, repeats: int) -> dict[str, Any]:
    """One set: cold starts, memory, and the repeats."""
    python, module = Path(sys.executable), Path(__file__).stem
    lanes = (report.OURS, NAIVE)
    figures: dict[str, Any] = {"cold": {lane: [] for lane in lanes}, "repeats": {lane: [] for lane in lanes}}
    for _ in range(repeats):
        for lane in lanes:
            with Entry(python, module, f"{lane}, first batch" if lane == NAIVE else lane, folder, whole=False) as entry:
                figures["cold"][lane].append(entry.ask("first"))
    with contextlib.ExitStack() as stack:
        entries = {lane: stack.enter_context(Entry(python, module, lane, folder)) for lane in lanes}
        figures["warm_up"] = {}
        for lane, entry in entries.items():
            figures["warm_up"][lane] = entry.first()
            entry.hold()
        figures["load_before"] = []
        for _ in range(repeats):  # in turn, so that a drifting machine drifts under both
            figures["load_before"].append(os.getloadavg()[0])
            for lane, entry in entries.items():
                entry.go_on()
                figures["repeats"][lane].append(entry.epoch())
                entry.hold()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, metavar="OUT", help="a finished OUT of shared/media; default: one is made")
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir()) / "facefeed-bench")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--faces", type=int, default=128, help="of a repeat on the fly")
    parser.add_argument("--images", type=int, default=6400, help="of a repeat of facefeed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few images, one repeat: does it run at all?")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.faces, arguments.images, arguments.repeats = 16, 512, 1
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    arguments.envs.mkdir(parents=True, exist_ok=True)
    started, sets = time.perf_counter(), {}
    for name, (src, out, least_px) in sources(arguments).items():
        folder = Path(tempfile.mkdtemp(prefix="onthefly-", dir=arguments.envs))
        try:
            about = draw(src, out, least_px, arguments, folder)
            figures = {**about, **measure(folder, arguments.repeats)}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        figures.update(report.summary(figures["repeats"], name))
        figures["median_ratio"] = statistics.median(figures["facefeed_over"][NAIVE])
        cold = report.medians(figures["cold"])
        once = {
            lane: {**cold[lane], "peak_pss_mb": warm_up["peak_pss_mb"]} for lane, warm_up in figures["warm_up"].items()
        }
        frames = f"{about['distinct_faces']} faces of {about['videos']} videos"
        ratio = f"facefeed over on the fly, median of the rounds: {figures['median_ratio']:.0f}"
        sys.stderr.write(f"{report.table(name, frames, figures, once)}\n{ratio}\n")
        sets[name] = figures
    seconds = round(time.perf_counter() - started)
    about = {"benchmark": "onthefly", "cores": len(os.sched_getaffinity(0)), "workers": 2, "side_px": SIDE_PX}
    print(json.dumps({**about, "seconds": seconds, "sets": sets}, indent=1))


if __name__ == "__main__":
    main()
