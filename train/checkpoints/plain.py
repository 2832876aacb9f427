"""Checkpoints are read as plain data: numbers, text and tensors. Nothing in one is ever run."""

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

_REMEDY = "give a file that training saved, last.ckpt say"
_NAMED = re.compile(r"GLOBAL ([\w.]*\w)")
_ENVIRONMENT = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
"""By which torch has every `torch.load` of a process read data alone, and the opposite."""
_TENSORS_OF = {"torchao": "torchao.optim"}
"""Libraries whose tensors an optimizer's state may be of, and what tells torch that these are plain."""


def read(path: str | Path, *, remedy: str = _REMEDY) -> dict[str, Any]:
    """What a checkpoint holds, its tensors on the CPU; with `weights_only=True`, whatever the environment says.

    remedy: what to do about a file that cannot be used, for messages.

    Raises `UsageError` on a file that would run code, is cut short or damaged, or is no checkpoint at all.
    """
    path = Path(path)
    held = _safely(path, remedy)
    if not isinstance(held, Mapping) or not isinstance(held.get("state_dict"), Mapping):
        raise UsageError(f"{path}: is no checkpoint, it holds no state_dict; {remedy}")
    return dict(held)


def weights(path: str | Path) -> dict[str, Any]:
    """What `read` finds in a checkpoint; of a file of weights by name alone, also of safetensors, "state_dict" alone.

    Raises `UsageError` as `read` does, and where the file holds neither.
    """
    path, remedy = Path(path), "name a checkpoint, or a file of weights by name"
    held = _safetensors(path, remedy) if path.suffix == ".safetensors" else _safely(path, remedy)
    if isinstance(held, Mapping) and isinstance(held.get("state_dict"), Mapping):
        return dict(held)
    if isinstance(held, Mapping) and held and all(isinstance(one, torch.Tensor) for one in held.values()):
        return {"state_dict": dict(held)}
    raise UsageError(f"{path}: holds no weights by name; {remedy}")


@contextmanager
def data_only(path: str | Path, classes: Sequence[Any], *, remedy: str = _REMEDY) -> Iterator[None]:
    """Within it whatever reads a checkpoint by `torch.load` gets data alone, also where it asks for more.

    For libraries that read files of their own, as DeepSpeed does with `weights_only=False`. classes: of theirs, of
    which values may be made. Raises `UsageError` about `path` on a file that would run code.
    """
    before = {name: os.environ.pop(name, None) for name in _ENVIRONMENT}
    os.environ[_ENVIRONMENT[0]] = "1"
    try:
        with torch.serialization.safe_globals([*classes]):
            yield
    except pickle.UnpicklingError as error:
        raise UsageError(f"{path}: {_why_refused(error, remedy)}") from error
    finally:
        del os.environ[_ENVIRONMENT[0]]
        os.environ.update({name: value for name, value in before.items() if value is not None})


class PlainCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]  # Lightning is not followed
    """A plugin for the Trainer that has it load checkpoints by `read`: `Trainer(plugins=[PlainCheckpointIO()])`.

    Lightning by itself leaves it to torch's default and the environment what a checkpoint may do; before its 2.6 it
    runs whatever the file says. Saving is Lightning's own.
    """

    def load_checkpoint(self, path: str | Path, *args: Any, **options: Any) -> dict[str, Any]:
        """See `read`."""
        return read(path)


def _safely(path: Path, remedy: str) -> Any:
    """What a file holds as plain values; raises `UsageError` where it cannot be read, or would run code."""
    try:
        return _plain(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{path}: {error.strerror}; {remedy}") from error
    except pickle.UnpicklingError as error:
        raise UsageError(f"{path}: {_why_refused(error, remedy)}") from error
    except Exception as error:  # whatever a damaged archive makes of torch
        raise UsageError(f"{path}: cannot be read, it is cut short or damaged; {remedy}") from error


def _safetensors(path: Path, remedy: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError  # noqa: PLC0415 (timm's; for who has such a file)
    from safetensors.torch import load_file  # noqa: PLC0415

    try:
        return load_file(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; {remedy}") from error
    except SafetensorError as error:
        raise UsageError(f"{path}: cannot be read ({error}); {remedy}") from error


def _plain(path: Path) -> Any:
    """What torch finds in a file whose checksums are right; tensors of libraries that are known come from these."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:  # torch would take the wrong numbers as they are
                raise zipfile.BadZipFile
    try:
        return _loaded(path)
    except pickle.UnpicklingError as error:
        library = (named[1] if (named := _NAMED.search(str(error))) else "").split(".")[0]
        if library not in _TENSORS_OF:
            raise
    import_module(_TENSORS_OF[library])
    return _loaded(path)


def _loaded(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pickles that torch did not write; they are refused in our own words
        return torch.load(path, map_location="cpu", weights_only=True)


def _why_refused(error: Exception, remedy: str) -> str:
    if named := _NAMED.search(str(error)):
        return (
            f"asks for {named[1]} to be run, which a checkpoint may not, and is refused; if it is yours, save its "
            f"state_dict anew, as tensors, numbers and text alone, else {remedy}"
        )
    return f"is no checkpoint, or one that is damaged; {remedy}"
