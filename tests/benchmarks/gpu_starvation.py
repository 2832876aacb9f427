"""`profile` on real training steps: is a GPU fed, and do the live, differential and modelled waits agree?

    python tests/benchmarks/gpu_starvation.py [--device cuda] [--models resnet50 efficientnet_b4] [--sides 224 380]
        [--steps 1000] [--workers N]

A step: forward, cross-entropy, backward, AdamW, in bf16 autocast, channels last, on batches of 64 of 224 px or 32 of
380 px, from a loader with a flip and a change of brightness and contrast on the device's side of the workers. Prints
one JSON object: for each the report of `facefeed profile --report`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import albumentations
import numpy as np
import timm
import torch
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.measure.variants import with_longer_epoch
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.report.json_report import report_values
from facefeed.loaders.profiler.verdict.gate import Gate
from peers import faces
from torch import nn

BATCHES = {224: 64, 380: 32}


def training_step(model_name: str, device: torch.device) -> Any:
    """A step that never waits for the device."""
    torch.manual_seed(0)
    model = timm.create_model(model_name, num_classes=2).to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=device.type == "cuda")

    def step(batch: Any) -> None:
        images, labels = batch
        with torch.autocast(device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def steps_of(recording: Recording) -> dict[str, Any]:
    """Milliseconds: medians of a step's parts, and the ten longest waits with what the host and the workers did."""
    parts = {
        "step": recording.step_seconds, "wait": recording.wait_seconds, "not_ready": recording.not_ready_seconds,
        "host_transport": recording.host_transport_seconds,
        "host_next": recording.host_received_at - recording.host_requested_at,
        "load": recording.load_seconds,
    }  # fmt: skip
    longest = np.argsort(recording.wait_seconds)[::-1][:10]
    return {
        "lead_steps": recording.lead_steps,
        "median_ms": {name: float(np.median(values)) * 1e3 for name, values in parts.items() if len(values)},
        "longest_waits_ms": [
            {"step": int(step), **{name: float(values[step]) * 1e3 for name, values in parts.items() if len(values)}}
            for step in sorted(longest)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a finished dataset; default: made from the sample or the media")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="+", default=["resnet50", "efficientnet_b4"])
    parser.add_argument("--sides", type=int, nargs="+", default=[224, 380])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--quick", action="store_true", help="the verdict alone")
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.backends.cudnn.benchmark = True
    result: dict[str, Any] = {"benchmark": "gpu starvation", "profiles": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, _ = faces.crops(given.out or faces.finished_out(folder), 380, 95)
        faces.write(table, 4096, folder / "written")
        data = folder / "written/facefeed"
        transform = albumentations.Compose(
            [albumentations.HorizontalFlip(), albumentations.RandomBrightnessContrast(p=0.5)]
        )
        for model in given.models:
            for side in given.sides:
                batch = BATCHES.get(side, 16)
                loader = FaceDataLoader(
                    data, batch, image_size=side, device=device, shuffle=True, transform=transform,
                    num_workers=given.workers,
                )  # fmt: skip
                loader = with_longer_epoch(loader, 200_000 // 4096)
                step = training_step(model, device)
                for _, images in zip(range(5), loader, strict=False):
                    step(images)
                started = time.perf_counter()
                profiled = profile(loader, step, steps=given.steps, device=device, quick=given.quick)
                seconds = time.perf_counter() - started
                report = report_values(profiled, Gate())
                result["profiles"][f"{model}, {side} px"] = {
                    "seconds": seconds, "batch": batch, "steps": steps_of(profiled.live), **report,
                }  # fmt: skip
                print(f"{model}, {side} px: {profiled.verdict}, in {seconds:.0f} s", file=sys.stderr, flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
