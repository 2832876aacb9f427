"""The command `facefeed profile`. What is heavy is imported when it runs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..dataloader import FaceDataLoader
    from .gate import Gate
    from .result import Profile


class _Share(click.ParamType):  # type: ignore[type-arg]
    """A share of the whole: 0.01 or 1%."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """To a number between 0 and 1."""
        if isinstance(value, float):
            return value
        try:
            number = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if not 0 < number < 1:
            self.fail(f"{value!r}: must be a share such as 1% or 0.01", param, ctx)
        return number


_LONG_EPOCH = 10_000  # batches: more than anybody waits for when each is made from videos
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("out", type=click.Path(path_type=Path), required=False)
@click.option("--step-ms", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True, metavar="MS",
              help="How long the device takes for a training step.")  # fmt: skip
@click.option("--host-share", type=click.FloatRange(0, 1), default=0.2, show_default=True, metavar="SHARE",
              help="Part of the step in which it keeps a core of the host busy.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=50), default=4000, show_default=True, metavar="N",
              help="Of the steady state; fewer where the loader is surely too slow.")  # fmt: skip
@click.option("--split", type=click.Choice(["train", "val", "test"]), default="train", show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=64, show_default=True, metavar="N")
@click.option("--image-size", type=click.IntRange(min=1), default=224, show_default=True, metavar="PX")
@click.option("--workers", type=click.IntRange(min=0), metavar="N", help="Default: one a usable core.")
@click.option("--prefetch", type=click.IntRange(min=1), metavar="N", help="Batches a worker. Default: 2.")
@click.option("--transform", type=_FILE, metavar="FILE.yaml",
              help="An augmentation pipeline as Albumentations saves it.")  # fmt: skip
@click.option("--against", type=click.Choice(["naive"]), help="Beside it, decoding and MTCNN inside the loader.")
@click.option("--videos", type=click.Path(path_type=Path), metavar="SRC", help="What OUT was made from, for --against.")
@click.option("--verify", is_flag=True, help="Follow the advice, setting by setting, until the device is fed.")
@click.option("--quick", is_flag=True, help="The verdict alone, without what explains it.")
@click.option("--max-stall", type=_Share(), metavar="SHARE", help="Exit with 1 unless waiting is bound below, as 1%.")
@click.option("--min-headroom", type=click.FloatRange(min=0, min_open=True), metavar="X",
              help="Exit with 1 unless the step could be so many times faster.")  # fmt: skip
@click.option("--confidence", type=_Share(), default=0.95, show_default=True, metavar="SHARE")
@click.option("--page", type=_FILE, default=Path("profile.html"), show_default=True, help="Where the page is written.")
@click.option("--trace", type=_FILE, metavar="FILE.json", help="A timeline for ui.perfetto.dev or chrome://tracing.")
@click.option("--report", type=_FILE, metavar="FILE.json", help="Where all figures are written.")
@click.option("--self-test", is_flag=True, help="Inject delays of known length, and see whether they are found.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def profile(out: Path | None, *, self_test: bool, **given: Any) -> None:
    """Show whether training on OUT would wait for data, and how sure that is.

    A device that takes the stated time for a step is emulated. Exits with 0 if it is fed, 1 if it waits, 4 if nothing
    can be concluded; with --max-stall or --min-headroom these alone decide between 0 and 1.
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would call the network on import
    if self_test == (out is not None):
        raise click.UsageError("give OUT, or --self-test, which needs none")
    sys.exit(_self_test(given["page"], as_json=given["as_json"]) if out is None else _profile(out, **given))


def _profile(
    out: Path, *, step_ms: float, host_share: float, steps: int, max_stall: float | None, min_headroom: float | None,
    confidence: float, against: str | None, videos: Path | None, verify: bool, quick: bool, page: Path,
    trace: Path | None, report: Path | None, as_json: bool, **loading: Any,
) -> int:  # fmt: skip
    from .gate import Gate  # noqa: PLC0415
    from .profile import profile as profiled  # noqa: PLC0415
    from .steps import EmulatedDevice  # noqa: PLC0415

    if (against is None) != (videos is None):
        raise click.UsageError("--against naive and --videos SRC belong together")
    if loading["workers"] == 0 and loading["prefetch"] is not None:
        raise click.UsageError("--prefetch: there is nobody to work ahead with --workers 0")
    _check_files([("--page", page), ("--trace", trace), ("--report", report)])
    gate = Gate(max_stall=max_stall, min_headroom=min_headroom)
    loader, epoch = _loader(out, steps=steps, **loading)
    beside = {} if videos is None else {"naive": _naive(videos, out, loader)}
    with _telling() as tell:
        found = profiled(
            loader, EmulatedDevice(step_ms / 1e3, host_share), steps=steps, confidence=confidence,
            epoch_batches=epoch, against=beside, verify=verify, quick=quick,
            progress=lambda what, done, wanted: tell(f"profiling {what}", f": {done:,} of {wanted:,} steps"),
        )  # fmt: skip
    return _reported(found, gate, page=page, trace=trace, report=report, as_json=as_json)


