"""What a training loop would notice of memory that a GPU reads directly: it is never written to too early."""

from __future__ import annotations

import copy

import torch
from facefeed.loaders.batching.shared_pool import SharedBatchPool
from facefeed.loaders.transfer.page_locking import PendingCopies, page_lock


class Moment:
    """An event of a device that reaches it when told to, or is waited for."""

    def __init__(self) -> None:
        self.reached = self.waited_for = False

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        self.reached = self.waited_for = True


def borrowed(pool: SharedBatchPool) -> torch.Tensor:
    slot = pool.acquire()
    assert slot is not None
    return pool.borrow(slot, (1, 2, 2, 3))


def test_a_slot_is_not_free_while_a_copy_from_it_is_pending_even_if_its_tensor_is_gone() -> None:
    pool, pending, moments = SharedBatchPool(2, 12, torch.uint8), PendingCopies(), [Moment(), Moment()]
    for moment in moments:
        pending.hold(borrowed(pool), moment)
    pending.release_finished()
    assert pool.acquire() is None
    moments[1].reached = True  # a later copy, of which the earlier one is the condition
    pending.release_finished()
    assert pool.acquire() is None
    moments[0].reached = True
    pending.release_finished()
    assert [pool.acquire(), pool.acquire(), pool.acquire()].count(None) == 1


def test_at_the_end_all_copies_are_waited_for_before_their_memory_is_free() -> None:
    pool, pending, moments = SharedBatchPool(2, 12, torch.uint8), PendingCopies(), [Moment(), Moment()]
    for moment in moments:
        pending.hold(borrowed(pool), moment)
    pending.wait()
    assert all(moment.waited_for for moment in moments)
    assert None not in (pool.acquire(), pool.acquire())


def test_a_pool_knows_its_own_memory() -> None:
    pool = SharedBatchPool(2, 12, torch.uint8)
    assert pool.holds(borrowed(pool))
    assert pool.holds(pool.blocks[1, 3:])
    assert not pool.holds(torch.zeros(12, dtype=torch.uint8))


def test_a_copy_of_a_pool_is_not_taken_for_page_locked() -> None:
    pool = SharedBatchPool(1, 12, torch.uint8)
    pool.is_page_locked = True
    assert not copy.deepcopy(pool).is_page_locked


def test_memory_that_a_fork_would_move_is_not_page_locked() -> None:
    pool = SharedBatchPool(1, 12, torch.uint8, shared=False)
    page_lock(pool, torch.device("cuda"))
    assert not pool.is_page_locked
