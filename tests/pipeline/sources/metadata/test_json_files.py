"""What a user notices of the JSON of large sets, which is read one record after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources.metadata import json_files
from facefeed.pipeline.sources.metadata.json_files import read_records

VALUES = [{"file": "é/1.mp4", "segments": [[0.5, 1]]}, "a, ] b", 12345, -0.25e3, None, True, [], {}, '\\"]']


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("values", [VALUES, VALUES[:1], [12], []])
def test_records_are_the_same_wherever_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None, values: list[object]
) -> None:
    monkeypatch.setattr(json_files, "_CHUNK_CHARACTERS", chunk)
    file = tmp_path / "metadata.json"
    file.write_text(f"\ufeff{json.dumps(values, indent=indent, ensure_ascii=False)}\n", encoding="utf-8")
    assert list(read_records(file, "fix it")) == values


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"a": 1}, {"a": ', "not JSON"),
        ('[{"a": 1}', "not JSON"),
        ('[{"a": 1} {"a": 2}]', "not JSON .*column 11"),
        ("[1, 2,]", "not JSON"),
        ("[1] 2", "not JSON"),
        ("[", "not JSON"),
        ("", "not JSON"),
        ('{"a": 1}', "must be a list"),
        ("[" * 100_000, "not JSON"),
        ('["\udc80"]', "not JSON"),
    ],
)
@pytest.mark.parametrize("chunk", [4, 1 << 20])
def test_what_is_no_list_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str, chunk: int
) -> None:
    monkeypatch.setattr(json_files, "_CHUNK_CHARACTERS", chunk)
    file = tmp_path / "metadata.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=f"metadata.json: {problem}.*; fix it"):
        list(read_records(file, "fix it"))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory; fix it"):
        list(read_records(tmp_path / "metadata.json", "fix it"))
