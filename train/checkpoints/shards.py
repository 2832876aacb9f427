"""Sharded checkpoints: folders in which each rank writes its shards of the tensors, by torch.distributed.checkpoint.

FOLDER/plain.ckpt    what is not sharded, written by the first rank; a sharded tensor is {"sharded": its name} there
FOLDER/.metadata     of torch.distributed.checkpoint: sizes and dtypes of the tensors, and where their shards are
FOLDER/__R_0.distcp  the shards of rank R, each an archive of `torch.save`
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .staging import HostCopier, copied
from .writing import raising_disk_errors

PLAIN = "plain.ckpt"
_METADATA = ".metadata"
_KEY = "sharded"
_PLAIN_CLASSES = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata", "MetadataIndex", "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
    "pathlib": {"PosixPath", "Path"},
}  # fmt: skip
"""What the metadata of torch.distributed.checkpoint consists of: records, which run nothing."""


class StagedShards:
    """A copy in host memory of a checkpoint's contents: `plain` without this rank's shards, which are in `shards`.

    contents: of the checkpoint, alike on all ranks, with DTensors. mesh: of all ranks, on the CPU.
    """

    def __init__(self, contents: Mapping[str, Any], mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self._copy_to_host = HostCopier()
        self.shards: dict[str, Tensor] = {}
        self.plain: dict[str, Any] = copied(contents, self._copied)

    def _copied(self, name: str, tensor: Tensor) -> Any:
        if not isinstance(tensor, DTensor):
            return self._copy_to_host(name, tensor)
        self.shards[name] = DTensor.from_local(
            tensor.to_local().detach().to("cpu", copy=True), self._mesh, tensor.placements, run_check=False,
            shape=tensor.shape, stride=tensor.stride(),
        )  # fmt: skip
        return {_KEY: name}


def write_shards(
    shards: dict[str, Tensor], folder: Path, group: Any, *, write_plain: Callable[[], None] = lambda: None
) -> None:
    """Writes this rank's shards into `folder`, which is complete once it returns on the first rank. A collective call.

    group: of gloo, which nothing else uses meanwhile. write_plain: on the first rank, writes `PLAIN` into the folder.
    Raises the error of any rank, such as an `OSError`, on all of them: none waits for one that has failed.
    """
    try:
        save(shards, storage_writer=_Writer(folder, write_plain), process_group=group)
    except CheckpointException as error:
        first: BaseException = next(iter(error.failures.values()))[0]
        raise first from None


def is_sharded(path: Path) -> bool:
    """Whether a path is the folder of a sharded checkpoint."""
    return (path / _METADATA).is_file() and (path / PLAIN).is_file()


def read_shards(folder: Path) -> dict[str, Tensor]:
    """Reads the sharded tensors of a folder by name, complete and on the CPU, without executing pickled code.

    Raises `UnpicklingError` where the metadata would run code, and `ValueError` or another error of a parser on damage.
    """
    with (folder / _METADATA).open("rb") as file:
        metadata = _MetadataUnpickler(file).load()
    size_bytes = sum(path.stat().st_size for path in folder.glob("*.distcp"))
    return {
        name: _joined(folder, name, tensor, metadata.storage_data, size_bytes)
        for name, tensor in metadata.state_dict_metadata.items()
    }


def with_shards(plain: Any, shards: Mapping[str, Tensor]) -> Any:
    """Returns a checkpoint's contents, with the tensors in their places; raises `KeyError` where one is missing."""
    if isinstance(plain, dict):
        if plain.keys() == {_KEY}:
            return shards[plain[_KEY]]
        for key, item in plain.items():
            plain[key] = with_shards(item, shards)
        return plain
    if type(plain) in (list, tuple):
        return type(plain)(with_shards(item, shards) for item in plain)
    return plain


class _Writer(FileSystemWriter):
    """Writes shards to files, after `write_plain`, and raises `OSError` where the disk is full: torch hides it."""

    def __init__(self, folder: Path, write_plain: Callable[[], None]) -> None:
        super().__init__(folder)
        self._folder, self._write_plain = folder, write_plain

    def write_data(self, *arguments: Any) -> Any:
        """Writes the shards of this rank."""
        self._write_plain()
        with raising_disk_errors(self._folder):
            return super().write_data(*arguments)


class _MetadataUnpickler(pickle.Unpickler):
    """Unpickles records of torch.distributed.checkpoint alone."""

    def find_class(self, module: str, name: str) -> Any:
        """Returns a class, or a dtype of torch; raises `UnpicklingError` on any other."""
        if name in _PLAIN_CLASSES.get(module, ()):
            return getattr(import_module(module), name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"Unsupported global: GLOBAL {module}.{name} was not an allowed global")


def _joined(folder: Path, name: str, tensor: Any, storage: Mapping[Any, Any], size_bytes: int) -> Tensor:
    """Reads a tensor from its shards. Raises `ValueError` where they are not all of it."""
    dtype, num_values = tensor.properties.dtype, math.prod(tensor.size)
    if num_values * dtype.itemsize > size_bytes or num_values != sum(math.prod(each.sizes) for each in tensor.chunks):
        raise ValueError(f"{name}: its shards are not all there")
    full = torch.zeros(tensor.size, dtype=dtype)
    for chunk in tensor.chunks:
        if math.prod(chunk.sizes):
            where = tuple(slice(first, first + size) for first, size in zip(chunk.offsets, chunk.sizes, strict=True))
            stored = storage[MetadataIndex(name, chunk.offsets)]
            full[where] = _read_archive(folder, stored.relative_path, stored.offset, stored.length)
    return full


def _read_archive(folder: Path, file_name: str, offset: int, length: int) -> Tensor:
    """Reads one shard. Raises `BadZipFile` where its checksum differs, which torch does not verify."""
    if Path(file_name).name != file_name:
        raise ValueError(f"{file_name}: is in another folder")
    with (folder / file_name).open("rb") as file:
        file.seek(offset)
        archive = io.BytesIO(file.read(length))
    with zipfile.ZipFile(archive) as members:
        if members.testzip() is not None:
            raise zipfile.BadZipFile
    archive.seek(0)
    tensor: Tensor = torch.load(archive, map_location="cpu", weights_only=True)
    return tensor
