"""Validates the arguments of `precompute` and of its dry run, before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

from ..console import first_names, plural
from ..dataset.out import OutPaths
from ..errors import REASONS, UsageError
from ..faces import FaceDetector
from ..faces.detectors.by_name import WHOLE_FRAME, make_detector, whole_frame_filter
from ..faces.landmarks import Landmarker
from ..faces.landmarks.by_name import make_landmarker
from ..files import refuse_address
from ..sources import (
    Layout,
    Listing,
    list_source,
    refuse_unlabelled,
    resolve_allowed_roots,
    with_columns,
    with_splits_from,
)
from ..sources.clips.image_sequences import separable_frames_warning
from ..sources.layout import LAYOUT_MEMBERS
from ..sources.media.suffixes import is_image
from ..stored_source.source import OpenSource
from ..video import DecoderLimits, Sampling
from .image_clips import late_start_warnings, with_clips
from .job_share import JobShare
from .listed_masks import with_masks, without_comparisons_of_real
from .options import JobSpec, Masks, Options, hash_config
from .recorded import RecordedDataset


def prepare_job(
    src: str | Path | OpenSource,
    out: str | Path | OutPaths,
    *,
    options: Options | None = None,
    layout: str | Layout = "auto",
    detector: str | FaceDetector = "mtcnn",
    landmarker: str | Landmarker = "template5",
    limits: DecoderLimits | None = None,
    allow_roots: Sequence[str | Path] = (),
    splits: str | Path | None = None,
    columns: Sequence[str] = (),
    allow_leaks: bool = False,
    allow_unlabelled: bool = False,
) -> tuple[JobSpec, Listing, dict[str, Any]]:
    """Validates the arguments and lists the source; returns `(job, listing, config)`.

    Args:
        src: folder or table of videos and images, or an open one, which may be in a store.
        out: folder of the dataset, or the paths of an open one, which may be in a store.
        options: what the rows are to be; None for the defaults.
        layout: name of a layout, "auto", or a `Layout`.
        detector: name of a detector, "yunet:FILE.onnx", or a `FaceDetector`.
        landmarker: name of a landmarker, or a `Landmarker`.
        limits: limits of the decoder; None for the defaults.
        allow_roots: further folders that links and absolute paths may lead into.
        splits: a file of splits, in place of the source's own; see `sources.splits_file`.
        columns: names of the source's own columns to store in each row.
        allow_leaks: whether that file may have a clip in train and in another split.
        allow_unlabelled: whether more than half of the inputs of a new dataset may have no label.

    Raises:
        UsageError: where SRC cannot be listed, the detector or the landmarker is unavailable, or frames per second are
            wanted of images whose times are unknown.
        RefusedError: where OUT holds something else, a dataset of another config, or frames of a clip as inputs of
            their own; where most inputs have no label, unless `allow_unlabelled`.

    """
    source = src if isinstance(src, OpenSource) else OpenSource(path=Path(src), address=str(src))
    refuse_address(source.path, "write it with two slashes, and from Python as a text, not as a Path")
    paths = out if isinstance(out, OutPaths) else OutPaths(Path(out))
    if not paths.files.is_remote:
        paths = replace(paths, root=Path(os.path.realpath(paths.root)))  # does not raise on a loop of links
    if source.files is not None and allow_roots:
        raise UsageError("--allow-root: a store has no links, and its tables no paths of this machine: leave it out")
    path = _resolved(source.path)
    allowed = resolve_allowed_roots(allow_roots)
    _refuse_wrong_types(options, limits, columns, splits)
    _refuse_other_objects(layout, detector, landmarker)
    options = options or Options()
    recorded = RecordedDataset(paths)
    if detector == WHOLE_FRAME and not (recorded.config or {}).get("min_face_px"):  # earlier versions recorded it
        options = replace(options, keep=whole_frame_filter(options.keep))
    detector = make_detector(detector, options.keep) if isinstance(detector, str) else detector
    landmarker = make_landmarker(landmarker) if isinstance(landmarker, str) else landmarker
    refuse_missing_scores(options, landmarker)
    listing = _list_inputs(
        path, layout, allowed, recorded, splits=splits, columns=columns, masks=options.masks, allow_leaks=allow_leaks
    )
    listing = _with_addresses(listing, source)
    if not listing.clips and recorded.clip_settings is None:
        listing, options = _without_clips(listing, options)
    _refuse_unknown_times(listing, options.sampling)
    late_starts = late_start_warnings(listing, options.sampling, (listing.root, *allowed))
    listing = replace(listing, warnings=(*listing.warnings, *late_starts))
    config = options.to_config(
        detector, listing.labels, listing.columns, landmarker=landmarker, schema=recorded.schema_version(listing),
        has_own_masks=recorded.uses_own_masks(listing, options),
    )  # fmt: skip
    recorded.refuse_other(config)
    if not allow_unlabelled and recorded.config is None:
        refuse_unlabelled(listing)
    job = JobSpec(
        root=listing.root, allowed_roots=allowed, out=paths.root, out_files=paths.files.unlisted(),
        options=options, detector=detector, landmarker=landmarker,
        labels=listing.labels, columns=listing.columns, schema=config["schema"],
        config_hash=hash_config(config if recorded.config is None else recorded.config),
        limits=limits or DecoderLimits(), stored_files=source.files_below(listing.root),
    )  # fmt: skip
    return job, listing, config


def _list_inputs(
    src: Path, layout: str | Layout, allowed: tuple[Path, ...], recorded: RecordedDataset, *,
    splits: str | Path | None, columns: Sequence[str], masks: Masks, allow_leaks: bool,
) -> Listing:  # fmt: skip
    """The source's inputs with the splits, columns and masks that were asked for; its images as clips, as in OUT."""
    listing = list_source(src, layout, allowed=allowed, adds_to_given_splits=recorded.has_given_splits)
    if splits is not None:
        listing = with_splits_from(listing, Path(splits), allow_leaks=allow_leaks)
    separable = separable_frames_warning(listing.entries, listing.labels)  # of those that are given no split by now
    listing = replace(listing, warnings=(*listing.warnings, *separable))
    listing = with_columns(listing, recorded.in_stored_order(columns))
    listing = with_clips(listing, recorded.entries, (listing.root, *allowed))
    listing = replace(listing, labels=listing.stored_labels or listing.labels)
    if splits is None and recorded.has_given_splits:
        listing = _with_warning_of_draws(listing, recorded)
    listing = without_comparisons_of_real(with_masks(listing, allowed), recorded.entries)
    if masks == "source":
        listing = replace(listing, entries=[entry.without_mask() for entry in listing.entries])
    return listing


