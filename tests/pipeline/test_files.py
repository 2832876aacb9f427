"""Folders that are created: durably, wherever they may be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from facefeed.pipeline.files import make_folder


def test_a_folder_may_be_created_in_one_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def open_unless_unreadable(path: Any, *arguments: Any) -> int:  # as root, which the tests may be, can list all
        if Path(path) == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *arguments)

    monkeypatch.setattr(os, "open", open_unless_unreadable)
    make_folder(tmp_path / "runs/first")
    make_folder(tmp_path / "runs")
    assert (tmp_path / "runs/first").is_dir()
