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


class Named(list[Any]):
    """Is made of other arguments than its items, and has more than these."""

    def __init__(self, image: torch.Tensor, label: int) -> None:
        super().__init__([image, label])
        self.video_ids = ["a"]


class Made(tuple[Any, ...]):
    """Is made of other arguments than its items."""

    video_ids: list[str]

    def __new__(cls, image: torch.Tensor, label: int) -> Made:
        return super().__new__(cls, (image, label))


class ReadOnly(dict[str, Any]):
    def __setitem__(self, name: str, value: Any) -> None:
        raise TypeError(f"{name}: cannot be changed to {value}")


class ReadOnlyList(list[Any]):
    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(f"{index}: cannot be changed to {value}")


def test_a_list_of_a_class_of_its_own_keeps_what_it_has_besides_its_items() -> None:
    batch = Named(torch.zeros(2), 3)
    rebuilt = rebuild(batch)
    assert (type(rebuilt), rebuilt.video_ids, rebuilt[1]) == (Named, ["a"], 3)
    rebuilt.clear()
    assert len(batch) == 2


def test_a_tuple_of_a_class_of_its_own_is_made_whatever_its_constructor_takes() -> None:
    batch = Made(torch.zeros(2), 3)
    batch.video_ids = ["a"]
    moved = rebuild(batch, lambda tensor: tensor.to("meta"))
    assert (type(moved), moved.video_ids, moved[0].is_meta, moved[1]) == (Made, ["a"], True, 3)
    largest = rebuild(torch.zeros(2, 3).max(dim=1))
    assert (type(largest), len(largest)) == (torch.return_types.max, 2)


def test_a_dict_that_cannot_be_changed_is_passed_on_as_it_is_and_moved_as_a_plain_one() -> None:
    batch = ReadOnly(image=torch.zeros(2))
    assert rebuild(batch) is batch
    moved = rebuild(batch, lambda tensor: tensor.to("meta"))
    assert (type(moved), moved["image"].is_meta) == (dict, True)


def test_a_list_that_cannot_be_changed_is_passed_on_as_it_is_and_moved_as_a_plain_one() -> None:
    batch = ReadOnlyList([torch.zeros(2)])
    assert rebuild(batch) is batch
    moved = rebuild(batch, lambda tensor: tensor.to("meta"))
    assert (type(moved), moved[0].is_meta) == (list, True)
