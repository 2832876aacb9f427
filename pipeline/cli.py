"""The command `facefeed`, and this room's subcommands.

Each package registers its subcommands as entry points in the group `facefeed.commands`; only the one that is called
is loaded, and each command imports what it needs when it runs, so that `--help` is fast.

Exit codes: 0 ok; 1 findings; 2 usage or refusal, nothing written; 3 more inputs failed than allowed, or no face was
found; 4 inconclusive; 75 stopped but resumable; 130 interrupted, resumable.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .command_group import CommandGroup
from .dataset.stores.argument import DatasetArgument
from .errors import UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])

if TYPE_CHECKING:
    from .planning.failure_limit import FailureLimit
    from .planning.options import Options
    from .video import Sampling


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="facefeed")
def main() -> None:
    """Turn face videos into training data once, so that no training run ever waits for it again."""


@main.result_callback()
def _finish(result: object, **_: object) -> None:
    if isinstance(result, int):
        sys.exit(result)


def _layout(ctx: click.Context, param: click.Parameter, given: str) -> Any:  # noqa: ARG001 (click's signature)
    if not given.endswith(".py"):
        return given
    from .sources import load_layout  # noqa: PLC0415

    return load_layout(Path(given))


def _workers(ctx: click.Context, param: click.Parameter, given: str | None) -> int | tuple[int, int] | None:  # noqa: ARG001
    if given is None:
        return None
    match = re.fullmatch(r"(-?\d+)(?:\.\.(\d+))?", given)
    if match is None:
        raise UsageError(f"--workers {given}: must be a number or, with --cluster, a range; try 8, or 4..64")
    return int(match[1]) if match[2] is None else (int(match[1]), int(match[2]))


def _cluster(ctx: click.Context, param: click.Parameter, given: str | None) -> Any:  # noqa: ARG001 (click's signature)
    if given is None or not given.endswith(".py"):
        return given
    from .execution.cluster import load_cluster  # noqa: PLC0415

    return load_cluster(Path(given))


def _where_to_work(default_workers: str) -> Callable[[_Command], _Command]:
    """The options that say on which processes a command works, and the number of these without them."""
    options = (
        click.option(
            "--workers",
            metavar="N|N..M",
            callback=_workers,
            help=f"Processes on this machine or, also as 4..64, of the cluster.  [default: {default_workers}]",
        ),
        click.option("--scheduler", metavar="ADDRESS", help="Join a running Dask cluster instead."),
        click.option(
            "--cluster",
            metavar="slurm|pbs|sge|FILE.py",
            callback=_cluster,
            help="Start workers as jobs of a batch system, or on what `cluster()` in a file returns.",
        ),
    )

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class _Precompute(click.Command):
    """Converts and checks the options together as it parses them: before `facefeed slurm precompute` queues a job."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses as click does, and adds `options`, `limits` and `failure_limit`. Raises `UsageError`."""
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            ctx.params.update(_converted(ctx.params))
        return rest


