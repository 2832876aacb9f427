"""The dry run itself: plan as the run would, try a few inputs on the same workers, keep the forecast."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from distributed import Client, as_completed, get_worker

from ..changes import Changes, compare, next_part, same_content
from ..cluster import SlotPlugin, default_slots, failures_as_stops, local_client, remote_client, slots, visible_gpus
from ..commit import make_folders
from ..errors import RefusedError, StoppedError
from ..estimate import CostModel
from ..job import Job
from ..ledger import Ledger
from ..plan import Plan, PlanPart, Unit
from ..progress import Progress
from ..sources import Entry, Listing, caveats
from ..splits import group_sizes
from ..video import MediaReader
from .forecast import Forecast, forecast
from .kept import keep_forecast
from .probe import Probe, probe_family, tried_of
from .survey import Survey, by_split, play_hours, refused_by_reason

_HEADERS = 200
_NAMED = 100
_TRY_SECONDS = 4.0  # of one input
_ALL_SECONDS = 45.0  # after which no further family is begun
_LEAST_FAMILIES = 2  # a slot: the first is not the last that ends


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """`pending`: inputs that are left to do. `forecast` is None where there are none, or none could be tried.

    `failed`: by reason, how many of those that were tried failed. `partial`: of how many some frames are damaged.
    """

    survey: Survey
    pending: int
    forecast: Forecast | None
    failed: Counter[str]
    partial: int
    seconds: float


def dry_run(
    job: Job,
    listing: Listing,
    config: dict[str, Any],
    *,
    workers: int | None,
    scheduler: str | None,
    allow_leaks: bool,
    progress: Progress,
    retry: Callable[[str], bool] | None = None,
) -> DryRun:
    """What `precompute` would do and what that would take; writes nothing but the forecast in the user's cache.

    `retry`: which failures, by reason, would be done again.
    """
    started = time.monotonic()
    ledger = Ledger(job.paths, Plan.load(job.paths), job.config)
    changes = compare(listing, ledger.plan.videos(), partial(same_content, ledger, job.root, progress))
    with MediaReader(job.limits) as reader:
        sound = [entry for entry in listing.entries if not entry.problem]
        cost = CostModel(sound, job.root, job.options.sampling, reader, headers=_HEADERS)
    part, leak = _part(ledger, listing, changes, cost, job=job, config=config, allow_leaks=allow_leaks, retry=retry)
    whole = Ledger(job.paths, Plan([*ledger.plan.parts, part]), job.config)
    units = list(whole.pending())
    survey = _survey(listing, changes, whole.plan, cost, new=sum(len(unit.to_decode) for unit in part.units), leak=leak)
    guess, probed = None, list[list[Probe]]()
    if units:
        count = workers or default_slots()
        progress.announce(f"trying inputs for up to {_ALL_SECONDS:.0f} s")
        probed, slot_count, overhead = _probe(job, _families(units), count, scheduler)
        if probed:
            here = {entry.video_id for entry in sound}
            guess = forecast(
                units, cost, probed, is_paired=lambda entry: entry.source_id in here, overhead_seconds=overhead,
                slots=slot_count, config=job.config,
            )  # fmt: skip
            keep_forecast(guess, job.out)
    return DryRun(
        survey=survey,
        pending=sum(len(unit.to_decode) for unit in units),
        forecast=guess,
        failed=Counter(one.reason for family in probed for one in family if one.reason),
        partial=sum(one.is_partial for family in probed for one in family),
        seconds=time.monotonic() - started,
    )


def _part(
    ledger: Ledger,
    listing: Listing,
    changes: Changes,
    cost: CostModel,
    *,
    job: Job,
    config: dict[str, Any],
    allow_leaks: bool,
    retry: Callable[[str], bool] | None,
) -> tuple[PlanPart, str | None]:
    """The part that the run would append, and the leak that would keep it from doing so."""

    def planned(*, allow_leaks: bool) -> PlanPart:
        changes.refused[:] = [entry for entry in changes.refused if entry.problem != "bridges_splits"]
        return next_part(
            ledger, listing, changes, config=config, ratio=job.options.split_ratio, seed=job.options.seed,
            allow_leaks=allow_leaks, retry=retry, cost_seconds=lambda entry: cost(entry).seconds,
        )  # fmt: skip

    try:
        return planned(allow_leaks=allow_leaks), None
    except RefusedError as error:
        return planned(allow_leaks=True), str(error)


def _survey(listing: Listing, changes: Changes, plan: Plan, cost: CostModel, *, new: int, leak: str | None) -> Survey:
    held = [entry for entry, _ in plan.videos().values()]
    here = {entry.video_id for entry in listing.entries if not entry.problem}
    sizes = group_sizes(held, plan.dropped_identities())
    return Survey(
        layout=listing.layout,
        inputs=len(listing.entries),
        new=new,
        size_bytes=sum(entry.size_bytes for entry in listing.entries),
        hours=play_hours(listing, cost),
        headers_read=cost.headers_read,
        by_split=by_split(list(plan.units()), listing.labels),
        groups=len(sizes),
        largest_group=max(sizes, default=0),
        dropped_identities=sorted(plan.dropped_identities()),
        leak=leak,
        refused=refused_by_reason(changes),
        missing=len(listing.missing),
        missing_files=listing.missing[:_NAMED],
        ignored=listing.ignored,
        caveats=caveats(listing),
        fakes=sum(entry.source_id is not None for entry in listing.entries),
        without_original=sum(entry.source_id is not None and entry.source_id not in here for entry in listing.entries),
    )


def _families(units: Sequence[Unit]) -> list[list[Entry]]:
    """Originals with some of their fakes, in an order that has nothing to do with their names or places."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for unit in units:
        for entry in unit.to_decode:
            found.setdefault((unit.unit, entry.source_id or entry.video_id), []).append(entry)
    shuffled = sorted(found, key=lambda key: hashlib.sha256("/".join(key).encode()).digest())
    return [tried_of(found[key]) for key in shuffled]


