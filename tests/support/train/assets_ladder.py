"""Fake measurements of rungs, and a fake runner of rungs that returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from facefeed.train.ladder.messages import Reference
from facefeed.train.ladder.results import Measurement, PeakMemory
from facefeed.train.ladder.rungs import Rung, plan_rungs
from facefeed.train.ladder.scheduler import Combination, RungError
from facefeed.train.levers.registry import LADDER_TEXTS

GPU_ALONE = {
    text: [f"{text}: there is no GPU; run it where there is one"]
    for text in ("tf32", "fp16", "fused", "ddp", "zero:1", "zero:2", "zero:3", "zero:3:offload", "fsdp")
}
SPEEDS = {
    "naive": 0.5, "": 100.0, "bf16": 150.0, "compile": 130.0, "channels_last": 104.0, "adamw8bit": 99.0,
    "checkpointing": 75.0, "accumulate:4": 120.0, "clip:1": 98.0, "deterministic": 96.0,
    "bf16,compile": 190.0, "bf16,compile,channels_last": 195.0,
}  # fmt: skip
"""Samples per second, by levers."""
NO_ENERGY = "trained on no NVIDIA GPU"
METRICS = {"val/auc": 0.61, "val/accuracy": 0.58, "val/loss": 0.68}


def rungs(
    levers: Sequence[str] = LADDER_TEXTS, *, refused: Mapping[str, Sequence[str]] = GPU_ALONE, own_data: bool = False,
    videos: bool = True,
) -> tuple[Rung, ...]:  # fmt: skip
    return plan_rungs(levers, {text: refused.get(text, ()) for text in ("", *levers)}, own_data=own_data, videos=videos)


def measured(
    samples_per_second: float, *, steps: int = 20, steps_per_epoch: int | None = 400, gpu_bytes: int | None = None,
    host_bytes: int = 3_000_000_000, metrics: Mapping[str, float] | None = None, ending_seconds: float = 0.0,
    stall_share: float | None = 0.02, loss: float | None = 0.69, devices: int = 1, accumulated: int = 1,
    energy_joules: float | None = 900.0,
) -> Measurement:  # fmt: skip
    return Measurement(
        seconds=steps * 10 / samples_per_second, steps=steps, samples=steps * 10, warm_up_steps=steps // 2,
        trained_samples=steps * 15, updates=steps * 3 // 2 // accumulated, steps_per_epoch=steps_per_epoch,
        ending_seconds=ending_seconds, warm_up_seconds=4.0, stall_share=stall_share,
        memory=PeakMemory(
            allocated_bytes=None if gpu_bytes is None else gpu_bytes * 3 // 4, reserved_bytes=gpu_bytes,
            host_bytes=host_bytes, host_before_bytes=1_000_000_000,
        ),
        energy_joules=energy_joules, energy_reason=NO_ENERGY if energy_joules is None else None,
        loss=loss, metrics=METRICS if metrics is None else metrics,
        devices=devices,
    )  # fmt: skip


@dataclass
class FakeRungRunner:
    """Returns `speeds`, varied by `noise` between rounds; `broken` rungs fail in the given round."""

    speeds: Mapping[str, float] = field(default_factory=lambda: SPEEDS)
    noise: float = 0.01
    broken: Mapping[str, int] = field(default_factory=dict)
    apart: frozenset[frozenset[str]] = frozenset()
    asked: list[tuple[str, int]] = field(default_factory=list)
    combined: list[tuple[str, ...]] = field(default_factory=list)
    references: list[tuple[str, Reference | None]] = field(default_factory=list)

    def measure(self, rung: Rung, repeat: int, reference: Reference | None) -> Measurement:
        self.asked.append((rung.name, repeat))
        self.references.append((rung.name, reference))
        if self.broken.get(rung.name) == repeat:
            raise RungError(f"{rung.name} broke")
        speed = self.speeds["naive" if rung.data == "naive" else rung.levers]
        sign = (-1, 1, 0)[repeat % 3]
        return measured(speed * (1 + sign * self.noise), stall_share=0.9 if rung.data == "naive" else 0.02)

    def combine(self, levers: Sequence[str]) -> Combination:
        self.combined.append(tuple(levers))
        chosen: list[str] = []
        left_out: dict[str, str] = {}
        for text in levers:
            if any(frozenset((text, other)) in self.apart for other in chosen):
                left_out[text] = f"{text}: not beside {chosen}"
            else:
                chosen.append(text)
        return Combination(tuple(chosen), left_out)
