"""What a user of a cluster notices of the scripts before they are queued: what they ask for, and what is refused."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from facefeed.pipeline.cli import main
from facefeed.pipeline.errors import UsageError
from facefeed.train import slurm as room
from facefeed.train.slurm.allocation import Allocation, sbatch_quoted

ODD = ("it's", 'a "b"', "$HOME", "`id`", "a\nb", "ünïcode", "", "back\\slash", "a;b", "*", "#no comment")


def slurm(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["slurm", *arguments])


def script_of(*arguments: str) -> str:
    result = slurm(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def directives(script: str) -> list[str]:
    """The options of sbatch, as it would find them: up to the first command."""
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def assigned(script: str, name: str) -> list[str]:
    """A list of the script's, as bash reads it."""
    match = re.search(rf"^{name}=\(.*?\)$", script, re.MULTILINE | re.DOTALL)
    assert match
    completed = subprocess.run(
        ["bash", "-c", f'{match[0]}\nfor one in "${{{name}[@]}}"; do printf "%s\\0" "$one"; done'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return completed.stdout.split("\0")[:-1]


def is_bash(script: str) -> bool:
    return subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False).stderr == ""


@pytest.mark.parametrize(
    ("status", "job", "requests"),
    [
        (0, "EndTime=1060 PreemptTime=None", []),
        (75, "EndTime=1060 PreemptTime=None", ["requeue"]),
        (143, "EndTime=1060 PreemptTime=None", ["requeue"]),
        (1, "EndTime=1060 PreemptTime=None", []),  # no memory in the first validation: it would come again, forever
        (2, "EndTime=1060 PreemptTime=None", []),
        (1, "EndTime=9999 PreemptTime=1010", ["requeue"]),
        (75, "EndTime=9999 PreemptTime=None", ["requeuehold"]),
        (143, "EndTime=9999 PreemptTime=None", []),
    ],
)
def test_a_job_comes_back_where_it_was_cut_short_not_where_it_failed_close_to_its_limit(
    status: int, job: str, requests: list[str]
) -> None:
    script = Path(room.__file__).with_name("requeue.sh").read_text()
    slurm_at_1000 = f"""
        set -euo pipefail; warn_seconds=120; SLURM_JOB_ID=7
        date() {{ echo 1000; }}
        scontrol() {{ if [[ $1 == show ]]; then echo "JobId=7 {job} X=1"; else echo "$1"; fi; }}
    """
    ended = subprocess.run(
        ["bash", "-c", f"{slurm_at_1000}\n{script}\nfinish {status}"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (status, requests)


def test_a_training_asks_for_a_task_a_gpu_and_to_be_brought_back() -> None:
    script = script_of(
        "train", "faces", "--nodes", "2", "--gpus-per-node", "4", "--time", "1-12", "--partition", "gpu", "--account",
        "lab", "--mem", "200G", "--sbatch", "--qos=low", "--", "--set", "epochs=3",
    )  # fmt: skip
    requested = directives(script)
    assert {
        "--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4", "--cpus-per-task=8", "--time=1-12", "--partition=gpu",
        "--account=lab", "--mem=200G", "--requeue", "--open-mode=append", "--signal=USR1@120", "--qos=low",
    } < set(requested)  # fmt: skip
    assert script.startswith("#!/bin/bash\n")
    assert is_bash(script)
    assert assigned(script, "python") == [sys.executable]


def test_the_log_lies_in_a_folder_that_is_there() -> None:
    # Where it is not, Slurm ends the job at once and tells nobody.
    requested = directives(script_of("train", "faces"))
    assert f"--chdir={Path.cwd()}" in requested
    assert "--output=%x-%j.log" in requested


@pytest.mark.parametrize(
    ("allocation", "options", "arguments"),
    [
        ([], [], ["faces", "--recipe", "quick"]),
        (["--gpus-per-node", "1"], [], ["faces", "--recipe", "fast"]),
        (["--nodes", "2"], [], ["faces", "--recipe", "quick", "--set", "levers=ddp:1:2"]),
        (
            ["--nodes", "2", "--gpus-per-node", "4"],
            ["--recipe", "multi-gpu", "--run", "runs/a"],
            ["faces", "--recipe", "multi-gpu", "--run", "runs/a", "--set",
             "levers=ddp:4:2,bf16,tf32,channels_last,fused,compile,clip:1"],
        ),
        (
            ["--gpus-per-node", "2"],
            ["--set", "epochs=3", "--set=levers=bf16,clip:1", "--recipe", "baseline"],
            ["faces", "--set", "epochs=3", "--recipe", "baseline", "--set", "levers=ddp:2:1,bf16,clip:1"],
        ),
        (
            ["--gpus-per-node", "8", "--nodes", "4"],
            ["--recipe", "baseline", "--set", "levers=zero:2:offload,fp16"],
            ["faces", "--recipe", "baseline", "--set", "levers=zero:2:offload:8:4,fp16"],
        ),
        (
            ["--gpus-per-node", "4", "--nodes", "2"],
            ["--recipe", "baseline", "--set", "levers=bf16,fsdp"],
            ["faces", "--recipe", "baseline", "--set", "levers=bf16,fsdp:4:2"],
        ),
        (
            ["--gpus-per-node", "4", "--nodes", "2"],
            ["--recipe", "baseline", "--set", "levers=zero:3:4:2"],
            ["faces", "--recipe", "baseline", "--set", "levers=zero:3:4:2"],
        ),
        (
            ["--gpus-per-node", "1"],
            ["--recipe", "multi-gpu"],
            ["faces", "--recipe", "multi-gpu", "--set", "levers=bf16,tf32,channels_last,fused,compile,clip:1"],
        ),
        (
            ["--gpus-per-node", "1"],
            ["--recipe", "baseline", "--set", "levers=zero:2:offload,fp16"],
            ["faces", "--recipe", "baseline", "--set", "levers=zero:2:offload,fp16"],
        ),
    ],
)  # fmt: skip
def test_the_levers_are_those_of_the_nodes_that_were_asked_for(
    allocation: list[str], options: list[str], arguments: list[str]
) -> None:
    assert assigned(script_of("train", "faces", *allocation, "--", *options), "arguments") == arguments


def test_precompute_gets_a_worker_a_core_or_a_gpu() -> None:
    cores = script_of("precompute", "videos", "faces", "--nodes", "3", "--cpus-per-node", "32", "--", "--every", "5")
    assert {"--nodes=3", "--ntasks-per-node=32", "--cpus-per-task=1", "--signal=B:USR1@120"} < set(directives(cores))
    assert assigned(cores, "arguments") == ["videos", "faces", "--every", "5"]
    assert assigned(cores, "gpus_per_task") == []
    gpus = script_of("precompute", "videos", "faces", "--gpus-per-node", "2", "--cpus-per-node", "20")
    assert {"--ntasks-per-node=2", "--cpus-per-task=10", "--gpus-per-node=2"} < set(directives(gpus))
    assert assigned(gpus, "gpus_per_task") == ["--gpus-per-task=1", "--cpu-bind=none"]
    assert is_bash(cores)
    assert is_bash(gpus)


@pytest.mark.parametrize("name", ODD)
def test_what_was_given_reaches_the_nodes_as_it_was(name: str) -> None:
    script = script_of("precompute", "--interface", f"i{name}", "--python", shlex.join(["a", name]), "--", name, "out")
    assert is_bash(script)
    assert assigned(script, "arguments") == [name, "out"]
    assert assigned(script, "python") == ["a", name]
    assert assigned(script, "interface") == ["--interface", f"i{name}"]
    assert len(directives(script)) == 9


def test_odd_folders_are_quoted_as_sbatch_reads_them() -> None:
    assert sbatch_quoted("/plain/path-1.2") == "/plain/path-1.2"
    assert sbatch_quoted("/it's #1 $HOME") == '"/it\'s #1 $HOME"'
    assert sbatch_quoted('a"b\\c') == '"a\\"b\\\\c"'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nodes", "0"], "--nodes=0: must be at least 1; try 2"),
        (["--gpus-per-node", "-1"], "--gpus-per-node=-1: must be at least 0; try 4"),
        (["--cpus-per-node", "0"], "--cpus-per-node=0: must be at least 1; try 16"),
        (["--cpus-per-node", "3", "--gpus-per-node", "4"], "=3: must be at least 4, a core for each GPU; try 32"),
        (["--time", "soon"], "--time='soon': must be minutes, [hours:]minutes:seconds or days-hours[:minutes]"),
        (["--time", "4"], "--time=4: is 240 s, less than the 360 s that a warning 240 s before"),
        (["--mem", "lots"], "--mem='lots': must be a whole number with K, M, G or T behind it; try 64G"),
        (["--warn-seconds", "0"], "--warn-seconds=0: must be 1 to 65535; try 120"),
        (["--partition", "a b"], "--partition='a b': must be a name without spaces and quotes"),
        (["--account", "x\ny"], "--account='x\\ny': must be a name without spaces and quotes"),
        (["--python", "a 'b"], "--python=\"a 'b\": No closing quotation; quote it as for a shell"),
        (["--python", ""], "--python='': must be a command; try python"),
        (["--sbatch", "qos=low"], "--sbatch='qos=low': must be one option of sbatch in one line"),
        (["--sbatch", "--qos=low\nrm -r /"], "must be one option of sbatch in one line; try --sbatch '--qos=low'"),
        (["--sbatch", "--no-requeue"], "--sbatch='--no-requeue': is the script's own; a job that was preempted"),
        (["--sbatch", "-n 4"], "--sbatch='-n 4': is the script's own; a task is a GPU; give --gpus-per-node"),
        (["--sbatch", "--array=1-3"], "all jobs of an array would write into one folder"),
        (["--sbatch", "--gres=gpu:4"], "--sbatch='--gres=gpu:4': is the script's own; give --gpus-per-node"),
        (["--sbatch", "--gres nvme:1,gres/gpu:a100:2"], "is the script's own; give --gpus-per-node"),
        (["--sbatch", '--gres="gpu"'], "is the script's own; give --gpus-per-node"),
        (["--sbatch", "--gpus-per-task=1"], "is the script's own; give --gpus-per-node"),
        (["--sbatch", "--gpus-per-socket=1"], "is the script's own; give --gpus-per-node"),
        (["--sbatch", "--ntasks-per-gpu=1"], "is the script's own; a task is a GPU; give --gpus-per-node"),
        (["--sbatch", "--tasks-per-node=4"], "is the script's own; a task is a GPU; give --gpus-per-node"),
        (["--sbatch", "--time=00:01:00"], "--sbatch='--time=00:01:00': is the script's own; give it as an option of"),
        (["--sbatch", "-t 1"], "--sbatch='-t 1': is the script's own; give --time"),
        (["--sbatch", "--gpus-per-n=1"], "--sbatch='--gpus-per-n=1': is the script's own; give it as an option of its"),
        (["--sbatch", "--arr 1-3"], "all jobs of an array would write into one folder"),
        (["--sbatch", "--tres-per-task=gres/gpu:1"], "own; give --gpus-per-node and --cpus-per-node"),
        (["--sbatch", "--tres-per-t=license/x:1,cpu:4"], "own; give --gpus-per-node and --cpus-per-node"),
        (["--sbatch", "--job=bash"], "Lightning takes that name for a shell and would start no ranks"),
        (["--sbatch", "--job-name=bash"], "Lightning takes that name for a shell and would start no ranks"),
        (["--script", "no/such/folder/a.sh"], "--script"),
    ],
)  # fmt: skip
def test_what_a_cluster_would_refuse_or_waste_is_refused_before_it_waits_in_a_queue(
    options: list[str], message: str
) -> None:
    warning = [] if "--warn-seconds" in options else ["--warn-seconds", "240"]
    result = slurm("train", "faces", *warning, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "faces", "--recipe", "quick"], "--recipe"),
        (["train", "faces", "--", "--recipe", "quik"], "'quik' is not one of"),
        (["train", "faces", "--", "--set", "epoch=3"], "epoch: no such setting; did you mean epochs?"),
        (["train", "faces", "--", "--set", "levers=turbo"], "there is no lever 'turbo'"),
        (["train", "faces", "--", "more"], "unexpected extra argument"),
        (["train", "faces", "--", "--help"], "--help: is no option for a job; give it to `facefeed train` itself"),
        (["precompute", "videos", "faces", "--", "--dry-run"], "--dry-run: is no option for a job"),
        (
            ["train", "faces", "--gpus-per-node", "4", "--nodes", "2", "--", "--set", "levers=ddp:2:2"],
            "levers=ddp:2:2: ddp:2:2 is for other ranks than 2 x 4",
        ),
        (
            ["train", "faces", "--gpus-per-node", "4", "--nodes", "2", "--", "--set", "levers=zero:2:4"],
            "levers=zero:2:4: zero:2:4 is for other ranks than 2 x 4",
        ),
        (
            ["train", "faces", "--gpus-per-node", "1", "--", "--set", "levers=bf16,ddp"],
            "levers=bf16,ddp: ddp is for several ranks, and --nodes and --gpus-per-node give one; leave it out",
        ),
        (["train", "faces", "--gpus-per-node", "1", "--", "--set", "levers=fsdp:1"], "fsdp:1 is for several ranks"),
        (["precompute", "videos", "faces", "--", "--workers", "3"], "--workers: the script starts the job's own"),
        (
            ["precompute", "videos", "faces", "--", "--cluster", "slurm", "--workers", "3"],
            "the script starts the job's own",
        ),
        (["precompute", "videos", "faces", "--", "--evry", "3"], "--evry"),
        (
            ["train", "faces", "--", "--init-from", "a.ckpt", "--set", "init_from=b.ckpt"],
            "init_from: is set twice; leave one out",
        ),
        (
            ["train", "faces", "--nodes", "2", "--gpus-per-node", "4", "--", "--set", "levers=fsdp,adamw8bit"],
            "fsdp:4:2 and adamw8bit: fsdp splits weights wherever",
        ),
        (
            ["train", "faces", "--gpus-per-node", "2", "--", "--set", "levers=zero:3,checkpointing,freeze:net.*"],
            "zero:3, checkpointing and frozen parameters: DeepSpeed frees frozen weights",
        ),
        (
            ["train", "faces", "--gpus-per-node", "1", "--", "--set", "levers=fused,adamw8bit"],
            "fused and adamw8bit: both are levers of one kind (optimizer); leave one out",
        ),
        (
            ["train", "faces", "--gpus-per-node", "1", "--", "--set", "levers=sync_batchnorm"],
            "sync_batchnorm: is for several ranks",
        ),
        (["train", "faces", "--", "--set", "levers=deterministic:3"], "the run's seed=0 is the one that counts"),
        (["train", "faces", "--", "--set", "levers=early_stop:train/loss"], "take val/loss"),
        (["ladder", "faces", "--", "--set", "epoks=3"], "epoks: no such setting; did you mean epochs"),
        (["ladder", "faces", "--", "--levers", "none", "--levers", "bf61"], "there is no lever 'bf61'; try bf16"),
        (["precompute", "videos", "faces", "--", "--every", "5", "--fps", "3"], "exactly one of every, fps"),
        (["precompute", "videos", "faces", "--", "--margin", "-1"], "margin=-1.0: must be 0 to 10; try 0.3"),
        (["precompute", "videos", "faces", "--", "--max-damaged", "5"], "--max-damaged 5: must be a percentage"),
        (["precompute", "videos", "faces", "--", "--max-failed", "some"], "max_failed='some': must be a number"),
        (["precompute", "videos", "faces", "--", "--timeout", "0"], "deadline_seconds=0.0: must be finite"),
        (["precompute", "videos", "faces", "--", "--retry-failed", "sloth"], "--retry-failed sloth: no such reason"),
        (["precompute", "videos", "faces", "--", "--part", "9/8"], "9/8"),
        (["precompute", "videos", "faces", "--", "--detector", "mtcn"], "detector='mtcn': must be mtcnn, track,"),
        (
            ["precompute", "videos", "faces", "--", "--min-landmark-score", ".5"],
            "min_landmark_score=0.5: template5 gives no scores",
        ),
    ],
)  # fmt: skip
def test_options_that_the_job_itself_would_refuse_are_refused_now(command: list[str], message: str) -> None:
    result = slurm(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["train", "faces", "--gpus-per-node", "2", "--", "--init-from", "a.ckpt", "--set", "levers=sync_batchnorm"],
        ["ladder", "faces", "--gpus-per-node", "1", "--", "--levers", "none", "--levers", "bf16,fused"],
        ["precompute", "videos", "faces", "--", "--landmarks", "mesh", "--min-landmark-score", ".5"],
        ["precompute", "videos", "faces", "--", "--detector", "yunet:of-the-nodes.onnx"],
    ],
)
def test_what_only_the_jobs_machine_can_refuse_is_left_to_the_job(command: list[str]) -> None:
    script_of(*command)


