"""Loading of checkpoints as plain data: numbers, text and tensors, without executing pickled code."""

from __future__ import annotations

import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from ...pipeline.errors import UsageError
from ...pipeline.files import raise_unless_damage
from ..torch_internals import raising_memory_errors
from .shards import PLAIN, is_sharded, missing_files, with_shards

FILE_OF_PARTS_MAKER = "convert_zero_checkpoint_to_fp32_state_dict of lightning.pytorch.utilities.deepspeed"
"""What makes one file of a folder that ZeRO saved."""

_REMEDY = "give a file that training saved, last.ckpt say"
_GLOBAL_IN_MESSAGE = re.compile(r"GLOBAL ([\w.]*\w)")
_ENVIRONMENT = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
"""Environment variables by which torch forces `weights_only` on or off for every `torch.load` of the process."""
_SAFE_GLOBALS_MODULE = {"torchao": "torchao.optim"}
"""Libraries with tensor subclasses in optimizer states, and the module whose import registers them as safe globals."""


def read_checkpoint(path: str | Path, *, remedy: str = _REMEDY) -> dict[str, Any]:
    """Loads a checkpoint with `weights_only=True`, whatever the environment says; tensors are complete, on the CPU.

    path: of a file, or of the folder of a sharded checkpoint, as `fsdp` writes it.
    remedy: what to do about an unusable file, for error messages.

    Raises `UsageError` on a file that would run code, is truncated or damaged, or is not a checkpoint, and
    `StoppedError` where the disk fails.
    """
    path = Path(path)
    contents = _load_or_refuse(path, remedy)
    if not isinstance(contents, Mapping) or not isinstance(contents.get("state_dict"), Mapping):
        raise UsageError(f"{path}: is no checkpoint, it holds no state_dict; {remedy}")
    return dict(contents)


def read_weights(path: str | Path) -> dict[str, Any]:
    """Loads a checkpoint, or a bare state dict (also of safetensors), which is returned as {"state_dict": ...}.

    Raises `UsageError` as `read_checkpoint` does, and on a file that holds neither.
    """
    path, remedy = Path(path), "name a checkpoint, or a file of weights by name"
    contents = _load_safetensors(path, remedy) if path.suffix == ".safetensors" else _load_or_refuse(path, remedy)
    if isinstance(contents, Mapping) and isinstance(contents.get("state_dict"), Mapping):
        return dict(contents)
    if (
        isinstance(contents, Mapping)
        and contents
        and all(isinstance(value, torch.Tensor) for value in contents.values())
    ):
        return {"state_dict": dict(contents)}
    raise UsageError(f"{path}: holds no weights by name; {remedy}")


@contextmanager
def force_weights_only(path: str | Path, classes: Sequence[Any], *, remedy: str = _REMEDY) -> Iterator[None]:
    """Context in which every `torch.load` is `weights_only=True`, even where the caller passes False.

    For libraries that load files themselves, as DeepSpeed does with `weights_only=False`. classes: the library's
    classes that may be instantiated. Raises `UsageError` about `path` on a file that would run code.
    """
    environment_before = {name: os.environ.pop(name, None) for name in _ENVIRONMENT}
    os.environ[_ENVIRONMENT[0]] = "1"
    try:
        with torch.serialization.safe_globals([*classes]):
            yield
    except pickle.UnpicklingError as error:
        raise UsageError(f"{path}: {_refusal_text(error, remedy)}") from error
    finally:
        del os.environ[_ENVIRONMENT[0]]
        os.environ.update({name: value for name, value in environment_before.items() if value is not None})


class PlainCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]  # Lightning is not followed
    """A Trainer plugin that loads checkpoints by `read_checkpoint`: `Trainer(plugins=[PlainCheckpointIO()])`.

    By default Lightning leaves `weights_only` to torch and the environment; before 2.6 it executes whatever the file
    contains. Saving is Lightning's own.
    """

    def load_checkpoint(self, path: str | Path, *args: Any, **options: Any) -> dict[str, Any]:
        """See `read_checkpoint`."""
        return read_checkpoint(path)


def _load_or_refuse(path: Path, remedy: str) -> Any:
    """Loads a file as plain values; raises `UsageError` if it cannot be read, or would run code."""
    try:
        _check_folder(path, remedy)
        return _load_verified(path)
    except UsageError:
        raise
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from error
    except pickle.UnpicklingError as error:
        raise UsageError(f"{path}: {_refusal_text(error, remedy)}") from error
    except Exception as error:  # damaged archives raise many kinds of errors
        raise_unless_damage(path, error)
        raise UsageError(f"{path}: cannot be read, it is cut short or damaged; {remedy}") from error


def _check_folder(path: Path, remedy: str) -> None:
    """Raises `UsageError` on a folder that is no complete sharded checkpoint."""
    if not path.is_dir():
        return
    if not is_sharded(path):
        raise UsageError(
            f"{path}: is a folder without shards; {remedy}; of parts that ZeRO saved, make one file by "
            f"{FILE_OF_PARTS_MAKER}"
        )
    if missing := missing_files(path):
        raise UsageError(
            f"{path}: lacks {' and '.join(missing)}, without which its shards cannot be read; copy the whole folder "
            f"again, with the names that begin with a dot, or {remedy}"
        )


def _load_safetensors(path: Path, remedy: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError  # noqa: PLC0415 (a dependency of timm; only for such files)
    from safetensors.torch import load_file  # noqa: PLC0415

    try:
        return load_file(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; {remedy}") from error
    except SafetensorError as error:
        raise UsageError(f"{path}: cannot be read ({error}); {remedy}") from error


def _load_verified(path: Path) -> Any:
    """Checks the archive's checksums and loads it; imports a known library if its tensor subclasses are in the file."""
    if is_sharded(path):
        return with_shards(_load_verified(path / PLAIN), path)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:  # torch does not verify checksums
                raise zipfile.BadZipFile
    try:
        return _torch_load(path)
    except pickle.UnpicklingError as error:
        library = (match[1] if (match := _GLOBAL_IN_MESSAGE.search(str(error))) else "").split(".")[0]
        if library not in _SAFE_GLOBALS_MODULE:
            raise
    import_module(_SAFE_GLOBALS_MODULE[library])
    return _torch_load(path)


def _torch_load(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pickles that torch did not write; they are refused below
        with raising_memory_errors():
            return torch.load(path, map_location="cpu", weights_only=True)


def _refusal_text(error: Exception, remedy: str) -> str:
    if match := _GLOBAL_IN_MESSAGE.search(str(error)):
        return (
            f"asks for {match[1]} to be run, which a checkpoint may not, and is refused; if it is yours, save its "
            f"state_dict anew, as tensors, numbers and text alone, else {remedy}"
        )
    return f"is no checkpoint, or one that is damaged; {remedy}"
