"""What a user notices of sharded checkpoints: they are read as one file is, and run no code."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from assets_processes import in_processes
from facefeed.pipeline.errors import UsageError
from facefeed.train.checkpoints import shards
from facefeed.train.checkpoints.plain import read_checkpoint, read_weights
from facefeed.train.checkpoints.publication import find_checkpoint, publish, remove
from facefeed.train.checkpoints.shards import PLAIN, StagedShards, is_sharded, write_shards
from facefeed.train.checkpoints.writing import AbandonableFile, AbandonedError
from torch import distributed
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

WEIGHT = torch.arange(12, dtype=torch.bfloat16).reshape(4, 3)
CONTENTS = {
    "global_step": 3, "optimizer_states": [{"state": {0: {"step": torch.tensor(3.0)}}}],
    "callbacks": {"Mine": {"sharded": "no"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceMesh]:
    """Of one rank."""
    meeting = tmp_path_factory.mktemp("meeting") / "store"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield DeviceMesh.from_group(distributed.new_group(backend="gloo"), "cpu")
    distributed.destroy_process_group()


def staged_weight(mesh: DeviceMesh) -> StagedShards:
    return StagedShards({"state_dict": {"weight": DTensor.from_local(WEIGHT, mesh, [Shard(0)])}}, mesh)


@pytest.fixture(scope="module")
def saved(mesh: DeviceMesh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "last.ckpt"
    sharded = DTensor.from_local(WEIGHT.clone(), mesh, [Shard(0)])
    staged = StagedShards({**CONTENTS, "state_dict": {"net.weight": sharded, "net.bias": WEIGHT[0]}}, mesh)
    sharded.to_local().fill_(7)  # training goes on
    write_shards(staged, folder, mesh.get_group(), Event())
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "last.ckpt")


def test_a_sharded_checkpoint_is_read_as_one_file_is_and_holds_what_was_there_when_it_was_staged(saved: Path) -> None:
    contents = read_checkpoint(saved)
    assert contents["global_step"] == 3
    assert contents["optimizer_states"] == CONTENTS["optimizer_states"]
    assert contents["callbacks"] == CONTENTS["callbacks"]
    assert type(contents["state_dict"]["net.weight"]) is torch.Tensor
    assert torch.equal(contents["state_dict"]["net.weight"], WEIGHT)
    assert contents["state_dict"]["net.weight"].dtype == torch.bfloat16
    assert torch.equal(contents["state_dict"]["net.bias"], WEIGHT[0])
    assert read_weights(saved)["state_dict"].keys() == {"net.weight", "net.bias"}


class _Writes:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_its_metadata_run_no_code(folder: Path, tmp_path: Path) -> None:
    with (folder / ".metadata").open("wb") as file:
        pickle.dump(_Writes(tmp_path / "written"), file)
    with pytest.raises(UsageError, match=r"last.ckpt: asks for posix.mkdir to be run, which a checkpoint may not"):
        read_checkpoint(folder)
    assert not (tmp_path / "written").exists()


def _shards(folder: Path) -> Path:
    return folder / "__0_0.distcp"


def _edited(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Changes the metadata, and what is recorded of them."""

    def damage(folder: Path) -> None:
        with (folder / ".metadata").open("rb") as file:
            metadata = pickle.load(file)
        change(metadata)
        (folder / ".metadata").write_bytes(pickled := pickle.dumps(metadata))
        stored = torch.load(folder / PLAIN, weights_only=True)
        torch.save({**stored, "metadata_sha256": hashlib.sha256(pickled).hexdigest()}, folder / PLAIN)

    return damage


def _flip(folder: Path) -> None:
    data = bytearray(_shards(folder).read_bytes())
    where = data.index(WEIGHT.view(torch.uint8).numpy().tobytes())
    data[where] ^= 1
    _shards(folder).write_bytes(bytes(data))


def _rename(folder: Path) -> None:
    """As of shards of two ranks: the other file has a tensor of this name, size and checksum too."""
    pickled = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(pickled.replace(b"__0_0.distcp", b"__1_0.distcp"))
    shutil.copy(_shards(folder), folder / "__1_0.distcp")


def _tensor(metadata: Any) -> Any:
    return next(iter(metadata.state_dict_metadata.values()))


