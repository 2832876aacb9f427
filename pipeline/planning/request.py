"""What was asked of `precompute` and of its dry run: checked, listed and named before anything is written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..dataset.manifest import OutPaths
from ..errors import RefusedError, UsageError
from ..faces import FaceDetector
from ..faces.detectors.cascade.pyramid import WINDOW_PX
from ..faces.detectors.keyframe_detector import TrackingDetector
from ..faces.detectors.yunet import MIN_FACE_PX, YuNetDetector
from ..sources import Layout, Listing, allowed_folders, list_source
from ..video import DecoderLimits
from .incremental import differing
from .options import JobSpec, Options, hash_config
from .plan import Plan


def prepare(
    src: str | Path,
    out: str | Path,
    *,
    options: Options | None = None,
    layout: str | Layout = "auto",
    detector: str | FaceDetector = "mtcnn",
    limits: DecoderLimits | None = None,
    allow_roots: Sequence[str | Path] = (),
) -> tuple[JobSpec, Listing, dict[str, Any]]:
    """The job, what its source holds, and its config; arguments as `precompute` takes them.

    Raises `UsageError` where SRC cannot be listed or the detector not be had, `RefusedError` where OUT holds something
    else.
    """
    src, out = _resolved(Path(src)), Path(os.path.realpath(out))  # realpath: a loop of links is no exception
    allowed = allowed_folders(allow_roots)
    options = options or Options()
    detector = _chosen(detector, options) if isinstance(detector, str) else detector
    listing = list_source(src, layout, allowed=allowed)
    config = options.config(detector, listing.labels)
    job = JobSpec(
        root=listing.root, allowed_roots=allowed, out=out, options=options, detector=detector, labels=listing.labels,
        config_hash=hash_config(config), limits=limits or DecoderLimits(),
    )  # fmt: skip
    _check_target(job.paths, config)
    return job, listing, config


def _resolved(src: Path) -> Path:
    """Of a table that is a link only the folder: what it lists lies beside the link, which alone has its name."""
    return Path(os.path.realpath(src.parent)) / src.name if src.is_file() else Path(os.path.realpath(src))


def _chosen(detector: str, options: Options) -> FaceDetector:
    name, _, file = detector.partition(":")
    if detector == "mtcnn":
        return options.detector()
    if detector == "track":
        return TrackingDetector(min_face_px=max(options.keep.min_face_px, WINDOW_PX))
    if name == "yunet" and file:
        keep = options.keep
        least_px = max(keep.min_face_px, MIN_FACE_PX)
        return YuNetDetector(Path(file).expanduser(), min_face_px=least_px, min_score=keep.min_score)
    raise UsageError(
        f"detector={detector!r}: must be mtcnn, track, yunet:FILE.onnx, the model file of OpenCV's YuNet, or your own "
        "(from Python, an object)"
    )


def _check_target(paths: OutPaths, config: dict[str, Any]) -> None:
    """Refuses a folder that holds something else, or a dataset made under another config."""
    above = next((folder for folder in paths.root.parents if os.path.lexists(folder)), None)
    if above is not None and not above.is_dir():
        what = "a file" if above.is_file() else "no folder"
        raise UsageError(f"OUT={str(paths.root)!r}: {str(above)!r} is {what}; name a folder that can be made")
    try:
        held = {path.name for path in paths.root.iterdir()} if paths.root.exists() else set()
    except NotADirectoryError as error:
        raise UsageError(f"OUT={str(paths.root)!r}: is a file; name a folder") from error
    except OSError as error:
        raise UsageError(f"OUT={str(paths.root)!r}: {error.strerror}; name another folder") from error
    if not (paths.plan / "0.json").exists():
        folders = (paths.faces, paths.receipts, paths.plan, paths.temporary)
        ours = {path.name for path in (*folders, paths.lease)}
        if held - ours - {"lost+found"}:
            raise RefusedError(f"OUT={str(paths.root)!r}: holds files that are no facefeed dataset; name a new folder")
        return
    parts = Plan.load(paths).parts
    if parts and (lines := list(differing(parts[0].config, config))):
        raise RefusedError(
            f"OUT={str(paths.root)!r}: was made with other settings ({'; '.join(lines)}); rows of two settings are "
            "never mixed: name a new OUT, or use the settings it was made with"
        )


def check_cluster(workers: int | None, scheduler: str | None) -> None:
    """Refuses what cannot be meant, before anything is written."""
    if workers is not None and scheduler is not None:
        raise UsageError("--workers and --scheduler: a running cluster has its own workers; use one of the two")
    if scheduler is not None and not re.search(r"[^:/]:\d+$", scheduler):
        raise UsageError(f"--scheduler {scheduler}: must be an address with a port; try tcp://127.0.0.1:8786")
    if workers is not None and workers < 1:
        raise UsageError(f"workers={workers}: must be at least 1; leave it out for one per GPU, else core")


def retries(reason: str | None) -> Callable[[str], bool] | None:
    """Which failures are to be done again, as `retry_failed` says it: a reason, "" for all, None for none."""
    return None if reason is None else lambda found: reason in {"", found}
