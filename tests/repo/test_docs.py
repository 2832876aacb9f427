"""The pages can be built, their links lead somewhere, and their commands exist."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
import yaml
from assets_docs import DOCS, GUIDES, PAGES, README, REFERENCE, blocks, name_of
from assets_paths import ROOT
from facefeed.pipeline.dataset.schema import DENSE_COLUMNS, face_schema
from facefeed.pipeline.errors import REASONS

LANGUAGES = {"python", "console", "yaml", "text"}
DIRECTIVES = {"{eval-rst}", "{image}", "{toctree}", "{warning}"}
MAX_LINE_CHARACTERS = 100
MAX_README_LINES = 150
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def prose(page: Path) -> Iterator[str]:
    """Lines outside code blocks and tables."""
    in_block = False
    for line in page.read_text(encoding="utf-8").splitlines():
        in_block ^= line.startswith("```")
        if not in_block and not line.startswith(("```", "|")):
            yield line


def commands() -> dict[str, click.Command]:
    return {entry.name: entry.load() for entry in entry_points(group="facefeed.commands")}


def options_of(command: click.Command) -> set[str]:
    """The options of a command and its subcommands."""
    nested = command.commands.values() if isinstance(command, click.Group) else []
    return {"--help"}.union(*(param.opts for param in command.params), *map(options_of, nested))


@pytest.mark.processes
def test_the_pages_build_and_every_link_between_them_leads_somewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--doctree-dir",
         tmp_path / "doctrees", DOCS, tmp_path / "html"],
        capture_output=True, text=True, check=False, env={**os.environ, "NO_ALBUMENTATIONS_UPDATE": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert "FaceDataLoader" in (tmp_path / "html" / "reference" / "api.html").read_text(encoding="utf-8")


def documented() -> Iterator[tuple[str, Any]]:
    """What the reference of Python names, and the public methods of its classes, by name."""
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    for name in re.findall(r"\.\. auto(?:function|class):: ([\w.]+)", page):
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        yield name, found
        methods = vars(found) if inspect.isclass(found) else {}
        yield from ((f"{name}.{method}", getattr(found, method)) for method in methods if not method.startswith("_"))


def test_documented_functions_of_more_than_three_arguments_say_what_each_is() -> None:
    """A dataclass describes its fields in prose; hooks of Lightning and Albumentations are theirs to describe."""
    hooks, silent, seen = {"on_train_batch_end", "apply"}, [], 0
    for name, found in documented():
        if not callable(found) or is_dataclass(found) or name.rpartition(".")[2] in hooks:
            continue
        arguments = inspect.signature(found).parameters.values()
        arguments = [each for each in arguments if each.name != "self" and each.kind not in VARIADIC]
        if len(arguments) > 3:
            text = (found.__doc__ or "") + (found.__init__.__doc__ or "" if inspect.isclass(found) else "")
            seen += 1
            silent += [] if "Args:" in text else [name]
    assert seen > 10
    assert silent == []


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", README.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_the_readme_is_short_and_names_every_guide() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_README_LINES
    assert [name_of(page) for page in PAGES[1:] if page.name != "index.md" and f"({name_of(page)})" not in text] == []


def test_every_file_and_folder_that_the_map_of_the_code_names_exists() -> None:
    text = (DOCS / "contributing.md").read_text(encoding="utf-8")
    code_map = text[text.index("## Where things are") : text.index("## Conventions")]
    names = set(re.findall(r"`([\w./-]+(?:\.py|/))`", code_map))
    in_packages = {path.name for room in ("pipeline", "loaders", "train") for path in (ROOT / room).rglob("*")}
    assert len(names) > 30
    assert [
        name for name in sorted(names) if not (ROOT / name).exists() and name.removesuffix("/") not in in_packages
    ] == []


@every_page
def test_prose_wraps_at_a_readable_width(page: Path) -> None:
    long = [line for line in prose(page) if len(line) > MAX_LINE_CHARACTERS]
    assert long == []


@every_page
def test_every_code_block_names_its_language(page: Path) -> None:
    fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(fences) % 2 == 0
    assert {fence.split()[0] if fence else "" for fence in fences[::2]} <= LANGUAGES | DIRECTIVES
    assert set(fences[1::2]) <= {""}
    assert [line for line in prose(page) if line.startswith("    ")] == []  # a block without fences


@pytest.mark.parametrize("page", [page for page in PAGES if blocks("console", page)], ids=name_of)
def test_every_command_that_a_page_shows_exists_with_its_options(page: Path) -> None:
    known = {name: options_of(command) for name, command in commands().items()}
    of_train = {"--nproc-per-node", "--no-python", *known["train"]}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    unknown = []
    for line in re.findall(r"^\$ (.*)$", "\n".join(blocks("console", page)), flags=re.MULTILINE):
        program, name, *_ = [*line.split("#")[0].split()[:2], ""]
        options = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", line.split("#")[0]))
        if program == "make" and name not in targets:
            unknown.append(line)
        if program == "facefeed":
            allowed = known.get(name, set())
            if name == "slurm":
                allowed = allowed.union(*(known[inner] for inner in ("train", "precompute", "ladder")))
            unknown += [f"{line}: {option}" for option in options - allowed] + ([] if name in known else [line])
        if program == "torchrun":
            unknown += [f"{line}: {option}" for option in options - of_train]
    assert unknown == []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks("yaml", page)], ids=name_of)
def test_every_yaml_block_can_be_read(page: Path) -> None:
    for block in blocks("yaml", page):
        assert all(yaml.safe_load_all(block))


def test_the_reference_of_commands_has_every_command() -> None:
    shown = re.findall(r":prog: facefeed (\w+)", (REFERENCE / "commands.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(commands())


def test_every_option_of_the_profilers_guide_exists() -> None:
    options = options_of(commands()["profile"])
    named = set(re.findall(r"--[a-z][a-z-]+", (GUIDES / "profiling.md").read_text(encoding="utf-8")))
    assert named <= options
    assert {"--verify", "--against", "--quick", "--self-test", "--max-wait"} <= named


def test_every_reason_for_failure_is_explained() -> None:
    text = (REFERENCE / "outcomes.md").read_text(encoding="utf-8")
    assert [reason for reason in REASONS if f"`{reason}`" not in text] == []


@every_page
def test_nothing_waits_to_be_filled_in(page: Path) -> None:
    assert re.findall(r"@[A-Z]+@|^[A-Z]+$|\bTODO\b", page.read_text(encoding="utf-8"), flags=re.MULTILINE) == []


@pytest.mark.parametrize("name", ["inspect", "augment", "profile", "ladder"])
def test_every_command_writes_its_page_where_page_says_else_where_it_is_given(name: str) -> None:
    params = commands()[name].params
    pages = {tuple(param.opts): str(param.default) for param in params if str(param.default).endswith(".html")}
    assert pages == {("--page",): f"{name}.html"}
    assert f"`{name}.html`" in (GUIDES / "inspect.md").read_text(encoding="utf-8")


def type_text(data_type: pa.DataType) -> str:
    """A column's type as people read it."""
    if pa.types.is_fixed_size_list(data_type):
        return f"{type_text(data_type.value_type)}[{data_type.list_size}]"
    if pa.types.is_list(data_type):
        return f"list of {type_text(data_type.value_type)}"
    if pa.types.is_struct(data_type):
        return f"struct of {', '.join(field.name for field in data_type)}: each {type_text(data_type[0].type)}"
    return {"float": "float32", "double": "float64"}.get(str(data_type), str(data_type))


def test_the_reference_of_columns_says_what_the_schema_says() -> None:
    usual, dense = face_schema(["real", "fake"]), face_schema(["real", "fake"], has_dense_landmarks=True)
    rows = [
        f"| `{field.name}` | {type_text(field.type)}{' or null' if field.nullable else ''} "
        f"| {field.metadata[b'description'].decode().replace('<', '&lt;')} |"
        for field in [*usual, *(dense.field(name) for name in DENSE_COLUMNS)]
    ]
    text = (REFERENCE / "columns.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("| `")] == rows
