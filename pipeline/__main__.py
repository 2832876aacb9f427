"""The command `facefeed` as a process: Ctrl-C ends it with a line from its first import to its last moment."""

from __future__ import annotations

from .interrupts import end_when_interrupted, ignore_interrupts


def main() -> None:
    """Runs the command."""
    end_when_interrupted()
    try:
        from .cli import main as run_command  # noqa: PLC0415 (tenths of a second)

        run_command()
    finally:
        ignore_interrupts()


if __name__ == "__main__":
    main()
