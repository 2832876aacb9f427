"""What a user notices of long lines: words stay whole in a terminal, and lines stay whole in a file."""

from __future__ import annotations

import io
import sys

import pytest
from facefeed.pipeline.console import stderr_console

TEXT = "warning: a clip without a video is used as extracted frames"


class Terminal(io.StringIO):
    """A file that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("file", "text", "lines"),
    [
        (Terminal(), TEXT, ["warning: a clip without a", "video is used as extracted", "frames"]),
        (Terminal(), f"{'/folder' * 5}: {TEXT}", [f"{'/folder' * 5}: {TEXT}"]),  # can be copied as one line
        (io.StringIO(), TEXT, [TEXT]),
    ],
)
def test_lines_wrap_at_words_in_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, file: io.StringIO, text: str, lines: list[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    stderr_console().print(text)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == lines
