"""The folder of a run: its config, checkpoints, logs and result.

RUN/config.json   RUN/checkpoints/{last,best}.ckpt   RUN/logs/   RUN/result.json (once it is finished)
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from ...pipeline.console import stderr_console
from ...pipeline.dataset.stores.address import is_address, without_credentials
from ...pipeline.dataset.stores.opening import read_manifest
from ...pipeline.errors import CorruptDataError, RefusedError, UsageError
from ...pipeline.files import make_folder, stop_on_any_disk_error, sync_folder, write_durably
from ...pipeline.json_records import brief, parse_json, record_of
from ...pipeline.lock import hold_lock
from ..checkpoints.publication import find_checkpoint
from ..config.recipes import Config
from ..config.settings import differences, flat_settings, flatten
from ..datamodule import pipeline_hashes
from ..levers.registry import INTERCHANGEABLE_STRATEGIES, STRATEGIES
from .checkpoint_io import LAST

_Record = TypeVar("_Record")
_VERSION = 1
_RESUME_MAY_CHANGE = (
    "recipe", "data.num_workers", "data.cache", "data.cache_bytes", "save_every_minutes", "save_every_steps"
)  # fmt: skip
"""Settings that may change on resume, since no weight depends on them; the last one is of runs of 0.1.0."""


_NO_PLACE_TO_WRITE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG,
    errno.ELOOP, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV,
}  # fmt: skip
"""What another path helps against; others are a disk that fails or is full, or limits of the machine."""


class RunFolder:
    """The folder of one run of `facefeed train`; nothing is created or written before `locked`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoints = root / "checkpoints"
        self.logs = root / "logs"
        self._config_path, self._result_path = root / "config.json", root / "result.json"

    def check(self, config: Config, out: str | Path) -> None:
        """Raises `RefusedError` if the folder holds another run, or other files.

        A run without a checkpoint or result is not resumed but started again, with any settings. Raises `StoppedError`
        where the disk fails.
        """
        with stop_on_any_disk_error(self.root):
            self._check(config, out)

    def _check(self, config: Config, out: str | Path) -> None:
        if not self._config_path.exists():
            if self.root.is_dir() and not all(path.name.startswith(_BEFORE_CONFIG) for path in self.root.iterdir()):
                raise RefusedError(
                    f"--run {self.root}: holds files, but no config.json, so no run of facefeed train; name a folder "
                    "that is empty or not there yet"
                )
            return
        stored = _read_config(self._config_path)
        if not self.is_resumable:
            return
        changes = self._setting_changes(stored, config)
        fingerprint = read_manifest(out, config.data.store).fingerprint
        if stored.dataset.fingerprint != fingerprint:
            changes.append(
                f"the dataset: {stored.dataset.path} there, {without_credentials(out)} here, with other faces"
            )
        changes += _pipeline_changes(stored, config)
        if changes:
            raise RefusedError(
                f"--run {self.root}: is a run of its own, with other settings ({'; '.join(changes)}); resume with its "
                "settings and files, or name another folder"
            )

    def _setting_changes(self, stored: _StoredConfig, config: Config) -> list[str]:
        """Describes settings that differ from the run's.

        Those of the ranks may change where it is resumed; of a finished run they may be those of its first session, or
        of its last, which are in its result.
        """
        began, values = flatten(stored.config), flat_settings(config)
        if (result := self.read_result()) is None:
            began, values = _without_ranks(began, values)
            return _fixed_differences(began, values)
        last = result.get("config")
        ended = flatten(last) if isinstance(last, dict) else began
        return _fixed_differences(began, values) and _fixed_differences(ended, values)

    @property
    def is_resumable(self) -> bool:
        """Whether there is a checkpoint to resume from, or a result."""
        with stop_on_any_disk_error(self.root):
            return self._result_path.exists() or find_checkpoint(self.checkpoints / LAST) is not None

    @property
    def begun_levers(self) -> str | None:
        """The levers with which the run that can be resumed began; None if there is none."""
        with stop_on_any_disk_error(self.root):
            if not (self._config_path.exists() and self.is_resumable):
                return None
            return str(_read_config(self._config_path).config["levers"])

    @contextmanager
    def locked(self, config: Config, out: str | Path, notes: Sequence[str] = (), *, ranks: int) -> Iterator[None]:
        """Context that creates the folder, writes config.json and keeps a lock: no other process can train in it.

        Raises `UsageError` if the folder cannot be created, `StoppedError` if the disk is full or fails, and
        `RefusedError` if another process has the lock, or if both `data.batch_size` and the global batch size over
        `ranks` differ from those of the run's last session, see `record_session`. On a `UsageError` within the context,
        before the first checkpoint, the folder is removed again; in one of an earlier session config.json is restored.
        """
        print_line = partial(stderr_console().print, markup=False)
        pipelines = pipeline_hashes(config.data)  # before the folder: refuses one without a file
        with ExitStack() as stack:
            with stop_on_any_disk_error(self.root):
                try:
                    make_folder(self.root)
                    stack.enter_context(hold_lock(self.root / _LOCK, work="facefeed train", on_wait=print_line))
                except OSError as error:
                    if error.errno not in _NO_PLACE_TO_WRITE:
                        raise
                    raise UsageError(
                        f"--run {self.root}: cannot be written ({error.strerror}); name a folder that can"
                    ) from error
                earlier = _read(self._config_path, dict) if self._config_path.exists() else None
                if self.is_resumable:
                    self._check_batch(config, ranks)
                else:
                    record = {**_config_record(config, out, notes, ranks), "pipelines": pipelines}
                    self._write(self._config_path, record)
                self.checkpoints.mkdir(exist_ok=True)  # after config.json: a folder without it is refused
                sync_folder(self.root)
            try:
                yield
            except UsageError:
                if not self.is_resumable:
                    self._restore(earlier)
                raise

    def record_session(self, batch_size: int, ranks: int) -> None:
        """Records batch size and ranks of a session that has saved a checkpoint, for `locked` in the next.

        A session that ends before, for lack of memory say, leaves the run as it was.
        """
        stored = _read_config(self._config_path)
        if (batch_size, ranks) != (stored.last_batch_size, stored.ranks):
            self._write(self._config_path, asdict(replace(stored, batch_size=batch_size, ranks=ranks)))

    def _check_batch(self, config: Config, ranks: int) -> None:
        """Raises `RefusedError` if both the batch size per rank and the global batch size have changed.

        Also on another number of ranks of a strategy whose checkpoints are for as many alone.
        """
        stored = _read_config(self._config_path)
        size, stored_ranks, size_now = stored.last_batch_size, stored.ranks, config.data.batch_size
        if stored_ranks is None:  # 0.1.0 did not store it
            return
        if ranks != stored_ranks and (strategy := _fixed_strategy(config.levers)):
            raise RefusedError(
                f"--run {self.root}: its checkpoint is of {stored_ranks} ranks under {strategy}, from which only as "
                f"many resume, and these would be {ranks}; take {stored_ranks} devices, or name another folder"
            )
        if size_now == size or size_now * ranks == size * stored_ranks:
            return
        same_size, rest = divmod(size * stored_ranks, ranks)
        advice = "take " if rest or same_size == size else f"take data.batch_size={same_size} for steps of as many, or "
        raise RefusedError(
            f"--run {self.root}: its steps are of {size} x {stored_ranks} images (data.batch_size x ranks), and these "
            f"would be of {size_now} x {ranks}; {advice}data.batch_size={size}, or name another folder"
        )

    def _restore(self, config_record: dict[str, Any] | None) -> None:
        """Removes what was created for a run that was refused in its first steps.

        config_record: that of an earlier session, which is restored; its files and logs stay. None if there was none.
        """
        if config_record is not None:
            self._write(self._config_path, config_record)
            return
        for folder in (self.checkpoints, self.logs):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self._config_path, self.root / _LOCK):
            file.unlink(missing_ok=True)
        with suppress(OSError):
            self.root.rmdir()

    def read_result(self) -> dict[str, Any] | None:
        """Returns the result of a finished run, else None; raises `CorruptDataError` where it is no JSON object."""
        return _read(self._result_path, dict) if self._result_path.exists() else None

    def write_result(self, result: dict[str, Any]) -> None:
        """Writes the result, which marks the run as finished. Raises `StoppedError` if the disk is full or fails."""
        self._write(self._result_path, result)

    def _write(self, path: Path, record: dict[str, Any]) -> None:
        write_durably(path, json.dumps(record, indent=1), self.root)


