"""`Lever`, the base class of all levers: a setting of training, with a text form and checks of its requirements."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from ...pipeline.errors import UsageError

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule

    from ..machine import Machine


class LeverError(UsageError):
    """A lever cannot work on this machine, on this module, or together with another lever."""


@dataclass(frozen=True)
class Lever:
    """Base class of levers. The fields are the values of the text form, in order: `early_stop:val/auc:3`.

    A subclass gives these as class keywords, `class Clip(Lever, name="clip", form="clip:NORM")`:
    name: its name in texts. kind: levers of the same kind exclude each other; by default that of the base class, or the
    name. form: syntax of the text form, for messages; by default the name.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    form: ClassVar[str]

    def __init_subclass__(cls, *, name: str = "", kind: str = "", form: str = "") -> None:
        super().__init_subclass__()
        if name:
            cls.name, cls.form = name, form or name
        if kind or name:
            cls.kind = kind or getattr(cls, "kind", name)

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Returns why it cannot work on this module and machine, with what to do instead; None if it can."""
        return None

    def arguments(self) -> dict[str, Any]:
        """Returns Trainer arguments; the lists "callbacks" and "plugins" are merged over levers."""
        return {}

    def apply(self, module: LightningModule) -> LightningModule:
        """Prepares a module for training and returns the module to train. Idempotent."""
        return module

    @classmethod
    def parse(cls, values: list[str]) -> Self:
        """Constructs the lever from the values of its text form. Raises `LeverError` on a wrong number of values."""
        names = [field.name for field in fields(cls)]
        needed = sum(field.default is MISSING for field in fields(cls))
        if not needed <= len(values) <= len(names):
            text = ":".join([cls.name, *values])
            raise LeverError(f"{text}: must be {cls.form}")
        return cls(*values)

    def __str__(self) -> str:
        values = [getattr(self, field.name) for field in fields(self)]
        while values and values[-1] == fields(self)[len(values) - 1].default:
            values.pop()
        return ":".join([self.name, *map(str, values)])


@runtime_checkable
class HasMetrics(Protocol):
    """Protocol of callbacks that report metrics after a fit."""

    name: ClassVar[str]

    def metrics(self) -> dict[str, Any]:
        """Returns plain values, for tables and JSON."""


def require_int(lever: Lever, field: str, *, minimum: int = 1) -> None:
    """Converts a field to an int; raises `LeverError` unless it is a whole number of at least `minimum`."""
    value = getattr(lever, field)
    number = None if isinstance(value, bool) else _to_float(value)
    if number is None or number != int(number) or number < minimum:
        raise LeverError(
            f"{lever.name}:{value}: {field} must be a whole number of at least {minimum}; {_form_hint(lever)}"
        )
    object.__setattr__(lever, field, int(number))


def require_positive(lever: Lever, field: str) -> None:
    """Converts a field to a float; raises `LeverError` unless it is a finite number above 0."""
    value = getattr(lever, field)
    number = None if isinstance(value, bool) else _to_float(value)
    if number is None or not 0 < number < float("inf"):
        raise LeverError(f"{lever.name}:{value}: {field} must be a number above 0; {_form_hint(lever)}")
    object.__setattr__(lever, field, number)


def require_name(lever: Lever, field: str) -> None:
    """Strips a field; raises `LeverError` unless it is a non-empty text without the separators of the text form."""
    value = getattr(lever, field)
    if not isinstance(value, str) or not value.strip() or set(value) & set(",:"):
        raise LeverError(f"{lever.name}:{value}: {field} must be a name without comma and colon; {_form_hint(lever)}")
    object.__setattr__(lever, field, value.strip())


def _to_float(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if number != number or number in (float("inf"), float("-inf")) else number  # noqa: PLR0124 (NaN)


def _form_hint(lever: Lever) -> str:
    return f"the form is {lever.form}"
