"""A run's folder: what it is a run of, its checkpoints, its logs, and what it came to.

RUN/config.json   RUN/checkpoints/{last,best}.ckpt   RUN/logs/   RUN/result.json (once it is finished)
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...pipeline.console import stderr_console
from ...pipeline.dataset.manifest import Manifest
from ...pipeline.errors import CorruptDataError, RefusedError, UsageError
from ...pipeline.files import write_atomically
from ...pipeline.lock import hold_lock
from ..config.recipes import Config
from ..config.settings import differences, flat, flattened
from .checkpointer import LAST, find

_VERSION = 1
_FREE = ("recipe", "data.num_workers", "save_every_minutes", "save_every_steps")
"""What may change while a run is under way, since nothing that it learns depends on it; the last: of 0.1.0's runs."""
_ONE_FORMAT = ("ddp", "fsdp")
"""Levers of which each resumes what another, or one process, has saved."""


class RunFolder:
    """One run of `facefeed train`; nothing is made or written before `held`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoints = root / "checkpoints"
        self.logs = root / "logs"
        self._config, self._result = root / "config.json", root / "result.json"

    def check(self, config: Config, out: Path) -> None:
        """Raises `RefusedError` where the folder holds another run, or something else.

        One that has no checkpoint yet is none to go on with: it is begun anew.
        """
        if not self._config.exists():
            if self.root.is_dir() and any(one.name != _LOCK for one in self.root.iterdir()):
                raise RefusedError(
                    f"--run {self.root}: holds files, but no config.json, so no run of facefeed train; name a folder "
                    "that is empty or not there yet"
                )
            return
        stored = _read(self._config)
        if not self.begun:
            return
        before, now = flattened(stored["config"]), flat(config)
        if not self._result.exists():  # of one that goes on
            before, now = _of_any_ranks(before), _of_any_ranks(now)
        found = differences(_identity(before), _identity(now))
        fingerprint = Manifest.read(out).fingerprint
        if stored["dataset"]["fingerprint"] != fingerprint:
            found.append(f"the dataset: {stored['dataset']['path']} there, {out} here, with other faces")
        if found:
            raise RefusedError(
                f"--run {self.root}: is a run of its own, with other settings ({'; '.join(found)}); go on with its "
                "settings, or name another folder"
            )

    @property
    def begun(self) -> bool:
        """Whether there is something to go on with."""
        return self._result.exists() or find(self.checkpoints / LAST) is not None

    @contextmanager
    def held(self, config: Config, out: Path, notes: Sequence[str] = (), *, ranks: int) -> Iterator[None]:
        """Makes the folder and says what it is a run of; for as long as it is held, no other process trains in it.

        Raises `UsageError` where it cannot be written, `RefusedError` where another process holds it, or where the
        batch size is another than the run began with, and so is that of all `ranks` together. On a `UsageError` before
        the first checkpoint nothing of it is left.
        """
        say = partial(stderr_console().print, markup=False)
        with ExitStack() as held:
            try:
                self.checkpoints.mkdir(parents=True, exist_ok=True)
                held.enter_context(hold_lock(self.root / _LOCK, work="facefeed train", on_wait=say))
            except OSError as error:
                raise UsageError(
                    f"--run {self.root}: cannot be written ({error.strerror}); name a folder that can"
                ) from error
            if self.begun:
                self._check_batch(config, ranks)
            else:
                write_atomically(json.dumps(_described(config, out, notes, ranks), indent=1), self._config, "--run")
            try:
                yield
            except UsageError:
                if not self.begun:
                    self._remove()
                raise

    def _check_batch(self, config: Config, ranks: int) -> None:
        """Raises `RefusedError` where `data.batch_size` is another, unless so many ranks have as many images a step."""
        stored = _read(self._config)
        size, before = stored["config"]["data"]["batch_size"], stored.get("ranks")
        here = config.data.batch_size
        if before is None or here == size or size * before == here * ranks:  # 0.1.0 did not say how many
            return
        fits = not size * before % ranks
        as_many = f"take data.batch_size={size * before // ranks} for steps of as many, or " if fits else "take "
        raise RefusedError(
            f"--run {self.root}: its steps are of {size} x {before} images (data.batch_size x ranks), and these would "
            f"be of {here} x {ranks}; {as_many}data.batch_size={size}, or name another folder"
        )

    def _remove(self) -> None:
        """What was made for a run that was refused in its first steps."""
        for folder in (self.checkpoints, self.logs):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self._config, self.root / _LOCK):
            file.unlink(missing_ok=True)
        with suppress(OSError):
            self.root.rmdir()

    def result(self) -> dict[str, Any] | None:
        """What the run came to; None until it is finished."""
        return _read(self._result) if self._result.exists() else None

    def finish(self, result: dict[str, Any]) -> None:
        """Says what the run came to."""
        write_atomically(json.dumps(result, indent=1), self._result, "--run")


_LOCK = ".lock"


def _described(config: Config, out: Path, notes: Sequence[str], ranks: int) -> dict[str, Any]:
    fingerprint = Manifest.read(out).fingerprint
    return {
        "version": _VERSION,
        "facefeed": version("facefeed"),
        "dataset": {"path": os.path.realpath(out), "fingerprint": fingerprint},
        "config": asdict(config),
        "ranks": ranks,
        "notes": [*notes],
    }


def _identity(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in _FREE}


def _of_any_ranks(values: dict[str, Any]) -> dict[str, Any]:
    """Without what says how many ranks share a step, whose images `_check_batch` compares."""
    levers = [part.strip() for part in values["levers"].split(",")]
    kept = ",".join(part for part in levers if part.split(":")[0] not in _ONE_FORMAT)
    return {**values, "levers": kept, "data.batch_size": None}


def _read(path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(path.read_bytes())
        if path.name == "config.json" and (stored["version"] != _VERSION or "fingerprint" not in stored["dataset"]):
            raise ValueError(f"version {stored['version']}")
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(
            f"{path}: is none of facefeed train's ({error}); name another folder by --run"
        ) from error
    return stored