def _probe(
    job: Job, families: Sequence[Sequence[Entry]], workers: int, scheduler: str | None
) -> tuple[list[list[Probe]], int, float]:
    """What the families came to, on how many slots, and the seconds that starting and ending the cluster took."""
    with _scratch(job) as scratch, failures_as_stops():
        began = time.monotonic()
        with (
            local_client(workers) if scheduler is None else remote_client(scheduler) as client,
            slots(client, scratch, visible_gpus(), local=scheduler is None) as plugin,
        ):
            slot_count = len(client.nthreads())
            ready = time.monotonic()
            probed = list(_tried(client, plugin, families, slot_count))
            done = time.monotonic()
        return probed, slot_count, ready - began + time.monotonic() - done


def _tried(client: Client, plugin: str, families: Sequence[Sequence[Entry]], slot_count: int) -> Iterator[list[Probe]]:
    """Keeps every slot at work, as the job would, until the time is over."""
    began = time.monotonic()
    waiting = iter(families)
    running = as_completed([], with_results=False)

    def submit(count: int) -> None:
        for family in islice(waiting, count):
            running.add(client.submit(run_probe, list(family), plugin, pure=False, retries=0))

    submit(slot_count * _LEAST_FAMILIES)
    for future in running:
        if future.status == "finished":
            yield future.result()
        elif isinstance(error := future.exception(), StoppedError):
            raise error
        # One that takes its worker down, or finds a bug, is the run's to deal with.
        future.release()
        if time.monotonic() - began < _ALL_SECONDS:
            submit(1)


def run_probe(family: list[Entry], plugin: str) -> list[Probe]:
    """The task itself, on a worker that has the plugin of that name."""
    held: SlotPlugin = get_worker().plugins[plugin]
    assert held.slot is not None
    assert held.turn is not None
    with held.turn:
        return probe_family(held.slot.inputs, family, _TRY_SECONDS)


@contextmanager
def _scratch(job: Job) -> Iterator[Job]:
    """The job with an OUT that goes away, beside the real one so that all workers see it."""
    parent = job.out.parent
    while not parent.is_dir():
        parent = parent.parent
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{job.out.name}-dry-run-") as folder:
        scratch = replace(job, out=Path(folder))
        make_folders(scratch.paths)
        yield scratch
