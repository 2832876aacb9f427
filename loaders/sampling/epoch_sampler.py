"""From the order of an epoch to the batches of one rank: tickets that say what to make, and nothing that was made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data.distributed import DistributedSampler

from ...pipeline.errors import UsageError
from .. import validation
from ..dataset.face_dataset import FaceDataset
from ..dataset.selection import Rows
from .balance import Balance, Mix
from .order import BLOCK_ROWS, Shuffling, key_of
from .spreading import Arrangement

_LONGEST = 200
_VERSION = 2  # of states: 1 counted steps, 2 counts images


@dataclass(frozen=True)
class Ticket:
    """One batch to be made: `rows` of the index; `places`, where each stands in the step's batch over all ranks.

    `start`: images of the epoch, over all ranks, before this step. `slot`: the shared block that it is to be written
    to, or None.
    """

    epoch: int
    step: int
    rows: Rows
    places: NDArray[np.int64]
    start: int
    slot: int | None = None


def world() -> tuple[int, int]:
    """Rank of this process, and the number of ranks, of the default process group; (0, 1) where there is none."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def _as_it_is(order: EpochSampler, ticket: Ticket) -> Ticket:  # noqa: ARG001 (a loader's own adds to the ticket)
    return ticket


class EpochSampler(DistributedSampler[int]):
    """Tickets of one rank: the same steps on every rank, in an order that is a pure function of numbers.

    Step `s` takes the next `batch_size * num_replicas` rows of the epoch's order; rank `r` makes the r-th part of
    them. The last step's rows are dealt out in units (a pair, a set of quotas), so that ranks differ by at most one
    unit; only where there are fewer units than ranks, the first units of the epoch are repeated to fill them.

    It is one of torch's `DistributedSampler`s so that trainers do not put another one in its place.
    """

    def __init__(  # not super().__init__: it asks for a process group at once, ours may come later
        self, dataset: FaceDataset, *, batch_size: int, shuffling: Shuffling, balance: Balance,
        max_per_video: int | None, seed: int, drop_last: bool, rank: int | None, num_replicas: int | None,
    ) -> None:  # fmt: skip
        batch_size = validation.whole("batch_size", batch_size, least=1, such_as=64)
        seed = validation.whole("seed", seed, least=None, such_as=0)
        if max_per_video is not None:
            max_per_video = validation.whole("max_per_video", max_per_video, least=1, such_as=2)
            if shuffling.mode == "none":
                raise UsageError(f"max_per_video={max_per_video}: needs shuffle")
        if isinstance(balance, type) or not hasattr(balance, "bind"):
            raise UsageError(f"balance={balance!r}: must be a balance, such as Quotas({{'real': 1, 'fake': 1}})")
        self.batch_size, self.seed, self.drop_last, self.shuffle = batch_size, seed, drop_last, False
        self.epoch, self.first_image = 0, 0
        self.keeps_position = False
        """Whether `set_epoch` of the epoch that is due goes on within it: after `resume`, and while it is iterated."""
        self.on_issue: Callable[[EpochSampler, Ticket], Ticket] = _as_it_is
        self.dataset: FaceDataset
        self.dataset, self._shuffling, self.balance, self.max_per_video = dataset, shuffling, balance, max_per_video
        if (rank is None) != (num_replicas is None):
            raise UsageError("rank and num_replicas: give both, or none to take torch.distributed's")
        if rank is not None and num_replicas is not None:
            rank = validation.whole("rank", rank, such_as=0)
            num_replicas = validation.whole("num_replicas", num_replicas, least=1, such_as=1)
            if rank >= num_replicas:
                raise UsageError(f"rank={rank}: must be in 0..{num_replicas - 1}")
        self._rank, self._num_replicas = rank, num_replicas
        self._bound: tuple[tuple[int, Balance], Mix] | None = None
        self._ordered: tuple[tuple[int, int, Balance], Rows] | None = None

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Which of the ranks this is."""
        return world()[0] if self._rank is None else self._rank

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """How many ranks share each step."""
        return world()[1] if self._num_replicas is None else self._num_replicas

    @property
    def shuffling(self) -> Shuffling:
        """How rows are mixed; where videos are counted, windows are of whole batches."""
        if self._shuffling.mode != "window" or self.max_per_video is None:
            return self._shuffling
        batches = max(self._shuffling.window_images // self.global_batch, -(-BLOCK_ROWS // self.global_batch))
        return replace(self._shuffling, window_images=batches * self.global_batch)

    @property
    def mix(self) -> Mix:
        """The balance, bound to the dataset's rows; raises `UsageError` where they cannot give it."""
        wanted = self.global_batch, self.balance
        if self._bound is None or self._bound[0] != wanted:
            arrange = Arrangement(
                index=self.dataset.index, shuffling=self.shuffling, batch_images=self.global_batch,
                max_per_video=self.max_per_video,
            )  # fmt: skip
            mix = self.balance.bind(self.dataset.rows, arrange)
            if self.batch_size % mix.unit:
                raise UsageError(
                    f"batch_size={self.batch_size}: cannot hold {self.balance} exactly; take a multiple of {mix.unit}"
                )
            self._bound = wanted, mix
        return self._bound[1]

    @property
    def global_batch(self) -> int:
        """Images of one step on all ranks."""
        return self.batch_size * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Which epoch comes next, from its beginning; of a state that was loaded for it, the rest."""
        epoch = validation.whole("epoch", epoch, such_as=0)
        if epoch != self.epoch or not self.keeps_position:
            self.position = epoch, 0

    @property
    def position(self) -> tuple[int, int]:
        """The epoch that is due, and how many of its images, over all ranks, were delivered."""
        return self.epoch, self.first_image

    @position.setter
    def position(self, position: tuple[int, int]) -> None:
        self.epoch, self.first_image = position

    def rows(self, epoch: int) -> Rows:
        """All rows of an epoch in order, of all ranks: uint32 (rows,)."""
        state = epoch, self.global_batch, self.balance
        if self._ordered is None or self._ordered[0] != state:
            key = key_of(self.dataset.index.fingerprint, self.seed)
            rows = self.mix.epoch(epoch, key) if len(self.dataset.rows) else self.dataset.rows
            self._ordered = state, rows
        return self._ordered[1]

    def __len__(self) -> int:
        """Steps of a whole epoch, the same on every rank."""
        return self._steps_for(self.images)

    @property
    def steps_left(self) -> int:
        """Steps from the position to the end of its epoch."""
        return self._steps_for(self.images - self.first_image)

    def _steps_for(self, images: int) -> int:
        return images // self.global_batch if self.drop_last else -(-images // self.global_batch)

    @property
    def images(self) -> int:
        """Images of a whole epoch over all ranks, before the last step is filled up or dropped."""
        return self.mix.images if len(self.dataset.rows) else 0

    def __iter__(self) -> Iterator[Ticket]:  # type: ignore[override]
        return self._tickets(self.epoch, self.first_image, len(self) - self.steps_left)

    def _tickets(self, epoch: int, first_image: int, first_step: int) -> Iterator[Ticket]:
        for number, step in enumerate(range(first_step, len(self))):
            yield self.on_issue(self, self.ticket(epoch, step, start=first_image + number * self.global_batch))

    def ticket(self, epoch: int, step: int, *, start: int | None = None) -> Ticket:
        """What this rank has to make in a step.

        `start`: images of the epoch before it; None: as many as steps of this batch size hold, as in every epoch but
        one that was begun with another.
        """
        rows = self.rows(epoch)
        start = step * self.global_batch if start is None else start
        mine = self._part(np.arange(start, min(start + self.global_batch, len(rows))))
        return Ticket(epoch, step, rows[mine % len(rows)], mine - start, start)

    def _part(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The part of this rank in a step's places in the epoch's order; those that fill up go on behind the last."""
        ranks, unit = self.num_replicas, self.mix.unit
        missing = max(ranks * unit - len(places), 0)
        filled = np.append(places, places[-1] + 1 + np.arange(missing))
        return np.array_split(filled.reshape(-1, unit), ranks)[self.rank].ravel()

    def windows(self, epoch: int) -> list[Rows]:
        """The rows of an epoch, window by window."""
        rows = self.rows(epoch)
        return [rows[window] for window in self.shuffling.windows(len(rows))]

    def windows_of(self, ticket: Ticket) -> tuple[int, int]:
        """The first and the last window that a step takes images from."""
        size, start = self.shuffling.window_images, ticket.start
        return start // size, (min(start + self.global_batch, self.images) - 1) // size

    @property
    def padded_images(self) -> int:
        """Images of an epoch that are repeated so that every rank has some in the last step."""
        rest = self.images % self.global_batch
        return 0 if self.drop_last or not rest else max(self.num_replicas * self.mix.unit - rest, 0)

    @property
    def dropped_images(self) -> int:
        """Images of an epoch that `drop_last` leaves out."""
        return self.images % self.global_batch if self.drop_last else 0

    @cached_property
    def _rows_hash(self) -> int:
        """Of the row numbers themselves: filters that differ may select the same, and their text may leave out some."""
        return int.from_bytes(hashlib.blake2b(self.dataset.rows.data, digest_size=8).digest(), "little")

    def identity(self) -> dict[str, Any]:
        """What the order depends on: a state may be loaded only where this is the same."""
        data = self.dataset
        return {
            "fingerprint": data.index.fingerprint,
            "rows": f"{len(data)} rows {self._rows_hash:016x}",
            "order": _short(
                f"{self._shuffling} {self.balance} max_per_video={self.max_per_video} drop_last={self.drop_last}"
            ),
            "seed": self.seed,
        }

    def state(self) -> dict[str, Any]:
        """The position, and what it is a position in."""
        return {
            "version": _VERSION, **self.identity(), "global_batch": self.global_batch,
            "epoch": self.epoch, "images": self.first_image,
        }  # fmt: skip

    def resume(self, state: Mapping[str, Any]) -> None:
        """Goes on at a state's epoch and image; raises `UsageError` where it is of another order."""
        if not isinstance(state, Mapping):
            raise UsageError(f"load_state_dict({state!r}): must be what state_dict() gave")
        if state.get("version") not in (1, _VERSION):
            raise UsageError(f"load_state_dict: version={state.get('version')!r}: this facefeed reads 1 and {_VERSION}")
        for name, mine in self.identity().items():
            if state.get(name) != mine:
                raise UsageError(
                    f"load_state_dict: the state has {name}={state.get(name)!r}, this loader {mine!r}; make the loader "
                    "with the same data and settings, or start the epoch anew"
                )
        if self.max_per_video is not None and state.get("global_batch") != self.global_batch:
            raise UsageError(
                f"load_state_dict: the state has global_batch={state.get('global_batch')!r}, this loader "
                f"{self.global_batch}; with max_per_video the order depends on it; take the same batch_size x ranks, "
                "or start the epoch anew"
            )
        epoch, images = state.get("epoch"), self._images_in(state)
        if type(epoch) is not int or epoch < 0 or images is None or not 0 <= images <= self.images:
            raise UsageError(
                f"load_state_dict: epoch={epoch!r}, images={images!r}: no position in epochs of {self.images} images"
            )
        self.position, self.keeps_position = (epoch, images), True

    def _images_in(self, state: Mapping[str, Any]) -> int | None:
        """Images that a state counts as delivered, whole units; None where it does not say."""
        if state["version"] == 1:  # counted steps of its own batch size
            step, global_batch = state.get("step"), state.get("global_batch")
            if type(step) is not int or type(global_batch) is not int or step < 0:
                return None
            steps = self.images // global_batch if self.drop_last else -(-self.images // global_batch)
            return min(step * global_batch, self.images) if step <= steps else None
        images = state.get("images")
        return images if type(images) is int and images % self.mix.unit == 0 else None


def _short(text: str) -> str:
    """The text, or where it is long its beginning and a hash of it all: states stay small."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... {key_of(text):016x}"
