"""A training loop may keep any batch: its memory is reused only when no tensor refers to it."""

from __future__ import annotations

import gc
from collections import deque
from pathlib import Path

import torch
from assets_random import examples
from facefeed.loaders.batching.shared_pool import SharedBatchPool, with_release_callback
from hypothesis import given
from hypothesis import strategies as st


def test_memory_is_released_when_the_tensor_and_all_its_views_are_gone() -> None:
    released: list[int] = []
    block = torch.zeros(4, 6)
    tensor = with_release_callback(block, lambda: released.append(1))
    assert tensor.data_ptr() == block.data_ptr()
    holders = [tensor.view(24), tensor[1:3], tensor.T, tensor.numpy(), tensor.detach()]
    del tensor
    while holders:
        gc.collect()
        assert released == []
        holders.pop()
    assert released == [1]


def test_results_of_computations_do_not_keep_the_memory() -> None:
    released: list[int] = []
    tensor = with_release_callback(torch.ones(3), lambda: released.append(1))
    results = tensor * 2, tensor.clone(), tensor.to(torch.float64)
    del tensor
    assert released == [1]
    assert [float(result.sum()) for result in results] == [6, 3, 3]


def test_shared_memory_that_no_batch_was_written_to_takes_no_pages_of_the_process() -> None:
    pool = SharedBatchPool(3, 1 << 20, torch.float32)
    assert _resident_bytes(pool) == 0
    image = pool.view(0, (1, 4, 4, 3))
    assert image is not None
    image.fill_(1)
    assert 0 < _resident_bytes(pool) < pool.blocks.nbytes // 3


def _resident_bytes(pool: SharedBatchPool) -> int:
    """Of the mapping that the blocks of a pool are in."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.startswith(f"{pool.blocks.data_ptr():x}-"))
    return 1024 * int(next(line for line in lines if line.startswith("Rss:")).split()[1])


def test_borrowed_memory_can_be_written_to_and_takes_gradients() -> None:
    tensor = with_release_callback(torch.ones(3), lambda: None)
    tensor.mul_(3)
    tensor.requires_grad_()
    (tensor * tensor).sum().backward()
    assert tensor.grad is not None
    assert tensor.grad.tolist() == [6, 6, 6]


# ---- the pool


@examples(60)
@given(st.lists(st.sampled_from(["acquire", "borrow", "release", "drop", "interrupt"]), max_size=60), st.integers(1, 5))
def test_no_slot_is_acquired_while_a_tensor_refers_to_it(steps: list[str], slots: int) -> None:
    pool = SharedBatchPool(slots, 2 * 2 * 2 * 3, torch.uint8)
    in_flight: deque[int] = deque()
    borrowed: deque[tuple[int, torch.Tensor]] = deque()
    for step in steps:
        if step == "acquire":
            slot = pool.acquire()
            in_use = [*in_flight, *(other for other, _ in borrowed)]
            assert slot not in in_use
            assert (slot is None) == (len(in_use) == slots)
            if slot is not None:
                in_flight.append(slot)
        elif step == "borrow" and in_flight:
            slot = in_flight.popleft()
            borrowed.append((slot, pool.borrow(slot, (1, 2, 2, 3))))
        elif step == "release" and in_flight:
            pool.release(in_flight.popleft())
        elif step == "drop" and borrowed:
            borrowed.popleft()
        elif step == "interrupt":
            in_flight.clear()
            pool.reclaim()
    borrowed.clear()
    pool.reclaim()
    assert {pool.acquire() for _ in range(slots)} == set(range(slots))
    assert pool.acquire() is None


def test_a_borrowed_slot_has_what_was_written_to_it_in_the_shape_asked_for() -> None:
    pool = SharedBatchPool(3, 4 * 5 * 5 * 3, torch.float32)
    slot = pool.acquire()
    assert slot is not None
    pool.blocks[slot] = 7
    tensor = pool.borrow(slot, (3, 5, 4, 3))
    assert tensor.shape == (3, 5, 4, 3)
    assert bool((tensor == 7).all())
    pool.blocks[slot] = 8
    assert bool((tensor == 8).all())


def test_a_slot_has_no_view_larger_than_itself() -> None:
    pool = SharedBatchPool(2, 4 * 5 * 5 * 3, torch.uint8)
    assert pool.view(1, (4, 5, 5, 3)) is not None
    assert pool.view(1, (2, 7, 7, 3)) is not None
    assert pool.view(1, (4, 5, 6, 3)) is None


def test_memory_that_no_other_process_writes_to_is_not_shared() -> None:
    assert not SharedBatchPool(2, 8, torch.uint8, shared=False).blocks.is_shared()


def test_its_memory_is_shared_and_has_no_name_that_could_outlive_it() -> None:
    pool = SharedBatchPool(2, 64 * 64 * 3, torch.uint8)
    assert pool.blocks.is_shared()
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [([int(end, 16) for end in line[0].split("-")], line[-1]) for line in lines]
    (name,) = [name for (start, end), name in ranges if start <= pool.blocks.data_ptr() < end]
    assert name.startswith("/dev/shm/")
    assert name.endswith(" (deleted)")
