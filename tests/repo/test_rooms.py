"""What a user notices of the rooms: a light import, help at once, examples that are true, and rooms that stay apart."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from assets_paths import ROOT, support_folders
from facefeed.pipeline import cli

ROOMS = ("pipeline", "loaders", "train", "data")
HEAVY = {
    "albumentations", "av", "cv2", "dask", "datasets", "distributed", "duckdb", "facenet_pytorch", "lightning",
    "matplotlib", "numba", "pandas", "polars", "pyarrow", "scipy", "skimage", "torch", "torchvision",
}  # fmt: skip


def modules_of(room: str) -> list[str]:
    """Every module of a room by its full name, the room itself first; `__main__` is a script and left out."""
    package = importlib.import_module(f"facefeed.{room}")
    names = [module_info.name for module_info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [package.__name__, *(name for name in names if not name.endswith(".__main__"))]


def loaded_by(*lines: str) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter after it ran some lines."""
    code = "\n".join([*lines, "import sys, json", "print(json.dumps(sorted({n.split('.')[0] for n in sys.modules})))"])
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return set(json.loads(completed.stdout.splitlines()[-1]))


@pytest.mark.parametrize("room", ROOMS)
def test_importing_a_room_imports_nothing_heavy(room: str) -> None:
    loaded = loaded_by(f"import facefeed.{room}")
    assert "facefeed" in loaded
    assert loaded & HEAVY == set()


def test_importing_the_decoders_and_detectors_doors_imports_no_torch_and_no_codec() -> None:
    loaded = loaded_by("import facefeed.pipeline.video, facefeed.pipeline.faces")
    assert loaded & (HEAVY - {"pyarrow"}) == set()


@pytest.mark.processes
def test_importing_all_of_the_loaders_imports_nothing_that_makes_a_dataset() -> None:
    loaded = loaded_by(*(f"import {name}" for name in modules_of("loaders")), "import facefeed.loaders.__main__")
    assert {"torch", "pyarrow", "cv2"} <= loaded
    assert loaded & {"av", "dask", "distributed", "facenet_pytorch", "lightning"} == set()


def test_opening_a_dataset_imports_nothing_of_the_console_and_of_leases() -> None:
    """Each worker process of a loader would import it."""
    loaded = loaded_by("import facefeed.pipeline.dataset.open_dataset")
    assert "pyarrow" in loaded
    assert loaded & {"rich", "psutil"} == set()


@pytest.mark.processes
def test_the_loader_loads_no_augmentations_unless_the_user_does() -> None:
    loaded = loaded_by("from facefeed.loaders import FaceDataLoader", "import facefeed.loaders.workers.preload")
    assert "torch" in loaded
    assert loaded & {"albumentations", "scipy"} == set()


@pytest.mark.processes
def test_importing_all_of_the_pipeline_imports_nothing_that_trains() -> None:
    # The cascade comes with the detector's first frame.
    light = (".cascade", ".cascade.pyramid", ".cascade.rois", ".cascade.weights")
    excluded = [name for name in modules_of("pipeline") if ".cascade" in name and not name.endswith(light)]
    excluded.append("facefeed.pipeline.video.decoder.child")
    loaded = loaded_by(*(f"import {name}" for name in modules_of("pipeline") if name not in excluded))
    assert {"distributed", "pyarrow", "cv2"} <= loaded
    # The detector loads torch on its first frame, in a worker; the driver does not need it.
    assert loaded & {"albumentations", "lightning", "torch"} == set()


def test_the_loaders_hand_out_their_names_and_no_others() -> None:
    loaders = importlib.import_module("facefeed.loaders")
    expected = {
        "BlendPairs", "Clip", "DevicePrefetcher", "FaceDataLoader", "FaceDataset", "Pairs", "Quotas", "Weights",
    }  # fmt: skip
    assert {getattr(loaders, name).__name__ for name in loaders.__all__} == expected
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = loaders.Nothing


# ---- who imports whom