def _with_addresses(listing: Listing, source: OpenSource) -> Listing:
    """Names what lies outside SRC by its address in the store: the folder that stands for it is another in each run."""
    if source.files is None:
        return listing
    entries = [
        replace(entry, source_id=source.with_address(entry.source_id))
        if entry.source_id and entry.source_id.startswith(f"{source.outlines}/")
        else entry
        for entry in listing.entries
    ]
    return replace(
        listing,
        entries=entries,
        warnings=tuple(map(source.with_address, listing.warnings)),
        recognised_by=source.with_address(listing.recognised_by),
    )


def refuse_missing_scores(options: Options, landmarker: Landmarker) -> None:
    """Raises `UsageError` where faces are to be rejected by a score that the landmarker does not give."""
    if options.min_landmark_score and not landmarker.is_dense:
        raise UsageError(
            f"min_landmark_score={options.min_landmark_score:g}: {landmarker.fingerprint} gives no scores, so no face "
            "would be rejected; use it with --landmarks mesh"
        )


def _refuse_wrong_types(options: Any, limits: Any, columns: Any, splits: Any) -> None:
    if not isinstance(options, (Options, NoneType)):
        raise UsageError(f"options={options!r}: must be Options; try Options(margin=0.3)")
    if not isinstance(limits, (DecoderLimits, NoneType)):
        raise UsageError(f"limits={limits!r}: must be DecoderLimits; try DecoderLimits(deadline_seconds=60)")
    if isinstance(columns, str):
        raise UsageError(f"columns={columns!r}: must be a list of names; try [{columns!r}]")
    if not isinstance(splits, (str, os.PathLike, NoneType)):
        raise UsageError(f"splits={splits!r}: must be the path of a file, such as 'splits.json', or None")


