"""How the crops of the training dataset were stored, as a checkpoint records it: what its network saw of a face."""

from __future__ import annotations

from typing import Any

from ...pipeline.dataset.manifest import Manifest

_OPTIONS = {"margin": "--margin", "align": "--align", "size_px": "--size"}
"""Options of `precompute` by their names in a manifest."""


def framing_of(manifest: Manifest) -> dict[str, Any]:
    """The settings that decide how much of a crop a face is, how it is turned, and how many pixels it has."""
    return {name: manifest.config.get(name) for name in _OPTIONS}


def framing_notes(trained: Any, manifest: Manifest, *, image_size: int) -> list[str]:
    """Returns notes where the crops of a dataset show faces otherwise than those of training did.

    Args:
        trained: `framing_of` the training dataset, as recorded; None where a checkpoint has no such record.
        manifest: of the dataset that is measured.
        image_size: of the network's images in px, to which whole crops are resized.

    """
    if not isinstance(trained, dict):
        return [
            "it is not known how the crops of training were stored (--margin, --align and --size of precompute): the "
            "checkpoint has no record of it, as those of older versions; a run that resumes with this version keeps one"
        ]
    here = framing_of(manifest)
    differences = [
        f"{option} {here[name]}, in training {trained[name]}"
        for name, option in _OPTIONS.items()
        if None not in (here[name], trained.get(name))
        and _as_seen(name, here[name], image_size) != _as_seen(name, trained[name], image_size)
    ]
    if not differences:
        return []
    return [
        f"warning: crops were stored with {'; '.join(differences)}, so faces look otherwise than there; precompute the "
        "dataset with the settings of training, or train with crop= on wider crops of both"
    ]


def _as_seen(name: str, value: Any, image_size: int) -> Any:
    """A setting as far as the network sees it: crops of more pixels than its images have are reduced."""
    return min(value, image_size) if name == "size_px" else value
