"""The command `facefeed profile`; heavy imports happen when it runs."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from ...pipeline.dataset.stores.argument import DatasetArgument
from ..sampling.balance_names import BalanceName

if TYPE_CHECKING:
    from .request import ProfileRequest
    from .verdict.gate import Gate
    from .verdict.result import Profile


class _Factor(click.ParamType):  # type: ignore[type-arg]
    """A finite number above 0. `example`: one, for messages."""

    name, rule, end = "factor", "a number above 0,", math.inf

    def __init__(self, example: str) -> None:
        self.example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        try:
            number = self.parse(str(value))
        except ValueError:
            number = math.nan
        if not 0 < number < self.end:
            self.fail(f"{value!r}: must be {self.rule} such as {self.example}", param, ctx)
        return number

    def parse(self, text: str) -> float:
        """The number that a text states."""
        return float(text)


class _Share(_Factor):
    """A share such as 0.01 or 1%. `example`: two forms of one, for messages."""

    name, rule, end = "share", "a share", 1.0

    def parse(self, text: str) -> float:
        """The number that a text states, in per cent or not."""
        return round(float(text.removesuffix("%")) / (100 if text.endswith("%") else 1), _SHARE_DIGITS)


class _Axis(click.ParamType):  # type: ignore[type-arg]
    """Numbers to try of one setting: workers=0..16, prefetch=1,2,4."""

    name = "axis"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[int]]:
        """The name and the numbers."""
        if isinstance(value, tuple):
            return value
        name, _, ranges = value.partition("=")
        minimum = {"workers": 0, "prefetch": 1}.get(name)
        parts = [_parse_range(part) for part in ranges.split(",")]
        numbers = [number for part in parts for number in part]
        if minimum is None or not all(parts) or min(numbers) < minimum:
            self.fail(f"{value!r}: must be such as workers=0..16, workers=0,2,4 or prefetch=1,2,4", param, ctx)
        return name, numbers


def _parse_range(text: str) -> list[int]:
    """3: itself; 0..3: all from the first to the last; empty where it is no number."""
    first, dots, last = text.partition("..")
    ends = (first, last if dots else first)
    is_valid = all(end.isdecimal() and len(end) <= _MOST_DIGITS for end in ends)
    return list(range(int(ends[0]), int(ends[1]) + 1)) if is_valid else []


_MOST_DIGITS = 4  # nobody has so many workers
_SHARE_DIGITS = 12  # 99.9 / 100 is over 0.999
_LINE_SECONDS = 30.0
_OPTIONS_OF_THE_SELF_TEST = {"self_test", "page", "as_json"}
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("out", type=DatasetArgument(), required=False)
@click.option("--step-ms", type=_Factor("20"), default=10.0, show_default=True, metavar="MS",
              help="How long the device takes for a training step.")  # fmt: skip
@click.option("--host-share", type=click.FloatRange(0, 1), default=0.2, show_default=True, metavar="SHARE",
              help="Part of the step in which it keeps a core of the host busy: CPU time over wall time of your own "
                   "steps on one batch (time.process_time() over time.perf_counter()).")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=50), default=4000, show_default=True, metavar="N",
              help="Of the steady state; FED needs over 3,000. Fewer where the loader is surely too slow, up to about "
                   "4 times as many where waits change or come in long runs.")  # fmt: skip
@click.option("--split", type=click.Choice(["train", "val", "test"]), default="train", show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=64, show_default=True, metavar="N")
@click.option("--image-size", type=click.IntRange(min=1), default=224, show_default=True, metavar="PX")
@click.option("--workers", type=click.IntRange(min=0), metavar="N",
              help="Of each rank. Default: one a usable core, shared among the ranks.")  # fmt: skip
@click.option("--prefetch", type=click.IntRange(min=1), metavar="N", help="Batches a worker. Default: 2.")
@click.option("--ranks", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Processes on this host that do their steps together, as GPUs do.")  # fmt: skip
@click.option("--sweep", type=_Axis(), multiple=True, metavar="NAME=NUMBERS",
              help="Measure other settings: workers=0..16, prefetch=1,2,4. May be given twice.")  # fmt: skip
@click.option("--shuffle", type=click.Choice(["full", "window", "none"]), default="full", show_default=True)
@click.option("--balance", type=click.Choice(get_args(BalanceName)), default="none", show_default=True)
@click.option("--transform", type=_FILE, metavar="FILE.yaml",
              help="An augmentation pipeline as Albumentations saves it.")  # fmt: skip
@click.option("--against", type=click.Choice(["naive"]), help="Beside it, decoding and MTCNN inside the loader.")
@click.option("--videos", type=click.Path(path_type=Path), metavar="SRC", help="What OUT was made from, for --against.")
@click.option("--verify", is_flag=True, help="Follow the advice, setting by setting, until the device is fed.")
@click.option("--quick", is_flag=True, help="The verdict alone, without what explains it.")
@click.option("--max-wait", "max_wait_share", type=_Share("1% or 0.01"), metavar="SHARE",
              help="Exit with 1 unless waiting surely is at most this, such as 1%.")  # fmt: skip
@click.option("--min-headroom", type=_Factor("1.3"), metavar="X",
              help="Exit with 1 unless the step could be so many times faster.")  # fmt: skip
@click.option("--confidence", type=_Share("95% or 0.95"), default=0.95, show_default=True, metavar="SHARE")
@click.option("--page", type=_FILE, default=Path("profile.html"), show_default=True, help="Where the page is written.")
@click.option("--trace", type=_FILE, metavar="FILE.json", help="A timeline for ui.perfetto.dev or chrome://tracing.")
@click.option("--report", type=_FILE, metavar="FILE.json", help="Where all figures are written.")
@click.option("--self-test", is_flag=True, help="Inject delays of known length, and see whether they are found.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def profile(out: str | Path | None, *, self_test: bool, **options: Any) -> None:
    """Show whether training on OUT would wait for data, and how sure that is.

    A device that takes the stated time for a step is emulated. Exits with 0 if it is fed, 1 if it waits or that cannot
    be ruled out, 4 if nothing can be concluded; with --max-wait or --min-headroom these alone decide between 0 and 1.
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would call the network on import
    if self_test:
        _refuse_options_of_a_profile()
    elif out is None:
        raise click.UsageError("give OUT, or --self-test, which needs none")
    sys.exit(_self_test(options["page"], as_json=options["as_json"]) if out is None else _profile(out, **options))


