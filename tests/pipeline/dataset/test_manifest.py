"""What a user notices of receipts and the manifest: they say what they said, or that they are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from facefeed.pipeline.dataset.manifest import InputOutcome, Manifest, Receipt, count_inputs
from facefeed.pipeline.errors import REASONS, CorruptDataError, UsageError
from hypothesis import given
from hypothesis import strategies as st

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def outcomes(draw: st.DrawFn) -> InputOutcome:
    outcome = draw(st.sampled_from(["ok", "partial", "no_faces", "failed"]))
    wanted = draw(st.integers(0, 1000))
    return InputOutcome(
        video_id=draw(_TEXT),
        size_bytes=draw(st.integers(0, 1 << 50)),
        mtime_ns=draw(st.integers(0, 1 << 62)),
        outcome=outcome,  # type: ignore[arg-type]
        reason=draw(st.sampled_from(REASONS)) if outcome in ("failed", "partial") else None,
        detail=draw(st.none() | _TEXT) if outcome in ("failed", "partial") else None,
        frames_wanted=wanted,
        frames_decoded=draw(st.integers(0, wanted)),
        faces=draw(st.integers(1, 50)) if outcome == "ok" else draw(st.integers(0, 50)) if outcome == "partial" else 0,
        seconds=draw(st.floats(0, 1e4)),
    )


def receipt_of(inputs: list[InputOutcome]) -> Receipt:
    return Receipt(
        unit="u" * 32, config_hash="c", outcome="done", supersedes=["old"], file="faces/train/u.parquet",
        rows=sum(outcome.faces for outcome in inputs), bytes=9, sha256="0" * 64, inputs=inputs,
    )  # fmt: skip


RECEIPT = receipt_of([
    InputOutcome(video_id="a.mp4", size_bytes=1, mtime_ns=2, outcome="ok", faces=3),
    InputOutcome(video_id="b.mp4", size_bytes=1, mtime_ns=2, outcome="failed", reason="empty"),
])  # fmt: skip
MANIFEST = Manifest(
    fingerprint="f", config={"labels": ["real", "fake"]}, labels=["real", "fake"],
    splits={"train": {"rows": 3, "videos": 1}}, units=1, rows=3, bytes=9,
    inputs={"total": 2, "ok": 1, "partial": 0, "no_faces": 0, "failed": {"empty": 1}, "missing": 4},
    refused=[{"video_id": "x", "reason": "outside_root", "detail": None}], plan_parts=1,
)  # fmt: skip


@given(st.lists(outcomes(), max_size=5))
def test_a_receipt_is_read_as_it_was_written(inputs: list[InputOutcome]) -> None:
    receipt = receipt_of(inputs)
    assert Receipt.from_json(receipt.to_json(), where="r") == receipt
    assert Receipt.from_json(receipt.to_json().encode(), where="r") == receipt


def test_a_split_unit_s_receipt_names_its_children() -> None:
    receipt = Receipt(unit="u", config_hash="c", outcome="split", children=["x", "y"])
    assert Receipt.from_json(receipt.to_json(), where="r").children == ["x", "y"]


def test_a_receipt_on_disk_has_the_documented_fields() -> None:
    data = json.loads(RECEIPT.to_json())
    assert {"version", "unit", "config", "outcome", "children", "supersedes", "file", "rows", "bytes", "sha256"} < {
        *data
    }
    assert data["version"] == 1
    assert {*data["inputs"][0]} >= {
        "video_id", "size_bytes", "mtime_ns", "outcome", "reason", "frames_wanted", "frames_decoded", "faces",
        "seconds",
    }  # fmt: skip


def without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(key)


def with_(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.update({key: value})


def of_an_input(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["inputs"][0].update({key: value})


@pytest.mark.parametrize(
    "damage",
    [
        without("version"), without("unit"), without("outcome"), without("inputs"),
        with_("version", 2), with_("outcome", "dune"), with_("inputs", None), with_("inputs", [7]), with_("colour", 1),
        with_("rows", 4), with_("rows", None), with_("inputs", []),
        of_an_input("faces", 2), of_an_input("faces", None), of_an_input("outcome", "oj"), of_an_input("x", 1),
    ],
)  # fmt: skip
def test_a_damaged_receipt_is_named(damage: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(RECEIPT.to_json())
    damage(data)
    with pytest.raises(CorruptDataError, match=r"receipts/u\.json: not a receipt"):
        Receipt.from_json(json.dumps(data), where="receipts/u.json")


@given(st.integers(0, len(RECEIPT.to_json()) - 1))
def test_a_receipt_that_is_cut_anywhere_is_named(keep: int) -> None:
    with pytest.raises(CorruptDataError, match="here: not a receipt"):
        Receipt.from_json(RECEIPT.to_json()[:keep], where="here")


@given(st.integers(0, len(RECEIPT.to_json()) - 1), st.integers(0, 255))
def test_a_receipt_with_any_wrong_byte_is_named_or_still_adds_up(place: int, byte: int) -> None:
    text = bytearray(RECEIPT.to_json().encode())
    text[place] = byte
    try:
        receipt = Receipt.from_json(bytes(text), where="here")
    except CorruptDataError as error:
        assert str(error).startswith("here: not a receipt")  # noqa: PT017 (most bytes do, a digit elsewhere may not)
    else:
        assert receipt.rows == sum(outcome.faces for outcome in receipt.inputs)
        assert receipt.outcome in {"done", "split"}
        assert count_inputs(receipt.inputs, {}, 0)["total"] == 2


def test_rows_must_be_the_sum_of_faces() -> None:
    text = RECEIPT.to_json().replace('"rows": 3', '"rows": 2')
    with pytest.raises(CorruptDataError, match="rows=2 is not the sum"):
        Receipt.from_json(text, where="r")


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(MANIFEST.to_json())
    assert Manifest.read(tmp_path) == MANIFEST
    data = json.loads(MANIFEST.to_json())
    assert (data["version"], data["schema"]) == (1, 3)


@pytest.mark.parametrize("out", ["nowhere", "file", "."])
def test_a_folder_without_a_manifest_is_no_dataset_and_the_message_says_what_to_do(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"no finished dataset; run `facefeed precompute"):
        Manifest.read(tmp_path / out)


@pytest.mark.parametrize("part", ["faces", "faces/train", "manifest.json"])
def test_a_part_of_a_dataset_is_refused_with_the_folder_to_give(tmp_path: Path, part: str) -> None:
    (tmp_path / "faces/train").mkdir(parents=True)
    (tmp_path / "manifest.json").write_text(MANIFEST.to_json())
    with pytest.raises(UsageError, match=rf"{part}: is a part of the dataset {tmp_path}; give that"):
        Manifest.read(tmp_path / part)


@pytest.mark.parametrize(
    "damage",
    [without("version"), without("schema"), without("rows"), with_("x", 1), with_("plan_parts", 0)],
)
def test_a_damaged_manifest_is_named(tmp_path: Path, damage: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(MANIFEST.to_json())
    damage(data)
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(CorruptDataError, match=r"manifest\.json: not a manifest"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(("key", "number"), [("version", 2), ("schema", 1), ("schema", 4)])
def test_a_dataset_of_another_version_is_reported_as_such(tmp_path: Path, key: str, number: int) -> None:
    data = json.loads(MANIFEST.to_json())
    with_(key, number)(data)
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(CorruptDataError, match=rf"{key} {number}.*this facefeed reads version 1, schema 2 and 3: "):
        Manifest.read(tmp_path)


def test_a_manifest_from_before_there_were_partial_inputs_has_none(tmp_path: Path) -> None:
    data = json.loads(MANIFEST.to_json())
    del data["inputs"]["partial"]
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    assert Manifest.read(tmp_path) == MANIFEST


def test_a_manifest_from_before_plan_parts_were_counted_accounts_for_any_number(tmp_path: Path) -> None:
    data = json.loads(MANIFEST.to_json())
    del data["plan_parts"]
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    assert Manifest.read(tmp_path) == replace(MANIFEST, plan_parts=None)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{", b"\xff\xfe", MANIFEST.to_json().encode()[:-20]])
def test_a_manifest_that_is_no_json_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(CorruptDataError, match=r"manifest\.json: not a manifest"):
        Manifest.read(tmp_path)


@given(st.lists(outcomes()), st.dictionaries(st.sampled_from(REASONS), st.integers(1, 9)), st.integers(0, 99))
def test_every_input_is_counted_once(inputs: list[InputOutcome], refused: dict[str, int], missing: int) -> None:
    counts = count_inputs(iter(inputs), refused, missing)
    assert counts["total"] == counts["ok"] + counts["partial"] + counts["no_faces"] + sum(counts["failed"].values())
    assert counts["total"] == len(inputs) + sum(refused.values()), "what is missing is no input"
    assert counts["missing"] == missing
    for reason in REASONS:
        failed = sum((outcome.outcome, outcome.reason) == ("failed", reason) for outcome in inputs) + refused.get(
            reason, 0
        )
        assert counts["failed"].get(reason, 0) == failed
    assert list(counts["failed"]) == sorted(counts["failed"])
