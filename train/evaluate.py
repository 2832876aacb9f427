"""`evaluate`: metrics of a checkpoint on one or more datasets, including others than it was trained on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..loaders import FaceDataset
from ..pipeline.console import plural
from ..pipeline.dataset.manifest import Manifest
from ..pipeline.dataset.stores.address import as_out, is_address, name_of, without_credentials
from ..pipeline.errors import CorruptDataError, FacefeedError, StoppedError, UsageError
from ..pipeline.files import with_home
from .checkpoints.plain import read_checkpoint
from .checkpoints.training_framing import framing_notes
from .checkpoints.training_videos import count_trained_on, hash_videos, is_hashes
from .config.options import DataOptions
from .datamodule import (
    FRAMING_KEY,
    PIPELINES_KEY,
    VIDEOS_KEY,
    EvaluationLoader,
    eval_transform_arguments,
    pipeline_sha256,
)
from .metrics.eval_metrics import EvalMetrics
from .model.face_classifier import FaceClassifier
from .model.stored_classifier import load_classifier
from .torch_internals import raising_memory_errors

SPLITS = ("test", "val", "train", "all")
_REASONS = (UsageError, CorruptDataError, StoppedError)
"""Errors of one dataset, for which the others are evaluated all the same."""
_FIELDS = ("image", "label", "row", "video_id", "method")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of a checkpoint on one dataset.

    name: the dataset's folder name, unique among those evaluated. faces, videos: numbers with known labels. metrics:
    as `EvalMetrics.result` returns them. notes: caveats. reason: why the dataset could not be evaluated, else None.
    """

    dataset: str
    name: str
    split: str
    faces: int
    videos: int
    metrics: dict[str, float]
    notes: list[str] = field(default_factory=list)
    reason: str | None = None


