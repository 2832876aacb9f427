"""Resources requested from Slurm, as the #SBATCH lines of a batch script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ...pipeline.errors import UsageError

_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<hours>\d+)(?::(?P<minutes>\d+)(?::(?P<seconds>\d+))?)?|(?P<parts>\d+(?::\d+){0,2}))"
)
_SIZE = re.compile(r"\d+[KMGT]?")
_NAME = re.compile(r"[^\s\"'\\#]+")
_GRES_GPUS = re.compile(r"--gres[=\s]+[\"']?(.+,)?(gres[/:])?gpu\b.*")
_TRES_OF_TASKS = re.compile(r"--tres-p[a-z-]*[=\s]+[\"']?(.+,)?((gres[/:])?gpu|cpu)\b.*")
_MAX_WARN_SECONDS = 65_535  # Slurm stores it in 16 bits
_EARLY_SECONDS = 60  # Slurm may signal this much earlier than requested
_RESERVED = {
    "--array": "all jobs of an array would write into one folder; write a script for each",
    "--chdir": "the options' paths are seen from where the script was written; write it from there",
    "--cpus-per-task": "give --cpus-per-node",
    "--gpus-per-node": "give it as an option of its own",
    "--gpus": "give --gpus-per-node",
    "--gpus-per-socket": "give --gpus-per-node",
    "--gpus-per-task": "give --gpus-per-node",
    "--no-requeue": "a job that was preempted would not come back; leave it out",
    "--nodes": "give it as an option of its own",
    "--ntasks": "a task is a GPU; give --gpus-per-node",
    "--ntasks-per-node": "a task is a GPU; give --gpus-per-node",
    "--ntasks-per-gpu": "a task is a GPU; give --gpus-per-node",
    "--signal": "give --warn-seconds",
    "--tasks-per-node": "a task is a GPU; give --gpus-per-node",
    "--time": "give it as an option of its own",
    "-D": "the options' paths are seen from where the script was written; write it from there",
    "-G": "give --gpus-per-node",
    "-N": "give --nodes",
    "-a": "all jobs of an array would write into one folder; write a script for each",
    "-c": "give --cpus-per-node",
    "-n": "a task is a GPU; give --gpus-per-node",
    "-t": "give --time",
}
"""Options of sbatch that the script sets itself, and what to do instead."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Requested nodes and the resources of each, time limit, and warning signal.

    gpu_kind: the cluster's name of the GPU type, such as `a100`; None: any. folder: working directory of the job, as
    sbatch's --chdir. cpus_per_node: cores, divided evenly among the node's tasks. memory: of a node, as sbatch's --mem
    (`64G`; 0: all). time: the limit, in any of Slurm's forms (`90`: minutes, `12:00:00`, `2-0`: two days).
    warn_seconds: how long before the limit the job is signalled to save and end; Slurm may do so up to 60 seconds
    earlier; None: it is not. warn_script: signal the script itself instead of its tasks. more: further options of
    sbatch, as they would stand behind #SBATCH.

    Raises `UsageError` on values that sbatch would refuse, or that the scripts do not support.
    """

    name: str
    folder: Path
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_node: int = 8
    gpus_per_node: int = 0
    gpu_kind: str | None = None
    memory: str | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    warn_seconds: int | None = 120
    warn_script: bool = False
    more: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for option, number, minimum, example in (
            ("--nodes", self.nodes, 1, 2),
            ("--gpus-per-node", self.gpus_per_node, 0, 4),
            ("--cpus-per-node", self.cpus_per_node, 1, 16),
        ):
            if number < minimum:
                raise UsageError(f"{option}={number}: must be at least {minimum}; try {example}")
        if self.cpus_per_node < self.tasks_per_node:
            raise UsageError(
                f"--cpus-per-node={self.cpus_per_node}: must be at least {self.tasks_per_node}, a core for each GPU; "
                f"try {8 * self.tasks_per_node}"
            )
        for option, name in (("--partition", self.partition), ("--account", self.account)):
            if name is not None and not _NAME.fullmatch(name):
                raise UsageError(f"{option}={name!r}: must be a name without spaces and quotes, as sinfo shows it")
        if self.memory is not None and not _SIZE.fullmatch(self.memory):
            raise UsageError(f"--mem={self.memory!r}: must be a whole number with K, M, G or T behind it; try 64G")
        if "\n" in str(self.folder):
            raise UsageError(f"{str(self.folder)!r}: has a line break, which sbatch cannot take; go to another folder")
        self._check_time()
        for line in self.more:
            _check_sbatch_option(line)

    def _check_time(self) -> None:
        if self.warn_seconds is not None and not 1 <= self.warn_seconds <= _MAX_WARN_SECONDS:
            raise UsageError(f"--warn-seconds={self.warn_seconds}: must be 1 to {_MAX_WARN_SECONDS}; try 120")
        limit = None if self.time is None else time_seconds(self.time)
        if self.warn_seconds is None:
            return
        needed = self.warn_seconds + 2 * _EARLY_SECONDS
        if limit is not None and limit < needed:
            raise UsageError(
                f"--time={self.time}: is {limit} s, less than the {needed} s that a warning {self.warn_seconds} s "
                "before the end needs, so the job would be told to end as it begins; give it longer, or warn later"
            )

    @property
    def cpus_per_task(self) -> int:
        """Cores per task."""
        return self.cpus_per_node // self.tasks_per_node

    def lines(self) -> list[str]:
        """Returns the #SBATCH lines."""
        target = "B:" if self.warn_script else ""
        options = [
            f"--job-name={self.name}", f"--nodes={self.nodes}", f"--ntasks-per-node={self.tasks_per_node}",
            f"--cpus-per-task={self.cpus_per_task}",
        ]  # fmt: skip
        if self.gpus_per_node:
            gpu_prefix = "" if self.gpu_kind is None else f"{self.gpu_kind}:"
            options.append(f"--gpus-per-node={gpu_prefix}{self.gpus_per_node}")
        for option, value in (("mem", self.memory), ("time", self.time), ("partition", self.partition),
                              ("account", self.account)):  # fmt: skip
            if value is not None:
                options.append(f"--{option}={value}")
        options += [
            f"--chdir={sbatch_quoted(str(self.folder))}", "--output=%x-%j.log", "--open-mode=append", "--requeue",
            *([] if self.warn_seconds is None else [f"--signal={target}USR1@{self.warn_seconds}"]), *self.more,
        ]  # fmt: skip
        return [f"#SBATCH {option}" for option in options]


