"""Colours of the figures of a profile."""

from __future__ import annotations

from typing import Final

from .....pipeline.page.figures import BLUE, MUTED

WAIT: Final = "#c62828"
NO_CORE: Final = "#ee8866"
SAMPLER: Final = "#d81b60"
OTHER_RANKS: Final = "#b07aa1"
STEP: Final = BLUE
TRANSPORT: Final = "#8d929b"
LOADING: Final = "#7fb8dc"
UNSPLIT_BATCH: Final = "#d6e4ee"

STAGES: Final = {
    "read": "#56b4e9", "decode": "#e69f00", "resize": "#f0e442", "augment": "#009e73", "collate": "#cc79a7",
    "other": MUTED,
}  # fmt: skip
"""Okabe and Ito's colours, which people of every kind of colour vision tell apart; waits alone are red."""
