"""What a user notices of the command `facefeed train`: the table, the codes, help, and ranks that it starts itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from assets_docs import GUIDES, key_differences, keys
from assets_fit import CallAtHook, raising
from assets_train import BACKBONE, small_dataset
from click.testing import CliRunner
from facefeed.pipeline.cli import main
from facefeed.train.levers import FrozenRow
from facefeed.train.machine import Machine
from facefeed.train.run import runner
from facefeed.train.run.folder import RunFolder

# Lightning's own advice (few workers, no logger, deprecated pieces of torch) is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = ["--set", "data.image_size=32", "--set", "data.num_workers=0", "--set", "epochs=1"]
TINY = [*SMALL, "--set", f"model.backbone={BACKBONE}"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return small_dataset(tmp_path_factory.mktemp("cli") / "out")


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(main, ["train", *map(str, arguments)])


def test_workers_import_torch_while_the_training_process_does_so_too() -> None:
    code = """
import sys
from facefeed.loaders.workers import fork_server
fork_server.start_fork_server = lambda *modules: sys.exit(f"{modules}, torch: {'torch' in sys.modules}")
from facefeed.pipeline.cli import main
main(["train", "out"])
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.stderr.splitlines()[-1] == "('albumentations',), torch: False"


def test_it_ends_with_the_table_and_one_json_object_and_a_second_time_at_once(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(out, "--recipe", "quick", *TINY, "--set", "data.batch_size=8", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["exit"] == 0
    assert report["run"] == "runs/out-quick"
    assert report["steps"] == 7
    lines = result.stderr.splitlines()
    for name in ("recipe", "levers", "done", "time", "speed", "stall", "peak memory", "accuracy of method talk"):
        assert any(line.startswith(f"│ {name} ") for line in lines), name
    (auc, video_auc) = (line for line in lines if line.startswith("│   AUC "))
    assert [cell.strip() for cell in auc.split("│")[2:4]] == [f"{report[s][f'{s}/auc']:.3f}" for s in ("val", "test")]
    assert f"{report['test']['test/video_auc']:.3f}" in video_auc
    messages = " ".join(result.stderr.split())
    assert "An AUC over 2 videos shows that everything is connected, not that fakes are found" in messages
    assert "curves: tensorboard --logdir runs/out-quick/logs" in lines
    assert lines[-1] == f"next: facefeed evaluate {report['checkpoint']} {out}"
    assert all(len(line) <= 80 for line in lines if "│" in line)
    second_result = run(out, "--recipe", "quick", *TINY, "--set", "data.batch_size=8", "--json")
    assert json.loads(second_result.stdout) == report
    assert second_result.stderr.splitlines() == [line for line in lines if not line.startswith("{")]
    frozen = FrozenRow(
        pattern="net.*", name="net.fc", tensors=2, numbers=18, batch_norms=0
    )  # of no lever of the recipe
    present = {*keys({**report, "frozen": [asdict(frozen)]})}
    assert key_differences(present, "A training") == (set(), set())
    events = [json.loads(line) for line in lines if line.startswith("{")]
    assert {"progress", "validated"} <= {event["event"] for event in events}
    printed = {key for event in events for key in keys({event.pop("event"): event})}
    assert key_differences(printed, "Progress of a training")[0] == set()


def test_a_dataset_in_a_store_is_trained_on_through_a_cache(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["--recipe", "quick", *TINY, "--set", "data.batch_size=8", "--json"]
    local = json.loads(run(out, *settings, "--run", "local").stdout.splitlines()[-1])
    cached = ["--set", "data.cache=cache", "--set", "data.cache_bytes=1000000000"]
    stored = run(f"file://{out}", *settings, *cached)
    assert stored.exit_code == 0, stored.output
    report = json.loads(stored.stdout.splitlines()[-1])
    assert (report["run"], report["dataset"]) == ("runs/out-quick", f"file://{out}")
    assert (report["val"], report["test"]) == (local["val"], local["test"])
    assert list((tmp_path / "cache").rglob("blocks/*/*/0"))
    recorded = json.loads((tmp_path / "runs" / "out-quick" / "config.json").read_text())
    assert recorded["dataset"]["path"] == f"file://{out}"
    small = run(f"file://{out}", *settings, "--set", "data.cache_bytes=1000")
    assert (small.exit_code, "facefeed: cache_bytes=1000: must be" in small.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "epoch=3"], "facefeed: epoch: no such setting; did you mean epochs?"),
        (["--set", "model.backbone=resnet19"], "facefeed: backbone='resnet19': timm "),
        (["--set", "levers=fp16"], "facefeed: fp16: a CPU has no scaled fp16"),
        (["--set", "data.transform=none.yaml"], "facefeed: none.yaml: "),
        (["--set", "data.eval_transform=none.yaml"], "facefeed: none.yaml: "),
        (["--set", "data.batch_size=7"], "; take --set data.batch_size=6 or data.balance=none"),
        (["--recipe", "quickest"], "'quickest' is not one of 'quick'"),
    ],
)
def test_a_mistake_is_a_sentence_and_the_code_2(out: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(out, "--recipe", "quick", *SMALL, "--run", tmp_path / "run", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, "--recipe", "quick")
    assert result.exit_code == 2
    assert "no manifest.json, so no finished dataset; run `facefeed precompute" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_is_a_sentence_and_its_code_also_as_json(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    train = runner.train
    callback = CallAtHook("on_train_batch_start", 2, raising(number))
    monkeypatch.setattr(runner, "train", lambda *args, **options: train(*args, callbacks=[callback], **options))
    result = run(out, "--recipe", "quick", *TINY, "--run", tmp_path / "run", "--json")
    assert result.exit_code == code
    report = json.loads(result.stdout.splitlines()[-1])
    assert (report["exit"], report["signal"], report["step"]) == (code, number.name, 2)
    assert f"facefeed: stopped by {number.name} after step 2" in result.stderr
    monkeypatch.setattr("facefeed.train.cli._start_fork_server", lambda _: signal.raise_signal(number))
    result = run(out, "--recipe", "quick", *TINY, "--run", tmp_path / "run", "--json")
    assert result.exit_code == code
    assert json.loads(result.stdout.splitlines()[-1])["step"] is None
    assert f"stopped by {number.name} before it had loaded its checkpoint, which stays in {tmp_path}" in result.stderr


def test_a_step_that_needs_more_memory_than_there_is_is_a_finding_and_not_to_be_tried_again(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    train = runner.train
    callback = CallAtHook("on_train_batch_start", 3, exhaust)
    monkeypatch.setattr(runner, "train", lambda *args, **options: train(*args, callbacks=[callback], **options))
    result = run(out, "--recipe", "quick", *TINY, "--run", tmp_path / "run", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[-1])["exit"] == 1
    assert "batch_size=16: a step needs more memory than the GPU has; take a smaller data.batch_size" in result.stderr
    assert f"where {tmp_path / 'run'} has a checkpoint, name another --run for other settings" in result.stderr


def test_a_step_that_the_memory_of_the_host_does_not_suffice_for_stops_the_training_resumably(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = runner.train
    callback = CallAtHook("on_train_batch_start", 3, lambda: torch.empty(1 << 44, dtype=torch.uint8))
    monkeypatch.setattr(runner, "train", lambda *args, **options: train(*args, callbacks=[callback], **options))
    result = run(out, "--recipe", "quick", *TINY, "--run", tmp_path / "run")
    assert result.exit_code == 75
    assert f"facefeed: {tmp_path / 'run'}: stopped, Cannot allocate memory (" in result.stderr
    assert "run the same command again" in result.stderr


def test_a_run_goes_on_where_the_recipe_would_take_other_levers(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a job that began on a V100, and is requeued onto an A100."""
    folder, used = RunFolder(tmp_path / "run"), []
    monkeypatch.setattr(runner, "train", lambda *arguments, **_: used.append(arguments[1]))
    for name, capability in (("V100", (7, 0)), ("A100", (8, 0))):
        gpu = Machine((name,), (16 << 30,), capability, 8, frozenset({"triton"}), "c++")
        monkeypatch.setattr(Machine, "detect", lambda gpu=gpu: gpu)
        assert run(out, "--recipe", "fast", "--run", folder.root).exit_code == 0
        with folder.locked(used[0], out, ranks=1):
            (folder.checkpoints / "last.ckpt").touch()
    folder.check(used[1], out)
    assert used[1].levers == "fp16,channels_last,fused,compile,clip:1"


def test_help_names_every_recipe() -> None:
    result = run("--help")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for name in ("quick", "baseline", "fast", "small-gpu", "multi-gpu"):
        assert any(line.split()[:1] == [name] for line in lines), name


@pytest.mark.processes
def test_as_a_real_command_it_starts_a_process_for_each_further_rank(out: Path, tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("facefeed")
    levers = ["--set", "levers=ddp:2", "--set", "data.batch_size=4"]
    completed = subprocess.run(
        [str(command), "train", str(out), "--recipe", "quick", *TINY, *levers, "--run", "run", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr[-3000:]
    report = json.loads(completed.stdout)  # of one rank alone
    assert (report["steps"], report["images"]) == (7, 52)
    assert completed.stderr.count("next: facefeed evaluate run/checkpoints/best.ckpt") == 1
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.processes
def test_under_torchrun_it_takes_the_ranks_that_it_is_given(out: Path, tmp_path: Path) -> None:
    """As the guide has it, on two CPU ranks."""
    guide = (GUIDES / "clusters.md").read_text(encoding="utf-8")
    line = next(line.removeprefix("$ ") for line in guide.splitlines() if line.startswith("$ torchrun "))
    words = [str(out) if word == "OUT" else word for word in line.split()]
    programs = Path(sys.executable).parent
    words[0] = str(programs / "torchrun")
    options = [*TINY, "--set", "data.batch_size=4", "--set", "steps=2", "--run", "run", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["PATH"] = f"{programs}:{os.environ['PATH']}"

    completed = subprocess.run(
        [*words, *options], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    report = json.loads(completed.stdout)  # of one rank alone
    assert (report["steps"], report["images"]) == (2, 16)
