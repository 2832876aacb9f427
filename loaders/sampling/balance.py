"""The `balance=` argument: every row once, exact quotas, weights, or real/fake pairs.

Each is a frozen value that users pass to `FaceDataLoader(balance=...)`. Bound to the rows of a dataset it becomes a
`BoundBalance`, which gives the rows of every epoch in order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import Selection
from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.dataset.schema import real_class
from ...pipeline.errors import UsageError
from ..real_numbers import as_float
from ..whole_numbers import require_int
from .balance_names import BalanceName
from .bound_balance import BoundBalance, BoundQuotas, BoundUnits, BoundWeights
from .pairing import pair_with_source
from .row_shuffler import RowShuffler

_log = logging.getLogger("facefeed.loaders")
_MAX_WEIGHT = 1e9  # keeps the sum over any number of rows precise


class Balance(Protocol):
    """What a loader accepts as `balance`.

    One that has `is_paired = True` gives rows of a real and its fake in turn; one whose epochs depend on the images of
    a step, over all ranks, has `depends_on_batch = True`.
    """

    def bind(self, rows: Selection, shuffler: RowShuffler) -> BoundBalance:
        """Binds the balance to the selected rows; raises `UsageError` where these rows cannot provide it."""


def check_balance(balance: Any) -> None:
    """Raises `UsageError` on what is no balance."""
    if isinstance(balance, type) or not hasattr(balance, "bind"):
        raise UsageError(f"balance={balance!r}: must be a balance, such as Quotas({{'real': 1, 'fake': 1}})")


@dataclass(frozen=True, kw_only=True)
class Unbalanced:
    """Every selected row once an epoch."""

    def __repr__(self) -> str:
        """The name that saved states have for it."""
        return "Natural()"

    def bind(self, rows: Selection, shuffler: RowShuffler) -> BoundBalance:
        """See `Balance`."""
        return BoundUnits([rows], shuffler)


@dataclass(frozen=True)
class Quotas:
    """Exact shares in every batch: `Quotas({"real": 1, "fake": 3})` makes a quarter of each batch real.

    Each value cycles through its own rows, across the ends of epochs, so that within one value all rows come equally
    often; an epoch has as many images as there are rows of the named values. The batch size must be a multiple of the
    sum of the shares.

    Args:
        shares: positive integers by value.
        column: whose values are named: "label" by its names, else a column of strings such as "method".

    """

    shares: Mapping[str, int]
    column: str = "label"

    def __post_init__(self) -> None:
        if not isinstance(self.shares, Mapping) or not self.shares:
            raise UsageError(f"Quotas({self.shares!r}): needs a share for each value; try {{'real': 1, 'fake': 1}}")
        shares = {
            name: require_int(f"Quotas: {name}", share, minimum=1, example=1) for name, share in self.shares.items()
        }
        object.__setattr__(self, "shares", shares)  # in one form, as saved states hold its text

    def in_order_of(self, index: IndexLike) -> Quotas:
        """The same shares in the order of the index's values.

        Their order decides that of an epoch, and those of a dict that was built of a set differ between ranks and runs.
        """
        names = _value_names(index, self.column)
        ordered = sorted(self.shares, key=lambda name: names.index(name) if name in names else len(names))
        return replace(self, shares={name: self.shares[name] for name in ordered})

    def bind(self, rows: Selection, shuffler: RowShuffler) -> BoundBalance:
        """See `Balance`."""
        if shuffler.shuffling.mode == "window" and shuffler.max_per_video is not None:
            raise UsageError("Quotas: max_per_video cannot hold together with shuffle='window'; take shuffle='full'")
        groups, notes = _rows_by_value(rows, shuffler.index, self.column, list(self.shares))
        return BoundQuotas(groups, list(self.shares.values()), shuffler, notes)


@dataclass(frozen=True)
class Weights:
    """Rows drawn with replacement, each with the weight of its value.

    `Weights({"NeuralTextures": 2.0}, column="method")` draws these twice as often as others. An epoch has as many
    images as there are rows.

    Args:
        weights: weights by value; values that are not named have weight 1.
        column: whose values are named: "label" by its names, else a column of strings such as "method".

    """

    weights: Mapping[str, float]
    column: str = "label"

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise UsageError(f"Weights({self.weights!r}): needs a weight for each value; try {{'fake': 2.0}}")
        for name, weight in self.weights.items():
            if not 0 <= as_float(weight) <= _MAX_WEIGHT:
                raise UsageError(f"Weights: {name}={weight!r}: must be a number from 0 to {_MAX_WEIGHT:g}; try 2.0")
        # In one form, as saved states hold its text.
        weights = {name: float(self.weights[name]) for name in sorted(self.weights, key=str)}
        object.__setattr__(self, "weights", weights)

    def bind(self, rows: Selection, shuffler: RowShuffler) -> BoundBalance:
        """See `Balance`."""
        if shuffler.max_per_video is not None or shuffler.shuffling.mode == "window":
            raise UsageError(
                "Weights: draws freely, so neither max_per_video nor shuffle='window' can hold; try Quotas"
            )
        value_ids, names = _value_ids(rows, shuffler.index, self.column)
        _check_names(self.weights, names, self.column)
        weight_of_value = np.array([self.weights.get(name, 1.0) for name in names] + [1.0])
        weights = weight_of_value[value_ids]
        if not weights.any():
            raise UsageError(f"Weights({dict(self.weights)}): no row has a weight above 0")
        return BoundWeights(rows, np.cumsum(weights, out=weights))


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Real and fake side by side: each fake follows its face in the same (or the nearest) frame of its source video.

    Even positions of a batch are real, odd ones fake. Fakes whose source has no face where theirs is are left out, and
    counted; so are those of unknown label, and those whose source's is.
    """

    is_paired: ClassVar[bool] = True
    order: ClassVar[str] = "by place in the frame"
    """Part of saved states: those of pairs by track number are of another order."""

    def bind(self, rows: Selection, shuffler: RowShuffler) -> BoundBalance:
        """See `Balance`."""
        real, fake, orphans, elsewhere, unknown, of_fakes = pair_with_source(np.asarray(rows), shuffler.index)
        if not len(fake):
            raise UsageError(
                "Pairs: no fake of these rows has rows of its source; is source_id known in this dataset, and do "
                "split= and filters= select the sources too?"
                + (f" {elsewhere:,} have, but no face at their place in the frame" if elsewhere else "")
                + (f" {unknown:,} rows have an unknown label, or their source has" if unknown else "")
                + (f" {of_fakes:,} rows have a source that is not labelled real" if of_fakes else "")
            )
        notes = [f"{orphans:,} fakes without rows of their source"] if orphans else []
        notes += [f"{elsewhere:,} fakes whose source has no face at their place in the frame"] if elsewhere else []
        notes += [f"{unknown:,} rows of unknown label, or whose source's is"] if unknown else []
        notes += [f"{of_fakes:,} rows whose source is not labelled real"] if of_fakes else []
        labels = shuffler.index.labels
        if real_class(labels) is None:
            notes.append(
                f"no class is known to be real ({', '.join(labels)}): the first of a pair is the original, whatever "
                "its label; 'real: NAME' in the list of classes of the source names the real one"
            )
            _log.warning("Pairs: %s", notes[-1])
        return BoundUnits([real, fake], shuffler, notes)