_LOCK = ".lock"
_BEFORE_CONFIG = (_LOCK, "config.json.")
"""Beginnings of the names that a run has written which was ended before its config.json was complete."""


def _config_record(config: Config, out: str | Path, notes: Sequence[str], ranks: int) -> dict[str, Any]:
    fingerprint = read_manifest(out, config.data.store).fingerprint
    return {
        "version": _VERSION,
        "facefeed": version("facefeed"),
        "dataset": {
            "path": without_credentials(out) if is_address(out) else os.path.realpath(out),
            "fingerprint": fingerprint,
        },
        "config": asdict(config),
        "ranks": ranks,
        "notes": [*notes],
    }


def _pipeline_changes(stored: _StoredConfig, config: Config) -> list[str]:
    """Describes pipelines whose file has other contents than the run recorded."""
    with suppress(UsageError):  # a file that is gone is refused where it is read; a finished run reads none
        return [
            f"data.{name}: {_other_contents(str(getattr(config.data, name)), stored)}"
            for name, sha256 in pipeline_hashes(config.data).items()
            if stored.pipelines.get(name, sha256) != sha256
        ]
    return []


def _other_contents(file: str, stored: _StoredConfig) -> str:
    from ...loaders.augment.pipeline_file import is_packaged  # noqa: PLC0415 (takes half a second; rarely used)

    if not is_packaged(Path(file)):
        return f"{file} has other contents than when the run began"
    return (
        f"{file}, which comes with facefeed, has other contents than in version {stored.facefeed}, with which the run "
        "began: install that version, or put its file into the working folder, where it goes before that of facefeed"
    )


