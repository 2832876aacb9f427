"""What every lever is: a setting of training that works on any LightningModule, with a text form and its refusals."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from ...pipeline.errors import UsageError

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule

    from ..machine import Machine


class LeverError(UsageError):
    """A lever that cannot work: on this machine, on this module, or beside another lever."""


@dataclass(frozen=True)
class Lever:
    """One lever. Its fields are the values of its text form, in their order: `early_stop:val/auc:3`.

    name: how texts call it. kind: of one kind only one lever may be taken; a lever's own name where it fits any other.
    form: the text form, for messages.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    form: ClassVar[str]

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Why it cannot work on this module and machine, with what to do instead; None where it can."""
        return None

    def arguments(self) -> dict[str, Any]:
        """Keywords of Lightning's Trainer. "callbacks" and "plugins" are lists, which are joined with other levers'."""
        return {}

    def adjusted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The user's own keywords of the Trainer, with those changed that mean something else under this lever."""
        return arguments

    def apply(self, module: LightningModule) -> LightningModule:
        """Changes a module before it is trained, and returns what is to be trained. Twice is as good as once."""
        return module

    @classmethod
    def parse(cls, values: list[str]) -> Self:
        """Makes one of the values of its text form. Raises `LeverError` where they are too many, few, or no values."""
        names = [field.name for field in fields(cls)]
        needed = sum(field.default is MISSING for field in fields(cls))
        if not needed <= len(values) <= len(names):
            told = ":".join([cls.name, *values])
            raise LeverError(f"{told}: must be {cls.form}")
        return cls(*values)

    def __str__(self) -> str:
        values = [getattr(self, field.name) for field in fields(self)]
        while values and values[-1] == fields(self)[len(values) - 1].default:
            values.pop()
        return ":".join([self.name, *map(str, values)])


@runtime_checkable
class Reports(Protocol):
    """A callback of a lever, or a guard, with figures to tell after a fit."""

    name: ClassVar[str]

    def figures(self) -> dict[str, Any]:
        """Plain values, for tables and JSON."""


def whole(lever: Lever, field: str, *, least: int = 1) -> None:
    """Makes a field a whole number, of a text where it is one; raises `LeverError` unless it is one of `least`."""
    value = getattr(lever, field)
    number = None if isinstance(value, bool) else _number(value)
    if number is None or number != int(number) or number < least:
        raise LeverError(f"{lever.name}:{value}: {field} must be a whole number of at least {least}; {_such(lever)}")
    object.__setattr__(lever, field, int(number))


def positive(lever: Lever, field: str) -> None:
    """Makes a field a number above 0, as `whole` does."""
    value = getattr(lever, field)
    number = None if isinstance(value, bool) else _number(value)
    if number is None or not 0 < number < float("inf"):
        raise LeverError(f"{lever.name}:{value}: {field} must be a number above 0; {_such(lever)}")
    object.__setattr__(lever, field, number)


def word(lever: Lever, field: str) -> None:
    """Raises `LeverError` unless a field is a text of at least one character that can be said in the text form."""
    value = getattr(lever, field)
    if not isinstance(value, str) or not value.strip() or set(value) & set(",:"):
        raise LeverError(f"{lever.name}:{value}: {field} must be a name without comma and colon; {_such(lever)}")
    object.__setattr__(lever, field, value.strip())


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if number != number or number in (float("inf"), float("-inf")) else number  # noqa: PLR0124 (NaN)


def _such(lever: Lever) -> str:
    return f"the form is {lever.form}"