@contextmanager
def _telling() -> Iterator[Callable[..., None]]:
    """What is being done, and how far it is: in one line of a terminal; without how far, a line each, in a pipe."""
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if console.is_terminal:
        with console.status("profiling") as status:
            yield lambda what, how_far="": status.update(what + how_far)
        return
    told = set[str]()

    def tell(what: str, _how_far: str = "") -> None:
        if what not in told:
            told.add(what)
            click.echo(what, err=True)

    yield tell


def _check_files(files: list[tuple[str, Path | None]]) -> None:
    """Before anything is measured: each file can be written, and none twice."""
    seen = set[Path]()
    for option, path in files:
        if path is None:
            continue
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise click.UsageError(f"{option} {path}: cannot be written there; name a file in a folder that is")
        if path.resolve() in seen:
            raise click.UsageError(f"{option} {path}: is named twice; give each its own file")
        seen.add(path.resolve())


def _loader(
    out: Path, *, steps: int, split: str, batch_size: int, image_size: int, workers: int | None, prefetch: int | None,
    transform: Path | None,
) -> tuple[FaceDataLoader, int]:  # fmt: skip
    """As training would make it, but with an epoch that is long enough; and how many batches training's own has."""
    from ..dataloader import FaceDataLoader  # noqa: PLC0415
    from ..dataset import FaceDataset  # noqa: PLC0415
    from ..workers import default_workers  # noqa: PLC0415
    from .variants import Rounds  # noqa: PLC0415

    dataset = FaceDataset(out, split=split, image_size=image_size, **_transforms(transform))
    ahead = (default_workers() if workers is None else workers) * (prefetch or 2)
    rounds = math.ceil(4 * (steps + 10 * ahead) * batch_size / max(len(dataset), 1))
    loader = FaceDataLoader(
        dataset, batch_size, shuffle=True, balance=Rounds(rounds), num_workers=workers, prefetch_factor=prefetch
    )
    return loader, -(-len(dataset) // batch_size)


def _naive(videos: Path, out: Path, loader: FaceDataLoader) -> Any:
    """The same faces, batches and workers, but made from the videos in every step."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    from torch.utils.data import DataLoader, RandomSampler  # noqa: PLC0415

    baseline = entry_points(group="facefeed.baselines")["onthefly"].load()
    ours: Any = loader.dataset
    dataset = baseline(videos, out, split=ours.split, image_size=ours.image_size)
    dataset[0]  # says now whether these are the videos
    workers = loader.num_workers
    endless = RandomSampler(dataset, num_samples=_LONG_EPOCH * (loader.batch_size or 1))
    return DataLoader(
        dataset, loader.batch_size, sampler=endless, num_workers=workers, prefetch_factor=1 if workers else None,
        multiprocessing_context="forkserver" if workers else None,
    )  # fmt: skip


def _transforms(file: Path | None) -> dict[str, Any]:
    """The dataset's argument for a pipeline in a file."""
    if file is None:
        return {}
    from ..augment import FaceCompose  # noqa: PLC0415
    from ..augment.pipeline_file import read_pipeline  # noqa: PLC0415

    pipeline = read_pipeline(file)
    return {"face_transform" if isinstance(pipeline, FaceCompose) else "transform": pipeline}


def _reported(
    found: Profile, gate: Gate, *, page: Path, trace: Path | None, report: Path | None, as_json: bool
) -> int:  # fmt: skip
    """Writes everything first; then the exit code."""
    from ..whole import write_whole  # noqa: PLC0415
    from .page.html import write_page  # noqa: PLC0415
    from .report import figures, text  # noqa: PLC0415
    from .trace import write_trace  # noqa: PLC0415

    code = gate.exit_code(found.verdict)
    values = {**figures(found, gate), "exit": code}
    write_page(found, gate, page)
    if trace is not None:
        write_trace(found, trace)
    if report is not None:
        write_whole(json.dumps(values, indent=1), report, "--report")
    click.echo(f"{text(found, gate)}\n  page: {page}", err=True)
    if as_json:
        click.echo(json.dumps(values))
    return code


def _self_test(page: Path, *, as_json: bool) -> int:
    from .selftest.page import write_page  # noqa: PLC0415
    from .selftest.run import figures, run, text  # noqa: PLC0415

    _check_files([("--page", page)])
    with _telling() as tell:
        found = run(progress=tell)
    code = 0 if all(check.passed for check in found) else 1
    write_page(found, page)
    click.echo(f"{text(found)}\n  page: {page}", err=True)
    if as_json:
        click.echo(json.dumps({**figures(found), "exit": code}))
    return code
