"""When a process ends its process groups: once, and not where a further run may need them to its end."""

from __future__ import annotations

import atexit
from pathlib import Path
from types import SimpleNamespace

import pytest
from assets_processes import in_processes
from facefeed.train import process_groups


def ending(file: str, calls: list[str]) -> None:
    """A process that ends after these calls; each destruction of its groups is a line in the file."""

    def destroy() -> None:
        with Path(file).open("a") as lines:
            lines.write("destroyed\n")

    process_groups.distributed = SimpleNamespace(  # type: ignore[assignment]
        is_available=lambda: True, is_initialized=lambda: True, destroy_process_group=destroy
    )
    for name in calls:
        getattr(process_groups, name)()
    atexit._run_exitfuncs()  # type: ignore[attr-defined]  # a forked process ends without


@pytest.mark.parametrize(
    ("calls", "times"),
    [
        (["destroy_process_groups_at_exit"] * 2, 1),
        (["destroy_process_groups_at_exit", "keep_process_groups_at_exit"], 0),
    ],
    ids=["after two runs", "where a further run has failed"],
)
def test_groups_are_destroyed_once_and_never_where_ranks_may_not_end_alike(
    tmp_path: Path, calls: list[str], times: int
) -> None:
    file = tmp_path / "destroyed"
    file.touch()
    stage = {"run": f"{__file__}:ending", "ranks": 1, "arguments": {"file": str(file), "calls": calls}}
    assert in_processes(stage) == [[0]]
    assert file.read_text().count("destroyed") == times
