"""What a run notices that resumes after the added columns of its dataset have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assets_columns import Colour, Returning
from assets_dataset import DenseStandIn, copy_dataset
from assets_rows import make_small
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.sampling.balance import Quotas, Weights
from facefeed.pipeline.added_columns.landmarks import LandmarkColumns
from facefeed.pipeline.added_columns.run import add_columns, remove_columns
from facefeed.pipeline.errors import UsageError

EVEN = Quotas({"odd": 1, "even": 1}, column="parity")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


@pytest.fixture
def out(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


def add_parity(out: Path, *, start: int) -> None:
    """Adds a column of strings; another `start` gives others, and another fingerprint."""
    names = ("even", "odd")
    add_columns(
        out,
        Returning(
            lambda faces: {"parity": [names[(row + start) % 2] for row in range(len(faces))]},
            pa.schema([("parity", pa.string())]), name="parity", fingerprint=f"parity-{start}",
        ),
        workers=1,
    )  # fmt: skip


def loader_of(out: Path, *others: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader([out, *others] if others else out, 8, num_workers=0, image_size=8, **options)


@pytest.mark.parametrize("balance", [EVEN, Weights({"odd": 2.0}, column="parity")], ids=["quotas", "weights"])
@pytest.mark.parametrize("is_mixture", [False, True], ids=["one", "mixture"])
def test_a_state_is_refused_once_the_column_of_its_balance_has_other_values(
    out: Path, tmp_path: Path, balance: Any, is_mixture: bool
) -> None:
    add_parity(out, start=0)
    others = [copy_dataset(out, tmp_path / "other")] if is_mixture else []
    state = loader_of(*others, out, balance=balance).state_dict()
    remove_columns(out, "parity")
    add_parity(out, start=1)
    with pytest.raises(UsageError, match=r"the state has order=.*parity-0.*, this loader .*parity-1"):
        loader_of(*others, out, balance=balance).load_state_dict(state)
    remove_columns(out, "parity")
    add_parity(out, start=0)
    loader_of(*others, out, balance=balance).load_state_dict(state)


def test_a_state_is_refused_once_landmarks_took_the_place_of_the_column_of_its_balance(out: Path) -> None:
    balance = Weights({"template5": 2.0}, column="hull_method")
    state = loader_of(out, balance=balance).state_dict()
    assert state["order"].endswith("drop_last=False")  # as earlier versions wrote it
    add_columns(out, LandmarkColumns(DenseStandIn(misses=5)), workers=1)
    with pytest.raises(UsageError, match="the state has order="):
        loader_of(out, balance=balance).load_state_dict(state)


def test_a_state_stays_valid_while_columns_that_its_order_does_not_depend_on_come_and_go(out: Path) -> None:
    by_method = Quotas({"swap": 1, "talk": 1}, column="method")
    states = [(balance, loader_of(out, balance=balance).state_dict()) for balance in (None, by_method)]
    add_columns(out, Colour(), workers=1)
    add_columns(out, LandmarkColumns(DenseStandIn(misses=5)), workers=1)
    for balance, state in states:
        loader = loader_of(out, balance=balance)
        loader.load_state_dict(state)
        assert loader.state_dict() == state
