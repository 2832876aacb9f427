"""`EpochSampler`: the batch requests of one rank for each step of an epoch, and the position that a state saves."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch.utils.data.distributed import DistributedSampler

from ...pipeline.dataset.added_columns import column_origins
from ...pipeline.dataset.index import Selection
from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.errors import UsageError
from ..dataset.selection import Rows
from ..whole_numbers import optional_int, require_int
from .balance import Balance, Unbalanced, check_balance, fitting_batch_size
from .batch_request import BatchRequest
from .bound_balance import BoundBalance
from .hashing import derive_key
from .orders import BLOCK_ROWS, Order
from .padding import first_units, first_units_within_video_limit
from .ranks import checked_ranks, rank_and_world_size
from .repeats import count_earlier
from .row_shuffler import RowShuffler
from .saved_position import STATE_VERSION, saved_position
from .shuffling import Shuffling

_MAX_ORDER_CHARS = 200
_ROWS_AT_ONCE = 1 << 20  # that are hashed; bounds the memory


class OrderedItems(Protocol):
    """What an epoch orders: the rows of a `FaceDataset`, or `ClipItems`."""

    @property
    def index(self) -> IndexLike:
        """Of the dataset."""

    @property
    def selection(self) -> Selection:
        """A row of the index for each item, ascending."""

    @property
    def split(self) -> str | None:
        """That the rows are of; None: all."""

    def __len__(self) -> int: ...


class EpochSampler(DistributedSampler[int]):
    """Yields the batch requests of one rank: as many steps on every rank, in an order that is a pure function.

    Step `s` takes the next `batch_size * num_replicas` rows of the epoch's order; rank `r` prepares the r-th part of
    them. The rows of the last step are distributed in units (a pair, a set of quotas), so that ranks differ by at most
    one unit; only where there are fewer units than ranks, the first units of the epoch are repeated to fill them, with
    `max_per_video` the first ones that keep to it.

    Derives from torch's `DistributedSampler` so that trainers do not replace it by one.
    """

    def __init__(  # not super().__init__: it needs a process group at once, which may be initialized later
        self, dataset: OrderedItems, *, batch_size: int, shuffling: Shuffling, balance: Balance,
        max_per_video: int | None, seed: int, drop_last: bool, rank: int | None, num_replicas: int | None,
    ) -> None:  # fmt: skip
        self.batch_size = require_int("batch_size", batch_size, minimum=1, example=64)
        self.seed = require_int("seed", seed, example=0)
        self.max_per_video = optional_int("max_per_video", max_per_video, minimum=1, example=2)
        if self.max_per_video is not None and shuffling.mode == "none":
            raise UsageError(f"max_per_video={self.max_per_video}: needs shuffle")
        check_balance(balance)
        self.dataset: OrderedItems  # type: ignore[assignment]
        self.dataset, self._shuffling, self.balance = dataset, shuffling, balance
        self.drop_last, self.shuffle = drop_last, False
        self._rank, self._num_replicas = checked_ranks(rank, num_replicas)
        self.epoch, self.first_image = 0, 0
        self.set_epoch_keeps_position = False
        """Whether `set_epoch` of the current epoch keeps the position in it: after `resume`, and during iteration."""
        self.restarts_epoch = False
        """Whether `set_epoch` of the current epoch came during iteration: once that ends, the epoch begins anew."""
        self.counts_repeats = False
        """Whether requests say how often each row came before: its order has to be sorted once an epoch."""
        self.continues_into_next_epoch = False
        """Whether an iteration that begins now goes on with the requests of the epochs that follow, without an end."""
        self.requests_left: Iterator[BatchRequest] | None = None
        """Those of an iteration that has begun, with which the next `iter()` goes on."""
        self.next_epoch_failed = False
        """Whether the last iteration that was to go on has ended, since an epoch that follows cannot be ordered."""
        self._prepare: Callable[[EpochSampler, BatchRequest], BatchRequest] | None = None
        self._bound_balance_cache: tuple[tuple[Any, ...], BoundBalance] | None = None
        self._order_cache: tuple[tuple[Any, ...], Order] | None = None
        self._repeats_cache: tuple[Order, NDArray[np.uint32]] | None = None

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Rank of this process."""
        return rank_and_world_size()[0] if self._rank is None else self._rank

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """Number of ranks that share each step."""
        return rank_and_world_size()[1] if self._num_replicas is None else self._num_replicas

    @property
    def shuffling(self) -> Shuffling:
        """How rows are shuffled; with `max_per_video`, windows hold whole batches, each about as many."""
        if self._shuffling.mode != "window" or self.max_per_video is None:
            return self._shuffling
        batches = max(self._shuffling.window_images // self.global_batch, -(-BLOCK_ROWS // self.global_batch))
        return replace(self._shuffling, window_images=batches * self.global_batch, batch_images=self.global_batch)

    @property
    def bound_balance(self) -> BoundBalance:
        """The balance, bound to the dataset's rows; raises `UsageError` where these rows cannot provide it."""
        key = self.global_batch, self.balance, self._shuffling, self.max_per_video
        if self._bound_balance_cache is None or self._bound_balance_cache[0] != key:
            shuffler = RowShuffler(
                index=self.dataset.index, shuffling=self.shuffling, batch_images=self.global_batch,
                max_per_video=self.max_per_video,
            )  # fmt: skip
            bound = self.balance.bind(self.dataset.selection, shuffler)
            if self.batch_size % bound.unit_size:
                fitting = fitting_batch_size(self.batch_size, bound.unit_size)
                raise UsageError(
                    f"batch_size={self.batch_size}: cannot hold {self.balance} exactly; take a multiple of "
                    f"{bound.unit_size}, such as {fitting}, or balance=None"
                )
            self._bound_balance_cache = key, bound
        return self._bound_balance_cache[1]

    @property
    def global_batch(self) -> int:
        """Images of one step over all ranks."""
        return self.batch_size * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Selects the next epoch, from its beginning, or from the position of a state that was loaded for it."""
        epoch = require_int("epoch", epoch, example=0)
        if epoch != self.epoch or not self.set_epoch_keeps_position:
            self.position = epoch, 0
        else:
            self.restarts_epoch = True

    @property
    def position(self) -> tuple[int, int]:
        """The current epoch, and how many of its images, over all ranks, were delivered."""
        return self.epoch, self.first_image

    @position.setter
    def position(self, position: tuple[int, int]) -> None:
        self.epoch, self.first_image = position

    def order(self, epoch: int) -> Order:
        """The rows of an epoch in order, of all ranks, computed where they are asked for."""
        settings = epoch, self.global_batch, self.balance, self._shuffling, self.max_per_video, self.seed
        if self._order_cache is None or self._order_cache[0] != settings:
            self._order_cache = None  # before another one takes its memory
            key = derive_key(self.dataset.index.fingerprint, self.seed)
            order = self.bound_balance.epoch_rows(epoch, key) if len(self.dataset) else self.dataset.selection
            self._order_cache = settings, order
        return self._order_cache[1]

    def rows(self, epoch: int) -> Rows:
        """All rows of an epoch in order, of all ranks: uint32 (rows,)."""
        return self.order(epoch)[:]

    def __len__(self) -> int:
        """Steps of a whole epoch, the same on every rank."""
        return self._num_steps(self.num_images, self.global_batch)

    @property
    def steps_left(self) -> int:
        """Steps from the position to the end of its epoch."""
        return self._num_steps(self.num_images - self.first_image, self.global_batch)

    def _num_steps(self, num_images: int, global_batch: int) -> int:
        return num_images // global_batch if self.drop_last else -(-num_images // global_batch)

    @property
    def num_images(self) -> int:
        """Images of a whole epoch over all ranks, before the last step is padded or dropped."""
        return self.bound_balance.num_images if len(self.dataset) else 0

    def __iter__(self) -> Iterator[BatchRequest]:  # type: ignore[override]
        if self.requests_left is not None:
            return self.requests_left
        if self.continues_into_next_epoch:
            self.next_epoch_failed = False
            return self._requests_without_end(self.epoch, self.first_image)
        return self._requests(self.epoch, self.first_image)

    def _requests(self, epoch: int, first_image: int) -> Iterator[BatchRequest]:
        num_steps = self._num_steps(self.num_images - first_image, self.global_batch)
        for number, step in enumerate(range(len(self) - num_steps, len(self))):
            request = self.request(epoch, step, first_image=first_image + number * self.global_batch)
            yield request if self._prepare is None else self._prepare(self, request)

    def _requests_without_end(self, epoch: int, first_image: int) -> Iterator[BatchRequest]:
        yield from self._requests(epoch, first_image)
        for following in itertools.count(epoch + 1):
            num_requests = 0
            try:
                for request in self._requests(following, 0):
                    num_requests += 1
                    yield request
            except Exception:  # once that epoch begins it is raised again: it is none of the epoch in progress
                num_requests = 0
            if not num_requests:
                self.next_epoch_failed = True
                return

    def position_key(self, epoch: int, first_image: int) -> tuple[Any, ...]:
        """All that the requests from an image of an epoch on follow from: where it is the same, so are they."""
        return (
            epoch, first_image, self.batch_size, self.rank, self.num_replicas, self.counts_repeats,
            *self.order_identity().values(),
        )  # fmt: skip

    def prepare_requests_with(self, prepare: Callable[[EpochSampler, BatchRequest], BatchRequest]) -> None:
        """Passes every request of a later iteration through `prepare`, together with this sampler.

        So `prepare` needs no reference to the sampler: with a cycle, memory would stay until a collection.
        """
        self._prepare = prepare

    def request(self, epoch: int, step: int, *, first_image: int | None = None) -> BatchRequest:
        """The request of this rank for one step.

        `first_image`: images of the epoch before it; None: `step` full steps of this batch size, as in every epoch that
        was not begun with another one.
        """
        order = self.order(epoch)
        start = step * self.global_batch if first_image is None else first_image
        positions = self._padded(np.arange(start, min(start + self.global_batch, len(order))), order)
        in_step = self._rank_part(len(positions))
        own = positions[in_step]
        return BatchRequest(epoch, step, order[own], in_step, start, repeats=self._repeats(epoch, own))

    def _repeats(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.uint32] | None:
        """How often the rows at these positions came before in the epoch; padding does not count as coming again."""
        if not self.counts_repeats:
            return None
        if isinstance(self.balance, Unbalanced):
            return np.zeros(len(positions), np.uint32)
        order = self.order(epoch)
        if self._repeats_cache is None or self._repeats_cache[0] is not order:
            self._repeats_cache = order, count_earlier(order[:])
        return self._repeats_cache[1][positions]

    def _padded(self, positions: NDArray[np.int64], order: Order) -> NDArray[np.int64]:
        """A step's positions in an epoch of that order, and those that are repeated so that every rank has a unit."""
        unit = self.bound_balance.unit_size
        missing = self.num_replicas - len(positions) // unit
        if missing <= 0:
            return positions
        if self.max_per_video is None:
            return np.append(positions, first_units(len(order), unit, missing))
        videos = self.dataset.index.codes("video_id", order[:])
        return np.append(positions, first_units_within_video_limit(
            videos, unit, missing, num_last=len(positions), max_per_video=self.max_per_video
        ))  # fmt: skip

    def _rank_part(self, num_images: int) -> NDArray[np.int64]:
        """Which images of a step of `num_images` are this rank's, int64, ascending."""
        units = np.arange(num_images).reshape(-1, self.bound_balance.unit_size)
        return np.array_split(units, self.num_replicas)[self.rank].ravel()

    def windows(self, epoch: int) -> Iterator[Rows]:
        """The rows of an epoch in segments of `window_images`: those in which they are shuffled, and are read ahead."""
        return (self.window(epoch, number) for number in range(self.num_windows))

    def window(self, epoch: int, number: int) -> Rows:
        """The rows of one of the `windows` of an epoch."""
        start, end = self._window_bounds[number : number + 2].tolist()
        return self.order(epoch)[start:end]

    @property
    def num_windows(self) -> int:
        """How many `windows` an epoch has."""
        return len(self._window_bounds) - 1

    def window_range(self, request: BatchRequest) -> tuple[int, int]:
        """The first and the last window that a step takes images from."""
        last_image = min(request.first_image + self.global_batch, self.num_images) - 1
        first, last = np.searchsorted(self._window_bounds, [request.first_image, last_image], side="right") - 1
        return int(first), int(last)

    @property
    def _window_bounds(self) -> NDArray[np.int64]:
        """Those of an epoch; without shuffling, the same segments are only read ahead."""
        return replace(self.shuffling, mode="window").window_bounds(self.num_images)

    @property
    def padded_images(self) -> int:
        """Images of an epoch that are repeated so that every rank has some in the last step."""
        remainder = self.num_images % self.global_batch
        if self.drop_last or not remainder:
            return 0
        return max(self.num_replicas * self.bound_balance.unit_size - remainder, 0)

    @property
    def dropped_images(self) -> int:
        """Images of an epoch that `drop_last` leaves out."""
        return self.num_images % self.global_batch if self.drop_last else 0

    @cached_property
    def _rows_hash(self) -> int:
        """Hash of the row numbers: different filters may select the same rows, and their text may be abbreviated."""
        rows, content = self.dataset.selection, hashlib.blake2b(digest_size=8)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            content.update(rows[start : start + _ROWS_AT_ONCE].data)
        return int.from_bytes(content.digest(), "little")

    def order_identity(self) -> dict[str, Any]:
        """What the order depends on: a state can be loaded only where this is the same."""
        data = self.dataset
        return {
            "fingerprint": data.index.fingerprint,
            "rows": f"{len(data)} rows {self._rows_hash:016x}",
            "order": _shortened(
                self._origins_of_values()  # first, to be read in a message that shortens the rest
                + f"{self._shuffling} {self.balance} max_per_video={self.max_per_video} drop_last={self.drop_last}"
                + (" in equal windows" if self.shuffling.batch_images is not None else "")
                + (f" {order}" if (order := getattr(self._each_balance, "order", "")) else "")
                + getattr(data, "identity", "")
            ),
            "seed": self.seed,
        }

    @property
    def _each_balance(self) -> Balance:
        """The balance, of a mixture that of each dataset."""
        each: Balance = getattr(self.balance, "each", self.balance)
        return each

    def _origins_of_values(self) -> str:
        """Which added columns the balance goes by, of each dataset of a mixture; "" where its values are stored ones.

        They may come, go and change, and the balance's values with them, while the dataset's fingerprint stays.
        """
        column = getattr(self._each_balance, "column", "label")
        indexes = getattr(self.dataset.index, "indexes", [self.dataset.index])
        origins = [column_origins(index.schema).get(column, "stored") for index in indexes]
        return f"{column} of {', '.join(origins)}; " if {*origins} != {"stored"} else ""

    def state(self) -> dict[str, Any]:
        """The position, and the identity of the order that it is a position in."""
        return {
            "version": STATE_VERSION, **self.order_identity(), "global_batch": self.global_batch,
            "epoch": self.epoch, "images": self.first_image,
        }  # fmt: skip

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continues at the position of a state; raises `UsageError` where the state is of another order.

        Where `drop_last` leaves none of the images that remain of its epoch, as with larger batches than before, that
        is the beginning of the next epoch.
        """
        self.position = saved_position(
            state, identity=self.order_identity(), global_batch=self.global_batch, needs_batch=self._needs_batch,
            num_images=self.num_images, unit_size=lambda: self.bound_balance.unit_size, num_steps=self._num_steps,
        )  # fmt: skip
        if state["version"] == STATE_VERSION and len(self) and not self.steps_left:
            self.position = self.epoch + 1, 0
        self.set_epoch_keeps_position = True

    def copy_outside_iteration(self) -> Self:
        """A copy at the same position that no iteration moves; it computes its orders itself."""
        sampler = copy.copy(self)
        sampler.__dict__.update(
            restarts_epoch=False, requests_left=None, _prepare=None, _bound_balance_cache=None, _order_cache=None,
            _repeats_cache=None,
        )  # fmt: skip
        return sampler

    @property
    def _needs_batch(self) -> str | None:
        """By what the order depends on how many images a step has; None where it does not."""
        if self.max_per_video is not None:
            return "max_per_video"
        return "epochs of so many batches" if getattr(self.balance, "depends_on_batch", False) else None


def _shortened(text: str) -> str:
    """The text; where it is long, its beginning and a hash of the whole, so that states stay small."""
    return text if len(text) <= _MAX_ORDER_CHARS else f"{text[:_MAX_ORDER_CHARS]}... {derive_key(text):016x}"
