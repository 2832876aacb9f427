"""What a user notices of `Machine`: it says what is here, and another can be thought of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from facefeed.pipeline.machine import usable_cores
from facefeed.train.machine import Machine


def test_it_says_what_this_machine_has() -> None:
    here = Machine.detect()
    assert here.cores == usable_cores()
    assert (
        len(here.gpus) == len(here.gpu_memory_bytes) == (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    )
    assert (here.compute_capability is None) == (not here.gpus)
    assert not here.has("no such package")


def test_it_has_no_more_cores_than_a_containers_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", "100000 100000\n")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(usable_cores, "__defaults__", (tmp_path,))
    assert Machine.detect().cores == 1


def test_a_compiler_is_found_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert Machine.detect().compiler is None
    (tmp_path / "clang++").touch(mode=0o755)
    assert Machine.detect().compiler == str(tmp_path / "clang++")


def test_without_its_gpus_it_is_the_same_otherwise() -> None:
    machine = Machine(("A100",), (80 << 30,), (8, 0), 8, frozenset({"torchao"}), "c++")
    assert machine.without_gpus() == Machine(cores=8, packages=frozenset({"torchao"}), compiler="c++")
