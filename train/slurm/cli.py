"""The commands `facefeed slurm train`, `precompute` and `ladder`. Heavy imports happen when they run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_Command = Callable[..., Any]
_CORES_PER_GPU = 8


class _PassThrough(click.Command):
    """Passes options behind `--` to another command; a hint names `--` if one came before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses as click does, with the hint on an unknown option."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = f"{error.format_message()} The options of {ctx.info_name} itself come behind --"
            raise click.UsageError(message, ctx) from error


class _GpuCount(click.ParamType):  # type: ignore[type-arg]
    """A GPU type or None, and a number of GPUs."""

    name = "gpus"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, int]:  # fmt: skip
        """Parses "4" and "a100:4", the forms of sbatch's --gpus-per-node."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(?:([A-Za-z][\w.-]*):)?(-?\d+)", value)
        if match is None or (match[1] and int(match[2]) < 1):
            self.fail(f"{value!r}: must be a number, with a kind before it where one is wanted; try a100:4", param, ctx)
        return match[1], int(match[2])


@click.group()
def slurm() -> None:
    """Write the batch script of a training, of precompute, or of a ladder, for a Slurm cluster."""


def _script_command(*paths: str) -> Callable[[_Command], click.Command]:
    """Registers a command that writes a script: arguments `paths`, options on resources, and behind `--` its own."""
    parameters = (
        *(click.argument(path, type=click.Path()) for path in paths),
        click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS]"),
        click.option("--nodes", type=int, default=1, show_default=True, metavar="N", help="How many."),
        click.option("--gpus-per-node", type=_GpuCount(), default=(None, 0), metavar="[KIND:]G",
                     help="Of each, as 4 or a100:4 (sinfo -o %G names kinds).  [default: 0]"),
        click.option("--cpus-per-node", type=int, metavar="C", help="Cores of each.  [default: 8 a GPU, at least 8]"),
        click.option("--mem", metavar="SIZE", help="Of each, as 64G; 0: all there is.  [default: the cluster's]"),
        click.option("--time", metavar="LIMIT", help="90 (minutes), 12:00:00, 2-0 (days).  [default: the partition's]"),
        click.option("--partition", metavar="NAME"),
        click.option("--account", metavar="NAME"),
        click.option("--warn-seconds", type=int, metavar="S",
                     help="So long before the limit, save and go back into the queue; no ladder does.  [default: 120]"),
        click.option("--interface", metavar="NAME", help="Network between the nodes, as ib0.  [default: chosen]"),
        click.option("--python", metavar="COMMAND", help="Starts facefeed's Python on the nodes, as 'apptainer exec "
                     "--nv facefeed.sif python'.  [default: this one]"),
        click.option("--sbatch", "more", multiple=True, metavar="OPTION", help="One more of sbatch's, as '--qos=low'."),
        click.option("--script", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                     help="Where it is written.  [default: standard output]"),
    )  # fmt: skip

    def register(command: _Command) -> click.Command:
        for parameter in reversed(parameters):
            command = parameter(command)
        return slurm.command(cls=_PassThrough, context_settings={"max_content_width": 110})(command)

    return register


@_script_command("out")
def train(out: str, options: tuple[str, ...], **requested: Any) -> None:
    """Write a script that trains on OUT, a rank a GPU.

    \b
      facefeed slurm train faces --gpus-per-node 4 -- --set epochs=30 > train.sh
      sbatch train.sh

    Behind -- come the options of `facefeed train`. Levers and recipe are fitted to the nodes: `ddp` is given their
    numbers, or added where several ranks have nothing to share the work by. Without GPUs, a rank is a node.

    A job that is preempted or out of time saves, is requeued under its number, and resumes at the very next batch: its
    run's folder holds all it needs. Without a grace time it has Slurm's KillWait (30 s) to do so; a node
    that dies costs what was done since the last checkpoint (`--set save_every_minutes=`). A job that stops for any
    other reason with more to do, such as a full disk, is held in the queue: fix that, then `scontrol release` it.

    Paths are seen from the folder where the script was written, and must be there on all nodes. Modules and variables
    of the shell that calls sbatch are those of the job.
    """  # noqa: D301 (click's mark)
    from .ranks import with_ranks  # noqa: PLC0415
    from .script import train_script  # noqa: PLC0415

    gpus_per_node = requested["gpus_per_node"][1]
    allocation = _allocation("facefeed-train", requested, tasks_per_node=max(gpus_per_node, 1))
    arguments = with_ranks([out, *options], nodes=allocation.nodes, gpus_per_node=gpus_per_node)
    _write(train_script(allocation, arguments, **_launch_options(requested)), requested["script"])


@_script_command("src", "out")
def precompute(src: str, out: str, options: tuple[str, ...], **requested: Any) -> None:
    """Write a script that makes OUT of SRC, a worker a core.

    \b
      facefeed slurm precompute videos faces --nodes 4 -- --every 5 > precompute.sh
      sbatch precompute.sh

    Behind -- come the options of `facefeed precompute`. With GPUs, a worker is a GPU.

    A job that is preempted or out of time is requeued under its number, and continues with what is not done
    yet. One that stops for another reason, such as a full disk, is held there: fix that, then `scontrol release` it.

    The folder where the script was written must be there on all nodes under the same path, and so must SRC and OUT
    unless they are addresses of a store. The workers' connections are TLS, with a certificate of the job's own.
    """  # noqa: D301 (click's mark)
    from .command_options import parse_command  # noqa: PLC0415
    from .script import precompute_script  # noqa: PLC0415

    options_of_command = parse_command("precompute", [src, out, *options])
    for name in ("workers", "scheduler", "cluster"):
        if options_of_command[name] is not None:
            raise click.UsageError(f"--{name}: the script starts the job's own workers; leave it out")
    workers_per_node = requested["gpus_per_node"][1] or _cores_per_node(requested)
    allocation = _allocation("facefeed-precompute", requested, tasks_per_node=workers_per_node, warn_script=True)
    _write(precompute_script(allocation, [src, out, *options], **_launch_options(requested)), requested["script"])


@_script_command("out")
def ladder(out: str, options: tuple[str, ...], **requested: Any) -> None:
    """Write a script that measures on a node what each lever is worth, on the faces of OUT.

    \b
      facefeed slurm ladder faces --gpus-per-node a100:4 -- --videos videos > ladder.sh
      sbatch ladder.sh

    Behind -- come the options of `facefeed ladder`. Rungs that share the work do so over all GPUs of the node. A job
    that is preempted begins anew; one that is out of time ends. It writes its log and ladder.html, in the folder where
    the script was written.
    """  # noqa: D301 (click's mark)
    from ...pipeline.errors import UsageError  # noqa: PLC0415
    from .ranks import check_ladder  # noqa: PLC0415
    from .script import ladder_script  # noqa: PLC0415

    if requested["nodes"] != 1:
        raise UsageError(
            f"--nodes={requested['nodes']}: a ladder measures one node, and others would idle; leave it out"
        )
    if requested["interface"] is not None:
        raise UsageError("--interface: a ladder stays on one node; leave it out")
    if requested["warn_seconds"] is not None:
        raise UsageError("--warn-seconds: a ladder has nothing to save, and ends at its limit; leave it out")
    check_ladder([out, *options], gpus_per_node=requested["gpus_per_node"][1])
    allocation = _allocation("facefeed-ladder", requested, tasks_per_node=1, default_warn_seconds=None)
    _write(ladder_script(allocation, [out, *options], python=_launch_options(requested)["python"]), requested["script"])


def _allocation(
    name: str, requested: dict[str, Any], *, tasks_per_node: int, warn_script: bool = False,
    default_warn_seconds: int | None = 120,
) -> Any:  # fmt: skip
    from .allocation import Allocation  # noqa: PLC0415

    return Allocation(
        name=name, folder=Path.cwd(), nodes=requested["nodes"], tasks_per_node=tasks_per_node,
        cpus_per_node=_cores_per_node(requested), gpus_per_node=requested["gpus_per_node"][1],
        gpu_kind=requested["gpus_per_node"][0],
        memory=requested["mem"], time=requested["time"], partition=requested["partition"], account=requested["account"],
        warn_seconds=default_warn_seconds if requested["warn_seconds"] is None else requested["warn_seconds"],
        warn_script=warn_script, more=requested["more"],
    )  # fmt: skip


def _cores_per_node(requested: dict[str, Any]) -> int:
    """Returns the cores per node."""
    cores: int | None = requested["cpus_per_node"]
    return _CORES_PER_GPU * max(requested["gpus_per_node"][1], 1) if cores is None else cores


def _launch_options(requested: dict[str, Any]) -> dict[str, Any]:
    from ...pipeline.errors import UsageError  # noqa: PLC0415

    python = requested["python"]
    try:
        words = [sys.executable] if python is None else shlex.split(python)
    except ValueError as error:
        raise UsageError(f"--python={python!r}: {error}; quote it as for a shell") from error
    if not words:
        raise UsageError(f"--python={python!r}: must be a command; try python")
    return {"python": words, "interface": requested["interface"]}


def _write(script: str, file: Path | None) -> None:
    from ...pipeline.files import write_atomically  # noqa: PLC0415

    if file is None:
        click.echo(script, nl=False)
        return
    write_atomically(script, file, "--script")
    click.echo(f"next: sbatch {shlex.quote(str(file))}", err=True)
