"""How many workers and decoder processes a machine has cores, memory and GPUs for."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from ..machine import ROOT, has_gpu_driver, memory_bytes, usable_cores

_DEVICES = Path("/dev")
_COUNT = "import torch; print(torch.cuda.device_count())"
_WORKER_MEMORY_BYTES = 2 << 30  # MTCNN, frames of three stages and the decoder process, with a margin
_WORKERS_PER_GPU = 4  # each takes about 1 GB of the GPU's memory
_MAX_DECODERS = 8  # each with a source-frame cache and frames of three stages: 300 MB in the worst case


def visible_gpus() -> list[str]:
    """Names of the GPUs that workers may use, one worker each; without torch, which the driver need not import."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.isdigit() or name.startswith(("GPU-", "MIG-"))]
    return _machine_gpus()


def _machine_gpus() -> list[str]:
    return [path.name.removeprefix("nvidia") for path in sorted(_DEVICES.glob("nvidia[0-9]*"))] or _gpus_by_torch()


@cache
def _gpus_by_torch() -> list[str]:
    """GPUs that have no device file of their own: AMD's, WSL's, and NVIDIA's that nothing has used since the start.

    Else each worker's detector would find all of them, and take the first. A process of its own imports torch.
    """
    if not has_gpu_driver():
        return []
    counted = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=False)
    return [str(number) for number in range(int(counted.stdout))] if counted.returncode == 0 else []


def decoders_per_worker(workers_here: int | None, root: Path = ROOT) -> int:
    """Number of decoder processes for one worker: 1 without a GPU, else its share of the cores, at most 8.

    A GPU detects faces faster than one core decodes frames.
    `workers_here`: workers that share this machine's cores; None: unknown, taken as one per GPU.
    """
    if not visible_gpus():
        return 1
    cores = usable_cores(root)
    if workers_here is None:
        # A job that is limited to a part of the machine's cores shares them among its own GPUs only.
        has_all = cores >= (os.cpu_count() or 1)
        workers_here = max(len(_machine_gpus() if has_all else visible_gpus()), 1)
    return min(max(cores // workers_here, 1), _MAX_DECODERS)


def default_num_workers(root: Path = ROOT) -> int:
    """Number of workers: without GPUs one per core as far as memory allows, else one for two cores, at most 4 a GPU.

    A GPU finds faces faster than one Python process prepares frames and cuts crops: 4 workers on an H100 and 16 cores
    made 58 frames a second of 400 x 300 px, 8 made 91, threads of one worker 49.
    """
    gpus = len(visible_gpus())
    if not gpus:
        return num_workers_without_gpu(root)
    return max(gpus, min(_WORKERS_PER_GPU * gpus, usable_cores(root) // 2, memory_bytes(root) // _WORKER_MEMORY_BYTES))


def num_workers_without_gpu(root: Path = ROOT) -> int:
    """Number of workers that use no GPU: one per core as far as memory allows."""
    return max(1, min(usable_cores(root), memory_bytes(root) // _WORKER_MEMORY_BYTES))
