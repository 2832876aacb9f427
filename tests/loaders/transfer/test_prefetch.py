"""What a loop notices of batches that are transferred ahead: their order, and what each `next()` waits for."""

from __future__ import annotations

from collections.abc import Iterator

from facefeed.loaders.transfer.prefetch import one_ahead


def test_the_next_batch_is_under_way_when_one_is_delivered_and_the_last_waits_for_none() -> None:
    events = list[str]()

    def received() -> Iterator[int]:
        for number in range(3):
            events.append(f"received {number}")
            yield number

    def start(number: int) -> int:
        events.append(f"started {number}")
        return number

    for number in one_ahead(received(), start, lambda started: started):
        events.append(f"step {number}")
    assert events == [
        "received 0", "started 0", "received 1", "started 1", "step 0", "received 2", "started 2", "step 1", "step 2"
    ]  # fmt: skip


def test_a_single_batch_is_delivered_and_none_of_none() -> None:
    assert list(one_ahead(iter([7]), str, str)) == ["7"]
    assert list(one_ahead(iter([]), str, str)) == []
