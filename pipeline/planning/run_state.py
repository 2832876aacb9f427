"""State of a run, from plan and receipts: which units are finished or pending, and the outcome of every input."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from ..dataset.added_columns import read_column_sets
from ..dataset.manifest import InputOutcome, Manifest, Receipt
from ..dataset.out import OutPaths
from ..errors import CorruptDataError, StoppedError, UsageError
from ..sources import Entry
from .job_share import JobShare
from .options import hash_config
from .plan import Plan, PlanPart, Unit
from .receipts import ReceiptReader, lists_inputs_of


def plan_to_continue(paths: OutPaths, listed: Iterable[Entry]) -> Plan:
    """The plan of OUT, which a run may continue; `listed`: see `Plan.load`.

    Raises `CorruptDataError` where it is damaged or lacks a part, or a set of added columns does not say what it is:
    the run would end with that after all of its work.
    """
    plan = Plan.load(paths, listed)
    try:
        manifest = Manifest.read(paths.root)
    except (CorruptDataError, UsageError):  # none yet, or a damaged one, which that of the run replaces
        pass
    else:
        _refuse_lost_parts(paths, plan, manifest)
    read_column_sets(paths)
    return plan


def finished_run_state(paths: OutPaths, manifest: Manifest) -> RunState:
    """The state of a finished dataset; raises `CorruptDataError` where its plan is damaged or lacks a part."""
    plan = Plan.load(paths)
    _refuse_lost_parts(paths, plan, manifest)
    return RunState(paths, plan, hash_config(manifest.config))


def _refuse_lost_parts(paths: OutPaths, plan: Plan, manifest: Manifest) -> None:
    """Raises `CorruptDataError` where the plan lacks a part that the manifest accounts for.

    The files of its units would be those of no unit, and the units that they replaced would be the current ones again.
    """
    if len(plan.parts) < (manifest.plan_parts or 1):
        raise CorruptDataError(
            f"{paths.plan}: holds {len(plan.parts)} parts, the manifest accounts for {manifest.plan_parts or 1}; run "
            f"`facefeed verify {shlex.quote(str(paths.root))}`, which says how to repair it"
        )


class RunState:
    """A view of OUT as it is on disk: each question reads the receipts.

    gone: ids of planned inputs that are not decoded, since the source does not name them in a run that has listed it.
    receipts: the reader of another state of the same OUT; None for a new one.
    """

    def __init__(
        self,
        paths: OutPaths,
        plan: Plan,
        config_hash: str,
        gone: Iterable[str] = (),
        *,
        receipts: ReceiptReader | None = None,
    ) -> None:
        self.paths, self.plan, self.config_hash, self.gone = paths, plan, config_hash, frozenset(gone)
        self.receipts = receipts or ReceiptReader(paths, config_hash)

    def with_part(self, part: PlanPart) -> RunState:
        """The state after the plan has grown by `part`; writes nothing."""
        plan = Plan([*self.plan.parts, part])
        return RunState(self.paths, plan, self.config_hash, self.gone, receipts=self.receipts)

    def with_gone(self, gone: Iterable[str]) -> RunState:
        """The state in a run whose source does not name the planned inputs `gone`."""
        return RunState(self.paths, self.plan, self.config_hash, gone, receipts=self.receipts)

    def receipt(self, unit: Unit) -> Receipt | None:
        """The unit's receipt, None where it has none; raises `CorruptDataError` where it is damaged."""
        try:
            receipt = self.receipts.read(unit.unit_id)
        except FileNotFoundError:
            return None
        if receipt.unit != unit.unit_id or receipt.config_hash != self.config_hash:
            path = self.paths.receipt(unit.unit_id)
            raise CorruptDataError(f"{path}: is a receipt of unit {receipt.unit} under config {receipt.config_hash}")
        return receipt

    def trusted_receipt(self, unit: Unit) -> Receipt | None:
        """The unit's receipt.

        None where it is missing or damaged, lists other inputs, or its file is missing or of another size.
        """
        return self.receipts.trusted_of(unit)

    def leaf_units(self, unit: Unit) -> Iterator[tuple[Unit, Receipt | None]]:
        """The unit with its receipt or, where it was split, the same of its halves, recursively."""
        receipt = self.trusted_receipt(unit)
        if receipt is not None and receipt.outcome == "split":
            for half in unit.halves(self.config_hash):
                yield from self.leaf_units(half)
        else:
            yield unit, receipt

    def pending_units(self, job_share: JobShare | None = None) -> Iterator[Unit]:
        """Units without a trusted receipt: all, or those of `job_share`."""
        for planned in self.plan.units(job_share):
            yield from (unit.with_gone(self.gone) for unit, receipt in self.leaf_units(planned) if receipt is None)

    def pending_and_finished(self, job_share: JobShare | None = None) -> tuple[list[Unit], int]:
        """`pending_units`, and the number of the others: halves of split units are counted, not what was split."""
        pending: list[Unit] = []
        finished = 0
        for planned in self.plan.units(job_share):
            for unit, receipt in self.leaf_units(planned):
                if receipt is None:
                    pending.append(unit.with_gone(self.gone))
                else:
                    finished += 1
        return pending, finished

    def finished_units(self, *, all_are: bool = False) -> Iterator[tuple[Unit, Unit, Receipt]]:
        """Every finished unit, as `(planned unit, that unit or a part it was split into, receipt)`.

        all_are: whether all planned units were found to be finished. Raises `StoppedError` where one is not, then.
        """
        for planned in self.plan.units():
            for unit, receipt in self.leaf_units(planned):
                if receipt is not None:
                    yield planned, unit, receipt
                elif all_are:
                    raise self.lost(unit)

    def lost(self, unit: Unit) -> StoppedError:
        """The error where a unit that was found to be finished is not, as on a network mount."""
        return StoppedError(
            f"{self.paths.receipt(unit.unit_id)}: a receipt, or its file, that this host saw is gone; run the same "
            "command again"
        )

    @cached_property
    def unit_of_video(self) -> dict[str, str]:
        """Id of the planned unit that owns each video, by video id: the last unit that contains it."""
        return {entry.video_id: unit.unit_id for unit in self.plan.units() for entry in unit.inputs}

    def owned_videos(self, unit: Unit) -> set[str]:
        """Ids of the unit's videos that no later unit contains."""
        return {entry.video_id for entry in unit.inputs if self.unit_of_video[entry.video_id] == unit.unit_id}

    def outcomes(self) -> Iterator[tuple[Unit, InputOutcome]]:
        """`(planned unit, outcome)` of every input whose unit is finished, each input once."""
        for planned, _, receipt in self.finished_units():
            for outcome in receipt.inputs:
                if self.unit_of_video[outcome.video_id] == planned.unit_id:
                    yield planned, outcome

    def outcomes_to_reuse(self) -> Iterator[tuple[Receipt, InputOutcome]]:
        """Of each input whose rows unfinished units are to copy: the receipt of the replaced unit, and the outcome."""
        for unit in self.pending_units():
            left = {*unit.reuses, *unit.gone}
            for receipt in self.receipts.superseded(unit) if left else ():
                for outcome in receipt.inputs:
                    if outcome.video_id in left:
                        left.remove(outcome.video_id)
                        yield receipt, outcome

    def known_outcomes(self, names: Collection[str]) -> Iterator[InputOutcome]:
        """Outcomes of the inputs `names`, each once, also where their rows are still to be copied."""
        reused = self.outcomes_to_reuse() if names else ()
        to_copy = {outcome.video_id: outcome for _, outcome in reused if outcome.video_id in names}
        for _, outcome in self.outcomes() if names else ():
            if outcome.video_id in names:
                to_copy.pop(outcome.video_id, None)  # another part of the job may have copied it meanwhile
                yield outcome
        yield from to_copy.values()

    def without_rows(self, gone: Collection[str]) -> set[str]:
        """Those of the inputs `gone` of which nothing stays: they have failed, or were never computed."""
        state = self.with_gone(gone)
        outcomes = state.known_outcomes(state.gone)
        return {*gone}.difference(outcome.video_id for outcome in outcomes if outcome.outcome != "failed")

    def parquet_files(self) -> list[tuple[Path, str]]:
        """The files that make up the dataset, as `(path, name relative to OUT)`, sorted by name."""
        names = sorted(receipt.file for _, _, receipt in self.finished_units() if receipt.file)
        return [(self.paths.root / name, name) for name in names]

    def fingerprint(self) -> str:
        """The fingerprint of all finished units."""
        hashes = {receipt.file: receipt.sha256 for _, _, receipt in self.finished_units() if receipt.file}
        return fingerprint_of(self.config_hash, hashes)


class RecordedRunState(RunState):
    """State of a run from the receipts alone, whether or not their files exist: what the finished dataset contained."""

    def trusted_receipt(self, unit: Unit) -> Receipt | None:
        """The unit's receipt; None where it is missing or damaged, or lists other inputs."""
        try:
            receipt = self.receipt(unit)
        except CorruptDataError:
            return None
        return receipt if receipt is not None and lists_inputs_of(unit, receipt) else None


def fingerprint_of(config_hash: str, files: Mapping[str, str | None]) -> str:
    """SHA-256 over the config hash and the hashes of all files, by name: changes when any row could have changed."""
    digest = hashlib.sha256(config_hash.encode())
    for line in sorted(f"{name} {sha256}" for name, sha256 in files.items()):
        digest.update(line.encode())
    return digest.hexdigest()
