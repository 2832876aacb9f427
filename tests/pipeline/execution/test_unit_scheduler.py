"""Who a failure is put down to: a broken worker costs no input, a broken input no worker, a broken detector the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from assets_worker_pool import Fault, SimulatedWorkerPool, done
from facefeed.pipeline.commit.publish import make_folders, write_receipt
from facefeed.pipeline.dataset.manifest import Receipt
from facefeed.pipeline.errors import StoppedError
from facefeed.pipeline.execution.unit_scheduler import UnitScheduler
from facefeed.pipeline.execution.unit_task import UnitResult
from facefeed.pipeline.execution.workers import Worker
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.plan import Unit
from facefeed.pipeline.sources import Entry


@dataclass
class Reported:
    """What the stage reported."""

    failed: Counter[str] = field(default_factory=Counter)
    ok: int = 0
    lost: int = 0
    done_elsewhere: list[str] = field(default_factory=list)
    in_vain: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)

    def on_receipt(self, receipt: Receipt) -> None:
        for outcome in receipt.inputs:
            self.ok += outcome.outcome == "ok"
            if outcome.outcome == "failed":
                self.failed[outcome.video_id] += 1

    def on_done_elsewhere(self, unit: Unit, *, is_duplicate: bool) -> None:
        (self.in_vain if is_duplicate else self.done_elsewhere).append(unit.unit_id)

    def on_lost(self, unit: Unit, reason: str, action: str) -> None:
        self.lost += 1

    def on_retired(self, worker: str, reason: str) -> None:
        self.retired.append(worker)


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    spec = JobSpec(
        root=tmp_path, out=tmp_path / "out", options=Options(), detector=FixedBoxDetector(), labels=("real",),
        config_hash="c",
    )  # fmt: skip
    make_folders(spec.paths)
    return spec


def units_of(count: int, size: int) -> list[Unit]:
    entries = [Entry(video_id=f"{number:04}.mp4", size_bytes=1, mtime_ns=1) for number in range(count * size)]
    return [
        Unit.make(entries[first : first + size], "train", config_hash="c", salt="0")
        for first in range(0, len(entries), size)
    ]


def run(pool: SimulatedWorkerPool, units: list[Unit]) -> Reported:
    reported = Reported()
    UnitScheduler(cast("Any", pool), pool.job, reported, clock=pool.clock).run(units)
    return reported


@dataclass
class Supply:
    """Of jobs that the pool starts by itself; records how many units were left, and how many workers had one."""

    asked: list[tuple[int, int]] = field(default_factory=list)
    expects_workers: bool = True

    def adjust(self, num_units: int, workers: Collection[Worker], busy: Collection[Worker]) -> None:
        self.asked.append((num_units, len(busy)))


def run_on_jobs(pool: SimulatedWorkerPool, units: list[Unit], supply: Supply | None = None) -> Reported:
    reported = Reported()
    jobs = cast("Any", supply or Supply())
    UnitScheduler(cast("Any", pool), pool.job, reported, supply=jobs, clock=pool.clock).run(units)
    return reported


def on_worker(*names: str, kind: str = "RuntimeError") -> Fault:
    return lambda unit, worker: kind if worker.name in names else None


def on_input(*names: str, kind: str = "ZeroDivisionError") -> Fault:
    return lambda unit, worker: kind if {entry.video_id for entry in unit.inputs} & set(names) else None


@pytest.mark.parametrize("kind", ["RuntimeError", "lost", "refused"])
@pytest.mark.parametrize("bad", [["0"], ["0", "5"]])
def test_a_broken_worker_costs_no_input(job: JobSpec, bad: list[str], kind: str) -> None:
    pool = SimulatedWorkerPool(job, 8, on_worker(*bad, kind=kind))
    reported = run(pool, units_of(400, 10))
    assert (reported.ok, reported.failed) == (4000, {})
    assert sorted(reported.retired) == [f"worker {name}" for name in bad]


def test_a_worker_that_is_cured_by_a_new_process_goes_on_working(job: JobSpec) -> None:
    pool = SimulatedWorkerPool(
        job, 4, lambda unit, worker: "RuntimeError" if worker.address == "tcp://worker:0" else None
    )
    reported = run(pool, units_of(40, 1))
    assert (reported.ok, reported.failed, reported.retired) == (40, {}, [])
    assert pool.restarts == ["0"]
    first_process_units = [unit for unit, address in pool.ran if address == "tcp://worker:0"]
    assert len(first_process_units) == 1
    assert "0" in {name for name, address in workers_of(pool) if address != "tcp://worker:0"}


@pytest.mark.parametrize("kind", ["ZeroDivisionError", "lost"])
@pytest.mark.parametrize("run_on", [run, run_on_jobs])
def test_a_process_that_is_restarted_at_the_same_address_is_a_new_one(
    job: JobSpec, run_on: Callable[[SimulatedWorkerPool, list[Unit]], Reported], kind: str
) -> None:
    """As with a fixed `--worker-port`: else the only worker never gets the unit again."""
    pool = SimulatedWorkerPool(job, 1, on_input("0003.mp4", kind=kind), fixed_ports=True)
    reported = run_on(pool, units_of(4, 2))
    assert (reported.ok, reported.failed, reported.retired) == (7, {"0003.mp4": 1}, [])


def workers_of(pool: SimulatedWorkerPool) -> list[tuple[str, str]]:
    names = {worker.address: worker.name for worker in pool.workers().values()}
    return [(names.get(address, ""), address) for _, address in pool.ran]


def test_without_a_nanny_a_broken_worker_is_left_out(job: JobSpec) -> None:
    pool = SimulatedWorkerPool(job, 4, on_worker("2"), nannies=False)
    reported = run(pool, units_of(100, 4))
    assert (reported.ok, reported.failed, reported.retired) == (400, {}, ["worker 2"])
    assert Counter(address for _, address in pool.ran)["tcp://worker:2"] == 3


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("kind", ["ZeroDivisionError", "lost"])
def test_an_input_that_breaks_every_worker_is_found_and_costs_nothing_else(job: JobSpec, size: int, kind: str) -> None:
    pool = SimulatedWorkerPool(job, size, on_input("0037.mp4", kind=kind))
    reported = run(pool, units_of(10, 16))
    assert (reported.ok, reported.failed, reported.retired) == (159, {"0037.mp4": 1}, [])


@pytest.mark.parametrize("kind", ["ZeroDivisionError", "lost"])
def test_no_input_is_given_up_for_workers_that_another_job_of_the_cluster_may_have_lost(
    job: JobSpec, kind: str
) -> None:
    pool = SimulatedWorkerPool(job, 4, on_input("0037.mp4", kind=kind), has_other_jobs=True)
    if kind == "lost":
        with pytest.raises(StoppedError, match="1 input lost 3 workers each, while other jobs were at work on this"):
            run(pool, units_of(10, 16))
    else:  # an error tells whose it is
        assert run(pool, units_of(10, 16)).failed == {"0037.mp4": 1}
    receipts = [Receipt.from_json(path.read_text(), where="") for path in job.paths.receipts.iterdir()]
    crashed = [outcome.video_id for receipt in receipts for outcome in receipt.inputs if outcome.outcome == "failed"]
    assert crashed == ["0037.mp4"] * (kind != "lost")


def test_no_unit_fails_twice_on_the_same_worker_while_there_are_others(job: JobSpec) -> None:
    pool = SimulatedWorkerPool(job, 3, on_input("0003.mp4"))
    failed: Counter[tuple[str, str]] = Counter()

    def fault(unit: Unit, worker: Worker) -> str | None:
        if kind := on_input("0003.mp4")(unit, worker):
            failed[unit.unit_id, worker.name] += 1
        return kind

    pool.fault = fault
    run(pool, units_of(4, 8))
    assert set(failed.values()) == {1}
    assert set(Counter(unit for unit, _ in failed).values()) == {2}


@pytest.mark.parametrize("size", [1, 8])
def test_a_broken_detector_stops_the_run_soon_and_gives_up_no_input(job: JobSpec, size: int) -> None:
    pool = SimulatedWorkerPool(job, size, lambda unit, worker: "RuntimeError")
    with pytest.raises(StoppedError, match="RuntimeError: as it must") as stopped:
        run(pool, units_of(400, 10))
    assert stopped.value.exit_code == 75
    assert len(pool.ran) <= max(3 * size, 8)
    assert list(job.paths.receipts.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 4])
def test_credentials_of_workers_that_expire_before_the_last_units_cost_no_input(job: JobSpec, workers: int) -> None:
    planned = units_of(40, 4)
    pool = SimulatedWorkerPool(job, workers, lambda unit, _: "refused" if unit in planned[35:] else None)
    with pytest.raises(StoppedError, match="the store of OUT refuses workers, the last one on refused: as it must"):
        run(pool, planned)
    assert list(job.paths.receipts.iterdir()) == [], "no unit was split, and none given up"
    assert len(pool.ran) < 40 + 2 * workers


@pytest.mark.parametrize("workers", [1, 4])
def test_an_error_after_a_refusal_by_the_store_is_no_second_sign_of_a_bad_input(job: JobSpec, workers: int) -> None:
    planned, kinds = units_of(40, 1), iter(["refused", "RuntimeError"])
    pool = SimulatedWorkerPool(job, workers, lambda unit, _: next(kinds, None) if unit == planned[20] else None)
    reported = run(pool, planned)
    assert (reported.ok, reported.failed) == (40, {})


@pytest.mark.parametrize("kind", ["RuntimeError", "lost"])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(("units", "size"), [(2, 1), (9, 1), (3, 4), (1, 2)])
def test_where_no_input_of_a_small_set_can_be_finished_none_is_given_up_and_the_next_run_resumes(
    job: JobSpec, units: int, size: int, workers: int, kind: str
) -> None:
    planned = units_of(units, size)
    with pytest.raises(StoppedError, match="RuntimeError: as it must" if kind == "RuntimeError" else "process"):
        run(SimulatedWorkerPool(job, workers, lambda unit, worker: kind), planned)
    reported = run(SimulatedWorkerPool(job, workers, on_input()), planned)
    assert (reported.ok, reported.failed, reported.done_elsewhere) == (units * size, {}, [])


@pytest.mark.parametrize("kind", ["RuntimeError", "lost"])
def test_an_input_that_is_alone_is_given_up(job: JobSpec, kind: str) -> None:
    reported = run(SimulatedWorkerPool(job, 2, lambda unit, worker: kind), units_of(1, 1))
    assert reported.failed == {"0000.mp4": 1}


def test_a_detector_that_breaks_on_much_of_a_set_stops_the_run_and_gives_up_no_input(job: JobSpec) -> None:
    bad = [f"{number:04}.mp4" for number in range(4000) if number % 10 == 0 and number % 100]  # nine units of ten
    pool = SimulatedWorkerPool(job, 8, on_input(*bad))
    with pytest.raises(StoppedError, match="units failed alike"):
        run(pool, units_of(400, 10))
    receipts = [Receipt.from_json(path.read_bytes(), where="") for path in job.paths.receipts.iterdir()]
    assert {receipt.outcome for receipt in receipts} == {"split"}


def test_a_few_broken_inputs_of_many_do_not_stop_the_run(job: JobSpec) -> None:
    bad = [f"{number:04}.mp4" for number in range(100, 4000, 650)]
    reported = run(SimulatedWorkerPool(job, 8, on_input(*bad)), units_of(400, 10))
    assert reported.failed == dict.fromkeys(bad, 1)
    assert reported.ok == 4000 - len(bad)


@pytest.mark.parametrize("kind", ["ValueError", "lost"])
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("units", "size", "bad"),
    [
        (40, 10, range(20, 400, 80)),  # spread out
        (20, 50, range(410, 415)),  # all in one large unit
        (100, 10, range(5)),  # all in the first unit
        (100, 10, range(0, 50, 10)),  # one in each of the first units
        (20, 1, range(0, 20, 2)),  # half of few inputs
    ],
)
def test_wherever_the_broken_inputs_of_a_set_are_they_alone_are_given_up(
    job: JobSpec, units: int, size: int, bad: range, workers: int, kind: str
) -> None:
    names = [f"{number:04}.mp4" for number in bad]
    reported = run(SimulatedWorkerPool(job, workers, on_input(*names, kind=kind)), units_of(units, size))
    assert reported.failed == dict.fromkeys(names, 1)
    assert reported.ok == units * size - len(names)
    assert reported.retired == []


@pytest.mark.parametrize("kind", ["ValueError", "lost"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_where_only_broken_inputs_are_left_to_do_the_next_run_ends(job: JobSpec, workers: int, kind: str) -> None:
    left = units_of(7, 1)
    pool = SimulatedWorkerPool(job, workers, lambda unit, worker: kind)
    reported = Reported()
    UnitScheduler(cast("Any", pool), job, reported, finished=33, clock=pool.clock).run(left)
    assert reported.failed == {entry.video_id: 1 for unit in left for entry in unit.inputs}
    assert reported.retired == []


def test_a_single_worker_without_a_nanny_tries_nothing_twice_and_says_what_to_start(job: JobSpec) -> None:
    pool = SimulatedWorkerPool(job, 1, on_input("0001.mp4"), nannies=False)
    with pytest.raises(StoppedError, match="there is no other worker to try it on"):
        run(pool, units_of(2, 4))
    assert len(pool.ran) == 2


def test_workers_that_join_late_get_units_at_once(job: JobSpec) -> None:
    pool = SimulatedWorkerPool(job, 1, lambda unit, worker: None)
    pool.after(10.0, Worker("", "late", None, ""))
    run(pool, units_of(10, 1))
    assert pool.clock() == pytest.approx(160, abs=15)


def test_a_cluster_that_stays_without_workers_stops_the_run(job: JobSpec) -> None:
    pool = SimulatedWorkerPool(job, 0, lambda unit, worker: None)
    with pytest.raises(StoppedError, match="has had no worker for 120 s"):
        run(pool, units_of(1, 1))
    assert pool.clock() == pytest.approx(121, abs=2)


# --- parts of a job with overlapping shares


def test_units_that_another_part_finishes_meanwhile_are_not_processed(job: JobSpec) -> None:
    units = units_of(12, 2)
    pool = SimulatedWorkerPool(job, 2, lambda unit, worker: finish_all_but_the_first(unit))

    def finish_all_but_the_first(unit: Unit) -> None:
        if unit == units[0]:
            for other in units[2:10]:
                write_receipt(job.paths, other, done(other, job))

    reported = run(pool, units)
    assert {unit for unit, _ in pool.ran} == {unit.unit_id for unit in (*units[:2], *units[10:])}
    assert reported.done_elsewhere == [unit.unit_id for unit in units[2:10]]
    assert (reported.ok, reported.in_vain) == (2 * 4, [])


def test_of_a_unit_that_another_part_has_split_the_halves_are_processed(job: JobSpec) -> None:
    first, second = units_of(2, 4)
    halves = second.halves(job.config_hash)
    children = [half.unit_id for half in halves]

    def split_second(unit: Unit, worker: Worker) -> None:
        if unit == first:
            split = Receipt(unit=second.unit_id, config_hash="c", outcome="split", children=children)
            write_receipt(job.paths, second, split)
            write_receipt(job.paths, halves[0], done(halves[0], job))

    pool = SimulatedWorkerPool(job, 1, split_second)
    reported = run(pool, [first, second])
    assert [unit for unit, _ in pool.ran] == [first.unit_id, children[1]]
    assert reported.done_elsewhere == [children[0]]
    assert reported.ok == 4 + 2


def test_a_unit_that_another_part_has_split_while_it_was_processed_is_continued_in_halves(job: JobSpec) -> None:
    (unit,) = units_of(1, 4)
    children = [half.unit_id for half in unit.halves(job.config_hash)]
    pool = SimulatedWorkerPool(job, 1, lambda unit, worker: None)
    pool.results[unit.unit_id] = UnitResult(
        Receipt(unit=unit.unit_id, config_hash="c", outcome="split", children=children), "in_vain"
    )
    reported = run(pool, [unit])
    assert [unit for unit, _ in pool.ran] == [unit.unit_id, *children]
    assert (reported.ok, reported.lost) == (4, 1)


def test_a_unit_that_another_part_published_first_is_counted_as_in_vain(job: JobSpec) -> None:
    units = units_of(3, 2)
    pool = SimulatedWorkerPool(job, 1, lambda unit, worker: None)
    pool.results[units[1].unit_id] = UnitResult(done(units[1], job), "in_vain")
    reported = run(pool, units)
    assert (reported.in_vain, reported.done_elsewhere, reported.ok) == ([units[1].unit_id], [], 4)


def test_a_unit_whose_lost_worker_finished_it_after_all_is_this_runs_own(job: JobSpec) -> None:
    (unit,) = units_of(1, 1)
    faults = iter(["lost", None])
    pool = SimulatedWorkerPool(job, 2, lambda unit, worker: next(faults))
    pool.results[unit.unit_id] = UnitResult(done(unit, job), "in_vain")
    reported = run(pool, [unit])
    assert (reported.in_vain, reported.ok) == ([], 1)


@pytest.mark.parametrize("work", ["adopted", "in_vain"])
def test_a_unit_whose_preempted_job_published_it_is_this_runs_own(
    job: JobSpec, work: Literal["adopted", "in_vain"]
) -> None:
    """The job ended before it had written the receipt, or its worker did so while another processed the unit."""
    units = units_of(4, 2)
    faults = iter(["job lost"])
    pool = SimulatedWorkerPool(job, 2, lambda unit, worker: next(faults, None))
    pool.results[units[0].unit_id] = UnitResult(done(units[0], job), work)
    reported = run_on_jobs(pool, units)
    assert (reported.done_elsewhere, reported.in_vain, reported.ok) == ([], [], 8)


def test_a_unit_whose_preempted_job_wrote_its_receipt_is_this_runs_own_and_is_not_processed_again(job: JobSpec) -> None:
    units = units_of(4, 2)

    def finish_and_end(unit: Unit, worker: Worker) -> str | None:
        if unit == units[0]:
            write_receipt(job.paths, unit, done(unit, job))
            write_receipt(job.paths, units[3], done(units[3], job))  # by another process
            return "job lost"
        return None

    pool = SimulatedWorkerPool(job, 2, finish_and_end)
    reported = run_on_jobs(pool, units)
    assert (reported.done_elsewhere, reported.in_vain, reported.ok) == ([units[3].unit_id], [], 6)
    assert [unit for unit, _ in pool.ran] == [unit.unit_id for unit in units[:3]]


@pytest.mark.parametrize("has_receipt", [True, False])
def test_a_unit_whose_result_was_lost_with_its_worker_is_this_runs_own_and_stops_no_run(
    job: JobSpec, *, has_receipt: bool
) -> None:
    """Without a receipt that this host sees, it is given to a worker again, which finds it."""
    units = units_of(3, 2)
    faults = iter(["result lost"])

    def fault(unit: Unit, worker: Worker) -> str | None:
        kind = next(faults, None)
        if kind and has_receipt:
            write_receipt(job.paths, unit, done(unit, job))
        return kind

    pool = SimulatedWorkerPool(job, 2, fault)
    pool.results[units[0].unit_id] = UnitResult(done(units[0], job), "in_vain")
    reported = run(pool, units)
    assert (reported.done_elsewhere, reported.in_vain, reported.ok, reported.lost) == ([], [], 6, 1)
    assert len(pool.ran) == (3 if has_receipt else 4)


def test_a_job_that_is_preempted_costs_the_unit_it_was_at_and_no_input(job: JobSpec) -> None:
    """Neither is the unit split, as it would be if the input had crashed its worker."""
    preempted = set(range(1, 6))
    units = units_of(12, size=2)

    def fault(unit: Unit, worker: Worker) -> str | None:
        return "job lost" if len(pool.ran) in preempted else None

    pool = SimulatedWorkerPool(job, 2, fault)
    reported = run_on_jobs(pool, units)
    assert (reported.ok, sum(reported.failed.values())) == (24, 0)
    assert {unit for unit, _ in pool.ran} == {unit.unit_id for unit in units}
    assert len(pool.ran) == len(units) + reported.lost, "each lost unit was run once more"


def test_an_input_that_crashes_its_worker_is_blamed_on_jobs_too(job: JobSpec) -> None:
    pool = SimulatedWorkerPool(job, 2, on_input("0003.mp4", kind="lost"))
    reported = run_on_jobs(pool, units_of(4, size=2))
    assert (reported.ok, dict(reported.failed)) == (7, {"0003.mp4": 1})


def test_a_unit_that_no_job_lasts_for_is_split_and_in_the_end_left_to_another_run(job: JobSpec) -> None:
    pool = SimulatedWorkerPool(job, 2, on_input("0003.mp4", kind="job lost"))
    reported = Reported()
    scheduler = UnitScheduler(cast("Any", pool), job, reported, supply=cast("Any", Supply()), clock=pool.clock)
    with pytest.raises(StoppedError, match=r"1 input lost 5 jobs each in the middle.*more walltime or memory"):
        scheduler.run(units_of(4, size=2))
    assert (reported.ok, sum(reported.failed.values())) == (7, 0), "it is not given up as crashed"
    assert reported.lost == 10


def test_jobs_that_wait_in_the_queue_for_hours_are_waited_for(job: JobSpec) -> None:
    """A cluster of which nobody expects workers is given up after two minutes."""
    pool = SimulatedWorkerPool(job, 0, on_input())
    pool.after(7200.0, Worker("", "late", None, ""))
    supply = Supply()
    assert run_on_jobs(pool, units_of(3, size=1), supply).ok == 3
    assert pool.clock() >= 7200
    assert (supply.asked[0], supply.asked[-1]) == ((3, 0), (1, 1)), "as many as there is work for are asked for"
    supply.expects_workers = False
    with pytest.raises(StoppedError, match="has had no worker for 120 s"):
        run_on_jobs(SimulatedWorkerPool(job, 0, on_input()), units_of(3, size=1), supply)


def test_the_longest_units_are_begun_first(job: JobSpec) -> None:
    """Else the run ends with all workers waiting for the one that has it."""
    sizes = [1, 9, 4, 9]
    units = [
        Unit.make([Entry(video_id=f"{n}.mp4", size_bytes=size, mtime_ns=1)], "train", config_hash="c", salt="0")
        for n, size in enumerate(sizes)
    ]
    pool = SimulatedWorkerPool(job, 1, on_input())
    run(pool, units)
    assert [unit for unit, _ in pool.ran] == [units[number].unit_id for number in (1, 3, 2, 0)]
