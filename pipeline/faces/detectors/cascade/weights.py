"""facenet-pytorch's MTCNN weights: their files, and their arrays, read without torch."""

from __future__ import annotations

import importlib.util
import pickle
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ....errors import UsageError

WEIGHT_FILES = ("pnet.pt", "rnet.pt", "onet.pt")

_MAGIC: Final = 0x1950A86A20F9469CFC6C
_VERSION: Final = 1001


def weights_folder() -> Path:
    """Return the folder of the weight files, without torch; raises `UsageError` if facenet-pytorch is missing."""
    spec = importlib.util.find_spec("facenet_pytorch")
    if spec is None or spec.origin is None:
        raise UsageError("facenet-pytorch is not installed: MTCNN has no weights; pip install facenet-pytorch")
    return Path(spec.origin).parent / "data"


@cache
def read_weights(file: str) -> dict[str, NDArray[np.float32]]:
    """Return a file's arrays by the names of facenet's layers, such as `conv1.weight`.

    Raises `UsageError` if it is not what `torch.save` wrote before torch 1.6: pickles of a number, a version, the
    machine, the tensors by name and the keys of their storages, then for each key the storage's length and values.
    """
    path = weights_folder() / file
    try:
        with path.open("rb") as stream:
            return _read_tensors(stream)
    except (OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        remedy = "reinstall it: pip install --force-reinstall --no-deps facenet-pytorch==2.5.3"
        raise UsageError(f"{path}: not the weights that facenet-pytorch comes with ({error!r}); {remedy}") from error


def _read_tensors(stream: BinaryIO) -> dict[str, NDArray[np.float32]]:
    magic, version, machine, tensors, keys = (_TensorUnpickler(stream).load() for _ in range(5))
    if (magic, version, machine["little_endian"]) != (_MAGIC, _VERSION, True):
        raise ValueError(f"magic number {magic:#x}, version {version}, {machine}")
    storages = {}
    for key in keys:
        length = int.from_bytes(stream.read(8), "little")
        storages[key] = np.frombuffer(stream.read(4 * length), np.float32, length)
    return {name: _tensor(storages[key], *where) for name, (key, *where) in tensors.items()}


def _tensor(
    storage: NDArray[np.float32], first: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> NDArray[np.float32]:
    """Return a tensor of a storage; NumPy checks that it lies within."""
    return np.ndarray(shape, np.float32, storage.data, 4 * first, [4 * stride for stride in strides])


class _TensorUnpickler(pickle.Unpickler):
    """Reads a tensor as key of its storage, index of its first value, shape and strides; knows no other class."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _KNOWN_CLASSES:
            raise pickle.UnpicklingError(f"it contains {module}.{name}")
        return _KNOWN_CLASSES[f"{module}.{name}"]

    def persistent_load(self, pid: Any) -> str:
        kind, storage_type, key, _device, _length, view = pid
        if (kind, storage_type, view) != ("storage", np.float32, None):
            raise pickle.UnpicklingError(f"it contains a {kind} of {storage_type}")
        return str(key)


def _tensor_place(key: str, first: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> tuple[Any, ...]:
    return key, first, shape, strides


_KNOWN_CLASSES: Final[dict[str, Any]] = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": _tensor_place,
    "torch.FloatStorage": np.float32,
}