@dataclass(frozen=True, kw_only=True)
class BlendPairs:
    """Each real face twice, side by side: as it is, then as the fake that `SelfBlend` makes of it.

    All other transforms draw the same for both, so the blend is all that differs, as published. Even positions of a
    batch are real, odd ones fake, whatever the transform's `p`. Rows of other labels are left out, and counted.

    `real`: name of the label that `SelfBlend` takes for real.
    """

    real: str = "real"

    def bind(self, rows: Selection, shuffler: RowShuffler) -> BoundBalance:
        """See `Balance`."""
        label_ids, names = _value_ids(rows, shuffler.index, "label")
        if self.real not in names:
            known = real_class(names)
            name = "NAME" if known is None else repr(names[known])
            raise UsageError(
                f"{self}: no label is called so; there are {', '.join(names) or 'none'}; give BlendPairs(real={name})"
            )
        reals = rows[label_ids == names.index(self.real)]
        if not len(reals):
            raise UsageError(f"BlendPairs: no selected row has label {self.real!r}")
        if shuffler.max_per_video is not None:
            raise UsageError("max_per_video: BlendPairs gives each face twice in a batch; take frames_per_video")
        others = len(rows) - len(reals)
        notes = [f"{others:,} {'face' if others == 1 else 'faces'} of other labels than {self.real}"] if others else []
        return BoundUnits([reals, reals], shuffler, notes)