def time_seconds(text: str) -> int | None:
    """Parses a time limit in any of sbatch's forms into seconds; None: unlimited. Raises `UsageError` on other texts.

    >>> time_seconds("90"), time_seconds("1:30"), time_seconds("12:00:00"), time_seconds("2-0"), time_seconds("1-6:30")
    (5400, 90, 43200, 172800, 109800)
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "0"):
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--time={text!r}: must be minutes, [hours:]minutes:seconds or days-hours[:minutes]; try 12:00:00"
        )
    if match["parts"] is None:
        days, hours, minutes, seconds = (int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = [int(part) for part in match["parts"].split(":")]
    if len(parts) == 1:
        return parts[0] * 60
    return sum(part * unit for part, unit in zip(reversed(parts), (1, 60, 3600), strict=False))


def sbatch_quoted(text: str) -> str:
    """Quotes a value for a #SBATCH line, which sbatch parses differently from a shell.

    Nothing is expanded; within double quotes a backslash escapes the next character, and outside them Slurm 22.05 ends
    a word even at an escaped space (src/sbatch/opt.c, `get_argument`).
    """
    return text if re.fullmatch(r"[\w./:=,+@%-]+", text) else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _check_sbatch_option(line: str) -> None:
    option = re.split(r"[=\s]", line.strip(), maxsplit=1)[0]
    own = _reserved_name(option)
    if not line.strip().startswith("-") or "\n" in line:
        raise UsageError(f"--sbatch={line!r}: must be one option of sbatch in one line; try --sbatch '--qos=low'")
    if own is not None:
        raise UsageError(f"--sbatch={line!r}: is the script's own; {_RESERVED[own]}")
    if _TRES_OF_TASKS.fullmatch(line.strip()):
        raise UsageError(f"--sbatch={line!r}: is the script's own; give --gpus-per-node and --cpus-per-node")
    if _GRES_GPUS.fullmatch(line.strip()):
        raise UsageError(f"--sbatch={line!r}: is the script's own; give --gpus-per-node")
    if re.fullmatch(r"(--j[a-z-]*[=\s]+|-J\s*)[\"']?(bash|interactive)[\"']?", line.strip()):
        raise UsageError(
            f"--sbatch={line!r}: Lightning takes that name for a shell and would start no ranks; try another"
        )


def _reserved_name(option: str) -> str | None:
    """The reserved option that this is, in full or as the beginning of its name, which sbatch takes; None for others.

    What begins the names of several options is refused by sbatch anyway.
    """
    if not option.startswith("--"):
        return option[:2] if option[:2] in _RESERVED else None
    return option if option in _RESERVED else next((name for name in _RESERVED if name.startswith(option)), None)
