"""The group of all commands: finds them by entry point, and converts errors to messages and exit codes."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TextIO

import click

from .console import printable
from .errors import INTERRUPTED, FacefeedError, StoppedError
from .files import RAISE_FILES_LIMIT, TOO_MANY_FILES, refusal_text
from .interrupts import INTERRUPTED_MESSAGE, raise_when_interrupted


class CommandGroup(click.Group):
    """A click group that finds subcommands by entry point and converts facefeed's errors to messages and exit codes."""

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group="facefeed.commands")}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Names in the order of the workflow."""
        order = (
            "sample", "precompute", "verify", "inspect", "add", "remove", "compact", "export", "augment", "profile",
            "train", "evaluate", "ladder", "slurm", "models",
        )  # fmt: skip
        names = self._entry_points()
        return [name for name in order if name in names] + sorted(set(names) - set(order))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Loads one subcommand; None if there is none of that name."""
        point = self._entry_points().get(cmd_name)
        return None if point is None else point.load()

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the subcommand; converts expected errors to one line and an exit code, without a traceback."""
        raise_when_interrupted()
        as_json, is_dry_run = "--json" in ctx.args, "--dry-run" in ctx.args
        try:
            return super().invoke(ctx)
        except click.ClickException as error:  # click prints it, but for programs
            with suppress(OSError):  # standard output may be on the full disk
                _print_object({"error": error.format_message(), "exit": error.exit_code}, as_json=as_json)
            raise
        except FacefeedError as error:
            message, code, details = str(error), error.exit_code, error.details
        except KeyboardInterrupt:
            exec("")  # noqa: S102 (else Python ends by the signal where the interrupt came within an `exec` of text)
            message, code, details = _interrupted(ctx.invoked_subcommand, is_dry_run=is_dry_run), INTERRUPTED, {}
        except BrokenPipeError:
            _discard(sys.stdout)
            ctx.exit(1)
        except Exception as error:
            refusal = _refusal_of_system(error)
            if refusal is None:
                raise
            message, code, details = refusal, StoppedError.exit_code, {}
        try:
            try:
                click.echo("facefeed: " + "\n".join(map(printable, message.split("\n"))), err=True)
            except OSError:  # standard error may be on the full disk
                _discard(sys.stderr)
            _print_object({**details, "error": message, "exit": code}, as_json=as_json)
        except KeyboardInterrupt:  # Ctrl-C pressed twice
            code = INTERRUPTED
        except OSError:  # as may standard output
            _discard(sys.stdout)
        return ctx.exit(code)


def _refusal_of_system(error: Exception) -> str | None:
    """What to say of a disk, a network, memory or a thread that was refused; None for any other error."""
    if isinstance(error, OSError):  # outside of the code that handles it
        where = f"{error.filename}: " if error.filename else ""
        remedy = RAISE_FILES_LIMIT if error.errno in TOO_MANY_FILES else "fix that"
        return f"{where}{error.strerror or error}; {remedy} and run the same command again"
    return refusal_text(error)


def _print_object(values: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(values))


def _discard(stream: TextIO) -> None:
    """Sends the rest of a stream nowhere; else Python would fail to write it once more when it ends, with code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _interrupted(command: str | None, *, is_dry_run: bool) -> str:
    if is_dry_run:
        return "interrupted; nothing was written"
    resumes = command in ("precompute", "add", "remove", "compact", "export", "train")
    return f"{INTERRUPTED_MESSAGE}{' to resume' if resumes else ''}"
