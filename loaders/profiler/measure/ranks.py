"""The ranks of the current job, and the values that they exchange so that all run the same steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from torch import distributed

from ....pipeline.errors import FacefeedError, UsageError

T = TypeVar("T")

_JOIN_TIMEOUT = timedelta(minutes=5)


class LostRankError(FacefeedError, RuntimeError):
    """Another rank has ended, or did not come to where this one waits for it."""

    exit_code = 1


class RankGroup:
    """A torch.distributed group of the backend gloo; without a group, this process alone.

    num_unseen: other ranks that a launcher has started while this process has no group.
    """

    def __init__(self, group: Any = None, *, num_unseen: int = 0) -> None:
        self._group, self.num_unseen = group, num_unseen
        self.rank = 0 if group is None else distributed.get_rank(group)
        self.world_size = 1 if group is None else distributed.get_world_size(group)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a verdict of these ranks does not cover; see `Verdict`."""
        if not self.num_unseen:
            return ()
        others = f"the other {self.num_unseen} ranks were" if self.num_unseen > 1 else "the other rank was"
        return (f"{others} not seen, and a job waits for all of them; call init_process_group first",)

    def all_gather(self, value: T) -> list[T]:
        """Every rank's value, in rank order. Blocks until all ranks have called it.

        Raises `LostRankError` where another rank has ended, or does not call it within five minutes.
        """
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        try:
            distributed.all_gather_object(values, value, group=self._group)
        except RuntimeError as error:
            raise LostRankError(
                f"profile() inside a job of {self.world_size} ranks: rank {self.rank} has lost another one, which has "
                "ended, or not come along for five minutes; what that rank printed says why "
                f"({str(error).splitlines()[0]})"
            ) from error
        return values

    def require_same(self, **settings: Any) -> None:
        """Raises `UsageError` on all ranks where their settings differ."""
        all_settings = self.all_gather(settings)
        for name, own_value in settings.items():
            if any(other[name] != own_value for other in all_settings):
                values = ", ".join(str(other[name]) for other in all_settings)
                raise UsageError(f"{name}: has to be the same on all ranks, and is {values}")

    def all_max(self, value: int) -> int:
        """The largest value of any rank."""
        return max(self.all_gather(value))


@contextmanager
def default_rank_group() -> Iterator[RankGroup]:
    """A gloo group of all ranks of torch.distributed's default group; this process alone where there is none.

    All ranks have to enter it: raises `UsageError` where one does not within five minutes, or the group cannot be
    created.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        yield RankGroup(num_unseen=_num_launched_ranks() - 1)
        return
    if distributed.get_world_size() == 1:
        yield RankGroup()
        return
    try:
        group = distributed.new_group(backend="gloo", timeout=_JOIN_TIMEOUT)
    except RuntimeError as error:
        count, reason = distributed.get_world_size(), str(error).splitlines()[0]
        raise UsageError(
            f"profile() inside a job of {count} ranks: they cannot be brought together over gloo; each of them has to "
            f"call it within five minutes ({reason})"
        ) from error
    try:
        yield RankGroup(group)
    finally:
        distributed.destroy_process_group(group)


def _num_launched_ranks() -> int:
    """Ranks of this process's job, at least 1, as torchrun, and what builds on it, states for each of them."""
    world_size = os.environ.get("WORLD_SIZE", "")
    return max(int(world_size), 1) if world_size.isdecimal() else 1
