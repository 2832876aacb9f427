"""Sharded checkpoints: folders in which each rank writes its shards of the tensors, by torch.distributed.checkpoint.

FOLDER/plain.ckpt    what is not sharded, written last, by the first rank: {"contents": in which a sharded tensor is
                     {"sharded": its name}, "metadata_sha256": of the next file, which has no checksum of its own}
FOLDER/.metadata     of torch.distributed.checkpoint: sizes and dtypes of the tensors, and where their shards are
FOLDER/__R_0.distcp  the shards of rank R, each an archive of `torch.save`
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .staging import HostCopier, copied
from .writing import AbandonableFile, raising_disk_errors, write_file

PLAIN = "plain.ckpt"
_METADATA = ".metadata"
_KEY = "sharded"
_CONTENTS, _METADATA_SHA256 = "contents", "metadata_sha256"
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


def write_shards(staged: StagedShards, folder: Path, group: Any, abandoned: Event) -> None:
    """Writes this rank's shards into `folder`, which is complete once it returns on the first rank. A collective call.

    group: of gloo, which nothing else uses meanwhile.
    Raises the error of any rank, such as an `OSError`, on all of them: none waits for one that has failed. It is an
    `AbandonedError` once `abandoned` is set on one.
    """
    try:
        save(staged.shards, storage_writer=_Writer(staged.plain, folder, abandoned), process_group=group)
    except CheckpointException as error:
        first: BaseException = next(iter(error.failures.values()))[0]
        raise first from None


def is_sharded(path: Path) -> bool:
    """Whether a path is the folder of a sharded checkpoint, if only of a part of one."""
    return len(missing_files(path)) < 2 or any(path.glob("*.distcp"))


def missing_files(folder: Path) -> list[str]:
    """Returns the names of the files that a sharded checkpoint has beside its shards, and this folder has not."""
    return [name for name in (_METADATA, PLAIN) if not (folder / name).is_file()]


def with_shards(stored: Any, folder: Path) -> Any:
    """Returns the contents of a checkpoint: those in `PLAIN` (stored) with the sharded tensors, complete, on the CPU.

    No pickled code is executed. Raises `UnpicklingError` where the metadata would run code, and `ValueError` or another
    error of a parser on damage.
    """
    if not isinstance(stored, dict) or stored.keys() != {_CONTENTS, _METADATA_SHA256}:
        raise ValueError(f"{PLAIN}: is of no sharded checkpoint")
    return _with_tensors(stored[_CONTENTS], _read_shards(folder, stored[_METADATA_SHA256]))


def _read_shards(folder: Path, metadata_sha256: str) -> dict[str, Tensor]:
    """Reads the sharded tensors of a folder by name."""
    pickled = (folder / _METADATA).read_bytes()
    metadata = _MetadataUnpickler(io.BytesIO(pickled)).load()  # first: code is refused with words of its own
    if hashlib.sha256(pickled).hexdigest() != metadata_sha256:
        raise ValueError(f"{_METADATA}: differs from the one that was written")
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.distcp")}
    if missing := {stored.relative_path for stored in metadata.storage_data.values()} - sizes.keys():
        raise ValueError(f"{missing}: not in the folder")
    return {
        name: _joined(folder, name, tensor, metadata.storage_data, sum(sizes.values()))
        for name, tensor in metadata.state_dict_metadata.items()
    }


def _with_tensors(plain: Any, shards: Mapping[str, Tensor], name: str = "") -> Any:
    """Puts the tensors in their places; raises `KeyError` where one is missing.

    name: of this place, as in `staging.copied`. A dict with the key of a sharded tensor's, but without this name, is a
    value of somebody else's, of a callback say.
    """
    if isinstance(plain, dict):
        if plain.keys() == {_KEY} and isinstance(plain[_KEY], str) and plain[_KEY] == name:
            return shards[name]
        for key, item in plain.items():
            plain[key] = _with_tensors(item, shards, f"{name}/{key}")
        return plain
    if type(plain) in (list, tuple):
        return type(plain)(_with_tensors(item, shards, f"{name}/{index}") for index, item in enumerate(plain))
    return plain


class _Writer(FileSystemWriter):
    """Writes shards to files, and last `PLAIN`; raises `OSError` where the disk is full: torch hides it."""

    def __init__(self, plain: Mapping[str, Any], folder: Path, abandoned: Event) -> None:
        super().__init__(folder)
        self.fs = _AbandonableFiles(abandoned)
        self._plain, self._folder, self._abandoned = plain, folder, abandoned

    def write_data(self, *arguments: Any) -> Any:
        """Writes the shards of this rank."""
        with raising_disk_errors(self._folder):
            return super().write_data(*arguments)

    def finish(self, *arguments: Any, **options: Any) -> None:
        """Writes the metadata, and what is not sharded, on the first rank; an error is raised on all of them."""
        with raising_disk_errors(self._folder):
            super().finish(*arguments, **options)
            sha256 = hashlib.sha256((self._folder / _METADATA).read_bytes()).hexdigest()
        write_file({_CONTENTS: self._plain, _METADATA_SHA256: sha256}, self._folder / PLAIN, self._abandoned)


class _AbandonableFiles(FileSystem):
    """Creates files whose writes raise `AbandonedError` once `abandoned` is set."""

    def __init__(self, abandoned: Event) -> None:
        self._abandoned = abandoned

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        """Opens a file."""
        with super().create_stream(path, mode) as file:
            yield AbandonableFile(file, self._abandoned)  # type: ignore[arg-type]  # it is open in a mode of bytes


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
    with (folder / file_name).open("rb") as file:
        file.seek(offset)
        archive = io.BytesIO(file.read(length))
    with zipfile.ZipFile(archive) as members:
        if members.testzip() is not None:
            raise zipfile.BadZipFile
    archive.seek(0)
    tensor: Tensor = torch.load(archive, map_location="cpu", weights_only=True)
    return tensor
