"""What OUT holds already: its plan and its config, which a further run must continue."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..dataset.out import OutPaths
from ..dataset.schema import READABLE_VERSIONS, SCHEMA_VERSION, real_class
from ..errors import RefusedError, UsageError
from ..manipulation import own_masks
from ..sources import Entry, Listing
from ..sources.media.suffixes import is_image
from .options import CLIP_SETTINGS, Options, config_differences
from .plan import Plan


class RecordedDataset:
    """What a listing and a config must continue of the plan that OUT holds, `plan` where it was read already.

    `config`: of its rows, whose hash units and receipts bear; None in a new OUT. `clip_settings`: what holds for its
    clips of images; None as long as no run had any. They stand in the part of the plan that had the first one: OUT may
    have begun with videos alone. `has_given_splits`: whether the split of any input was given when it was planned.
    `entries`: the planned inputs that decide how others are listed: clips and images, and real inputs that are compared
    with an original.

    Raises `UsageError` or `RefusedError` where OUT is something else.
    """

    def __init__(self, paths: OutPaths, plan: Plan | None = None) -> None:
        self._paths = paths
        plan = _load_plan(paths) if plan is None else plan  # not kept: a million inputs of it take half a gigabyte
        self.config: dict[str, Any] | None = plan.parts[0].config if plan.parts else None
        self.clip_settings = _clip_settings_of(plan)
        self.has_given_splits = any(entry.split for unit in plan.all_units() for entry in unit.inputs)
        real = real_class(self.config["labels"]) if self.config else None
        self.entries = [
            entry
            for entry in _inputs(plan)
            if entry.num_images
            or is_image(entry.video_id)
            or (entry.label == real and entry.compared and entry.source_id is not None)
        ]

    @property
    def later_clip_settings(self) -> dict[str, Any] | None:
        """The clip settings that the config lacks; None where it has them all."""
        return {
            key: value for key, value in (self.clip_settings or {}).items() if key not in (self.config or {})
        } or None

    def video_ids(self) -> set[str]:
        """Ids of all planned inputs; reads the plan."""
        return {entry.video_id for entry in _inputs(Plan.load(self._paths))}

    def in_stored_order(self, columns: Sequence[str]) -> Sequence[str]:
        """The names of own columns in the order that they have in OUT, if it has the same ones."""
        stored = (self.config or {}).get("columns", {})
        return list(stored) if stored.keys() == {*columns} else columns

    def schema_version(self, listing: Listing) -> int:
        """Version of the schema for new rows: the recorded one, unless the listing needs columns that it lacks."""
        recorded = (self.config or {}).get("schema")
        needs_newest = any(entry.fake_segments is not None for entry in listing.entries)
        return recorded if recorded in READABLE_VERSIONS and not needs_newest else SCHEMA_VERSION

    def uses_own_masks(self, listing: Listing, options: Options) -> bool:
        """Whether masks come from the set itself. Those that are gone since are replaced by comparisons."""
        return options.masks == "own" and (
            any(entry.mask_id for entry in listing.entries) or _has_own_masks(self.config or {})
        )

    def refuse_other(self, config: dict[str, Any]) -> None:
        """Raises `RefusedError` where OUT was made with another config; its first clips may have any settings."""
        if self.config is None:
            return
        of_videos = {key: value for key, value in self.config.items() if key not in CLIP_SETTINGS}
        of_clips = {key: config[key] for key in CLIP_SETTINGS if key in config}
        recorded = of_videos | (of_clips if self.clip_settings is None else self.clip_settings)
        if not (lines := list(config_differences(recorded, config))):
            return
        remedy = ""
        if recorded.get("schema") in READABLE_VERSIONS and recorded["schema"] < config["schema"]:
            remedy = "; it was made before there was a column fake_segments, which these inputs need"
        if _has_own_masks(config) and not _has_own_masks(recorded):
            remedy = "; --masks source goes on without the masks that SRC has of its own"
        elif _has_own_masks(recorded) and not _has_own_masks(config):
            remedy = "; without --masks source, masks that SRC has of its own are used as before"
        raise RefusedError(
            f"OUT={str(self._paths.root)!r}: was made with other settings ({'; '.join(lines)}); rows of two settings "
            f"are never mixed: name a new OUT, or use the settings it was made with{remedy}"
        )


def _inputs(plan: Plan) -> Iterator[Entry]:
    return (entry for unit in plan.units() for entry in unit.inputs)


def _clip_settings_of(plan: Plan) -> dict[str, Any] | None:
    for part in plan.parts:
        settings = {key: part.config[key] for key in CLIP_SETTINGS if key in part.config}
        if settings or any(entry.num_images for unit in part.units for entry in unit.inputs):
            return settings
    return None


def _load_plan(paths: OutPaths) -> Plan:
    above = next((folder for folder in paths.root.parents if os.path.lexists(folder)), None)
    if above is not None and not above.is_dir():
        what = "a file" if above.is_file() else "no folder"
        raise UsageError(f"OUT={str(paths.root)!r}: {str(above)!r} is {what}; name a folder that can be made")
    try:
        present = paths.files.names(paths.root)
    except NotADirectoryError as error:
        raise UsageError(f"OUT={str(paths.root)!r}: is a file; name a folder") from error
    except OSError as error:
        raise UsageError(f"OUT={str(paths.root)!r}: {error.strerror}; name another folder") from error
    if (paths.plan / "0.json").exists():
        return Plan.load(paths)
    if {paths.manifest.name, paths.faces.name} <= present:
        raise RefusedError(
            f"OUT={str(paths.root)!r}: has a manifest.json, but no plan/0.json, so nothing says what its files are "
            "made of; restore the folder plan from a backup, or name a new OUT"
        )
    folders = (paths.faces, paths.receipts, paths.plan, paths.temporary, paths.leases, paths.index_parts)
    ours = {path.name for path in (*folders, paths.lease)}
    left = {name for name in present if name.startswith(dry_run_prefix(paths.root))}  # by one that was killed
    if present - ours - left - {"lost+found"}:
        raise RefusedError(f"OUT={str(paths.root)!r}: holds files that are no facefeed dataset; name a new folder")
    return Plan()


def dry_run_prefix(out: Path) -> str:
    """Beginning of the names of temporary folders of a dry run, beside OUT or in it."""
    return f".{out.name}-dry-run-"


def _has_own_masks(config: dict[str, Any]) -> bool:
    return str(config.get("mask", "")).startswith(own_masks.METHOD)
