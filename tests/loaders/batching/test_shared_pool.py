"""What a training loop notices of memory that is used again: nothing, whatever it keeps, for as long as it likes."""

from __future__ import annotations

import gc
from collections import deque
from pathlib import Path

import torch
from assets_random import examples
from facefeed.loaders.batching.shared_pool import SharedBatchPool, with_release_callback
from hypothesis import given
from hypothesis import strategies as st


def test_lent_memory_comes_back_when_the_tensor_and_all_that_looks_at_it_are_gone() -> None:
    back: list[int] = []
    block = torch.zeros(4, 6)
    lent = with_release_callback(block, lambda: back.append(1))
    assert lent.data_ptr() == block.data_ptr()
    holders = [lent.view(24), lent[1:3], lent.T, lent.numpy(), lent.detach()]
    del lent
    while holders:
        gc.collect()
        assert back == []
        holders.pop()
    assert back == [1]


def test_what_is_computed_from_lent_memory_does_not_hold_it() -> None:
    back: list[int] = []
    lent = with_release_callback(torch.ones(3), lambda: back.append(1))
    made = lent * 2, lent.clone(), lent.to(torch.float64)
    del lent
    assert back == [1]
    assert [float(each.sum()) for each in made] == [6, 3, 3]


def test_lent_memory_may_be_written_to_and_trained_with() -> None:
    lent = with_release_callback(torch.ones(3), lambda: None)
    lent.mul_(3)
    lent.requires_grad_()
    (lent * lent).sum().backward()
    assert lent.grad is not None
    assert lent.grad.tolist() == [6, 6, 6]


# ---- the pool


@examples(60)
@given(st.lists(st.sampled_from(["issue", "deliver", "release", "drop", "break off"]), max_size=60), st.integers(1, 5))
def test_no_slot_is_ever_written_to_while_somebody_holds_it(steps: list[str], slots: int) -> None:
    pool = SharedBatchPool(slots, 2 * 2 * 2 * 3, torch.uint8)
    under_way: deque[int] = deque()
    held: deque[tuple[int, torch.Tensor]] = deque()
    for step in steps:
        if step == "issue":
            slot = pool.acquire()
            in_use = [*under_way, *(other for other, _ in held)]
            assert slot not in in_use
            assert (slot is None) == (len(in_use) == slots)
            if slot is not None:
                under_way.append(slot)
        elif step == "deliver" and under_way:
            slot = under_way.popleft()
            held.append((slot, pool.borrow(slot, (1, 2, 2, 3))))
        elif step == "release" and under_way:
            pool.release(under_way.popleft())
        elif step == "drop" and held:
            held.popleft()
        elif step == "break off":
            under_way.clear()
            pool.reclaim()
    held.clear()
    pool.reclaim()
    assert {pool.acquire() for _ in range(slots)} == set(range(slots))
    assert pool.acquire() is None


def test_a_slot_shows_what_was_written_to_it_and_no_more_images_than_there_are() -> None:
    pool = SharedBatchPool(3, 4 * 5 * 5 * 3, torch.float32)
    slot = pool.acquire()
    assert slot is not None
    pool.blocks[slot] = 7
    lent = pool.borrow(slot, (3, 5, 4, 3))
    assert lent.shape == (3, 5, 4, 3)
    assert bool((lent == 7).all())
    pool.blocks[slot] = 8
    assert bool((lent == 8).all())


def test_a_slot_has_no_room_for_more_than_it_was_made_for() -> None:
    pool = SharedBatchPool(2, 4 * 5 * 5 * 3, torch.uint8)
    assert pool.view(1, (4, 5, 5, 3)) is not None
    assert pool.view(1, (2, 7, 7, 3)) is not None
    assert pool.view(1, (4, 5, 6, 3)) is None


def test_memory_that_no_other_process_writes_to_is_not_shared() -> None:
    assert not SharedBatchPool(2, 8, torch.uint8, shared=False).blocks.is_shared()


def test_its_memory_is_shared_and_has_no_name_that_could_stay_behind() -> None:
    pool = SharedBatchPool(2, 64 * 64 * 3, torch.uint8)
    assert pool.blocks.is_shared()
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [([int(end, 16) for end in line[0].split("-")], line[-1]) for line in lines]
    (name,) = [name for (start, end), name in ranges if start <= pool.blocks.data_ptr() < end]
    assert name.startswith("/dev/shm/")
    assert name.endswith(" (deleted)")
