"""What a user notices of a rung's process: it ends however it goes wrong, with a reason, and leaves nobody behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
from assets_loaders import wait_until
from facefeed.pipeline.errors import UsageError
from facefeed.train.ladder import rung_process
from facefeed.train.ladder.messages import Grid, Reference, RungRequest, Subject
from facefeed.train.ladder.rung_process import run_process
from facefeed.train.ladder.scheduler import RungError

LONG = 60.0


def child(body: str) -> list[str]:
    """A command that begins as a rung's process does and then runs `body`."""
    begin = "import json, os, pathlib, signal, subprocess, sys, time; asked, answered = map(pathlib.Path, sys.argv[1:])"
    return [sys.executable, "-c", f"{begin}\n{textwrap.dedent(body)}"]


def test_what_it_answers_comes_back_and_its_steps_are_reported() -> None:
    progress: list[tuple[int, int]] = []
    body = """
        print("1 3"); print("what a module prints"); print("2 3", flush=True)
        answered.write_text(json.dumps({"asked": json.loads(asked.read_text())}))
    """
    answer = run_process(
        '{"a": 1}', patience_seconds=LONG, on_step=lambda *step: progress.append(step), command=child(body)
    )
    assert answer == {"asked": {"a": 1}}
    assert progress == [(1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("answered.write_text(json.dumps({'failed': 'ValueError: no'}))", "^ValueError: no$"),
        ("sys.exit('the last words')", "ended with code 1; it last said: the last words"),
        ("sys.exit(0)", "ended with code 0$"),
        ("os.kill(os.getpid(), signal.SIGKILL)", r"killed by signal 9 \(out of memory\?\)$"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by signal 11$"),
        ("answered.write_text('{\"seconds\": 1')", "ended with code 0"),
    ],
)
def test_however_it_ends_there_is_a_reason(body: str, reason: str) -> None:
    with pytest.raises(RungError, match=reason):
        run_process("{}", patience_seconds=LONG, command=child(body))


def test_what_cannot_be_meant_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="no such lever"):
        run_process(
            "{}", patience_seconds=LONG, command=child("answered.write_text(json.dumps({'refused': 'no such lever'}))")
        )


@pytest.mark.parametrize("silence", ["time.sleep(1000)", "os.close(1); time.sleep(1000)"])
def test_one_that_hangs_is_ended_and_says_how_to_wait_longer(silence: str) -> None:
    with pytest.raises(RungError, match=r"made no step for 1 s and was ended; .*--patience"):
        run_process("{}", patience_seconds=1.0, command=child(f"print('1 9', flush=True); {silence}"))


def test_whom_it_started_is_gone_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rung_process, "_GRACE_SECONDS", 0.2)  # it has no reason to end by itself
    pid = tmp_path / "pid"
    body = f"""
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        pathlib.Path({str(pid)!r}).write_text(str(other.pid))
        sys.exit(3)
    """
    with pytest.raises(RungError, match="code 3"):
        run_process("{}", patience_seconds=LONG, command=child(body))
    assert is_gone(int(pid.read_text()))


def test_the_terminals_interrupt_ends_it_and_leaves_nobody(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    caller = start_caller(pid)
    wait_until(pid.exists, "the process started")
    caller.send_signal(signal.SIGINT)
    assert caller.wait(LONG) != 0
    assert is_gone(int(pid.read_text()))


def test_a_real_rungs_process_ends_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    """The one that asked was killed, and could end nothing itself."""
    pid, is_training = tmp_path / "pid", tmp_path / "is_training"
    body = f"""
        from facefeed.train.ladder.rung import worker
        worker.RungRequest.read = lambda _: None
        worker.reply = lambda *_: pathlib.Path({str(is_training)!r}).touch() or time.sleep(1000)  # trains on
        worker.main(asked, answered)
    """
    caller = start_caller(pid, textwrap.dedent(body))
    wait_until(is_training.exists, "the process trains")
    caller.kill()
    caller.wait()
    wait_until(lambda: is_gone(int(pid.read_text())), "the process ended")
    assert is_gone(int(pid.read_text()))


def start_caller(pid: Path, body: str = "time.sleep(1000)") -> subprocess.Popen[bytes]:
    """A process that asks one that never answers and writes its number to `pid`."""
    written = (
        f"part = pathlib.Path({str(pid) + '.part'!r}); part.write_text(str(os.getpid())); part.rename({str(pid)!r})"
    )
    command = child(f"{written}\n{body}")
    code = "from facefeed.train.ladder.rung_process import run_process; "
    code += f"run_process('{{}}', patience_seconds=1000, command={command!r})"
    environment = {**os.environ, "TMPDIR": str(pid.parent)}  # where what a killed one leaves is removed
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, env=environment)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_request_comes_to_it_as_it_was_made(tmp_path: Path) -> None:
    subject = Subject(out="out", videos=None, module="a b.py:Net", recipe="quick", changes=("epochs=1",))
    request = RungRequest(subject=subject, task="measure", levers=("bf16,fused",), data="own", steps=None, repeat=2)
    reference = Reference(warm_up_steps=8, steps=20, steps_per_epoch=None, devices=1)
    request = replace(request, grid=Grid(ranks=2, group=8), reference=reference)
    copy = tmp_path / "copy.json"
    body = f"pathlib.Path({str(copy)!r}).write_text(asked.read_text()); answered.write_text('{{}}')"
    run_process(json.dumps(asdict(request)), patience_seconds=LONG, command=child(body))
    assert RungRequest.read(copy) == request