def sources(room: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(module: str, path: Path) -> Iterator[str]:
    """Full names below `facefeed` that a module's source imports anywhere, also inside functions and for types."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix("facefeed.") for alias in node.names if alias.name.startswith("facefeed.")
            )
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            start = [*base, *(node.module or "").split(".")] if node.module else base
            if not node.level and start[:1] != ["facefeed"]:
                continue
            for alias in node.names:
                yield ".".join([*start, alias.name]).removeprefix("facefeed.")


def crossings(room: str) -> dict[str, set[str]]:
    """For each other room that `room` imports, the modules it takes (the first name after the room's)."""
    imported: dict[str, set[str]] = defaultdict(set)
    for module, path in sources(room):
        for name in imports_of(module, path):
            other, _, rest = name.partition(".")
            if other in ROOMS and other != room:
                imported[other].add(rest.split(".")[0])
    return dict(imported)


CONTRACT = {"console", "dataset", "errors", "files", "interrupts", "json_records", "lock", "machine", "page"}


def test_the_pipeline_knows_no_other_room() -> None:
    assert crossings("pipeline") == {}


def test_the_loaders_know_the_contract_alone() -> None:
    imported = crossings("loaders")
    assert imported.keys() == {"pipeline"}
    assert imported["pipeline"] <= CONTRACT


def test_the_data_room_knows_the_errors_alone() -> None:
    assert crossings("data") in ({}, {"pipeline": {"errors"}})


def test_the_training_room_knows_the_loaders_and_the_contract_alone() -> None:
    imported = crossings("train")
    assert imported.keys() <= {"loaders", "pipeline"}
    assert imported.get("pipeline", set()) <= CONTRACT


# Rooms of a room in layers: each imports from layers above its own alone.
LAYERS = {
    "pipeline": """
        console errors json_records machine
        files interrupts lock user_file
        command_group dataset faces row_progress video
        export manipulation models page sources stored_source
        splits
        planning
        baselines commit
        rows
        execution
        verify
        inspect
        added_columns compaction dryrun
        precompute
        report
        cli
        __main__
    """,
    "loaders": """
        face normalise real_numbers seeding torch_internals whole_numbers
        validation
        augment
        adapters
        dataset
        sampling
        clips mixture preview
        batching device
        transfer workers
        loader
        profiler __main__
    """,
    "loaders.profiler": """
        estimate
        arguments
        measure
        verdict
        trials
        profile report
        request selftest
        rank_processes
        cli
    """,
    "train": """
        torch_internals warning
        checkpoints deepspeed_internals lightning_internals machine metrics process_groups step_images
        levers starvation
        config
        datamodule slurm
        model
        evaluate ladder
        run
        cli
    """,
}


@cache
def neighbours() -> dict[str, dict[str, set[str]]]:
    """For every package its modules and packages, each with those beside it in the same package that it imports."""
    graph: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for room in ROOMS:
        for module, path in sources(room):
            parts = module.split(".")
            for depth in range(1, len(parts)):
                _ = graph[".".join(parts[:depth])][parts[depth]]
            for name in imports_of(module, path):
                other = name.split(".")
                depth = next((i for i, (a, b) in enumerate(zip(parts, other, strict=False)) if a != b), 0)
                if depth:
                    graph[".".join(parts[:depth])][parts[depth]].add(other[depth])
    return graph


@pytest.mark.parametrize("package", LAYERS)
def test_a_room_imports_from_the_layers_above_it_alone(package: str) -> None:
    layers = [line.split() for line in LAYERS[package].strip().splitlines()]
    rooms = neighbours()[package]
    assert sorted(rooms) == sorted(name for layer in layers for name in layer), "every room stands in one layer"
    above: set[str] = set()
    for layer in layers:
        for name in layer:
            assert rooms[name] & rooms.keys() <= above, f"{package}.{name}"
        above |= {*layer}


def test_no_two_neighbours_import_each_other_by_whatever_detour() -> None:
    for package, rooms in neighbours().items():
        remaining = {name: imported & rooms.keys() for name, imported in rooms.items()}
        while remaining:
            free = {name for name, imported in remaining.items() if not imported & remaining.keys()}
            assert free, f"{package}: {sorted(remaining)} import each other"
            remaining = {name: imported for name, imported in remaining.items() if name not in free}


def packages() -> list[Path]:
    return [path.parent.relative_to(ROOT) for room in ROOMS for path in sorted((ROOT / room).rglob("__init__.py"))]


def test_every_folder_says_what_comes_in_what_goes_out_and_what_it_must_not_know() -> None:
    for folder in packages():
        text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
        assert all(word in text for word in ("\nIn: ", " Out: ", "\nMust not know: ")), folder


def test_a_folder_holds_a_dozen_files_or_so() -> None:
    for folder in packages():
        assert len([*(ROOT / folder).glob("*.py")]) <= 15, folder


def test_what_tests_share_lies_in_small_folders_that_pytest_knows() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert {str(ROOT / folder) for folder in known["pythonpath"]} == {str(ROOT / "tests"), *support_folders()}
    for folder in support_folders():
        assert len([path for path in Path(folder).iterdir() if path.is_file()]) <= 15, folder


def test_every_folder_is_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    expected = ["facefeed." + ".".join(folder.parts) for folder in packages()]
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(expected)
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__":
                package = "facefeed." + ".".join(path.parent.relative_to(ROOT).parts)
                patterns = project["tool"]["setuptools"]["package-data"].get(package, [])
                assert any(path.match(pattern) for pattern in patterns), path


def test_the_check_sees_imports_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        "import facefeed.train.levers\nfrom ..pipeline.dataset.index import Index\nfrom .. import data\n"
        "def f():\n    from facefeed.loaders import FaceDataset\n    from . import decode\n    import torch\n"
    )
    expected = {"train.levers", "pipeline.dataset.index.Index", "data", "loaders.FaceDataset", "loaders.decode"}
    assert set(imports_of("loaders.one", path)) == expected


# ---- the command


def test_help_lists_the_commands_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, io, contextlib",
        "from facefeed.pipeline.cli import main",
        "told = io.StringIO()",
        "with contextlib.redirect_stdout(told):",
        "    main(['--help'], standalone_mode=False)",
        "lines = [line.split()[0] for line in told.getvalue().split('Commands:')[1].splitlines() if line.strip()]",
        "assert lines[:3] == ['sample', 'precompute', 'verify'], lines",
    )
    # `sample` and the others are loaded for their one line of help: even so nothing heavy comes along.
    assert loaded_by(*code) & (HEAVY - {"matplotlib"}) == set()


def test_every_command_that_is_registered_exists() -> None:
    door = cli.main
    names = door.list_commands(None)  # type: ignore[arg-type]  # it does not look at the context
    assert {"precompute", "verify", "sample"} <= set(names)
    for name in names:
        command = door.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.help


# ---- examples in docstrings


def test_every_example_in_a_docstring_is_true() -> None:
    attempted = 0
    for room in ROOMS:
        for name in modules_of(room):
            result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
            assert result.failed == 0, name
            attempted += result.attempted
    assert attempted > 0
