"""What a user of a cluster notices: a job that is cut short comes back by itself and goes on as if nothing had been."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import assets_slurm
import fsspec
import pyarrow.dataset as pads
import pytest
from assets_dataset import make_dataset
from assets_jobs import OPTIONS, GatedRun
from assets_slurm import FaceRecorder, Slurm
from assets_video import write_video
from click.testing import CliRunner
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.cli import main

pytestmark = pytest.mark.slurm
STEPS, WAITS_AT = 30, 5
WORKER_JOBS = ("squeue", "-h", "--name=dask-worker")  # other tests may have left jobs of their own
ONLOOKED = shlex.join([sys.executable, assets_slurm.__file__])
TINY = (
    "--recipe", "quick", "--set", "model.backbone=test_resnet", "--set", "data.image_size=32", "--set",
    "data.batch_size=8", "--set", "data.num_workers=0", "--set", f"steps={STEPS}", "--set", "epochs=2",
)  # fmt: skip


def aws_variables() -> dict[str, str]:
    """What jobs need to reach the bucket; sbatch passes on its environment."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def written(name: str, command: list[str], allocation: list[str], options: list[str]) -> Path:
    """A script by `facefeed slurm`, in this folder."""
    common = ["--cpus-per-node", "1", "--time", "60", "--script", name]
    result = CliRunner().invoke(main, ["slurm", *command, *common, *allocation, "--", *options])
    assert result.exit_code == 0, result.output
    return Path(name).resolve()


def test_training_on_two_nodes_that_is_preempted_sees_the_same_batches_as_one_that_is_not(
    slurm: Slurm, place: Path
) -> None:
    make_dataset(place / "faces")
    scripts, seen = {}, {name: place / f"seen {name}" for name in ("spared", "preempted")}
    for name, partition in (("spared", "urgent"), ("preempted", "spare")):
        seen[name].mkdir()
        nodes = ["--nodes", "2", "--partition", partition, "--interface", "lo", "--python", ONLOOKED]
        scripts[name] = written(f"{name}.sh", ["train", "faces"], nodes, [*TINY, "--run", f"run {name}"])

    first = slurm.submit(scripts["preempted"], ONLOOKER_FOLDER=str(seen["preempted"]), ONLOOKER_WAITS_AT=str(WAITS_AT))
    slurm.until(
        lambda: all(len(FaceRecorder.read(seen["preempted"], rank)) == WAITS_AT for rank in (0, 1)),
        "training does not begin",
        first,
    )
    second = slurm.submit(scripts["spared"], ONLOOKER_FOLDER=str(seen["spared"]))
    assert slurm.until_ended(second)["JobState"] == "COMPLETED", slurm.log(second)
    ended, log = slurm.until_ended(first), slurm.log(first)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), log

    for rank in (0, 1):
        undisturbed, disturbed = (FaceRecorder.read(seen[name], rank) for name in ("spared", "preempted"))
        assert [(record["step"], record["faces"]) for record in disturbed] == [
            (record["step"], record["faces"]) for record in undisturbed
        ]
        assert [record["step"] for record in undisturbed] == list(range(1, STEPS + 1))
        assert [record["life"] for record in disturbed] == [0] * WAITS_AT + [1] * (STEPS - WAITS_AT)
    results = [json.loads((place / f"run {name}" / "result.json").read_text()) for name in seen]
    assert results[0]["test"] == results[1]["test"]
    assert f"cut short with status 75; job {first} goes back into the queue" in log
    assert re.search(
        f"preemption grace time for JobId={first} to reclaim resources for JobId={second}", slurm.log(None)
    )
    print(slurm.history(), f"facefeed-train-{first}.log", log, sep="\n")  # seen with pytest -s


