"""What a ladder says of energy: what NVML counts for the devices of a rung, or why it is not known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from assets_clock import Clock
from assets_paths import SUPPORT, needs_program
from facefeed.train.ladder.rung.energy import Energy, EnergyMeter, PowerIntegral

UUID = "8f2b3c1e-0000-1111-2222-333344445555"
ENTIRE, PART = f'-DUUID="GPU-{UUID}"', f'-DUUID="MIG-{UUID}"'


def measured(folder: Path, *definitions: str) -> dict[str, Any]:
    """Energy in a process that loads the stand-in library, built with `definitions`, as NVIDIA's own; its seconds."""
    pytest.importorskip("pynvml")
    compiler, source = needs_program("cc"), SUPPORT / "train" / "nvml.c"
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", *definitions, "-o", str(library), str(source)], check=True)
    code = (
        "import json, time; from dataclasses import asdict; from facefeed.train.ladder.rung.energy import EnergyMeter\n"
        f"meter = EnergyMeter({UUID!r}); before = time.perf_counter(); meter.start()\n"
        "energy = meter.stop(); print(json.dumps({**asdict(energy), 'seconds': time.perf_counter() - before}))"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    completed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(completed.stdout)
    return answer


def test_the_energy_is_what_the_counter_of_the_gpu_rises_by(tmp_path: Path) -> None:
    answer = measured(tmp_path, ENTIRE)
    assert (answer["joules"], answer["reason"]) == (50.0, None)


def test_without_a_counter_power_is_integrated(tmp_path: Path) -> None:
    answer = measured(tmp_path, ENTIRE, "-DMIG=0", "-DNO_COUNTER")
    assert answer["reason"] is None
    assert 0 < answer["joules"] <= 250 * answer["seconds"]


@pytest.mark.parametrize(
    ("definitions", "reason"),
    [
        ((ENTIRE, "-DNO_COUNTER", "-DNO_POWER"), "the GPU reports neither energy nor power"),
        ((ENTIRE, "-DMIG=1"), "trained on a part of a GPU (MIG), and only the energy of all its parts is counted"),
        ((PART,), "trained on a part of a GPU (MIG), and only the energy of all its parts is counted"),
        (('-DUUID="GPU-another"',), "NVML: Not Found"),
        ((ENTIRE, "-DRESET"), "the counter began anew while it was measured"),
        ((ENTIRE, "-DFROZEN"), "the steps were over before the driver updated the counter; take more --steps"),
    ],
)
def test_where_energy_cannot_be_measured_there_is_a_reason_instead(
    tmp_path: Path, definitions: tuple[str, ...], reason: str
) -> None:
    answer = measured(tmp_path, *definitions)
    assert (answer["joules"], answer["reason"]) == (None, reason)


def test_without_a_gpu_the_driver_or_the_library_there_is_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert energy_of(None) == Energy(reason="trained on no NVIDIA GPU")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy_of(UUID) == Energy(reason="nvidia-ml-py is not installed; run `pip install nvidia-ml-py`")


def test_an_older_library_of_the_same_name_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=lambda: None, NVMLError=OSError))
    reason = energy_of(UUID).reason
    assert reason is not None
    assert reason.startswith("pynvml lacks what is needed (")
    assert reason.endswith("; run `pip install nvidia-ml-py`")


def energy_of(uuid: str | None) -> Energy:
    meter = EnergyMeter(uuid)
    meter.start()
    return meter.stop()


def test_power_is_integrated_over_the_time_between_samples() -> None:
    clock, watts = Clock(), iter((100, 300, 200))
    integral = PowerIntegral(lambda: next(watts) * 1000, clock)
    integral._thread = SimpleNamespace(start=lambda: None, join=lambda: None)  # type: ignore[assignment]
    integral.start()
    clock.pass_by(2.0)
    integral.sample()
    clock.pass_by(4.0)
    assert integral.stop() == pytest.approx(2.0 * 200 + 4.0 * 250)


def test_a_sample_that_fails_ends_the_integral() -> None:
    samples = iter((100,))
    integral = PowerIntegral(lambda: next(samples))
    integral._stopped = SimpleNamespace(wait=lambda seconds: False, set=lambda: None)  # type: ignore[assignment]
    integral.start()
    with pytest.raises(StopIteration):
        integral.stop()
