"""Runs a command once for each way in which one of its file system calls may fail, and says what was not kept.

A process of its own, into which `assets_failing_calls.library()` is preloaded; `python -m assets_failing_runs FOLDER
COMMAND=ONE_IN=FIRST...` tries one in so many faults of each command, and prints JSON.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from assets_failing_calls import Fault, FileCalls, faults
from assets_failing_commands import COMMANDS, Command
from facefeed.pipeline.dataset.byte_ranges import Storage
from facefeed.pipeline.errors import CorruptDataError, FacefeedError, StoppedError, TooManyFailedError, UsageError
from facefeed.pipeline.files import DISK_IS_FULL
from facefeed.pipeline.manipulation import source_frames
from facefeed.pipeline.rows import spools

_HANGS_SECONDS: Final = 60
_OTHER_WORDS: Final = {errno.ENOENT, errno.EEXIST}
"""Errors that a message may put in words of its own: "not there"."""


@dataclass
class Report:
    """What was tried: numbers of calls and of faults, how runs ended, and each promise that was broken."""

    calls: int = 0
    tried: int = 0
    endings: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def try_faults(command: Command, one_in: int, first: int = 0) -> Report:
    """Runs the command with one in `one_in` of all faults, from the `first`."""
    started = time.monotonic()
    file_calls = FileCalls(command.folders)
    command.lay()
    with file_calls.counted():
        command.run()
    undisturbed, calls = command.outcome(), file_calls.made
    report, endings = Report(calls=len(calls)), Counter[str]()
    for fault in list(faults(calls))[first::one_in]:
        faulthandler.dump_traceback_later(_HANGS_SECONDS, exit=True)
        command.lay()
        before = command.written()
        error = _run_with(command, file_calls, fault)
        is_refusal = isinstance(error, UsageError) and not fault.is_death
        problem = "writes, and refuses" if is_refusal and command.written() != before else ""
        problem = problem or _problem(command, fault, error, undisturbed)
        report.tried += 1
        endings[_ending(fault, error) if file_calls.has_failed else "not reached"] += 1
        if problem:
            report.problems.append(f"{fault}: {problem}")
    faulthandler.cancel_dump_traceback_later()
    report.endings = dict(endings)
    report.seconds = round(time.monotonic() - started, 1)
    return report


def _run_with(command: Command, file_calls: FileCalls, fault: Fault) -> BaseException | None:
    """How the run ends."""
    try:
        with file_calls.counted(fault):
            command.run()
    except BaseException as error:
        return error.with_traceback(None)  # its frames keep files open
    return None


def _ending(fault: Fault, error: BaseException | None) -> str:
    if fault.is_death:
        return "killed"
    if isinstance(error, MemoryError):
        return "out of memory"
    return "finished" if error is None else f"exit {getattr(error, 'exit_code', 'with a traceback')}"


def _problem(command: Command, fault: Fault, error: BaseException | None, undisturbed: object) -> str:
    """Which promise is broken; empty: none."""
    stopped = None if fault.is_death or not isinstance(error, FacefeedError) else error
    if not fault.is_death and error is not None and (problem := _problem_of_error(command, fault, error)):
        return problem
    if error is not None or fault.is_death:
        if problem := command.problem_of_remains():
            return f"{problem}; it ended with {error!r}"
        try:
            command.resume(stopped)
        except Exception as again:
            return f"the same command ends with {again!r}, after {error!r}"
    if findings := command.findings():
        return f"{'; '.join(findings)}, after {error!r}"
    return "" if command.outcome() == undisturbed else f"other rows, after {error!r}"


def _problem_of_error(command: Command, fault: Fault, error: BaseException) -> str:
    """What is wrong with how a command ends, or with what it says."""
    text, is_of_input = str(error), any(fault.call.path.is_relative_to(folder) for folder in command.inputs)
    if fault.call.kind == "memory":  # Python's own error, which the command line converts
        return "" if isinstance(error, StoppedError | MemoryError) else f"raises {error!r}"
    if not isinstance(error, FacefeedError):
        return f"raises {error!r}"
    if isinstance(error, TooManyFailedError) and is_of_input:
        return ""
    refusals = (UsageError, CorruptDataError) if fault.error == errno.ENOENT else (UsageError,)
    if not isinstance(error, StoppedError) and (fault.error in DISK_IS_FULL or not isinstance(error, refusals)):
        return f"raises {error!r}"
    is_reason_known = (
        fault.error not in _OTHER_WORDS
        and fault.call.kind != "close"  # Arrow: "error closing file"
        and not isinstance(error.__cause__, FileExistsError)  # `os.makedirs` does not say why it could not look
    )
    if is_reason_known and os.strerror(fault.error) not in text:
        return f"says no reason: {text}"
    return "" if any(str(folder) in text for folder in command.folders) else f"names no path: {text}"


def main() -> None:
    """The whole process."""
    folder, *commands = sys.argv[1:]
    pa.set_cpu_count(1)  # the order of calls is then the same in every run
    pa.set_io_thread_count(1)
    # Small enough that rows and frames go to disk too, and no waiting for storage to recover.
    spools.SPOOL_BYTES, source_frames._MEMORY_BYTES = 1024, 1024  # type: ignore[misc]
    Storage.sleep = lambda *_: None  # type: ignore[method-assign]
    reports = {}
    for name, one_in, first in (each.split("=") for each in commands):
        own_folder = Path(folder) / name
        own_folder.mkdir()
        with closing(COMMANDS[name](own_folder)) as command:
            reports[name] = asdict(try_faults(command, int(one_in), int(first)))
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
