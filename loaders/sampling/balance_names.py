"""`BalanceName`: the balances that commands offer by name. Light to import, for their options."""

from __future__ import annotations

from typing import Literal

BalanceName = Literal["none", "classes", "pairs", "blend_pairs"]
"""See `balance.balance_from_name`."""