@pytest.mark.parametrize("in_store", [False, True])
def test_precompute_runs_on_both_nodes_and_leaves_nothing_running(
    slurm: Slurm, bucket: str, place: Path, *, in_store: bool
) -> None:
    """With SRC and OUT in folders that all nodes see, and both in a store, where a job gets few variables."""
    face = load_portrait("astronaut").image[..., ::-1].copy()  # a run that finds no face at all has failed
    for name in ("videos/real/a.mp4", "videos/fake/b.mp4"):
        path = place / name
        path.parent.mkdir(parents=True)
        write_video(path, [face] * 5)
    nodes = ["--nodes", "2", "--partition", "spare", "--interface", "lo"]
    if in_store:
        nodes += ["--sbatch", ",".join(["--export=PATH", "HOME", *aws_variables()])]
    where = f"s3://{bucket}/both" if in_store else str(place)
    files, _ = fsspec.url_to_fs(where)
    if in_store:
        files.put(str(place / "videos"), f"{where}/videos", recursive=True)
        shutil.rmtree(place / "videos")
    script = written("precompute.sh", ["precompute", f"{where}/videos", f"{where}/out"], nodes, ["--every", "5"])
    job = slurm.submit(script, **aws_variables())
    assert slurm.until_ended(job)["JobState"] == "COMPLETED", slurm.log(job)
    assert json.loads(files.cat_file(f"{where}/out/manifest.json"))["inputs"]["ok"] == 2
    assert "not encrypted" not in slurm.log(job)
    assert list(place.glob(".facefeed-*")) == [], "the certificate is gone with the job"
    assert slurm.run("squeue", "-h", "--steps") == ""


