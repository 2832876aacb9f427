"""How many workers and decoder processes a machine has cores, memory and GPUs for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from ..machine import ROOT, has_gpu_driver, memory_bytes, usable_cores

_DEVICES = Path("/dev")
_COUNT = "import torch; print(torch.cuda.device_count())"
_WORKER_MEMORY_BYTES = 2 << 30  # MTCNN, frames of three stages and the decoder process, with a margin
_WORKERS_PER_GPU = 4
_GPU_WORKER_MEMORY_MB = 3072  # 1 GB by default; 2.5 where the smallest faces are of 12 px
_QUERY = ("--query-gpu=memory.total,compute_mode", "--format=csv,noheader,nounits")
_QUERY_SECONDS = 10.0
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
    gpus = visible_gpus()
    if not gpus:
        return num_workers_without_gpu(root)
    by_host = min(usable_cores(root) // 2, memory_bytes(root) // _WORKER_MEMORY_BYTES)
    return max(len(gpus), min(by_host, _max_workers_per_gpu(tuple(gpus)) * len(gpus)))


@cache
def _max_workers_per_gpu(gpus: tuple[str, ...]) -> int:
    """How many workers may share each of the GPUs: by the smallest one's memory, at most 4.

    1 where they are parts of GPUs, of one process at a time only, or unknown to NVIDIA's tool.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None or any(name.startswith("MIG-") for name in gpus):
        return 1
    try:
        answer = subprocess.run(
            [tool, *_QUERY], capture_output=True, text=True, check=True, timeout=_QUERY_SECONDS
        ).stdout
        rows = [line.split(",") for line in answer.splitlines() if line.strip()]
        limits = [int(memory_mb) // _GPU_WORKER_MEMORY_MB for memory_mb, mode in rows if mode.strip() == "Default"]
    except (OSError, ValueError, subprocess.SubprocessError):
        return 1
    if len(limits) < len(rows) or not limits:
        return 1
    return max(1, min(_WORKERS_PER_GPU, *limits))


def num_workers_without_gpu(root: Path = ROOT) -> int:
    """Number of workers that use no GPU: one per core as far as memory allows."""
    return max(1, min(usable_cores(root), memory_bytes(root) // _WORKER_MEMORY_BYTES))
