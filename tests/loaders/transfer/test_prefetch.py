"""What a loop notices of batches that are transferred ahead: their order, and what each `next()` waits for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from facefeed.loaders.transfer.prefetch import one_ahead, prefetch_to_device


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


def test_all_iterations_share_one_side_stream_since_memory_is_kept_by_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()
    monkeypatch.setattr(torch.cuda, "Stream", made.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 105)
    for device in (torch.device("cuda"), torch.device("cuda", 105), torch.device("cuda")):
        assert list(prefetch_to_device(iter([]), str, device)) == []
    assert made == [105]