def _refuse_other_objects(layout: Any, detector: Any, landmarker: Any) -> None:
    for name, value, members in (
        ("layout", layout, LAYOUT_MEMBERS),
        ("detector", detector, ("fingerprint", "frames_at_once", "detect")),
        ("landmarker", landmarker, ("fingerprint", "is_dense", "locate")),
    ):
        if isinstance(value, type):
            raise UsageError(f"{name}={value.__name__}: is a class; give an object of it, {name}={value.__name__}()")
        if isinstance(value, str):
            continue
        if missing := [member for member in members if not hasattr(value, member)]:
            raise UsageError(
                f"{name}={value!r}: must be a name, or an object with {', '.join(members)}; has no {', '.join(missing)}"
            )


def _resolved(src: Path) -> Path:
    """Resolves links; of a table only its folder, since paths in a table are relative to where the link lies."""
    return Path(os.path.realpath(src.parent)) / src.name if src.is_file() else Path(os.path.realpath(src))


def _with_warning_of_draws(listing: Listing, recorded: RecordedDataset) -> Listing:
    """Warns of new inputs where the source gives no splits, as those of OUT were: by a file, or a column since gone."""
    if any(entry.split for entry in listing.entries):
        return listing
    planned = recorded.video_ids()
    added = [entry.video_id for entry in listing.entries if not entry.problem and entry.video_id not in planned]
    if not added:
        return listing
    warning = (
        f"splits of OUT were given, but none is for {plural(len(added), 'new input')} ({first_names(added, 3)}): they "
        "are drawn; to give them, name the file with --splits FILE as before, or name splits in the source"
    )
    return replace(listing, warnings=(*listing.warnings, warning))


def _without_clips(listing: Listing, options: Options) -> tuple[Listing, Options]:
    """The options without what only clips of images need, so that rows do not seem to depend on it; warns of that."""
    rate = options.sampling.fps_of_images
    if rate is not None:
        warning = f"fps_of_images={rate:g}: no input is a folder of frames, so it changes nothing"
        listing = replace(listing, warnings=(*listing.warnings, warning))
    return listing, replace(options, sampling=options.sampling.of_videos())


def _refuse_unknown_times(listing: Listing, sampling: Sampling) -> None:
    """Raises `UsageError` where times are needed of images that have none: to sample or to label them."""
    for entry in listing.entries:
        if entry.fake_segments is not None and not entry.num_images and is_image(entry.video_id):
            raise UsageError(
                f"{entry.video_id}: has fake_segments in seconds, but is a single image, whose time in its video is "
                "unknown; give each image a label instead"
            )
    if not listing.clips or sampling.fps_of_images is not None:
        return
    if segmented := next((clip for clip in listing.clips if clip.fake_segments is not None), None):
        raise UsageError(
            f"{segmented.video_id}: has fake_segments in seconds, but is a clip of images, whose times are unknown, so "
            "no image would get its label; give the rate at which they were extracted with --fps-of-images"
        )
    if sampling.fps is not None:
        raise UsageError(
            f"fps={sampling.fps:g}: SRC has {plural(len(listing.clips), 'clip')} of images, whose times are unknown; "
            "give the rate at which they were extracted with --fps-of-images, or take --every N or --frames K"
        )


def retry_predicate(reason: str | None) -> Callable[[str], bool] | None:
    """Predicate on failure reasons for `--retry-failed`: one `reason`, "" for all; None for none.

    Raises `UsageError` where there is no such reason.
    """
    if reason not in (None, "", *REASONS):
        raise UsageError(f"--retry-failed {reason}: no such reason; use one of {', '.join(REASONS)}")
    return None if reason is None else lambda failure_reason: reason in {"", failure_reason}


def job_share_of(part: str | None, retry_failed: str | None) -> JobShare | None:
    """Parses the part of the job to process, None for all of it; raises `UsageError` where it cannot be one."""
    if part is not None and retry_failed is not None:
        raise UsageError("retry_failed: each part would plan the failures of the others again; leave part (--part) out")
    return None if part is None else JobShare.parse(part)
