"""What happens as a ticket goes out: it gets the block for its batch, and its window is read ahead."""

from __future__ import annotations

from dataclasses import replace

from .batch import BatchSource
from .readahead import ReadAhead
from .sampler import EpochSampler, Ticket


class Issuer:
    """Adds to tickets what the loader's process alone can give; knows no loader, so that one ends when it is let go."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._ahead: ReadAhead | None = None
        self._asked: tuple[int, int] = (-1, -1)  # epoch, window

    def __call__(self, order: EpochSampler, ticket: Ticket) -> Ticket:
        """The same ticket with a slot, where there is a ring and one is free."""
        if order.shuffling.mode == "window":
            self._read_ahead(order, ticket)
        ring = self._source.ring
        return ticket if ring is None else replace(ticket, slot=ring.issue())

    def _read_ahead(self, order: EpochSampler, ticket: Ticket) -> None:
        """Asks for the window that a ticket reads from, and the one after it, each once."""
        if self._ahead is None:
            self._ahead = ReadAhead(self._source.out, self._source.index)
        here = ticket.step * order.global_batch // order.shuffling.window_images
        epoch, asked = self._asked
        first = max(here, asked + 1) if epoch == ticket.epoch else here
        windows = order.windows(ticket.epoch)
        for number in range(first, min(here + 2, len(windows))):
            self._ahead.ask(windows[number])
            self._asked = ticket.epoch, number
