"""Runs commands where the file system lacks something, and says whether they end as they do where it lacks nothing.

A process of its own, into which `assets_failing_calls.library()` is preloaded; `python -m assets_lacking_runs FOLDER
alone|together COMMAND...` prints JSON: of each command, how it ended by what was lacking.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pyarrow as pa
from assets_failing_calls import Call, Fault, FileCalls
from assets_failing_commands import COMMANDS, Command

LACKING: Final[dict[str, tuple[int, ...]]] = {
    "link": (errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK),
    "flock": (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS),
    "fsync_folder": (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.ENOSYS),
}
"""Kinds of calls that some file systems have not: FAT and SMB no hard links, Lustre and NFS at times no locks, SMB and
FUSE no sync of a folder; and how they say so."""


def lacking(folder: Path, how: str) -> Iterator[Fault]:
    """All calls of a kind fail, of each kind `alone` in each way, or of all `together` in the one that they share."""
    if how == "together":
        yield Fault(Call("link", folder), 0, errno.EOPNOTSUPP, onwards=tuple(LACKING))
        return
    for kind, errors in LACKING.items():
        for error in errors:
            yield Fault(Call(kind, folder), 0, error, onwards=(kind,))


def endings(command: Command, folder: Path, how: str) -> dict[str, str]:
    """How the command ends: "the same", or what is not."""
    file_calls = FileCalls(command.folders)
    command.lay()
    command.run()
    undisturbed, ended = command.outcome(), {}
    for fault in lacking(folder, how):
        command.lay()
        try:
            with file_calls.counted(fault):
                command.run()
            findings = command.findings()
            text = "the same" if not findings and command.outcome() == undisturbed else f"other rows, {findings}"
        except Exception as error:
            text = repr(error)
        is_reached = any(call.kind in fault.onwards for call in file_calls.made)
        if is_reached:  # an export links nothing
            ended[f"{' '.join(fault.onwards)}: {errno.errorcode[fault.error].replace('ENOTSUP', 'EOPNOTSUPP')}"] = text
    return ended


def main() -> None:
    """The whole process."""
    folder, how, *commands = sys.argv[1:]
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    reports = {}
    for name in commands:
        own_folder = Path(folder) / name
        own_folder.mkdir()
        with closing(COMMANDS[name](own_folder)) as command:
            reports[name] = endings(command, own_folder, how)
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
