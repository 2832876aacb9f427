"""Commands that run again and again on the same files, in one process: what each promises when a call fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as pads
from assets_columns import FILE
from assets_dataset import Clip, make_dataset
from assets_in_process import Job
from assets_video import numbered, write_video
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.compaction.run import compact
from facefeed.pipeline.dataset.open_dataset import open_dataset
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.errors import CorruptDataError, FacefeedError, TooManyFailedError, UsageError
from facefeed.pipeline.export.request import ExportRequest, FormName
from facefeed.pipeline.export.run import export
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.planning.failure_limit import FailureLimit
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

_OPTIONS: Final = Options(sampling=Sampling(every=5), keep=FaceFilter(min_face_px=16), size_px=64)
_COLOUR: Final = f"{FILE}:Colour"
_UNITS: Final = (
    ("train", (Clip("real/anna.mp4", 3), Clip("fake/anna-swap.mp4", 2))),
    ("val", (Clip("real/dora.mp4", 2),)),
)


_TABLE: Final = """path,label,source,split
train/real/a.mp4,real,,train
train/fake/c.mp4,fake,train/real/a.mp4,train
train/real/e.mp4,real,,train
val/real/b.mp4,real,,val
"""


class Command:
    """A command, and the files that it begins with.

    `folders`: real paths; calls on what is below them fail. `inputs`: those of them that the command only reads.
    """

    folders: Sequence[Path]
    inputs: Sequence[Path] = ()

    def lay(self) -> None:
        """Makes all files those that the command begins with; by default it changes none."""

    def run(self) -> None:
        """Runs it."""
        raise NotImplementedError

    def resume(self, error: FacefeedError | None) -> None:
        """Runs the same command after one that ended with `error`, or died."""
        self.run()

    def written(self) -> dict[str, bytes]:
        """All files that it may write, by name."""
        raise NotImplementedError

    def outcome(self) -> Any:
        """What a finished command leaves, to be compared."""
        return self.written()

    def findings(self) -> list[str]:
        """What `verify`, or the command's own check, says of what a finished one leaves."""
        raise NotImplementedError

    def problem_of_remains(self) -> str:
        """What a command that was stopped has damaged or lost; empty: nothing."""
        return ""

    def close(self) -> None:
        """Ends what it has started."""


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder by name, without unfinished ones and leases."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    named = {path.relative_to(folder).as_posix(): path for path in files if "_tmp" not in path.parts}
    return {name: path.read_bytes() for name, path in named.items() if not name.endswith(".lease")}


def set_aside(out: Path) -> list[str]:
    """Files that were taken for damaged."""
    return [path.name for path in out.rglob("*.quarantined")]


def _film(path: Path, first: int) -> None:
    """Ten frames, two of which are taken."""
    write_video(path, [numbered(first + number, 160, 120) for number in range(10)])


def _change(source: Path) -> None:
    """One more video, one replaced, one of a new time, and one that is gone: of its unit, some rows are copied."""
    _film(source / "val/real/d.mp4", 100)
    _film(source / "train/real/a.mp4", 116)
    os.utime(source / "train/fake/c.mp4", (1, 1))
    (source / "train/real/e.mp4").unlink()


