"""The group of all commands: finds them by entry point, and converts errors to messages and exit codes."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from importlib.metadata import EntryPoint, entry_points
from types import FrameType
from typing import Any, NoReturn

import click

from .console import printable
from .errors import INTERRUPTED, FacefeedError, StoppedError


class CommandGroup(click.Group):
    """A click group that finds subcommands by entry point and converts facefeed's errors to messages and exit codes."""

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group="facefeed.commands")}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Names in the order of the workflow."""
        order = (
            "sample", "precompute", "verify", "inspect", "add", "remove", "export", "augment", "profile", "train",
            "evaluate", "ladder", "slurm", "models",
        )  # fmt: skip
        names = self._entry_points()
        return [name for name in order if name in names] + sorted(set(names) - set(order))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Loads one subcommand; None if there is none of that name."""
        point = self._entry_points().get(cmd_name)
        return None if point is None else point.load()

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the subcommand; converts expected errors to one line and an exit code, without a traceback."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except FacefeedError as error:
            message, code, details = str(error), error.exit_code, error.details
        except KeyboardInterrupt:
            then = " to resume" if ctx.invoked_subcommand in ("precompute", "add", "remove", "export", "train") else ""
            message, code, details = f"interrupted; run the same command again{then}", INTERRUPTED, {}
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(1)
        except OSError as error:  # a disk or network that fails outside of the code that handles it
            where = f"{error.filename}: " if error.filename else ""
            message = f"{where}{error.strerror or error}; run the same command again"
            code, details = StoppedError.exit_code, {}
        finally:
            # Python takes tenths of a second to end, and an interrupt then would replace the exit code by the signal.
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        click.echo("facefeed: " + "\n".join(map(printable, message.split("\n"))), err=True)
        if as_json:
            click.echo(json.dumps({**details, "error": message, "exit": code}))
        return ctx.exit(code)


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 (signal's signature)
    raise KeyboardInterrupt
