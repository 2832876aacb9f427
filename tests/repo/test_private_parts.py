"""Private parts of torch, Lightning and DeepSpeed are used in one file a room, of the installed versions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import version

import lightning
import pytest
import torch
from assets_paths import ROOT
from facefeed.loaders import torch_internals as loaders_internals
from facefeed.train import deepspeed_internals, lightning_internals
from facefeed.train import torch_internals as train_internals

MAY_USE = {
    "loaders/torch_internals.py", "train/torch_internals.py", "train/lightning_internals.py",
    "train/deepspeed_internals.py",
}  # fmt: skip
PRIVATE = re.compile(
    r"from (torch|lightning)[\w.]*\._\w+|from (torch|lightning)[\w.]* import .*\b_\w|\b(torch|lightning)[\w.]*\._[a-z]"
    r"|noqa: .*SLF001"
)


PUBLIC = {"_fields"}  # of named tuples


def names_in_strings(source: str) -> Iterator[str]:
    """Private names that a source looks up by a string, as `getattr(iterator, "_workers")`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.Constant(str(name)), *_]):
                if re.match("_[a-z]", name) and name not in PUBLIC:
                    yield name


def private_parts(source: str) -> list[str]:
    return [match[0] for match in PRIVATE.finditer(source)] + [*names_in_strings(source)]


@pytest.mark.parametrize(
    ("installed", "checked"),
    [
        (torch.__version__, loaders_internals.CHECKED_TORCH),
        (torch.__version__, train_internals.CHECKED_TORCH),
        (lightning.__version__, lightning_internals.CHECKED_LIGHTNING),
        (version("deepspeed"), deepspeed_internals.CHECKED_DEEPSPEED),
    ],
)
def test_private_parts_were_checked_with_the_version_that_is_installed(installed: str, checked: str) -> None:
    """A new version: read in its source that the parts named in that file still do the same, then raise its number."""
    assert installed.startswith(f"{checked}.")


def test_no_other_file_of_loaders_or_train_uses_private_parts() -> None:
    files = [path for room in ("loaders", "train") for path in sorted((ROOT / room).rglob("*.py"))]
    using = {path.relative_to(ROOT).as_posix(): private_parts(path.read_text(encoding="utf-8")) for path in files}
    own = "loaders/augment/albumentations_internals.py"  # Albumentations has a test of its own
    of_python = {"loaders/workers/fork_server.py", "loaders/workers/processes.py"}  # multiprocessing's
    allowed = {*MAY_USE, own, *of_python}
    assert {name: parts for name, parts in using.items() if parts and name not in allowed} == {}


def test_the_check_sees_private_parts_of_every_kind() -> None:
    source = (
        "from torch.utils.data import _utils\nqueue = getattr(getattr(loader, '_iterator', None), 'queue', ())\n"
        "ready = hasattr(queue, '_data')\nsetattr(queue, '_limit', 1)\nnames = hasattr(batch, '_fields')\n"
        "loader._reset()  # noqa: SLF001\nspec = getattr(main, '__spec__', None)\n"
    )
    expected = ["from torch.utils.data import _u", "noqa: SLF001", "_data", "_limit", "_iterator"]
    assert sorted(private_parts(source)) == sorted(expected)
