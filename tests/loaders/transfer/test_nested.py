"""Batches of any nesting: what is found in them, and what a step that changes one leaves of another."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from typing import Any, NamedTuple

import torch
from facefeed.loaders.transfer.nested import iter_tensors, rebuild


class Pair(NamedTuple):
    image: torch.Tensor
    label: int


def nested() -> dict[str, Any]:
    return {
        "pair": Pair(torch.zeros(1), 3),
        "list": [torch.zeros(2), {"a": torch.zeros(3)}],
        "ordered": OrderedDict(b=torch.zeros(4)),
        "encoding": UserDict(c=torch.zeros(5)),
        "name": "a",
    }


def test_tensors_are_found_in_whatever_they_lie() -> None:
    assert [len(tensor) for tensor in iter_tensors(nested())] == [1, 2, 3, 4, 5]


def test_a_batch_is_moved_in_whatever_it_lies() -> None:
    moved = rebuild(nested(), lambda tensor: tensor.to("meta"))
    assert [tensor.is_meta for tensor in iter_tensors(moved)] == [True] * 5
    assert [type(moved[name]) for name in ("pair", "list", "ordered", "encoding")] == [
        Pair, list, OrderedDict, UserDict
    ]  # fmt: skip
    assert (moved["pair"].label, moved["name"]) == (3, "a")


def test_what_is_taken_out_of_a_rebuilt_batch_stays_in_the_first_one() -> None:
    batch = nested()
    rebuilt = rebuild(batch)
    assert all(one is other for one, other in zip(iter_tensors(batch), iter_tensors(rebuilt), strict=True))
    for part in (rebuilt["list"], rebuilt["list"][1], rebuilt["ordered"], rebuilt["encoding"], rebuilt):
        part.clear()
    assert len([*iter_tensors(batch)]) == 5