def _enlarge(metadata: Any) -> None:
    tensor = _tensor(metadata)
    tensor.size = tensor.chunks[0].sizes = torch.Size([2**40, 3])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a wrong bit": _flip,
    "a wrong byte in the metadata, which names another file": _rename,
    "without one of two files": lambda folder: _shards(folder).rename(folder / "__1_0.distcp"),
    "what is not sharded, of a checkpoint of one file": lambda folder: torch.save({"state_dict": {}}, folder / PLAIN),
    "cut short": lambda folder: os.truncate(_shards(folder), _shards(folder).stat().st_size // 2),
    "without its shards": lambda folder: _shards(folder).unlink(),
    "a file of another folder": _edited(
        lambda data: [setattr(each, "relative_path", "../other") for each in data.storage_data.values()]
    ),
    "a tensor that fills the memory": _edited(_enlarge),
    "a tensor with a hole": _edited(lambda data: setattr(_tensor(data), "chunks", [])),
    "a tensor that is not there": _edited(lambda data: data.state_dict_metadata.clear()),
    "metadata that are none": lambda folder: (folder / ".metadata").write_bytes(b"none"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_one_that_is_damaged_is_refused_in_one_line(folder: Path, damage: str) -> None:
    DAMAGES[damage](folder)
    with pytest.raises(UsageError, match=r"last.ckpt: (cannot be read, it is cut short or damaged|.* damaged); "):
        read_checkpoint(folder)


@pytest.mark.parametrize("missing", [(".metadata",), (PLAIN,), (".metadata", PLAIN)])
def test_one_that_was_copied_without_a_file_is_refused_with_its_name(folder: Path, missing: tuple[str, ...]) -> None:
    for name in missing:
        (folder / name).unlink()
    lacking = rf"last\.ckpt: lacks {' and '.join(missing)}, .*; copy the whole folder again, with the names that begin"
    for read in (read_checkpoint, read_weights):
        with pytest.raises(UsageError, match=lacking):
            read(folder)


def test_a_disk_that_is_full_is_reported_with_the_folder_though_torch_hides_it(
    mesh: DeviceMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_data(*_: Any) -> None:
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            raise RuntimeError("closing the archive failed")

    monkeypatch.setattr(FileSystemWriter, "write_data", write_data)
    with pytest.raises(OSError, match=r"No space left on device: .*last\.ckpt"):
        write_shards(staged_weight(mesh), tmp_path / "last.ckpt", mesh.get_group(), Event())
    assert not is_sharded(tmp_path / "last.ckpt")


def _at_write(monkeypatch: pytest.MonkeyPatch, name: str, do: Callable[[], None]) -> None:
    """Calls `do` within each write to the file of that name in a checkpoint."""
    write = AbandonableFile.write

    def write_and_do(file: AbandonableFile, data: Any) -> int:
        if Path(file.name).name == name:
            do()
        return write(file, data)

    monkeypatch.setattr(AbandonableFile, "write", write_and_do)


def test_shards_that_are_given_up_are_written_no_further(
    mesh: DeviceMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned, folder = Event(), tmp_path / "last.ckpt"
    _at_write(monkeypatch, "__0_0.distcp", abandoned.set)
    with pytest.raises(AbandonedError):
        write_shards(staged_weight(mesh), folder, mesh.get_group(), abandoned)
    assert [(path.name, path.stat().st_size) for path in folder.iterdir()] == [("__0_0.distcp", 0)]


class _KilledError(BaseException):
    """Stands for SIGKILL: what is on the disk then stays."""


def _kill() -> None:
    raise _KilledError


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata.tmp", PLAIN])
def test_killed_in_mid_write_the_checkpoint_before_is_read_and_the_next_takes_its_place(
    mesh: DeviceMesh, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """tests/train/run/test_sharded_write kills a rank of a run."""
    temporary = folder.with_name(".last.ckpt")
    with monkeypatch.context() as patch:
        _at_write(patch, name, _kill)
        with pytest.raises(_KilledError):
            write_shards(staged_weight(mesh), temporary, mesh.get_group(), Event())
    assert (temporary / name).is_file()
    assert find_checkpoint(folder) == folder
    assert read_checkpoint(folder)["global_step"] == 3
    remove(temporary)
    write_shards(staged_weight(mesh), temporary, mesh.get_group(), Event())
    publish(temporary, folder)
    assert read_checkpoint(folder).keys() == {"state_dict"}


def _fail(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "plain.ckpt")


def on_a_rank(folder: str) -> None:
    """Runs in both processes; the first one's disk is full."""
    rank = int(os.environ["LOCAL_RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = DeviceMesh.from_group(distributed.new_group(backend="gloo"), "cpu")
    if rank == 0:
        shards.write_file = _fail
    try:
        write_shards(staged_weight(mesh), Path(folder, "last.ckpt"), mesh.get_group(), Event())
    except OSError as error:
        Path(folder, f"error{rank}").write_text(str(error))


@pytest.mark.processes
def test_where_the_first_rank_cannot_write_no_other_waits_for_it(tmp_path: Path) -> None:
    stage = {"run": f"{__file__}:on_a_rank", "ranks": 2, "arguments": {"folder": str(tmp_path)}}
    assert in_processes(stage) == [[0, 0]]
    errors = [(tmp_path / f"error{rank}").read_text() for rank in (0, 1)]
    assert errors == ["[Errno 28] No space left on device: 'plain.ckpt'"] * 2


def test_a_file_takes_the_place_of_a_folder_of_shards_and_a_folder_that_of_a_file(folder: Path) -> None:
    """A run goes on under another strategy; a kill at any moment leaves one of the two."""
    temporary = folder.with_name(".last.ckpt")
    torch.save({"state_dict": {}, "global_step": 4}, temporary)
    publish(temporary, folder)
    assert read_checkpoint(folder)["global_step"] == 4
    temporary.mkdir()
    (temporary / "part").touch()
    publish(temporary, folder)
    assert find_checkpoint(folder) == folder
    assert folder.is_dir()
    assert not is_sharded(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["last.ckpt"]