@pytest.mark.parametrize("option", [
    "--gres=nvme:1", "--gres=license:gpu:1", "--time-min=10", "--threads-per-core=1", "--gres-flags=disable-binding",
    "--nodelist=n1", "--tres-per-task=license/gpu:1",
])  # fmt: skip
def test_what_the_script_does_not_set_itself_can_be_requested(option: str) -> None:
    assert option in directives(script_of("train", "faces", "--sbatch", option))


def test_options_behind_the_command_are_explained_where_the_dashes_were_left_out() -> None:
    assert "The options of train itself come behind --" in slurm("train", "faces", "--recipe", "quick").stderr


def test_the_script_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "a b.sh"
    result = slurm("train", "faces", "--script", str(path))
    assert result.exit_code == 0
    assert path.read_text() == script_of("train", "faces")
    assert f"next: sbatch '{path}'" in result.stderr


def test_an_allocation_made_in_python_is_checked_as_well() -> None:
    with pytest.raises(UsageError, match="--nodes=0"):
        Allocation(name="x", folder=Path("/"), nodes=0)
    with pytest.raises(UsageError, match="has a line break"):
        Allocation(name="x", folder=Path("/a\nb"))


# ---- kinds of GPUs, and a ladder


def test_a_kind_of_gpu_is_asked_for_and_a_rank_is_still_a_gpu() -> None:
    requested = directives(script_of("train", "faces", "--gpus-per-node", "a100:4"))
    assert {"--gpus-per-node=a100:4", "--ntasks-per-node=4", "--cpus-per-task=8"} < set(requested)
    requested = directives(script_of("precompute", "videos", "faces", "--gpus-per-node", "nvidia_l4:2"))
    assert {"--gpus-per-node=nvidia_l4:2", "--ntasks-per-node=2"} < set(requested)


