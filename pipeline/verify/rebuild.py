"""`rebuild_index_file`: the index of a dataset, written again from its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..commit.finalize import install_index, write_dataset_index
from ..commit.index_parts import remove_index_parts
from ..commit.lease import hold_lease
from ..commit.publish import refuse_read_only
from ..dataset.manifest import Manifest
from ..dataset.out import OutPaths
from ..dataset.stores.writing import open_out
from ..errors import StoppedError, UsageError
from ..files import raise_unless_damage
from ..planning.options import hash_config
from ..planning.plan import Plan
from ..planning.run_state import RunState
from .unfinished import UnfinishedRun


def rebuild_index_file(
    out: str | Path,
    *,
    on_wait: Callable[[str], object] = lambda _: None,
    storage_options: Mapping[str, Any] | None = None,
) -> bool:
    """Rebuilds ``OUT/index.arrow`` from the files, if they are those of the manifest; returns whether it did.

    Otherwise the index stays as it is, and `verify` reports the cause: an index of fewer rows must not pass for that
    of the whole dataset. `on_wait`: called with a sentence before a wait for a run that may have been killed.
    `storage_options`: see `verify`.
    Raises `UsageError` where OUT holds no dataset, or an unfinished one, or is read-only, and `RefusedError` where
    another run is at work on it.
    """
    with open_out(out, storage_options) as paths:
        return _rebuild_index(paths, on_wait)


def _rebuild_index(paths: OutPaths, on_wait: Callable[[str], object]) -> bool:
    try:
        _read_finished(paths)
        refuse_read_only(paths)
        with hold_lease(paths, on_wait, work="facefeed verify --rebuild-index"):
            paths.files.refresh()
            manifest = _read_finished(paths)  # a run may have ended before the lease was free
            run_state = RunState(paths, Plan.load(paths), hash_config(manifest.config))
            if run_state.fingerprint() != manifest.fingerprint:
                return False
            if paths.files.is_remote:
                remove_index_parts(paths)
            write_dataset_index(run_state, manifest)
            install_index(paths)
    except (UsageError, StoppedError):
        raise
    except Exception as error:  # whatever a parser raises on damaged bytes
        raise_unless_damage(paths.root, error)
        return False
    return True


def _read_finished(paths: OutPaths) -> Manifest:
    """The manifest of OUT; raises `UsageError` where it holds no dataset, or an unfinished one."""
    if unfinished := UnfinishedRun.find(paths):
        state = f"{paths.place}: {unfinished.state}"
        raise UsageError("\n".join([state, "the index is made at its end", *unfinished.remarks]))
    return Manifest.read(paths.root)