@raising_memory_errors()
def evaluate(
    checkpoint: str | Path, outs: Sequence[str | Path], *, split: str = "test", num_workers: int | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[Evaluation]:  # fmt: skip
    """Evaluates a checkpoint of a `FaceClassifier` on a split of each dataset, on the GPU if there is one.

    Image size, frames per video and the transform of validation, with its random draws, are those of training. Classes
    are matched by name, so datasets may number them differently, or have fewer. A dataset with a class unknown to the
    checkpoint, without faces in the split, damaged, or out of reach, yields an `Evaluation` with a `reason`; the others
    are evaluated. A note tells how many videos of a dataset the checkpoint was trained on, or that this is unknown.
    Others warn where the file of that transform has other contents than in training, and where the crops of a dataset
    were stored otherwise than those of training.

    Args:
        checkpoint: A file that `facefeed train` or a Trainer saved.
        outs: Folders of datasets, or addresses in object stores.
        split: "test", "val" or "train"; "all" for every split.
        num_workers: Loader processes; None for the value of training.
        progress: Called with a dataset's name, images done and total images.

    Raises:
        UsageError: The file would run code or is not a checkpoint, or no dataset can be evaluated. Raised before
            anything is evaluated, unless that shows in the images.
        CorruptDataError: The only dataset is damaged.
        StoppedError: The only dataset is out of reach.

    """
    if split not in SPLITS:
        raise UsageError(f"split={split!r}: must be one of {', '.join(SPLITS)}")
    _check_is_no_run(checkpoint)
    contents = read_checkpoint(checkpoint)
    model = load_classifier(checkpoint, contents)
    known_data = _data_options(checkpoint, contents)
    data = known_data or DataOptions()
    unknown_images = [] if known_data else [
        "the checkpoint has no record of how its images came in training, as a FaceDataModule keeps it: measured on "
        f"whole crops resized to {data.image_size} px, on all frames"
    ]  # fmt: skip
    data = replace(data, num_workers=num_workers if num_workers is not None else data.num_workers)
    state = _datamodule_state(contents)
    if not is_hashes(state.get(VIDEOS_KEY)):
        raise UsageError(f"{checkpoint}: is damaged, its record of training videos is none; give another checkpoint")
    names = _display_names(outs)
    prepared = [_prepare(as_out(out), split, data, model) for out in outs]
    errors = [error for error in prepared if isinstance(error, FacefeedError)]
    _refuse_all(errors, len(outs))
    notes_of_images = [*unknown_images, *_pipeline_notes(data, state)]
    evaluations = []
    for name, out, dataset_or_error in zip(names, outs, prepared, strict=True):
        try:
            if isinstance(dataset_or_error, FacefeedError):
                raise dataset_or_error
            dataset, new_labels = dataset_or_error
            own_notes = _framing_notes(dataset, data, state), _training_overlap_notes(dataset, state)
            notes = [f"{name}: {note}" for note in chain(notes_of_images, *own_notes)]
            evaluation = _evaluate_dataset(
                model, dataset, data, new_labels, out=out, name=name, split=split, notes=notes, progress=progress
            )
        except _REASONS as error:
            errors += [] if error in errors else [error]
            evaluation = Evaluation(
                dataset=without_credentials(out), name=name, split=split, faces=0, videos=0, metrics={},
                reason=str(error),
            )  # fmt: skip
        evaluations.append(evaluation)
    _refuse_all(errors, len(outs))
    return evaluations


def _refuse_all(errors: Sequence[FacefeedError], num_datasets: int) -> None:
    """Raises the errors of the datasets where none can be evaluated."""
    if len(errors) == num_datasets:
        raise errors[0] if len(errors) == 1 else UsageError("\n".join(map(str, errors)))


def _check_is_no_run(checkpoint: str | Path) -> None:
    """Raises `UsageError` on the folder of a run, with what to give instead."""
    if (Path(checkpoint) / "checkpoints").is_dir():
        raise UsageError(f"{checkpoint}: is a run's folder; give {Path(checkpoint) / 'checkpoints' / 'best.ckpt'}")


def _datamodule_state(contents: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of the `FaceDataModule` in a checkpoint; empty if there is none.

    Lightning's key is the class name, which may be of a subclass, so it is recognised by its contents.
    """
    states = (value for value in contents.values() if isinstance(value, dict))
    return next((state for state in states if state.keys() >= {"fingerprint", "global_batch"}), {})


def _pipeline_notes(data: DataOptions, state: dict[str, Any]) -> list[str]:
    """Returns a note if the pipeline's file has other contents than in training; empty where these are unknown."""
    stored = state.get(PIPELINES_KEY)
    trained = stored.get("eval_transform") if isinstance(stored, dict) else None
    if data.eval_transform is None or trained in (None, pipeline_sha256(data.eval_transform)):
        return []
    return [
        f"warning: data.eval_transform={data.eval_transform} has other contents than in training, so images come "
        "otherwise than there; restore the file, or run the command in the folder of training if the path is relative"
    ]


def _framing_notes(dataset: FaceDataset, data: DataOptions, state: dict[str, Any]) -> list[str]:
    """Returns `framing_notes`, but where a crop is cut in the same way from whatever is stored."""
    if data.crop is not None or not state or state.get("fingerprint") == dataset.index.fingerprint:
        return []
    return framing_notes(state.get(FRAMING_KEY), Manifest.read(dataset.out), image_size=data.image_size)


def _training_overlap_notes(dataset: FaceDataset, state: dict[str, Any]) -> list[str]:
    """Returns a note on how many of a dataset's videos the run was trained on; empty if none."""
    videos, trained = hash_videos(dataset), state.get(VIDEOS_KEY)
    if trained is None and state.get("fingerprint") == dataset.index.fingerprint:
        trained = hash_videos(FaceDataset(dataset.out, split="train"))
    if trained is None:
        return [
            "it cannot be known whether the checkpoint was trained on some of these videos: it has no record of its "
            "own, as those of older versions; a run that resumes with this version keeps one"
        ]
    if not (count := count_trained_on(videos, trained)):
        return []
    were = "was" if count == 1 else "were"
    return [
        f"warning: {count:,} of {plural(len(videos), 'video')} {were} in the training split of this run, so these "
        "metrics do not say how good it is on others; measure it on videos that it has not seen"
    ]


def _prepare(
    out: str | Path, split: str, data: DataOptions, model: FaceClassifier
) -> tuple[FaceDataset, torch.Tensor] | FacefeedError:  # fmt: skip
    """Returns a dataset with its `_label_mapping`, or why it cannot be evaluated."""
    try:
        dataset = _dataset(out, split, data)
        return dataset, _label_mapping(model, dataset, out)
    except _REASONS as error:
        return error


def _data_options(checkpoint: str | Path, contents: dict[str, Any]) -> DataOptions | None:
    """Returns the `DataOptions` in a checkpoint; None if it has none.

    Raises `UsageError` on options that this version does not have.
    """
    parameters = contents.get("datamodule_hyper_parameters")
    known = parameters.get("data") if isinstance(parameters, dict) else None
    if not isinstance(known, dict):
        return None
    if unknown := sorted(map(str, known.keys() - {field.name for field in fields(DataOptions)})):
        raise UsageError(
            f"{checkpoint}: its data options have {', '.join(unknown)}, which this version of facefeed does not know, "
            "so images might come otherwise than in training; evaluate it with the version that trained it"
        )
    return DataOptions(**known)


def _dataset(out: str | Path, split: str, data: DataOptions) -> FaceDataset:
    cache, cache_bytes = data.cache, data.cache_bytes
    if not is_address(out):  # a folder, which has no cache; training's dataset was in a store
        cache = cache_bytes = None
    elif cache is not None and not os.access(with_home(cache), os.W_OK):
        cache = None  # it is of another machine, or user, and would be refused
    dataset = FaceDataset(
        out, split=None if split == "all" else split, image_size=data.image_size, crop=data.crop,
        frames_per_video=data.frames_per_video, cache=cache, cache_bytes=cache_bytes,
        **eval_transform_arguments(data.eval_transform),
    )  # fmt: skip
    if not len(dataset):
        raise UsageError(f"{without_credentials(out)}: its split {split} has no faces; take another --split, or all")
    return dataset


def _label_mapping(model: FaceClassifier, dataset: FaceDataset, out: str | Path) -> torch.Tensor:
    """Maps each label of the dataset, and -1 (the last entry), to the model's label of the same class name.

    Raises `UsageError`, which names the dataset as `out`, on a class that the model does not know.
    """
    known = model.options.classes
    present = {int(label) for label in np.unique(dataset.index.numbers("label", dataset.rows)) if label >= 0}
    if unknown := [dataset.labels[label] for label in sorted(present) if dataset.labels[label] not in known]:
        raise UsageError(
            f"{without_credentials(out)}: has faces of the class {', '.join(unknown)}, and the checkpoint knows "
            f"{', '.join(known)} alone; leave it out, or train on a dataset with these classes"
        )
    return torch.tensor([known.index(name) if name in known else -1 for name in dataset.labels] + [-1])


def _display_names(outs: Sequence[str | Path]) -> list[str]:
    """Returns the name of each dataset; where two are the same, the path as given. Refuses one that is given twice."""
    given = [without_credentials(out) for out in outs]
    if repeated := next((path for path in given if given.count(path) > 1), None):
        raise UsageError(f"{repeated}: is given twice; name each dataset once")
    short = [name_of(out) for out in outs]
    return [name if short.count(name) == 1 else path for name, path in zip(short, given, strict=True)]


def _evaluate_dataset(
    model: FaceClassifier, dataset: FaceDataset, data: DataOptions, new_labels: torch.Tensor, *, out: str | Path,
    name: str, split: str, notes: list[str], progress: Callable[[str, int, int], None],
) -> Evaluation:  # fmt: skip
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = EvaluationLoader(
        dataset, data.batch_size, shuffle=False, seed=data.seed, fields=_FIELDS, num_workers=data.num_workers,
        device=device if device.type == "cuda" else None,
    )  # fmt: skip
    metrics, done = EvalMetrics(model.options.classes), 0
    model = model.to(device)
    with torch.inference_mode():
        for batch in loader:
            labels = new_labels[batch["label"].cpu()]
            metrics.add(_logits(model, batch["image"]), labels, batch["video_id"], batch["method"], rows=batch["row"])
            done += len(labels)
            progress(name, done, len(dataset))
    counts = metrics.nan_note(), _unlabelled_note(dataset, new_labels), _damage_note(loader.stats().corrupt)
    notes = [*(f"{name}: {note}" for note in counts if note is not None), *notes]
    return Evaluation(
        dataset=without_credentials(out) if is_address(out) else str(dataset.out), name=name, split=split,
        faces=len(metrics.faces), videos=metrics.num_videos,
        metrics=metrics.result(), notes=notes,
    )  # fmt: skip


def _logits(model: FaceClassifier, images: torch.Tensor) -> torch.Tensor:
    """Those of a batch, in parts where the GPU has less memory than the one of training."""
    try:
        logits: torch.Tensor = model(images)
    except torch.OutOfMemoryError as error:
        if len(images) == 1:
            raise UsageError("the GPU has too little free memory for a single image; end what else uses it") from error
    else:
        return logits
    middle = len(images) // 2
    return torch.cat([_logits(model, part) for part in (images[:middle], images[middle:])])


def _unlabelled_note(dataset: FaceDataset, new_labels: torch.Tensor) -> str | None:
    labels = new_labels[torch.from_numpy(dataset.index.numbers("label", dataset.rows).astype(np.int64))]
    if not (count := int((labels < 0).sum())):
        return None
    return f"{plural(count, 'face')} without a label {'takes' if count == 1 else 'take'} no part"


def _damage_note(count: int) -> str | None:
    """Returns a note on damaged images, in place of which the loader delivered others, which count once."""
    if not count:
        return None
    return f"{plural(count, 'damaged image')} {'takes' if count == 1 else 'take'} no part; run `facefeed verify`"
