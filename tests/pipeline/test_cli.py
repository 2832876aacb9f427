"""The command line as a user meets it: exit codes, messages, what goes where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import assets_columns
import psutil
import pytest
from assets_paths import python_path
from click.testing import CliRunner
from facefeed.pipeline import precompute
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.out import OutPaths

MakeSource = Callable[..., Path]


QUICK = """
from facefeed.pipeline import cli
from facefeed.pipeline.planning import validation
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
validation.make_detector = lambda name, keep: FixedBoxDetector()
if __name__ == "__main__":
    cli.main()
"""
"""The command with a detector that finds a face in every frame, and needs no weights."""


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-c", QUICK, *map(str, arguments)]


def facefeed(*arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command_line(*arguments), capture_output=True, text=True, check=False, timeout=timeout)


def test_help_names_every_command_with_what_it_does() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for command in ("sample", "precompute", "verify"):
        assert command in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--every", "0"], "every=0: must be a whole number of at least 1; try 10"),
        (["--every", "5", "--fps", "2"], "exactly one of every, fps, frames, keyframes"),
        (["--margin", "-1"], "margin=-1.0: must be 0 to 10; try 0.3"),
        (["--size", "5"], "size=5: must be 16 to 4096 px; try 256"),
        (["--seed", "-1"], "seed=-1: must be a whole number (int) of at least 0; try 0"),
        (["--quality", "101"], "quality=101"),
        (["--min-score", "2"], "min_score=2.0: must lie in 0..1; try 0.9"),
        (["--faces", "0"], "max_faces=0: must be at least 1"),
        (["--split-ratio", "80,10"], "split_ratio='80,10': must be three shares; try 80,10,10"),
        (["--split-ratio", "80,10,20"], "must be three shares >= 0 that sum to 100"),
        (["--max-failed", "some"], "max_failed='some': must be a number of inputs or a percentage"),
        (["--max-damaged", "3"], "--max-damaged 3: must be a percentage from 0% to 100%; try 10%"),
        (["--max-damaged", "101%"], "--max-damaged 101%: must be a percentage"),
        (["--retry-failed", "partial"], "--retry-failed partial: no such reason"),
        (["--retry-failed", "sloth"], "--retry-failed sloth: no such reason; use one of empty, not_video"),
        (["--timeout", "0"], "deadline_seconds=0.0: must be finite and above 0; try 60"),
        (["--workers", "0"], "workers=0: must be at least 1"),
        (["--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "a running cluster has its own workers"),
        (["--workers", "four"], "--workers four: must be a number or, with --cluster, a range; try 8, or 4..64"),
        (["--workers", "4..8"], "workers=4..8: a range is for --cluster"),
        (["--cluster", "slurm", "--workers", "8..4"], "workers=8..4: must go from a smaller number to a larger one"),
        (["--cluster", "lsf", "--workers", "2"], "--cluster lsf: must be slurm, pbs, sge or a Python file"),
        (["--cluster", "nowhere.py"], "--cluster nowhere.py: no such file"),
        (["--cluster", "slurm"], "--cluster slurm: needs --workers, such as 8, or 4..64"),
        (["--cluster", "slurm", "--scheduler", "tcp://127.0.0.1:1"], "one joins a cluster, the other starts one"),
        (["--cluster", "slurm", "--workers", "2", "--part", "1/2"], "a cluster processes the whole job"),
        (["--cluster", "slurm", "--workers", "2", "--dry-run"], "tries inputs on this machine: leave --cluster out"),
        (["--layout", "dfdc"], "layout dfdc needs a folder with metadata.json or labels.csv, or with dfdc_train_part_"),
        (["--layout", "table"], "layout table needs a .csv or .parquet file"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    make_source: MakeSource, tmp_path: Path, arguments: list[str], message: str
) -> None:
    source = make_source("real/a.mp4")
    result = CliRunner().invoke(main, ["precompute", str(source), str(tmp_path / "out"), *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["precompute", "videos", "s3:/bucket/faces"],
        ["verify", "s3:/bucket/faces"],
        ["inspect", "s3:/bucket/faces"],
        ["compact", "s3:/bucket/faces"],
        ["add", "s3:/bucket/faces", f"{assets_columns.__file__}:Colour"],
        ["remove", "s3:/bucket/faces", "colour"],
        ["export", "s3:/bucket/faces", "exported", "--as", "folders"],
    ],
)
def test_an_address_of_a_store_is_no_folder_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("facefeed: s3://bucket/faces: is the address of an object store; ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("--size", "abc"), ("--dry-run", "--part", "1/2"), ("--no-such-option",)])
def test_a_wrong_option_is_an_object_for_programs_too(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["precompute", str(tmp_path), str(tmp_path / "out"), *arguments, "--json"])
    assert result.exit_code == 2
    assert "Usage: " in result.stderr
    stated = json.loads(result.stdout)
    assert stated["exit"] == 2
    assert stated["error"] in result.stderr


@pytest.mark.parametrize("out", ["a" * 300, "file/below", "loop/out"])
def test_an_out_that_cannot_be_is_one_line_and_exit_2(make_source: MakeSource, tmp_path: Path, out: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    result = CliRunner().invoke(main, ["precompute", str(make_source("real/a.mp4")), str(tmp_path / out), "--json"])
    assert result.exit_code == 2
    assert result.stderr.startswith("facefeed: OUT=")
    assert len(result.stderr.splitlines()) == 1
    assert json.loads(result.stdout)["exit"] == 2
    if out == "file/below":
        assert f"{str(tmp_path / 'file')!r} is a file" in result.stderr


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process that has run the lines of `script` and then the command with `arguments`."""
    code = f"import os, signal, sys\n{script}\nfrom facefeed.pipeline.__main__ import main\nmain()\n"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_an_interrupt_of_a_command_that_has_ended_leaves_its_exit_code(tmp_path: Path) -> None:
    result = run_script("import atexit\natexit.register(os.kill, os.getpid(), signal.SIGINT)", "verify", str(tmp_path))
    assert result.returncode == 2
    assert "no finished dataset" in result.stderr
    assert "KeyboardInterrupt" not in result.stderr