@click.command(cls=_Precompute)
@click.argument("src", type=DatasetArgument())
@click.argument("out", type=DatasetArgument())
@click.option(
    "--layout",
    default="auto",
    show_default=True,
    metavar="NAME|FILE.py",
    callback=_layout,
    help="How SRC is laid out: table, folder, the name of a published set, or a file that defines `layout`.",
)
@click.option(
    "--allow-root",
    "allow_roots",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Links in SRC and absolute paths in a table may lead into DIR too; may be given again.",
)
@click.option("--every", type=int, metavar="N", help="Take every N-th frame.  [default: 10; of clips of images, all]")
@click.option("--fps", type=float, metavar="F", help="Take F frames per second.")
@click.option("--frames", type=int, metavar="K", help="Take K frames per video, evenly spread.")
@click.option("--keyframes", is_flag=True, help="Take key frames only; nothing else is decoded.")
@click.option(
    "--fps-of-images",
    type=float,
    metavar="F",
    help="Rate at which the images of a clip were extracted.  [default: unknown, they count as 1 s apart]",
)
@click.option("--faces", type=int, metavar="K", help="Keep the K most confident faces of a frame.  [default: all]")
@click.option("--min-face", type=int, default=40, show_default=True, metavar="PX", help="Least shorter side of a face.")
@click.option("--min-score", type=float, default=0.9, show_default=True, help="Least confidence 0..1; 0.7 suits yunet.")
@click.option(
    "--margin",
    type=float,
    help="Added on each side, as a share of the box.  [default: 0.3; 0 with --detector whole-frame]",
)
@click.option("--size", type=int, default=256, show_default=True, metavar="PX", help="Largest side of a crop.")
@click.option("--align", is_flag=True, help="Turn each square until its face is upright.")
@click.option("--smooth", is_flag=True, help="Cut along smoothed tracks: no jitter where frames lie < .25 s apart.")
@click.option("--format", "image_format", type=click.Choice(["jpeg", "png", "webp"]), default="jpeg", show_default=True)
@click.option("--quality", type=int, default=95, show_default=True, help="JPEG or WebP quality.")
@click.option("--chroma", type=click.Choice(["420", "444"]), default="420", show_default=True, help="JPEG's chroma.")
@click.option(
    "--boxes",
    type=click.Choice(["own", "source"]),
    default="own",
    show_default=True,
    help="source: take a fake's faces from its original's same frame.",
)
@click.option(
    "--masks",
    type=click.Choice(["own", "source"]),
    default="own",
    show_default=True,
    help="own: a fake's mask from SRC, where SRC has one, else by comparison with its original; source: by comparison.",
)
@click.option(
    "--detector",
    default="mtcnn",
    show_default=True,
    metavar="mtcnn|track|yunet:FILE.onnx|whole-frame",
    help="Finds faces; track: as mtcnn, but follows them, which is faster; whole-frame: media that is cropped already.",
)
@click.option(
    "--landmarks",
    "landmarker",
    type=click.Choice(["template5", "mesh"]),
    default="template5",
    show_default=True,
    help="mesh: 468 points of a face, its pose, a score, by Google's face mesh (facefeed models fetch face-mesh).",
)
@click.option(
    "--min-landmark-score",
    type=float,
    default=0.0,
    metavar="SCORE",
    help="With --landmarks mesh: drop faces on which the mesh fits worse, 0..1; 0.5 drops most false ones.",
)
@click.option("--split-ratio", default="80,10,10", show_default=True, help="Train, val, test in percent.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the drawn splits.")
@click.option(
    "--splits",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="DeepfakeBench's dataset JSON, or a JSON of paths by split, in place of the source's own splits.",
)
@click.option(
    "--columns",
    default="",
    metavar="NAME[,NAME]",
    callback=lambda _ctx, _param, given: tuple(name.strip() for name in given.split(",") if name.strip()),
    help="Columns of a table to store in each row: further labels, scores, names.",
)
@click.option("--allow-leaks", is_flag=True, help="Accept given splits that share originals or people.")
@click.option("--allow-unlabelled", is_flag=True, help="Accept that most inputs have no label.")
@_where_to_work("one per core and 2 GB; with GPUs one for two cores, at most 4 a GPU")
@click.option("--part", metavar="I/N", help="Do the I-th of N shares alone, for arrays of jobs; the last finishes OUT.")
@click.option(
    "--retry-failed",
    is_flag=False,
    flag_value="",
    metavar="[REASON]",
    help="Redo what failed (for REASON); give it after OUT.",
)
@click.option("--max-failed", default="1%", show_default=True, metavar="N|P%", help="How many inputs may fail.")
@click.option(
    "--max-damaged",
    default="10%",
    show_default=True,
    metavar="P%",
    help="Wanted frames of a video that may be damaged, rounded up, but never all; 0%: none.",
)
@click.option(
    "--timeout",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up an input whose decoder makes no progress for so long; slow storage (S3, tape) needs more.",
)
@click.option("--dry-run", is_flag=True, help="Say what there is, how long it will take and how large it will be.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def precompute(src: str | Path, out: str | Path, **given: Any) -> int:
    """Turn the videos and images of SRC into the dataset OUT. Each may lie in a store: s3://bucket/videos.

    Run the same command again after anything went wrong, or after videos came or changed: it resumes where it stopped.
    """
    from . import report  # noqa: PLC0415 (everything below is heavy)
    from .execution.progress import Progress  # noqa: PLC0415
    from .interrupts import handle_interrupts  # noqa: PLC0415
    from .precompute import precompute  # noqa: PLC0415

    progress, failure_limit = Progress.on_stderr(), given["failure_limit"]
    names = (
        "options", "limits", "retry_failed", "layout", "allow_roots", "detector", "landmarker", "workers", "scheduler",
        "splits", "columns", "allow_leaks", "allow_unlabelled",
    )  # fmt: skip
    arguments: dict[str, Any] = {"progress": progress, **{name: given[name] for name in names}}
    if given["dry_run"]:
        if given["part"]:
            raise click.UsageError("--dry-run forecasts the whole job: leave --part out")
        if given["cluster"]:
            raise click.UsageError("--dry-run tries inputs on this machine: leave --cluster out")
        return _dry_run(src, out, arguments, failure_limit, as_json=given["as_json"])
    with handle_interrupts(progress.on_stopping):
        summary = precompute(
            src, out, part=given["part"], cluster=given["cluster"], max_failed=failure_limit, **arguments
        )
    report.print_summary(summary, src, out)
    if given["as_json"]:
        click.echo(json.dumps(report.summary_json(summary)))
    return 0


def _dry_run(
    src: str | Path, out: str | Path, arguments: dict[str, Any], failure_limit: FailureLimit, *, as_json: bool
) -> int:
    from .dryrun.report import dry_run_json, print_dry_run  # noqa: PLC0415
    from .dryrun.run import dry_run  # noqa: PLC0415
    from .dryrun.verdict import exit_code  # noqa: PLC0415

    result = dry_run(src, out, **arguments)
    allowed = failure_limit.max_failures(result.inputs_in_out)  # as the run counts
    print_dry_run(result, src, allowed)
    if as_json:
        click.echo(json.dumps(dry_run_json(result, allowed)))
    return exit_code(result, allowed)


def _converted(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the objects that options stand for. Raises `UsageError` on options that fail with any SRC and machine."""
    from .faces.detectors.by_name import make_detector  # noqa: PLC0415
    from .faces.landmarks.template import TemplateLandmarker  # noqa: PLC0415
    from .planning.failure_limit import FailureLimit  # noqa: PLC0415
    from .planning.validation import job_share_of, refuse_missing_scores, retry_predicate  # noqa: PLC0415
    from .video import DecoderLimits  # noqa: PLC0415

    failure_limit = FailureLimit.parse(given["max_failed"])
    limits = DecoderLimits(deadline_seconds=given["timeout"], max_damaged_percent=_percent(given["max_damaged"]))
    options = _options(given)
    if not given["detector"].startswith("yunet:"):  # which needs its file
        make_detector(given["detector"], options.keep)
    if given["landmarker"] == TemplateLandmarker.fingerprint:  # the other one needs its weights
        refuse_missing_scores(options, TemplateLandmarker())
    retry_predicate(given["retry_failed"])
    job_share_of(given["part"], given["retry_failed"])
    return {"options": options, "limits": limits, "failure_limit": failure_limit}


def _margin(given: float | None, detector: str) -> float:
    """The default adds nothing round a frame that is a face's crop: it would be black."""
    from .faces.detectors.by_name import WHOLE_FRAME  # noqa: PLC0415
    from .planning.options import Options  # noqa: PLC0415

    if given is not None:
        return given
    return 0.0 if detector == WHOLE_FRAME else Options.margin


def _options(given: dict[str, Any]) -> Options:
    from .dataset.image_codec import ImageEncoder  # noqa: PLC0415
    from .faces import FaceFilter  # noqa: PLC0415
    from .planning.options import Options  # noqa: PLC0415
    from .splits.assignment import SplitRatio  # noqa: PLC0415

    return Options(
        sampling=_sampling(given),
        keep=FaceFilter(max_faces=given["faces"], min_face_px=given["min_face"], min_score=given["min_score"]),
        min_landmark_score=given["min_landmark_score"],
        margin=_margin(given["margin"], given["detector"]),
        size_px=given["size"],
        align=given["align"],
        smooth=given["smooth"],
        boxes=given["boxes"],
        masks=given["masks"],
        image=ImageEncoder(format=given["image_format"], quality=given["quality"], chroma=given["chroma"]),
        split_ratio=SplitRatio.parse(given["split_ratio"]),
        seed=given["seed"],
    )


def _sampling(given: dict[str, Any]) -> Sampling:
    """What is taken of clips of images is what was chosen; without a choice, all: they have been sampled already."""
    from .video import Sampling  # noqa: PLC0415

    chosen = {name: given[name] for name in ("every", "fps", "frames") if given[name] is not None}
    if given["keyframes"]:
        chosen["keyframes"] = True
    sampling = Sampling(**chosen) if chosen else Sampling.default()
    return replace(sampling, fps_of_images=given["fps_of_images"])


def _percent(given: str) -> float:
    try:
        if given.endswith("%") and 0 <= (percent := float(given[:-1])) <= 100:
            return percent
    except ValueError:
        pass
    raise UsageError(f"--max-damaged {given}: must be a percentage from 0% to 100%; try 10%")


@click.command()
@click.argument("out", type=DatasetArgument())
@click.option("--rebuild-index", is_flag=True, help="First rebuild the index from the files.")
@_where_to_work("one per core and 2 GB of memory, and per 2 GB of files")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def verify(out: str | Path, *, rebuild_index: bool, as_json: bool, **where: Any) -> int:
    """Check that OUT is whole: schema, footers, page checksums, hashes, rows, index, duplicates, accounting.

    It may lie in a store: s3://bucket/faces.

    Exit 1 if anything is wrong, or the job has not come to its end; each finding names the file.
    """
    from . import report  # noqa: PLC0415
    from .interrupts import handle_interrupts  # noqa: PLC0415
    from .row_progress import RowProgress  # noqa: PLC0415
    from .verify.check import verify  # noqa: PLC0415
    from .verify.rebuild import rebuild_index_file  # noqa: PLC0415

    if {*where.values()} == {None}:
        where["workers"] = "auto"
    progress = RowProgress()
    if rebuild_index:
        rebuild_index_file(out, on_wait=progress.on_wait)
    with handle_interrupts(lambda: None), report.FileProgress() as files:

        def on_wait(reason: str) -> None:
            files.erase()
            progress.on_wait(reason)

        verdict = verify(out, on_file=files.on_file, on_wait=on_wait, **where)
    report.print_verdict(verdict, out)
    if as_json:
        click.echo(json.dumps(verdict.figures()))
    return verdict.exit_code


if __name__ == "__main__":  # of job scripts that an earlier `facefeed slurm` wrote; the command is `__main__`'s
    main()