def balance_from_name(
    name: BalanceName, index: IndexLike, rows: Selection, self_blend: Any = None
) -> Quotas | Pairs | BlendPairs | None:
    """Returns the balance of a command's `--balance` for these rows; "classes": equal quotas of the labels they have.

    `self_blend`: the `SelfBlend` of their transform, whose real label "blend_pairs" takes; None where it has none.
    Raises `UsageError` where no row has a known label.
    """
    if name == "none":
        return None
    if name == "pairs":
        return Pairs()
    if name == "blend_pairs":
        return BlendPairs() if self_blend is None else BlendPairs(real=index.labels[self_blend.real_label])
    label_ids = np.unique(index.numbers("label", rows))
    labels = [index.labels[label_id] for label_id in label_ids if label_id >= 0]
    if not labels:
        raise UsageError("balance=classes: no face of this split has a known label; take none")
    return Quotas(dict.fromkeys(labels, 1))


def fitting_batch_size(batch_size: int, unit_size: int) -> int:
    """The largest batch size up to this one that holds whole units, or the smallest that does.

    >>> fitting_batch_size(16, 3), fitting_batch_size(2, 3)
    (15, 3)
    """
    return max(batch_size // unit_size, 1) * unit_size


def images_per_unit(balance: Quotas | Pairs | BlendPairs | None) -> int:
    """How many images a batch takes together under the balance of a command: a set of quotas, or a pair."""
    return 1 if balance is None else sum(balance.shares.values()) if isinstance(balance, Quotas) else 2


def check_batch_size(batch_size: int, balance: Quotas | Pairs | BlendPairs | None, *, option: str, remedy: str) -> None:
    """Raises `UsageError` where batches cannot hold the balance of a command exactly.

    `option`: how the command writes the batch size, as "--batch-size 64"; `remedy`: with `{size}` for one that fits.
    """
    if batch_size % (unit_size := images_per_unit(balance)):
        raise UsageError(
            f"{option}: cannot hold {balance} exactly, which needs a multiple of {unit_size}; "
            + remedy.format(size=fitting_batch_size(batch_size, unit_size))
        )


def _value_ids(rows: Selection, index: IndexLike, column: str) -> tuple[NDArray[np.integer], list[str]]:
    """Each row's value as a position in a list of names, (rows,), -1 where it has none; and the list."""
    names = _value_names(index, column)
    values = index.numbers if column == "label" else index.codes
    return values(column, rows), names


def _value_names(index: IndexLike, column: str) -> list[str]:
    if column == "label":
        return list(index.labels)
    if column not in index.categorical_columns:
        raise UsageError(f"column={column!r}: must be label or one of {', '.join(index.categorical_columns)}")
    return index.categories(column)


def _check_names(requested: Mapping[str, Any], names: list[str], column: str) -> None:
    if unknown := [name for name in requested if name not in names]:
        raise UsageError(f"{unknown[0]!r}: no {column} is called so; there are {', '.join(names) or 'none'}")


def _rows_by_value(
    rows: Selection, index: IndexLike, column: str, requested: list[str]
) -> tuple[list[Selection], list[str]]:
    """The rows of each requested value, and notes on rows of other values."""
    value_ids, names = _value_ids(rows, index, column)
    _check_names(dict.fromkeys(requested), names, column)
    groups = [rows[value_ids == names.index(name)] for name in requested]
    for name, group in zip(requested, groups, strict=True):
        if not len(group):
            raise UsageError(f"Quotas: no selected row has {column} {name!r}")
    excluded = len(rows) - sum(len(group) for group in groups)
    return groups, [f"{excluded:,} rows of no named {column}"] if excluded else []
