"""`evaluate`: how well a checkpoint does on datasets, those that it was trained on and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..loaders import FaceDataLoader, FaceDataset
from ..pipeline.errors import UsageError
from .checkpoints import plain as checkpoints
from .checkpoints.training_videos import num_trained_on, videos_of
from .config.options import DataOptions
from .datamodule import VIDEOS
from .metrics.scores import Scores
from .model.face_classifier import FaceClassifier
from .model.stored_classifier import stored_classifier

SPLITS = ("test", "val", "train", "all")
_FIELDS = ("image", "label", "row", "video_id", "method")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a checkpoint is worth on one dataset.

    name: of its folder, told apart from others. faces, videos: with known labels. figures: as `Scores.result` names
    them. notes: what to know when reading them. reason: why it could not be measured, None where it was.
    """

    dataset: str
    name: str
    split: str
    faces: int
    videos: int
    figures: dict[str, float]
    notes: list[str] = field(default_factory=list)
    reason: str | None = None


def evaluate(
    checkpoint: str | Path, outs: Sequence[str | Path], *, split: str = "test", num_workers: int | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[Evaluation]:  # fmt: skip
    """Measures a checkpoint of a `FaceClassifier` on a split of each dataset ("all": every split), on the GPU if any.

    Images come as they did in training: its size, its frames of a video. Classes are matched by name, so datasets may
    number them differently, or have fewer; progress: called with a dataset's name, images done and in all.
    A dataset that has a class which it does not know, or no face in that split, is an evaluation with the reason, and
    the others are measured. How many of its videos the checkpoint was trained on is noted, or that nobody knows.
    Raises `UsageError` where the checkpoint would run code or is none, and where no dataset can be measured; before
    anything is measured.
    """
    if split not in SPLITS:
        raise UsageError(f"split={split!r}: must be one of {', '.join(SPLITS)}")
    if (Path(checkpoint) / "checkpoints").is_dir():
        raise UsageError(f"{checkpoint}: is a run's folder; give {Path(checkpoint) / 'checkpoints' / 'best.ckpt'}")
    if Path(checkpoint).is_dir():
        raise UsageError(
            f"{checkpoint}: is a folder of parts, as ZeRO saves them; make one file of it by "
            "convert_zero_checkpoint_to_fp32_state_dict of lightning.pytorch.utilities.deepspeed"
        )
    held = checkpoints.read(checkpoint)
    model = stored_classifier(checkpoint, held)
    data = _data_options(checkpoint, held)
    data = replace(data, num_workers=num_workers if num_workers is not None else data.num_workers)
    state = _state(held)
    names = _names([Path(out) for out in outs])
    asked = [_asked(Path(out), split, data, model) for out in outs]
    refusals = [one for one in asked if isinstance(one, UsageError)]
    if len(refusals) == len(asked):
        raise refusals[0] if len(refusals) == 1 else UsageError("\n".join(map(str, refusals)))
    found = []
    for name, out, one in zip(names, outs, asked, strict=True):
        if isinstance(one, UsageError):
            found.append(Evaluation(
                dataset=str(out), name=name, split=split, faces=0, videos=0, figures={}, reason=str(one)
            ))  # fmt: skip
            continue
        dataset, places = one
        notes = [f"{name}: {note}" for note in _on_training(dataset, state)]
        found.append(_evaluated(model, dataset, data, places, name=name, split=split, notes=notes, progress=progress))
    return found


def _state(held: dict[str, Any]) -> dict[str, Any]:
    """The state of a `FaceDataModule`; empty where there is none.

    Lightning names it after the module's class, which may be a subclass: so it is known by what it holds.
    """
    states = (one for one in held.values() if isinstance(one, dict))
    return next((one for one in states if one.keys() >= {"fingerprint", "global_batch"}), {})


def _on_training(dataset: FaceDataset, state: dict[str, Any]) -> list[str]:
    """What a run's state says of how many of a dataset's videos it was trained on; nothing where it is none."""
    videos, trained = videos_of(dataset), state.get(VIDEOS)
    if trained is None and state.get("fingerprint") == dataset.index.fingerprint:
        trained = videos_of(FaceDataset(dataset.out, split="train"))
    if trained is None:
        return [
            "it cannot be known whether the checkpoint was trained on some of these videos: it has no record of its "
            "own, as those of older versions; a run that goes on with this version keeps one"
        ]
    if not (count := num_trained_on(videos, trained)):
        return []
    return [
        f"warning: {count:,} of {len(videos):,} videos were in the training split of this run, so these figures do not "
        "say how good it is on others; measure it on videos that it has not seen"
    ]


def _asked(
    out: Path, split: str, data: DataOptions, model: FaceClassifier
) -> tuple[FaceDataset, torch.Tensor] | UsageError:  # fmt: skip
    """A dataset with `_places` of it, or why it cannot be measured."""
    try:
        dataset = _dataset(out, split, data)
        return dataset, _places(model, dataset)
    except UsageError as error:
        return error


def _data_options(checkpoint: str | Path, held: dict[str, Any]) -> DataOptions:
    """What a checkpoint says of the data that it was trained on; the defaults where it says nothing.

    Raises `UsageError` on options that this version does not have.
    """
    parameters = held.get("datamodule_hyper_parameters")
    known = parameters.get("data") if isinstance(parameters, dict) else None
    if not isinstance(known, dict):
        return DataOptions()
    if strange := sorted(map(str, known.keys() - {one.name for one in fields(DataOptions)})):
        raise UsageError(
            f"{checkpoint}: its data options have {', '.join(strange)}, which this version of facefeed does not know, "
            "so images might come otherwise than in training; evaluate it with the version that trained it"
        )
    return DataOptions(**known)


def _dataset(out: Path, split: str, data: DataOptions) -> FaceDataset:
    dataset = FaceDataset(
        out, split=None if split == "all" else split, image_size=data.image_size,
        frames_per_video=data.frames_per_video,
    )  # fmt: skip
    if not len(dataset):
        raise UsageError(f"{out}: its split {split} has no faces; take another --split, or all")
    return dataset


def _places(model: FaceClassifier, dataset: FaceDataset) -> torch.Tensor:
    """For each label of the dataset, and for -1 at the end, the number that the model has for a class of its name."""
    known = model.options.classes
    present = {int(number) for number in np.unique(dataset.index.numbers("label", dataset.rows)) if number >= 0}
    if strange := [dataset.labels[number] for number in sorted(present) if dataset.labels[number] not in known]:
        raise UsageError(
            f"{dataset.out}: has faces of the class {', '.join(strange)}, and the checkpoint knows {', '.join(known)} "
            "alone; leave it out, or train on a dataset with these classes"
        )
    return torch.tensor([known.index(name) if name in known else -1 for name in dataset.labels] + [-1])


def _names(outs: list[Path]) -> list[str]:
    """Each folder's own name, or, where two have the same, as it was given."""
    short = [out.resolve().name for out in outs]
    return [name if short.count(name) == 1 else str(out) for name, out in zip(short, outs, strict=True)]


def _evaluated(
    model: FaceClassifier, dataset: FaceDataset, data: DataOptions, places: torch.Tensor, *, name: str, split: str,
    notes: list[str], progress: Callable[[str, int, int], None],
) -> Evaluation:  # fmt: skip
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = FaceDataLoader(
        dataset, data.batch_size, shuffle=False, fields=_FIELDS, num_workers=data.num_workers,
        device=device if device.type == "cuda" else None,
    )  # fmt: skip
    scores, done = Scores(model.options.classes), 0
    model = model.to(device)
    with torch.inference_mode():
        for batch in loader:
            labels = places[batch["label"].cpu()]
            scores.add(model(batch["image"]), labels, batch["video_id"], batch["method"], rows=batch["row"])
            done += len(labels)
            progress(name, done, len(dataset))
    unknown = done - len(scores.faces)
    if unknown:
        notes = [f"{name}: {unknown:,} faces without a label take no part", *notes]
    return Evaluation(
        dataset=str(dataset.out), name=name, split=split, faces=len(scores.faces), videos=len(scores.videos),
        figures=scores.result(), notes=notes,
    )  # fmt: skip