@pytest.mark.parametrize("gpus", ["a100", "a100:", "a100:0", "four", "4:a100"])
def test_a_kind_without_a_number_is_refused(gpus: str) -> None:
    result = slurm("train", "faces", "--gpus-per-node", gpus)
    assert result.exit_code == 2
    assert "a100:4" in result.output


def test_a_ladder_is_one_task_with_all_gpus_of_a_node() -> None:
    script = script_of("ladder", "faces", "--gpus-per-node", "a100:4", "--", "--videos", ".", "--repeats", "2")
    assert {"--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=a100:4", "--cpus-per-task=32"} < set(
        directives(script)
    )
    assert assigned(script, "arguments") == ["faces", "--videos", ".", "--repeats", "2"]
    assert is_bash(script)


def test_a_ladder_is_not_warned_before_its_limit_which_may_be_short() -> None:
    script = script_of("ladder", "faces", "--time", "3")
    assert "--time=3" in directives(script)
    assert "--signal" not in script
    assert slurm("ladder", "faces", "--time", "soon").exit_code == 2


@pytest.mark.parametrize(
    ("allocation", "options"),
    [
        (["--nodes", "2"], []),
        (["--interface", "ib0"], []),
        (["--warn-seconds", "60"], []),
        ([], ["--repeats", "none"]),
        ([], ["--recipe", "slow"]),
    ],
)
def test_a_ladder_that_could_not_run_is_refused_before_it_is_queued(allocation: list[str], options: list[str]) -> None:
    assert slurm("ladder", "faces", *allocation, "--", *options).exit_code == 2


@pytest.mark.filterwarnings("ignore:The `srun` command")
def test_a_ladder_in_a_job_takes_its_ranks_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.fabric.plugins.environments import SLURMEnvironment  # noqa: PLC0415

    script = script_of("ladder", "faces")
    (name,) = re.findall(r"^export SLURM_JOB_NAME=(\w+)$", script, re.MULTILINE)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", name)
    assert not SLURMEnvironment.detect()
