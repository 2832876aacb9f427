"""What `verify` leaves on a terminal."""

from __future__ import annotations

import io
import re

import pytest
from facefeed.pipeline import report
from rich.console import Console


def screen(output: str) -> list[str]:
    """The lines of a terminal that was sent `output`."""
    lines, column = [""], 0
    for token in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", output):
        if token == "\n":
            lines.append("")
        elif token == "\x1b[2K":
            lines[-1] = ""
        elif not token.startswith(("\x1b", "\r")):
            lines[-1] = lines[-1][:column].ljust(column) + token + lines[-1][column + len(token) :]
        column = column + len(token) if token[0] not in "\x1b\r\n" else column if token[0] == "\x1b" else 0
    return lines


def test_no_part_of_a_files_name_stays_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, highlight=False, soft_wrap=True)
    monkeypatch.setattr(report, "stderr_console", lambda: console)
    with report.FileProgress() as files:
        files.on_file("faces/train/of-a-long-name.parquet")
        files.on_file("faces/val/short.parquet")
        assert screen(file.getvalue()) == ["faces/val/short.parquet"]
        files.erase()
        console.print("waiting")
        files.on_file("faces/val/short.parquet")
    console.print("out: whole")
    assert screen(file.getvalue()) == ["waiting", "out: whole", ""]
