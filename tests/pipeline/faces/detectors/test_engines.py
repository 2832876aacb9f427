"""The detector computes on a GPU where there is one, and takes no time for torch where there is none."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from facefeed.pipeline import machine
from facefeed.pipeline.errors import StoppedError, UsageError
from facefeed.pipeline.faces.detectors.cascade import engines
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector

DETECT = """
import sys
import numpy as np
from facefeed.pipeline.execution import unit_task
from facefeed.pipeline import machine
from facefeed.pipeline.faces.detectors.cascade import engines
from facefeed.pipeline.faces.detectors.keyframe_detector import TrackingDetector
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
frames = list(np.random.default_rng(0).integers(0, 256, (3, 90, 120, 3), np.uint8))
engines.has_gpu_driver = lambda: False  # also on a machine with a GPU
for detector in (MTCNNDetector(), TrackingDetector()):
    assert len(detector.load().detect(frames)) == 3
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "torchvision", "facenet_pytorch"}))
print(MTCNNDetector().frames_at_once)
"""


@pytest.mark.processes
def test_faces_are_detected_on_the_cpu_without_torch_by_as_many_threads_as_the_environment_allows() -> None:
    for limit in ("3", "2,4"):
        output = subprocess.check_output(
            [sys.executable, "-c", DETECT], env={**os.environ, "OMP_NUM_THREADS": limit}, text=True
        )
        assert output.splitlines() == ["[]", limit[0]]


@pytest.mark.parametrize(("driver", "device"), [("libc.so.6", "cuda"), ("libabsent.so.1", "cpu")])
def test_torch_decides_whether_there_is_a_gpu_wherever_its_driver_is(
    driver: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_NVIDIA_DRIVER", driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    used = []
    monkeypatch.setattr(engines, "_engine", lambda _pid, device, _threads: used.append(device))
    engines._finds_gpu.cache_clear()
    engines.engine_for(None)
    engines._finds_gpu.cache_clear()
    assert used == [device]


def test_a_gpu_that_torch_cannot_use_is_reported_rather_than_replaced_by_the_cpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UsageError, match="device='cuda': must be a device that torch can use"):
        MTCNNDetector(device="cuda").load()


def test_a_gpu_whose_memory_is_full_stops_the_run_rather_than_fail_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    from facefeed.pipeline.faces.detectors.cascade import cuda  # noqa: PLC0415 (torch)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 7 GiB")

    monkeypatch.setattr(cuda, "DeviceFrameBatch", full)
    with pytest.raises(StoppedError, match=r"memory is full \(CUDA out of memory\).* fewer --workers"):
        cuda.DeviceEngine("cpu").detect([np.zeros((60, 60, 3), np.uint8)], 40)


def test_frames_of_any_strides_are_taken_on_a_device() -> None:
    from facefeed.pipeline.faces.detectors.cascade import cuda  # noqa: PLC0415 (torch)

    bgr = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    engine, rgb = cuda.DeviceEngine("cpu"), bgr[..., ::-1]
    read_only = np.ascontiguousarray(rgb)
    read_only.setflags(write=False)
    assert [len(part) for part in engine.detect([rgb, read_only], 40)] == [3, 3]
