"""Generates the sample: all videos of the recipe and their metadata.json, published atomically."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from ..pipeline.errors import RefusedError, StoppedError, UsageError
from .groups import GROUPS
from .receipt import Receipt, read_existing_sample, write_receipt
from .recipe import Clip, draw_clips
from .render import base_portrait, render_clip

PART_FOLDER = "dfdc_train_part_0"
"""DFDC's name for the folder of its first part."""

ProgressCallback = Callable[[int, int], None]
"""Called with the number of videos rendered so far and their total."""


@dataclass(frozen=True, kw_only=True)
class SampleReport:
    """The sample in `path`; `already_there` if an earlier run generated it and it is unmodified.

    `videos` is the number of files, the sum of `real` and `fake`; `size_bytes` includes metadata.json; `seconds` is
    the duration of this call.
    """

    path: Path
    seed: int
    videos: int
    real: int
    fake: int
    size_bytes: int
    seconds: float
    already_there: bool


def make_sample(
    directory: Path,
    *,
    seed: int = 0,
    groups: int = len(GROUPS),
    on_progress: ProgressCallback | None = None,
) -> SampleReport:
    """Generate the sample of a seed in a new or empty directory, atomically.

    The same seed gives the same bytes with the same versions of the libraries. Takes seconds, uses all cores; the table
    alone takes less than 20 MB. Does nothing where the same sample already exists.

    Args:
        directory: Where the videos are written.
        seed: Of everything that is drawn.
        groups: Originals with their fakes, at least those of the table of edge cases; see `draw_clips`.
        on_progress: Called with the videos that are done, and all of them.

    Returns:
        What was made, or was there already.

    Raises:
        RefusedError: The directory holds anything else; nothing was written.
        UsageError: A seed below 0, or too few groups.
        StoppedError: The disk is full.

    """
    started = time.monotonic()
    if seed < 0:
        raise UsageError(f"seed={seed}: must be at least 0; nothing was written; try 0")
    if groups < len(GROUPS):
        raise UsageError(
            f"groups={groups}: must be at least {len(GROUPS)}, those of the edge cases; nothing was written; try 240"
        )
    try:
        directory = Path(directory).resolve()
        receipt = read_existing_sample(directory, seed=seed, groups=groups)
        already_there = receipt is not None
        if receipt is None:
            receipt = _publish(directory, seed, groups, on_progress or (lambda _done, _all: None))
    except OSError as error:
        raise _as_facefeed_error(error, directory) from error
    return SampleReport(
        path=directory,
        seed=seed,
        videos=receipt["videos"],
        real=receipt["real"],
        fake=receipt["fake"],
        size_bytes=sum(note["bytes"] for note in receipt["files"].values()),
        seconds=time.monotonic() - started,
        already_there=already_there,
    )


def _publish(directory: Path, seed: int, groups: int, on_progress: ProgressCallback) -> Receipt:
    """Generate everything in a sibling of the directory, then rename it, which publishes it atomically."""
    clips = draw_clips(seed, groups=groups)
    directory.parent.mkdir(parents=True, exist_ok=True)
    attempt = directory.parent / f".{directory.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        (attempt / PART_FOLDER).mkdir(parents=True)
        present = [clip for clip in clips if clip.present]
        _render_all(present, attempt / PART_FOLDER, on_progress)
        metadata = json.dumps(metadata_of(clips), indent=1, sort_keys=True)
        (attempt / PART_FOLDER / "metadata.json").write_text(metadata + "\n", encoding="utf-8")
        real = sum(clip.label == "REAL" for clip in present)
        receipt = write_receipt(attempt, seed=seed, groups=groups, real=real, fake=len(present) - real)
        try:
            attempt.rename(directory)  # replaces an empty folder, and only an empty one
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                message = f"{directory}: was filled by someone else meanwhile; nothing was written; choose another"
                raise RefusedError(message) from error
            raise
    finally:
        shutil.rmtree(attempt, ignore_errors=True)
    return receipt


def _render_all(clips: Sequence[Clip], folder: Path, on_progress: ProgressCallback) -> None:
    """Render the clips group by group in threads; the encoder and OpenCV release the GIL."""
    groups = [list(group) for _, group in itertools.groupby(clips, key=lambda clip: clip.people)]
    pool = ThreadPoolExecutor(max_workers=min(len(groups), os.cpu_count() or 1))
    try:
        tasks = {pool.submit(_render_group, group, folder): len(group) for group in groups}
        done = 0
        on_progress(done, len(clips))
        for task in as_completed(tasks):
            task.result()
            done += tasks[task]
            on_progress(done, len(clips))
    finally:
        pool.shutdown(cancel_futures=True)


def _render_group(clips: Sequence[Clip], folder: Path) -> None:
    still = base_portrait(clips[0].people)
    for clip in clips:
        render_clip(clip, still, folder)


def metadata_of(clips: Sequence[Clip]) -> dict[str, dict[str, str | None]]:
    """The content of DFDC's metadata.json for these clips, including those not present."""
    entries: dict[str, dict[str, str | None]] = {}
    # A real video has no original: readers must accept a null as well as a missing key.
    with_null = next((clip.name for clip in clips if clip.original is None and clip.present), None)
    for clip in clips:
        entries[clip.name] = {"label": clip.label, "split": "train"}
        if clip.original is not None:
            entries[clip.name]["original"] = clip.original
        elif clip.name == with_null:
            entries[clip.name]["original"] = None
    return entries


def _as_facefeed_error(error: OSError, directory: Path) -> StoppedError | UsageError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoppedError(f"{directory}: the disk is full; nothing was left behind; free space and run it again")
    return UsageError(f"{directory}: cannot be written ({error.strerror or error}); choose another folder")