def _fixed_differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Describes the differences of settings, of those that may not change on resume."""
    fixed = (
        {key: value for key, value in values.items() if key not in _RESUME_MAY_CHANGE} for values in (before, after)
    )
    return differences(*fixed)


def _without_ranks(*settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns settings without those that depend on the number of ranks; `_check_batch` compares batch sizes.

    Also without a lever that the ranks of one of them do not take: channels_last, a layout, under fsdp, and
    sync_batchnorm on one process, where it would change nothing.
    """
    levers = [[part.strip() for part in values["levers"].split(",")] for values in settings]
    strategies = [{part.split(":")[0] for part in parts}.intersection(STRATEGIES) for parts in levers]
    dropped = {*INTERCHANGEABLE_STRATEGIES}
    if {"fsdp"} in strategies:
        dropped.add("channels_last")
    if set() in strategies:
        dropped.add("sync_batchnorm")
    kept = [",".join(part for part in parts if part.split(":")[0] not in dropped) for parts in levers]
    return [{**values, "levers": text, "data.batch_size": None} for values, text in zip(settings, kept, strict=True)]


def _fixed_strategy(levers: str) -> str | None:
    """Returns the strategy among levers whose checkpoints no other number of ranks resumes from; None without one."""
    parts = (part.strip() for part in levers.split(","))
    fixed = {*STRATEGIES}.difference(INTERCHANGEABLE_STRATEGIES)
    return next((part for part in parts if part.split(":")[0] in fixed), None)


@dataclass(frozen=True, kw_only=True)
class _Dataset:
    """The dataset in a run's config.json."""

    path: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class _StoredConfig:
    """A run's config.json: the settings of its first session.

    ranks, batch_size: those of the last session that saved a checkpoint. ranks: None in those of 0.1.0; batch_size:
    None where it is that of the settings. pipelines: `pipeline_hashes`; older versions store none.
    """

    version: int
    facefeed: str
    dataset: _Dataset
    config: dict[str, Any]
    ranks: int | None = None
    batch_size: int | None = None
    pipelines: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.version != _VERSION:
            raise ValueError(f"version {self.version}")
        settings = flatten(self.config)
        for name, kind in (("levers", str), ("data.batch_size", int)):
            if not isinstance(settings.get(name), kind):
                raise ValueError(f"config: {name} is {brief(settings.get(name))}")

    @property
    def last_batch_size(self) -> int:
        """`data.batch_size` of the last session that saved a checkpoint."""
        return flatten(self.config)["data.batch_size"] if self.batch_size is None else self.batch_size


def _read_config(path: Path) -> _StoredConfig:
    return _read(path, partial(record_of, _StoredConfig))


def _read(path: Path, convert: Callable[[Any], _Record]) -> _Record:
    try:
        return convert(parse_json(path.read_bytes()))
    except (TypeError, ValueError) as error:
        raise CorruptDataError(
            f"{path}: is none of facefeed train's ({error}); name another folder by --run"
        ) from error