def _profile(
    out: str | Path, *, max_wait_share: float | None, min_headroom: float | None, against: str | None, page: Path,
    trace: Path | None, report: Path | None, as_json: bool, sweep: tuple[tuple[str, list[int]], ...], **options: Any,
) -> int:  # fmt: skip
    _start_fork_server(**options)
    from .rank_processes import profile_on_ranks  # noqa: PLC0415
    from .request import ProfileRequest  # noqa: PLC0415
    from .verdict.gate import Gate  # noqa: PLC0415

    request = ProfileRequest(out=out, sweep=dict(sweep), **options)
    _check_options(request, against, [name for name, _ in sweep])
    _check_files([("--page", page), ("--trace", trace), ("--report", report)])
    gate = Gate(max_wait_share=max_wait_share, min_headroom=min_headroom)
    with _progress_display() as show:

        def progress(what: str, done: int, wanted: int) -> None:
            show(f"profiling {what}", f": {done:,} of {wanted:,}")  # steps, or what the activity counts

        run = profile_on_ranks if request.ranks > 1 else ProfileRequest.run
        result = request.run_sweep(progress, run) if request.sweep else run(request, progress)
    return _write_reports(result, gate, page=page, trace=trace, report=report, as_json=as_json)


def _start_fork_server(*, workers: int | None, ranks: int, transform: Path | None, **_: Any) -> None:
    """Starts the process that workers are forked from: it imports torch while this one does so too."""
    if workers == 0 or ranks > 1:  # ranks have one each
        return
    from ..workers.fork_server import start_fork_server  # noqa: PLC0415

    start_fork_server(*(() if transform is None else ("albumentations",)))


