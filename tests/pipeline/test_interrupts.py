"""Stop signals that come where a command, or a user's own script, cannot stop at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from facefeed.pipeline.interrupts import exit_when_interrupted, stop_signals_deferred


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of the test run, set again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("fails", [False, True])
def test_a_scripts_own_handler_gets_the_signal_when_the_block_has_ended(number: signal.Signals, fails: bool) -> None:
    received: list[Any] = []
    signal.signal(number, lambda given, _: received.append(given))
    try:
        with stop_signals_deferred():
            os.kill(os.getpid(), number)
            assert received == []
            if fails:
                raise ValueError("of the block")
    except ValueError:
        assert fails
    assert received == [number]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_handler_the_signal_interrupts_when_the_block_has_ended(number: signal.Signals) -> None:
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    ended: list[bool] = []

    def interrupt_and_go_on() -> None:
        os.kill(os.getpid(), number)
        ended.append(True)

    with pytest.raises(KeyboardInterrupt), stop_signals_deferred():
        interrupt_and_go_on()
    assert ended


_STATUS_OF_TRACKER = """
import os, signal
from multiprocessing import resource_tracker
from pathlib import Path
from facefeed.pipeline.interrupts import signals_blocked_in_children

with signals_blocked_in_children(signal.SIGINT):
    pass
print(Path(f"/proc/{resource_tracker._resource_tracker._pid}/status").read_text())
"""


def test_no_signal_to_all_processes_ends_the_one_that_frees_what_processes_share() -> None:
    """Else the next such process would print a traceback for each resource."""
    completed = subprocess.run([sys.executable, "-c", _STATUS_OF_TRACKER], capture_output=True, text=True, check=True)
    (blocked,) = re.findall(r"^SigBlk:\t(\w+)$", completed.stdout, flags=re.MULTILINE)
    assert all(int(blocked, 16) & 1 << number - 1 for number in (signal.SIGHUP, signal.SIGUSR1))


def test_a_command_that_began_without_standard_output_ends_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by `>&-`, or below some daemons; the fixture sets the handlers again."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "stdout", None)
    exit_when_interrupted(0)
    assert signal.getsignal(signal.SIGTERM) is not before


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_signals_deferred():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_second_ctrl_c_ends_a_command_that_does_not_come_to_its_end_with_the_line_of_the_first() -> None:
    command = """if True:
        import os, signal, threading
        from facefeed.pipeline.interrupts import handle_interrupts

        signal.signal(signal.SIGINT, lambda *_: None)  # as where a library does not return
        was_received = threading.Event()
        with handle_interrupts(was_received.set):
            os.kill(os.getpid(), signal.SIGINT)
            was_received.wait()
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()
    """
    ended = subprocess.run([sys.executable, "-c", command, "--json"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "facefeed: interrupted; run the same command again\n")
    assert json.loads(ended.stdout) == {"error": "interrupted; run the same command again", "exit": 130}
