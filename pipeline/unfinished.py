"""An OUT whose job has not come to its end: what there is of it so far."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .failures import Failure, failures_of
from .finish import account
from .job import config_hash
from .ledger import Ledger
from .manifest import Manifest, OutPaths
from .plan import Plan


@dataclass(frozen=True)
class Unfinished:
    """What the receipts say: `manifest` is what it would be, had the job ended here; `pending` inputs are left to do.

    `failures` lacks the inputs that never reach a unit: the listing alone knows them.
    """

    ledger: Ledger
    manifest: Manifest
    failures: list[Failure]
    pending: int

    @classmethod
    def of(cls, out: Path) -> Unfinished | None:
        """None where OUT holds a manifest, or no plan either."""
        paths = OutPaths(out)
        if paths.manifest.exists() or not (paths.plan / "0.json").exists():
            return None
        plan = Plan.load(paths)
        config = plan.parts[0].config
        ledger = Ledger(paths, plan, config_hash(config))
        pending = sum(len(unit.to_decode) for unit in ledger.pending())
        return cls(ledger, account(ledger, config, (), 0), failures_of(ledger, ()), pending)
