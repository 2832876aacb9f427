"""What happens as a ticket goes out: it gets the block for its batch, and its window is read ahead."""

from __future__ import annotations

from dataclasses import replace

from ..batching.batch import BatchSource
from ..sampling.epoch_sampler import EpochSampler, Ticket
from .readahead import ReadAhead


class Issuer:
    """Adds to tickets what the loader's process alone can give; knows no loader, so that one ends when it is let go."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._ahead: ReadAhead | None = None
        self._due = (-1, -1)  # epoch and step of the next ticket, if it follows the last
        self._asked = -1

    def __call__(self, order: EpochSampler, ticket: Ticket) -> Ticket:
        """The same ticket with a slot, where there is a ring and one is free."""
        if order.shuffling.mode == "window":
            self._read_ahead(order, ticket)
        ring = self._source.ring
        return ticket if ring is None else replace(ticket, slot=ring.issue())

    def _read_ahead(self, order: EpochSampler, ticket: Ticket) -> None:
        """Asks for the windows that a ticket's step reads from, and the one after them, each once."""
        if self._ahead is None:
            self._ahead = ReadAhead(self._source.out, self._source.index)
        if self._due != (ticket.epoch, ticket.step):
            self._asked = -1
        self._due = ticket.epoch, ticket.step + 1
        first, last = order.windows_of(ticket)
        windows = order.windows(ticket.epoch)
        for number in range(max(first, self._asked + 1), min(last + 2, len(windows))):
            self._ahead.ask(windows[number])
            self._asked = number
