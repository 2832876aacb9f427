"""The command `facefeed` as a process: Ctrl-C ends it with a line from its first heavy import to its last moment."""

from __future__ import annotations

import atexit

from .interrupts import end_when_interrupted, exit_when_interrupted, ignore_interrupts


def main() -> None:
    """Runs the command."""
    end_when_interrupted()
    atexit.register(ignore_interrupts)  # the first registered is the last called
    try:
        from .cli import main as run_command  # noqa: PLC0415 (tenths of a second)

        run_command()
    except SystemExit as ended:
        exit_when_interrupted(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise


if __name__ == "__main__":
    main()
