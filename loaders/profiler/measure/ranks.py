"""The ranks of a job, of which this process is one: what they agree on, so that all of them do the same steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from torch import distributed

from ....pipeline.errors import UsageError

T = TypeVar("T")

_LONGEST_APART = timedelta(minutes=5)


class Ranks:
    """Those of a torch.distributed group of the backend gloo; without a group this process alone."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.number = 0 if group is None else distributed.get_rank(group)
        self.count = 1 if group is None else distributed.get_world_size(group)

    def gathered(self, value: T) -> list[T]:
        """Every rank's value, in the order of the ranks. Waits for all of them."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value, group=self._group)
        return values

    def agree(self, **settings: Any) -> None:
        """Raises `UsageError` on all ranks where one of them was given other settings: each has to do the same."""
        told = self.gathered(settings)
        for name, ours in settings.items():
            if any(other[name] != ours for other in told):
                each = ", ".join(str(other[name]) for other in told)
                raise UsageError(f"{name}: has to be the same on all ranks, and is {each}")

    def most(self, value: int) -> int:
        """The largest that any rank has."""
        return max(self.gathered(value))


@contextmanager
def ranks_of_this_job() -> Iterator[Ranks]:
    """All ranks of torch.distributed's default group, whatever its backend; this process alone where there is none.

    All of them have to come here: raises `UsageError` where one does not within five minutes, or none can.
    """
    available = distributed.is_available() and distributed.is_initialized()
    if not available or distributed.get_world_size() == 1:
        yield Ranks()
        return
    try:
        group = distributed.new_group(backend="gloo", timeout=_LONGEST_APART)
    except RuntimeError as error:
        count, said = distributed.get_world_size(), str(error).splitlines()[0]
        raise UsageError(
            f"profile() inside a job of {count} ranks: they cannot be brought together over gloo; each of them has to "
            f"call it within five minutes ({said})"
        ) from error
    try:
        yield Ranks(group)
    finally:
        distributed.destroy_process_group(group)