def _refuse_options_of_a_profile() -> None:
    """Refuses options that the self-test would ignore."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if given and parameter.name not in _OPTIONS_OF_THE_SELF_TEST:
            name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
            raise click.UsageError(f"{name}: the self-test has loaders and steps of its own; leave it out")


def _check_options(request: ProfileRequest, against: str | None, axes: list[str]) -> None:
    """Refuses options that are out of range or contradict each other."""
    from .estimate.bounds import MAX_CONFIDENCE  # noqa: PLC0415

    if (against is None) != (request.videos is None):
        raise click.UsageError("--against naive and --videos SRC belong together")
    if request.confidence > MAX_CONFIDENCE:
        raise click.UsageError(
            f"--confidence {request.confidence}: must be at most {MAX_CONFIDENCE}, the highest that the resampled "
            "bounds resolve; try 0.99"
        )
    has_prefetch = request.prefetch is not None or "prefetch" in axes
    if has_prefetch and set(request.sweep.get("workers", [request.workers])) == {0}:
        raise click.UsageError("--prefetch: there is nobody to work ahead with 0 workers; leave it out")
    for name in axes:
        if getattr(request, name) is not None:
            raise click.UsageError(f"--{name} and --sweep {name}=...: give one of them")
        if axes.count(name) > 1:
            raise click.UsageError(f"--sweep {name}=...: given twice; write all numbers into one, as {name}=1,2,4")
    if request.verify and request.quick:
        raise click.UsageError("--verify follows advice, which --quick does not give; leave one of them out")
    if axes and request.verify:
        raise click.UsageError("--verify and --sweep: both try other settings; give one of them")
    if request.ranks > 1 and (request.verify or against):
        raise click.UsageError(
            "--verify and --against try one loader after the other, which --ranks does not; take --sweep, or one rank"
        )


@contextmanager
def _progress_display() -> Iterator[Callable[..., None]]:
    """Yields a function that shows progress: a status line; in a pipe a line an activity, and one each 30 s."""
    from ...pipeline.console import stderr_console  # noqa: PLC0415

    console = stderr_console()
    if console.is_terminal:
        with console.status("profiling") as status:
            yield lambda what, how_far="": status.update(what + how_far)
        return
    shown = set[str]()
    next_at = time.monotonic() + _LINE_SECONDS

    def show(what: str, how_far: str = "") -> None:
        nonlocal next_at
        is_due = time.monotonic() >= next_at
        if what not in shown or is_due:
            console.print(what + how_far if is_due else what, markup=False)
            shown.add(what)
            next_at = time.monotonic() + _LINE_SECONDS

    yield show


def _check_files(files: list[tuple[str, Path | None]]) -> None:
    """Refuses, before anything is measured, files that cannot be written or are named twice."""
    from ...pipeline.files import can_create_files_in  # noqa: PLC0415

    used_paths = set[Path]()
    for option, path in files:
        if path is None:
            continue
        if not can_create_files_in(path.parent):
            raise click.UsageError(f"{option} {path}: cannot be written: the folder does not exist, or is read-only")
        if path.resolve() in used_paths:
            raise click.UsageError(f"{option} {path}: is named twice; give each its own file")
        used_paths.add(path.resolve())


def _write_reports(
    result: Profile, gate: Gate, *, page: Path, trace: Path | None, report: Path | None, as_json: bool
) -> int:  # fmt: skip
    """Writes all reports; returns the exit code."""
    from ...pipeline.files import write_atomically  # noqa: PLC0415
    from .report.console import console_report  # noqa: PLC0415
    from .report.json_report import report_values  # noqa: PLC0415
    from .report.page.html import write_page  # noqa: PLC0415
    from .report.trace import write_trace  # noqa: PLC0415

    code = gate.exit_code(result.verdict)
    values = {**report_values(result, gate), "exit": code}
    click.echo(console_report(result, gate), err=True)  # first: a page that cannot be written does not cost the result
    write_page(result, gate, page)
    if trace is not None:
        write_trace(result, trace)
    if report is not None:
        write_atomically(json.dumps(values, indent=1, allow_nan=False), report, "--report")
    click.echo(f"  page: {page}", err=True)
    if as_json:
        click.echo(json.dumps(values, allow_nan=False))
    return code


def _self_test(page: Path, *, as_json: bool) -> int:
    from .selftest.page import write_page  # noqa: PLC0415
    from .selftest.run import figures, run, text  # noqa: PLC0415

    _check_files([("--page", page)])
    with _progress_display() as show:
        checks = run(progress=show)
    code = 0 if all(check.passed for check in checks) else 1
    write_page(checks, page)
    click.echo(f"{text(checks)}\n  page: {page}", err=True)
    if as_json:
        click.echo(json.dumps({**figures(checks), "exit": code}))
    return code
