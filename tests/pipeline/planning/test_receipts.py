"""Receipts are read whenever one is asked for, and parsed once."""

from __future__ import annotations

from pathlib import Path

import pytest
from facefeed.pipeline.dataset.manifest import InputOutcome, Receipt
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.planning import receipts
from facefeed.pipeline.planning.receipts import ReceiptReader

PATH = "receipts/u1.json"


def written(out: Path, faces: int) -> Receipt:
    outcome = InputOutcome(video_id="a.mp4", size_bytes=1, mtime_ns=1, outcome="ok", faces=faces)
    receipt = Receipt(unit="u1", config_hash="c1", outcome="done", rows=faces, inputs=[outcome])
    (out / "receipts").mkdir(exist_ok=True)
    (out / PATH).write_text(receipt.to_json())
    return receipt


def test_a_receipt_that_another_process_replaced_is_the_new_one(tmp_path: Path) -> None:
    reader = ReceiptReader(OutPaths(tmp_path), "c1")
    for faces in (3, 4, 3):
        expected = written(tmp_path, faces)
        assert reader.trusted("u1") == expected
    (tmp_path / PATH).unlink()
    assert reader.trusted("u1") is None


@pytest.mark.parametrize("kept", [True, False])
def test_a_receipt_is_parsed_once_unless_there_are_too_many_to_keep(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "_MAX_KEPT", int(kept))
    reader = ReceiptReader(OutPaths(tmp_path), "c1")
    expected = written(tmp_path, 3)
    first, second = reader.trusted("u1"), reader.trusted("u1")
    assert first == second == expected
    assert (first is second) is kept


def test_receipts_without_inputs_are_not_kept_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "_MAX_KEPT", 2)
    reader = ReceiptReader(OutPaths(tmp_path), "c1")
    (tmp_path / "receipts").mkdir()
    for name in ("u1", "u2", "u3"):
        receipt = Receipt(unit=name, config_hash="c1", outcome="split", children=["u8", "u9"])
        (tmp_path / f"receipts/{name}.json").write_text(receipt.to_json())
    assert [reader.trusted(name) is reader.trusted(name) for name in ("u1", "u2", "u3")] == [True, True, False]