WAITING_THREAD = """
import threading
def interrupt_the_end():
    threading.main_thread().join()
    while True:  # Python misses a signal that comes just before it waits for a lock
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.05)
threading.Thread(target=interrupt_the_end).start()
"""


def test_an_interrupt_ends_a_command_that_waits_for_a_thread_with_its_exit_code(tmp_path: Path) -> None:
    result = run_script(WAITING_THREAD, "verify", str(tmp_path), "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout)["exit"] == 2
    assert "KeyboardInterrupt" not in result.stderr


INTERRUPTED_IMPORT = """
import contextlib
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            with contextlib.suppress(BaseException):  # as packages do that try an import
                os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize("name", ["click", "rich.console", "facefeed.pipeline.verify.check", "numpy"])
def test_ctrl_c_in_an_import_ends_the_command_at_once_with_one_line(tmp_path: Path, name: str) -> None:
    result = run_script(INTERRUPTED_IMPORT.format(name=name), "verify", str(tmp_path), "--json")
    assert result.stderr == "facefeed: interrupted; run the same command again\n"
    assert json.loads(result.stdout) == {"error": "interrupted; run the same command again", "exit": 130}
    assert result.returncode == 130


def test_ctrl_c_in_an_import_ends_a_command_whose_terminal_is_lost(tmp_path: Path) -> None:
    lost = "os.dup2(os.open(os.devnull, os.O_RDONLY), 2)"
    result = run_script(INTERRUPTED_IMPORT.format(name="click") + lost, "verify", str(tmp_path))
    assert (result.returncode, result.stderr) == (130, "")


def test_ctrl_c_pressed_again_while_the_line_is_printed_keeps_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facefeed.pipeline.verify.check.verify", interrupt)
    monkeypatch.setattr("facefeed.pipeline.command_group.click.echo", interrupt)
    assert CliRunner().invoke(main, ["verify", str(tmp_path)]).exit_code == 130


INTERRUPTED_TEXT = """
from facefeed.pipeline.verify import check
check.verify = lambda *_, **__: exec("os.kill(os.getpid(), signal.SIGINT)", globals())  # as a dataclass is made
"""


def test_ctrl_c_in_generated_code_ends_the_command_with_its_exit_code_too(tmp_path: Path) -> None:
    result = run_script(INTERRUPTED_TEXT, "verify", str(tmp_path))
    assert result.stderr == "facefeed: interrupted; run the same command again\n"
    assert result.returncode == 130


IGNORED = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from facefeed.pipeline.verify import check
check.verify = lambda *_, **__: os.kill(os.getpid(), signal.SIGHUP) or sys.exit("it goes on")
"""


def test_a_signal_that_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    result = run_script(IGNORED, "verify", str(tmp_path))
    assert result.stderr == "it goes on\n"


def test_the_installed_command_handles_signals_before_it_imports_anything_heavy() -> None:
    (command,) = entry_points(group="console_scripts", name="facefeed")
    assert command.value == "facefeed.pipeline.__main__:main"


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_dry_run_says_that_nothing_was_written(
    make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facefeed.pipeline.dryrun.run.dry_run", interrupt)
    arguments = ["precompute", str(make_source("real/a.mp4")), str(tmp_path / "out"), "--dry-run"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stderr) == (130, "facefeed: interrupted; nothing was written\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            MemoryError("Unable to allocate 2.98 GiB for an array"),
            "Cannot allocate memory (Unable to allocate 2.98 GiB for an array); finished work is kept; free memory and "
            "run the same command again",
        ),
        (
            RuntimeError("can't start new thread"),
            "can't start new thread: you, or this container, have as many processes and threads as are allowed; "
            "finished work is kept; end others or raise the limit (ulimit -u), and run the same command again",
        ),
    ],
    ids=["memory", "thread"],
)
def test_a_command_that_the_system_refuses_memory_or_a_thread_says_so_and_ends_resumably(
    make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("facefeed.pipeline.dryrun.run.dry_run", refuse)
    arguments = ["precompute", str(make_source("real/a.mp4")), str(tmp_path / "out"), "--dry-run"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 75
    assert result.stderr == f"facefeed: {message}\n"


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_an_out_that_may_not_be_written_to_is_refused_before_the_work(
    make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    source, out, access = make_source("real/a.mp4"), tmp_path / "out", os.access
    out.mkdir()

    def read_only_out(path: Any, mode: int) -> bool:
        return not (mode & os.W_OK and Path(path).is_relative_to(out)) and access(path, mode)

    monkeypatch.setattr(os, "access", read_only_out)  # root may write to a folder whatever its mode
    result = CliRunner().invoke(main, ["precompute", str(source), str(out), *options])
    assert result.exit_code == 2
    assert f"facefeed: OUT={str(out)!r}: {str(out)!r} may not be written to" in result.stderr
    assert "make it writable, or name another OUT" in result.stderr
    assert list(out.iterdir()) == []


@pytest.mark.processes
def test_what_a_killed_start_left_of_out_is_taken_up(
    make_source: MakeSource, tmp_path: Path, cluster_address: str
) -> None:
    (tmp_path / "out/plan").mkdir(parents=True)
    (tmp_path / "out/faces").mkdir()
    (tmp_path / "out/lost+found").mkdir()  # a file system of its own
    arguments = ["precompute", str(make_source("real/a.mp4")), str(tmp_path / "out"), "--scheduler", cluster_address]
    assert facefeed(*arguments, "--frames", 1, "--min-face", 16).returncode == 0


@pytest.mark.processes
def test_a_reader_that_leaves_does_not_stop_the_work(
    make_source: MakeSource, tmp_path: Path, cluster_address: str
) -> None:
    source, out = make_source("real/a.mp4"), tmp_path / "out"
    command = command_line("precompute", source, out, "--frames", 1, "--min-face", 16, "--scheduler", cluster_address)
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert driver.stderr is not None
    assert driver.stdout is not None
    driver.stderr.close()
    driver.stdout.close()
    driver.wait(timeout=120)
    assert OutPaths(out).manifest.exists()


def test_a_timeout_reaches_the_decoder(
    make_source: MakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(precompute, "precompute", lambda *_, limits, **__: seen.append(limits) or sys.exit(0))
    CliRunner().invoke(main, ["precompute", str(make_source("real/a.mp4")), str(tmp_path / "out"), "--timeout", "900"])
    assert [limits.deadline_seconds for limits in seen] == [900]


@pytest.mark.processes
def test_a_full_disk_under_standard_output_leaves_one_line_and_the_exit_code(
    make_source: MakeSource, tmp_path: Path
) -> None:
    for source, code, message in (
        (tmp_path / "none", 2, "no such file or folder"),
        (make_source("real/a.mp4"), 75, "No space left on device"),
    ):
        command = command_line("precompute", source, tmp_path / "out", "--dry-run", "--json")
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
        assert ended.returncode == code
        assert "Traceback" not in ended.stderr
        assert message in ended.stderr.splitlines()[-1]


def test_a_full_disk_under_standard_error_leaves_the_json_object(tmp_path: Path) -> None:
    command = command_line("precompute", tmp_path / "none", tmp_path / "out", "--json")
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, check=False, timeout=120)
    assert ended.returncode == json.loads(ended.stdout)["exit"] == 2


def test_a_source_that_is_not_there_or_empty_is_named(tmp_path: Path) -> None:
    missing = CliRunner().invoke(main, ["precompute", str(tmp_path / "gone"), str(tmp_path / "out")])
    assert missing.exit_code == 2
    assert "gone': no such file or folder" in missing.stderr
    (tmp_path / "bare").mkdir()
    bare = CliRunner().invoke(main, ["precompute", str(tmp_path / "bare"), str(tmp_path / "out")])
    assert bare.exit_code == 2
    assert "holds no video and no image" in bare.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.processes
def test_a_run_in_a_pipe_keeps_standard_output_for_the_figures(
    make_source: MakeSource, tmp_path: Path, cluster_address: str
) -> None:
    source = make_source("real/a.mp4", "real/<script>.mp4")
    (source / "real/[red]broken.mp4").write_text("text")
    out, options = tmp_path / "out", ["--scheduler", cluster_address, "--frames", 2, "--min-face", 16, "--json"]
    many = facefeed("precompute", source, out, *options, "--max-failed", 0)
    assert many.returncode == 3
    assert "1 of 3 inputs failed (1 not_video), none may fail" in many.stderr
    assert "[red]broken.mp4: not_video" in many.stderr
    (failure,) = json.loads(many.stdout)["failures"]
    assert (failure["video_id"], failure["reason"]) == ("real/[red]broken.mp4", "not_video")
    inspected = CliRunner().invoke(main, ["inspect", str(out), "--page", str(tmp_path / "page.html"), "--json"])
    assert "[red]broken.mp4: not_video" in inspected.stderr
    figures = json.loads(inspected.stdout)
    assert (figures["finished"], figures["pending"], figures["failures"]) == (False, 0, [failure])
    verified = CliRunner().invoke(main, ["verify", str(out)])
    assert verified.exit_code == 1
    assert "unfinished" in verified.stderr
    result = facefeed("precompute", source, out, *options, "--max-failed", 1)
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["inputs"] == {
        "total": 3, "ok": 2, "partial": 0, "no_faces": 0, "failed": {"not_video": 1}, "missing": 0,
    }  # fmt: skip
    assert figures["failures"] == [failure]
    assert figures["exit"] == 0
    assert {"seconds", "frames_per_second", "rows", "bytes", "splits"} <= figures.keys()
    progress = [json.loads(line) for line in many.stderr.splitlines() if line.startswith("{")]
    assert progress[-1]["inputs"] == progress[-1]["inputs_total"] == 3
    assert progress[-1]["failed"] == {"not_video": 1}
    assert progress[-1]["dashboard"].startswith("http://127.0.0.1")
    assert "[red]broken.mp4: not_video" in result.stderr
    assert CliRunner().invoke(main, ["verify", str(out)]).exit_code == 0
    other = facefeed("precompute", source, out, "--frames", 3, "--min-face", 16)
    assert other.returncode == 2
    assert "was made with other settings (sampling: {'frames': 2} there, {'frames': 3} now)" in other.stderr


DRIVER = """
from assets_faults import SlowDetector
from facefeed.pipeline import cli
from facefeed.pipeline.planning import validation
validation.make_detector = lambda name, keep: SlowDetector(0.1)
if __name__ == "__main__":
    cli.main()
"""


@pytest.fixture
def slow_driver(tmp_path: Path) -> Path:
    """The command with a detector slow enough to be caught at work."""
    path = tmp_path / "driver.py"
    path.write_text(DRIVER)
    return path


def receipts_of(out: Path) -> dict[str, int]:
    """When each receipt was written, by its name."""
    return {path.name: path.stat().st_mtime_ns for path in OutPaths(out).receipts.glob("*.json")}


@pytest.mark.processes
def test_ctrl_c_and_sigterm_stop_cleanly_say_how_to_go_on_and_the_next_run_goes_on(
    make_source: MakeSource, tmp_path: Path, slow_driver: Path
) -> None:
    source, out = make_source(*(f"real/{number}.mp4" for number in range(10))), tmp_path / "out"
    arguments = ["precompute", str(source), str(out), "--workers", "1", "--min-face", "16", "--every", "5"]
    command = [sys.executable, str(slow_driver), *arguments]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    finished: dict[str, int] = {}
    for sent in (signal.SIGINT, signal.SIGTERM):
        driver = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        while len(receipts_of(out)) == len(finished) and driver.poll() is None:
            time.sleep(0.05)
        os.killpg(driver.pid, sent) if sent == signal.SIGINT else driver.send_signal(sent)
        _, stderr = driver.communicate(timeout=60)
        assert driver.returncode == 130, stderr
        assert (
            0
            < stderr.index('{"event": "stopping"}')
            < stderr.index("interrupted; run the same command again to resume")
        )
        assert "Traceback" not in stderr
        assert not OutPaths(out).manifest.exists()
        after = receipts_of(out)
        assert finished.items() <= after.items()
        assert len(finished) < len(after) < 10
        finished = after
    last_run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert last_run.returncode == 0, last_run.stderr
    assert finished.items() <= receipts_of(out).items()
    assert CliRunner().invoke(main, ["verify", str(out)]).exit_code == 0


STUCK = """
import contextlib, time
from assets_faults import SlowDetector
from distributed import LocalCluster
from facefeed.pipeline import cli
from facefeed.pipeline.planning import validation
def close(self, timeout=None):
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(3600)
LocalCluster.close = close
validation.make_detector = lambda name, keep: SlowDetector(3600)
if __name__ == "__main__":
    cli.main()
"""
"""The command with work that takes hours, and a cluster that never ends in order."""


def decodes_for_a_worker(process: psutil.Process, driver: psutil.Popen) -> bool:
    """Whether it is a decoder below a worker: before the cluster stands, the driver has had one of its own."""
    with suppress(psutil.NoSuchProcess):
        return "decoder.child" in " ".join(process.cmdline()) and process.ppid() != driver.pid
    return False


@pytest.mark.processes
def test_a_second_ctrl_c_ends_the_driver_its_workers_and_their_decoders_at_once(
    make_source: MakeSource, tmp_path: Path
) -> None:
    source, out = make_source("real/a.mp4", "real/b.mp4"), tmp_path / "out"
    script = tmp_path / "driver.py"
    script.write_text(STUCK)
    command = [sys.executable, str(script), "precompute", str(source), str(out), "--workers", "1", "--every", "5"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    driver = psutil.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    while not any(decodes_for_a_worker(child, driver) for child in driver.children(recursive=True)):
        assert driver.poll() is None
        time.sleep(0.05)
    descendants = driver.children(recursive=True)
    os.killpg(driver.pid, signal.SIGINT)
    line = ""
    while '{"event": "stopping"}' not in line:
        line = driver.stderr.readline()
        assert line
    os.killpg(driver.pid, signal.SIGINT)
    _, stderr = driver.communicate(timeout=60)
    assert driver.returncode == 130, stderr
    assert stderr.endswith("facefeed: interrupted; run the same command again\n")
    assert "to resume" not in stderr, "it has not waited for an end in order"
    assert psutil.wait_procs(descendants, timeout=60)[1] == []


@pytest.mark.processes
def test_a_second_run_on_the_same_out_is_refused_with_the_running_process_named(
    make_source: MakeSource, tmp_path: Path, slow_driver: Path
) -> None:
    source, out = make_source(*(f"real/{number}.mp4" for number in range(12))), tmp_path / "out"
    arguments = ["precompute", str(source), str(out), "--workers", "1", "--min-face", "16", "--every", "5"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    first = subprocess.Popen([sys.executable, str(slow_driver), *arguments], env=environment, stderr=subprocess.PIPE)
    while not list(OutPaths(out).plan.glob("*.json")) and first.poll() is None:
        time.sleep(0.05)
    second = subprocess.run(
        [sys.executable, str(slow_driver), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert second.returncode == 2
    assert f"facefeed precompute is working on it (process {first.pid} on " in second.stderr
    first.communicate(timeout=120)
    assert first.returncode == 0