@pytest.mark.parametrize("in_store", [False, True])
def test_an_array_of_parts_of_which_one_is_requeued_in_mid_unit_makes_the_rows_of_one_run(
    slurm: Slurm, bucket: str, place: Path, *, in_store: bool
) -> None:
    """On both nodes, of which one takes no more of them in the middle; without `facefeed slurm` and any scheduler.

    With SRC and OUT in a store, nodes share no folder of these.
    """
    face = load_portrait("astronaut").image[::2, ::2, ::-1].copy()
    for number in range(6):
        path = place / f"videos/{('real', 'fake')[number % 2]}/{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_video(path, [face] * (60 + number))
    where = f"s3://{bucket}/array" if in_store else str(place)
    files, folder = fsspec.url_to_fs(where, use_listings_cache=False)
    if in_store:
        files.put(str(place / "videos"), f"{where}/videos", recursive=True)
    command = [str(Path(sys.executable).with_name("facefeed")), "precompute", f"{where}/videos", f"{where}/parts"]
    options = ["--every", "1", "--workers", "1"]
    script = place / "parts.sh"
    share = '"$SLURM_ARRAY_TASK_ID"/4'
    script.write_text(f"#!/bin/bash\nexec {shlex.join([*command, *options])} --part {share}\n")
    array = slurm.submit(
        script, "--array=1-4", "--requeue", "--partition", "spare", "--output", "parts-%a.log",
        **aws_variables(), XDG_CACHE_HOME=str(place / "cache"),
    )  # fmt: skip
    tasks = [f"{array}_{number}" for number in range(1, 5)]
    log = place / "parts-1.log"

    def receipts() -> dict[str, bytes]:
        """They say how long each video took, so those of two attempts differ."""
        return {name: files.cat_file(name) for name in files.find(f"{folder}/parts/receipts")}

    attempts = "cache/facefeed/working/*/_tmp" if in_store else "parts/_tmp"
    slurm.until(lambda: any(place.glob(f"{attempts}/*.inprogress")), "no unit is begun")
    before = receipts()
    slurm.run("scontrol", "requeue", tasks[0])
    slurm.run("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    try:
        ends = [slurm.until_ended(task) for task in tasks]
    finally:
        slurm.run("scontrol", "update", "nodename=n2", "state=resume")
    assert [end["JobState"] for end in ends] == ["COMPLETED"] * 4, log.read_text()
    assert ends[0]["Restarts"] == "1"

    assert before.items() <= receipts().items(), "what had a receipt is not done again"
    whole = CliRunner().invoke(main, ["precompute", "videos", "whole", *options])
    assert whole.exit_code == 0, whole.stderr
    parts = pads.dataset(f"{folder}/parts/faces", filesystem=files).to_table().sort_by("face_id")
    assert parts.num_rows >= sum(60 + number for number in range(6))
    assert parts.equals(pads.dataset(place / "whole/faces").to_table().sort_by("face_id"))
    assert json.loads(files.cat_file(f"{folder}/parts/manifest.json"))["inputs"]["ok"] == 6
    assert [name for name in files.find(f"{folder}/parts") if "part-" in name] == [], "no lease of a part is left"
    assert list(place.glob("cache/facefeed/working/*")) == []


def test_only_what_was_cut_short_comes_back_by_itself(slurm: Slurm, place: Path) -> None:
    one_node = ["--nodes", "1", "--partition", "spare"]

    def submitted(name: str, command: str) -> str:
        python = ["--python", shlex.join(["bash", "-c", command])]
        return slurm.submit(written(f"{name}.sh", ["train", "faces"], [*one_node, *python], ["--recipe", "quick"]))

    stopped, failed = submitted("stopped", "exit 75"), submitted("failed", "exit 3")
    slurm.until(lambda: slurm.job(stopped)["Reason"] == "job_requeued_in_held_state", "it is not held")
    assert f"to resume: scontrol release {stopped}" in slurm.log(stopped)
    assert slurm.until_ended(failed)["ExitCode"] == "3:0"

    cancelled = submitted("cancelled", "trap 'exit 75' TERM; echo begun; sleep 600 & wait")
    slurm.until(lambda: "begun" in slurm.log(cancelled), "it does not begin", cancelled)
    slurm.run("scancel", cancelled)
    assert slurm.until_ended(cancelled)["JobState"] == "CANCELLED"
    assert "goes back into the queue" not in slurm.log(cancelled)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos that make three units, and in `rows` beside them what a local run makes of these."""
    folder = tmp_path_factory.mktemp("source")
    face = load_portrait("astronaut").image[::2, ::2, ::-1].copy()
    for number in range(6):
        path = folder / f"videos/{('real', 'fake')[number % 2]}/{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_video(path, [face] * (5 + number))
    local = ["precompute", str(folder / "videos"), str(folder / "rows"), *OPTIONS, "--workers", "1"]
    result = CliRunner().invoke(main, local)
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.fixture
def gated(slurm: Slurm, place: Path, source: Path) -> Iterator[GatedRun]:
    with GatedRun(slurm, place, "precompute", str(source / "videos"), "jobs", *OPTIONS) as run:
        yield run


def test_precompute_loses_a_job_in_mid_unit_and_makes_the_rows_of_a_local_run(
    slurm: Slurm, gated: GatedRun, source: Path, place: Path
) -> None:
    gated.start("--workers", "1..4", passes=0)
    slurm.until(lambda: len(gated.begun()) == 2, "no two units are begun")
    assert slurm.run(*WORKER_JOBS) != ""
    (certificate,) = gated.certificates()
    assert certificate.stat().st_mode & 0o777 == 0o600
    unit, job = gated.begun()[0]
    node = slurm.job(job)["NodeList"]
    slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        slurm.run("scancel", job)
        slurm.until(lambda: '"lost"' in gated.stderr(), "the job is not missed")
        gated.open()
        assert gated.wait() == 0, gated.stderr()
    finally:
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    assert "its job has ended" in gated.stderr()
    begun = Counter(begun for begun, _ in gated.begun())
    assert (begun.pop(unit), set(begun.values())) == (2, {1}), "only the unit of that job is done again"
    assert gated.rows(place / "jobs") == gated.rows(source / "rows")
    assert (gated.certificates(), slurm.run(*WORKER_JOBS)) == ([], "")


def test_precompute_into_a_store_loses_a_job_and_its_driver_and_makes_the_files_of_a_local_run(
    slurm: Slurm, bucket: str, source: Path, place: Path
) -> None:
    """The killed run leaves a certificate in the working directory; the next one removes it."""

    def stored(*below: str) -> dict[str, bytes]:
        files = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)
        names = [name for each in below for name in files.find(f"{bucket}/faces/{each}")]
        return {name.partition("/faces/")[2]: files.cat_file(name) for name in names}

    with GatedRun(slurm, place, "precompute", str(source / "videos"), f"s3://{bucket}/faces", *OPTIONS) as run:
        jobs = {**aws_variables(), "DASK_JOBQUEUE__SLURM__DEATH_TIMEOUT": "3"}
        run.start("--workers", "2", passes=1, **jobs)
        slurm.until(lambda: len(run.begun()) == 3 and len(stored("receipts")) == 1, "one of three units is not done")
        receipts = stored("receipts")
        (certificate,) = run.certificates()
        assert certificate.is_relative_to(place)
        assert [path.stat().st_mode & 0o777 for path in (certificate, certificate.parent)] == [0o600, 0o700]
        slurm.run("scancel", run.begun()[-1][1])
        slurm.until(lambda: '"lost"' in run.stderr(), "the job is not missed")
        run.process.kill()
        run.process.wait()
        run.open()
        run.start("--workers", "1..2", passes=0, **jobs)
        assert run.wait() == 0, run.stderr()
    assert receipts.items() <= stored("receipts").items(), "what had a receipt is not done again"
    local = [path for path in (source / "rows").rglob("*") if path.suffix == ".parquet"]
    local += [source / "rows" / name for name in ("index.arrow", "manifest.json")]
    expected = {path.relative_to(source / "rows").as_posix(): path.read_bytes() for path in local}
    assert stored("faces", "index.arrow", "manifest.json") == expected
    assert sorted(path.name for path in place.iterdir()) == ["gate", "stderr.txt"]


def test_precompute_is_stopped_and_leaves_no_job_and_the_same_command_finishes(
    slurm: Slurm, gated: GatedRun, source: Path, place: Path
) -> None:
    gated.start("--workers", "2", passes=2)
    slurm.until(lambda: len(gated.begun()) == 3 and len(gated.receipts()) == 2, "no two of three units are done")
    assert slurm.run(*WORKER_JOBS) != ""
    receipts = gated.receipts()
    gated.process.send_signal(signal.SIGTERM)
    assert gated.wait() == 130, gated.stderr()
    slurm.until(lambda: slurm.run(*WORKER_JOBS) == "", "jobs are left")
    assert gated.certificates() == []
    gated.open()
    gated.start("--workers", "2", passes=0)
    assert gated.wait() == 0, gated.stderr()
    assert receipts.items() <= gated.receipts().items(), "what had a receipt is not done again"
    assert gated.rows(place / "jobs") == gated.rows(source / "rows")


def test_precompute_goes_on_with_new_jobs_where_the_walltime_ends_in_mid_unit(
    slurm: Slurm, gated: GatedRun, source: Path, place: Path
) -> None:
    """Slurm's shortest walltime is a minute."""
    gated.start("--workers", "1..2", passes=0, DASK_JOBQUEUE__SLURM__WALLTIME="1")
    slurm.until(lambda: gated.stderr().count('"lost"') == 2, "the walltime does not end")
    gated.open()
    assert gated.wait() == 0, gated.stderr()
    assert "JobState=TIMEOUT" in slurm.history()
    assert gated.stderr().count("its job has ended") == 2
    assert gated.rows(place / "jobs") == gated.rows(source / "rows")


@pytest.mark.parametrize("in_store", [False, True])
def test_verify_loses_a_job_in_mid_check_and_finds_what_one_process_finds(
    slurm: Slurm, bucket: str, place: Path, *, in_store: bool
) -> None:
    out = place / "out"
    make_dataset(out)
    first, second, *_ = sorted((out / "faces").rglob("*.parquet"))
    content = first.read_bytes()
    first.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
    second.unlink()
    where = f"s3://{bucket}/verified" if in_store else str(out)
    if in_store:
        fsspec.filesystem("s3").put(str(out), where, recursive=True)
        shutil.rmtree(out)
    alone = CliRunner().invoke(main, ["verify", where, "--workers", "1", "--json"])
    assert alone.exit_code == 1, alone.stderr

    with GatedRun(slurm, place, "verify", where, "--json") as run:
        run.start("--workers", "2", passes=1, **aws_variables())
        slurm.until(lambda: len(run.begun()) == 2, "the second unit is not begun")
        job = run.begun()[-1][1]
        slurm.run("scancel", job)
        slurm.until(lambda: len(run.begun()) > 2, "no unit is begun by another job")
        run.open()
        assert run.wait() == 1, run.stderr()
        assert run.figures() == json.loads(alone.stdout.splitlines()[-1])
        assert len(run.figures()["findings"]) > 1
    assert job not in {each for _, each in run.begun()[2:]}
    assert (run.certificates(), slurm.run(*WORKER_JOBS)) == ([], "")