class Precompute(Command):
    """`precompute` of a table of an original, its fake and another video, or of what has changed in a folder since."""

    def __init__(self, folder: Path, *, is_update: bool) -> None:
        source, out = folder / "src", folder / "disk/out"
        for number, name in enumerate(("train/real/a", "train/fake/c", "train/real/e", "val/real/b")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            _film(source / f"{name}.mp4", 16 * number)
        table = source / "videos.csv"
        out.parent.mkdir()
        self._job = Job(source if is_update else table, out, _OPTIONS)
        self.folders, self.inputs = (out.parent, source), (source,)
        self._before = folder / "before"
        self._rows_before: Any = None
        if is_update:
            self._job.run()
            self._rows_before = self._job.rows()
            shutil.copytree(out, self._before)
            _change(source)
        else:
            table.write_text(_TABLE)
        self._rows_after: Any = None

    def lay(self) -> None:
        shutil.rmtree(self._job.out, ignore_errors=True)
        if self._before.exists():
            shutil.copytree(self._before, self._job.out)
        self._job.finished_here = 0

    def run(self) -> None:
        if self._job.run(max_failed=FailureLimit(count=0)).unreadable:  # what it advises
            self._job.run(max_failed=FailureLimit(count=0))

    def resume(self, error: FacefeedError | None) -> None:
        retried = {"retry_failed": ""} if isinstance(error, TooManyFailedError) else {}
        self._job.run(max_failed=FailureLimit(count=0), **retried)

    def written(self) -> dict[str, bytes]:
        return files_of(self._job.out)

    def outcome(self) -> Any:
        rows = self._job.rows()
        self._rows_after = rows if self._rows_after is None else self._rows_after
        return rows

    def findings(self) -> list[str]:
        verdict = verify(self._job.out)
        return [*map(str, verdict.findings), *([verdict.unfinished.state] if verdict.unfinished else [])]

    def problem_of_remains(self) -> str:
        out = self._job.out
        if names := set_aside(out):
            return f"{names} set aside"
        try:
            verdict = verify(out)
        except UsageError as error:
            return f"the dataset is gone: {error}" if self._before.exists() else ""
        # Superseded files go last, and `verify` finds them until then.
        if damage := [str(finding) for finding in verdict.findings if finding.kind != "unknown-file"]:
            return f"verify: {'; '.join(damage)}"
        if self._job.finished_units() < self._job.finished_here:
            return "a finished unit is lost"
        if verdict.unfinished is None and not verdict.findings:
            expected = [rows for rows in (self._rows_before, self._rows_after) if rows is not None]
            if not any(self._job.rows().equals(rows) for rows in expected):
                return "verify has no finding in other rows"
            return problem_of_reader(out)
        return ""

    def close(self) -> None:
        self._job.stack.close()


class LastPart(Precompute):
    """`precompute --part 2/2` of the same table, once the first part has ended: it publishes the dataset.

    Where it has planned again what was away for a moment, that is of the other share, and a run of the whole job, as
    the report says, does that; so it does with what has failed.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, is_update=False)
        self._run_part("1/2")
        shutil.copytree(self._job.out, self._before)

    def run(self) -> None:
        self._run_part("2/2")
        if not os.access(self._job.out / "manifest.json", os.F_OK):  # which no fault meets
            super().run()

    def resume(self, error: FacefeedError | None) -> None:
        if isinstance(error, TooManyFailedError):
            super().resume(error)
        self.run()

    def _run_part(self, part: str) -> None:
        self._job.run(max_failed=FailureLimit(count=0), part=part)


def problem_of_reader(out: Path) -> str:
    """Why a reader could not use a finished dataset."""
    try:
        _, index = open_dataset(out)
        images = StoredImages(index)
        for row in range(index.num_rows):
            images.image(row)
    except FacefeedError as error:
        return f"a reader fails: {error}"
    return ""


class _OnDataset(Command):
    """A command on a finished dataset."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.folders = (out.parent,)

    def written(self) -> dict[str, bytes]:
        return files_of(self._out)

    def findings(self) -> list[str]:
        return [str(finding) for finding in verify(self._out).findings]


class Columns(_OnDataset):
    """`facefeed add` of columns, or `remove` of those that are there."""

    def __init__(self, folder: Path, *, removes: bool) -> None:
        super().__init__(folder / "disk/out")
        self._before, self._removes = folder / "before", removes
        self._out.parent.mkdir()
        make_dataset(self._before, _UNITS)
        if removes:
            add_columns(self._before, _COLOUR, workers=1)

    def lay(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)
        shutil.copytree(self._before, self._out)

    def run(self) -> None:
        if self._removes:
            remove_columns(self._out, "colour")
        else:
            add_columns(self._out, _COLOUR, workers=1)

    def resume(self, error: FacefeedError | None) -> None:
        gone = self._removes and not (self._out / "columns/colour").exists()
        with suppress(*([UsageError] if gone else [])):  # what was removed already cannot be removed again
            self.run()

    def problem_of_remains(self) -> str:
        if names := set_aside(self._out):
            return f"{names} set aside"
        now, before = files_of(self._out), files_of(self._before)
        changed = [name for name, data in before.items() if now.get(name) != data and _is_of_dataset(name)]
        if changed:
            return f"{changed} changed"
        findings = [finding for finding in verify(self._out).findings if finding.kind != "columns"]
        return f"verify: {'; '.join(map(str, findings))}" if findings else problem_of_reader(self._out)


def _is_of_dataset(name: str) -> bool:
    return name.partition("/")[0] in {"faces", "receipts", "plan", "manifest.json"}


class Compact(_OnDataset):
    """`facefeed compact` of a dataset with added columns."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "disk/out")
        self._before = folder / "before"
        self._out.parent.mkdir()
        make_dataset(self._before, (*_UNITS, ("train", (Clip("real/emil.mp4", 2),))))
        add_columns(self._before, _COLOUR, workers=1)
        self._rows = rows_of(self._before)

    def lay(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)
        shutil.copytree(self._before, self._out)

    def run(self) -> None:
        if compact(self._out, workers=1).incomplete_columns:  # a file of theirs was away for a moment: what it advises
            add_columns(self._out, _COLOUR, workers=1)

    def outcome(self) -> Any:
        """Not the receipts: they say how an interrupted unit was finished."""
        return sorted(path.name for path in self._out.rglob("*.parquet")), rows_of(self._out)

    def problem_of_remains(self) -> str:
        if names := set_aside(self._out):
            return f"{names} set aside"
        verdict = verify(self._out)
        # Merged files go last, and `verify` finds them until then.
        if damage := [str(each) for each in verdict.findings if each.kind not in {"unknown-file", "columns"}]:
            return f"verify: {'; '.join(damage)}"
        if verdict.unfinished is None and not verdict.findings and rows_of(self._out) != self._rows:
            return "verify has no finding in other rows"
        return problem_of_reader(self._out)


def rows_of(out: Path) -> list[dict[str, Any]]:
    """All rows of a dataset with their added columns, in the order of their names."""
    files = [[*out.glob(pattern)] for pattern in ("faces/*/*.parquet", "columns/colour/*.parquet")]
    rows, columns = (pads.dataset(sorted(paths), partitioning=None).to_table().sort_by("face_id") for paths in files)
    assert rows.column("face_id") == columns.column("face_id")
    joined: list[dict[str, Any]] = [
        {**row, **added} for row, added in zip(rows.to_pylist(), columns.to_pylist(), strict=True)
    ]
    return joined


class Export(Command):
    """`facefeed export` in one form."""

    def __init__(self, folder: Path, form: FormName) -> None:
        self._out, self._dest = folder / "out", folder / "dest"
        make_dataset(self._out, _UNITS)
        self._request = ExportRequest(form=form)
        self.folders, self.inputs = (self._dest, self._out), (self._out,)

    def lay(self) -> None:
        shutil.rmtree(self._dest, ignore_errors=True)

    def run(self) -> None:
        result = export(self._out, self._dest, self._request)
        if result.exit_code:
            raise CorruptDataError(f"{result.check.findings}, damaged: {result.receipt.damaged}")  # as for `Verify`

    def written(self) -> dict[str, bytes]:
        return files_of(self._dest)

    def findings(self) -> list[str]:
        return export(self._out, self._dest, self._request).check.findings


class Verify(_OnDataset):
    """`facefeed verify` of a dataset with added columns, which is sound: what cannot be read is not what is damaged."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "disk/out")
        self._out.parent.mkdir()
        make_dataset(self._out, _UNITS)
        add_columns(self._out, _COLOUR, workers=1)

    def run(self) -> None:
        if findings := self.findings():
            raise CorruptDataError(f"{self._out}: {findings}")  # its exit code is that of the command


def _training(folder: Path) -> Any:
    from assets_failing_training import Training  # noqa: PLC0415 (torch and Lightning, for this one alone)

    return Training(folder)


COMMANDS: Final[dict[str, Callable[[Path], Any]]] = {
    "precompute": lambda folder: Precompute(folder, is_update=False),
    "update": lambda folder: Precompute(folder, is_update=True),
    "last-part": LastPart,
    "add": lambda folder: Columns(folder, removes=False),
    "remove": lambda folder: Columns(folder, removes=True),
    "compact": Compact,
    "verify": Verify,
    "export-folders": lambda folder: Export(folder, "folders"),
    "export-webdataset": lambda folder: Export(folder, "webdataset"),
    "export-hf": lambda folder: Export(folder, "hf"),
    "train": _training,
}
"""By name; each is given an empty folder, a real path."""
