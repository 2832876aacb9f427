"""The self-test on a clock that the test moves: an honest profiler passes each check, one with a defect does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from assets_browser import LAPTOP, PHONE, PROGRAMS, render_pages
from assets_paths import needs_program
from click.testing import CliRunner
from facefeed.loaders.profiler.estimate.estimator import Estimator
from facefeed.loaders.profiler.estimate.queue_model import QueueModel
from facefeed.loaders.profiler.measure import batch_timing, instrument, measured_loop, page_cache, step_clock, steps
from facefeed.loaders.profiler.measure.batch_timing import BatchTiming
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.measure.step_clock import HostStepClock, StepClock
from facefeed.loaders.profiler.selftest import page as selftest_page
from facefeed.loaders.profiler.selftest import run as selftest
from facefeed.loaders.profiler.selftest import scenarios, scenarios_cost
from facefeed.loaders.profiler.selftest.checks import (
    Check,
    Comparison,
    constant_delay,
    delayed_step,
    null_runs,
    with_workers,
)
from facefeed.loaders.profiler.selftest.checks_cost import evicted_files, hidden_delay, overhead
from facefeed.loaders.profiler.selftest.scenarios import Device, Plan, PlayedSegment, Segment
from facefeed.pipeline.cli import main
from numpy.typing import NDArray

LOOK_SECONDS = 1e-6
TRANSPORT_SECONDS = 0.0004


class Clock:
    """Moves by itself a little with every look, so that nobody waits for it in vain."""

    now = 0.0

    def __call__(self) -> float:
        self.now += LOOK_SECONDS
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    manual_clock = Clock()
    for module in (batch_timing, instrument, measured_loop, step_clock, steps, scenarios, scenarios_cost):
        monkeypatch.setattr(module, "clock", manual_clock)
    monkeypatch.setattr(steps, "time", SimpleNamespace(sleep=manual_clock.pass_by))
    monkeypatch.setattr(measured_loop, "raw_clock", manual_clock)
    for module in (scenarios, scenarios_cost):
        monkeypatch.setattr(module, "sleep", manual_clock.pass_by)
    return manual_clock


def play_simulated(plan: Plan, device: Device | None = None) -> list[PlayedSegment]:
    """Real loaders where there are no workers; else what a loop would have recorded of such a queue."""
    if not plan.num_workers:
        return scenarios.play(plan, device)
    rng = np.random.default_rng(0)
    return [simulate_queue(plan, segment, rng) for segment in plan.segments]


def simulate_queue(
    plan: Plan, segment: Segment, rng: np.random.Generator, *, withheld: float = 0.0, taken_at_once: bool = False
) -> PlayedSegment:
    """What a loop records of a segment.

    withheld: seconds that every eighth batch comes late, since the machine is busy with something else. taken_at_once:
    with a slow batch the loop also takes the next ones from the queue, which then cost next to nothing.
    """
    delays = segment.delay_seconds + 0.0003 * rng.random(len(segment.delay_seconds))
    transport = TRANSPORT_SECONDS * (1 + 0.5 * rng.random(len(delays)))
    transport[::8] += withheld
    if taken_at_once and segment.delay_seconds.max() > 0.1:
        slow = int(segment.delay_seconds.argmax())
        transport[slow : slow + 2] = 2.7 * TRANSPORT_SECONDS, 0.3 * TRANSPORT_SECONDS
    timeline = QueueModel(num_workers=plan.num_workers, prefetch_factor=plan.prefetch_factor).replay(
        delays + 0.0001, segment.step_seconds, transport
    )
    recording = Recording(
        requested_at=timeline.device_free_at,
        received_at=timeline.step_begin_at,
        step_end_at=timeline.step_begin_at + timeline.step_seconds,
        host_requested_at=timeline.device_free_at,
        host_received_at=timeline.step_begin_at,
        step_begin_raw_at=timeline.step_begin_at,
        segment_step=np.arange(len(delays)),
        num_workers=plan.num_workers,
        prefetch_factor=plan.prefetch_factor,
        storage_bytes=0,
        num_images=np.ones(len(delays), np.int64),
        batch_timings=[
            BatchTiming(start, finish)
            for start, finish in zip(timeline.load_start_at, timeline.load_end_at, strict=True)
        ],
    )
    load_start_at = timeline.load_end_at - delays
    return PlayedSegment(
        recording=recording,
        opened_at=0.0,
        item_start_at=load_start_at,
        file_read_at=load_start_at,
        collated_at=timeline.load_end_at,
        received_at=recording.received_at,
        step_end_at=recording.step_end_at,
    )


class Stream:
    """A device with its own queue of work."""

    seconds = 0.02

    def __init__(self, clock: Clock) -> None:
        self.clock, self.free_at = clock, 0.0
        self.step_clock: StepClock = Events(self)

    def work(self, _batch: Any) -> None:
        self.free_at = max(self.free_at, self.clock()) + self.seconds


@dataclass
class Events:
    """Marks that resolve when the device comes to them."""

    stream: Stream

    def begin(self) -> None:
        self.stream.clock.now = max(self.stream.clock.now, self.stream.free_at)

    def mark(self) -> float:
        return max(self.stream.free_at, self.stream.clock())

    def seconds_of(self, marks: list[float]) -> NDArray[np.float64]:
        return np.array(marks)


class Disk:
    """Files of which the first read after they were evicted comes from storage and takes longer."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, forgets: bool = True) -> None:
        self.clock, self.evicted, self.stored, self.forgets = clock, set[Path](), 0, forgets
        monkeypatch.setattr(Path, "read_bytes", lambda path: self.read(path))  # noqa: PLW0108 (bound, it would not get it)
        monkeypatch.setattr(page_cache, "evict", self.evict)
        monkeypatch.setattr(page_cache, "storage_bytes_read", lambda: self.stored)
        monkeypatch.setattr(scenarios, "storage_bytes_read", lambda: self.stored)
        monkeypatch.setattr(scenarios_cost, "_write_synced", lambda path, _size_bytes: path)

    def evict(self, paths: list[Path]) -> None:
        self.evicted |= set(paths) if self.forgets else set()

    def read(self, path: Path) -> bytes:
        self.clock.pass_by(0.006 if path in self.evicted else 0.0005)
        self.stored += 4_000_000 * (path in self.evicted)
        self.evicted.discard(path)
        return b""


def pairs(extra_cost: float, spread: float = 0.0005) -> Callable[[int], NDArray[np.float64]]:
    """What batches of 20 ms take without the profiler, and with one that costs so much more."""

    def measured(count: int) -> NDArray[np.float64]:
        plain = 0.02 * (1 + spread * np.random.default_rng(1).standard_normal((count, 2)))
        return plain * np.array([1.0, 1 + extra_cost])

    return measured


Bench = Callable[[int], Check]


@pytest.fixture
def check(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """Runs the check of a number."""
    Disk(clock, monkeypatch)
    checks: dict[int, Callable[[], Check]] = {
        1: lambda: constant_delay(play_simulated),
        2: lambda: with_workers(play_simulated, lambda _: None)[0],
        3: lambda: with_workers(play_simulated, lambda _: None)[1],
        4: lambda: delayed_step(play_simulated),
        5: lambda: hidden_delay(play_simulated, Stream(clock)),
        6: lambda: evicted_files(scenarios_cost.play_files, tmp_path),
        7: lambda: overhead(pairs(0.004)),
        8: lambda: null_runs(play_simulated),
    }
    return lambda number: checks[number]()


@pytest.mark.parametrize("number", range(1, 9))
def test_an_honest_profiler_passes(number: int, check: Bench) -> None:
    result = check(number)
    assert result.number == number
    assert result.outcome == "passed", [str(point) for point in result.points if not point.holds]
    assert result.points
    assert result.detail


# ---- a self-test that cannot fail is worthless


def halved(recording: Recording) -> Any:
    return 0.5 * WAIT(recording)


def without_outliers(recording: Recording) -> Any:
    return np.minimum(WAIT(recording), np.median(WAIT(recording)))


def with_slow_steps(recording: Recording) -> Any:
    return WAIT(recording) + np.maximum(recording.step_seconds - np.median(recording.step_seconds), 0.0)


def all_zero(recording: Recording) -> Any:
    return np.zeros(len(recording))


def without_slow_fetches(recording: Recording) -> Any:
    """The period without what a batch took to make beyond 4 ms."""
    return PERIOD(recording) - np.maximum(recording.load_seconds - 0.004, 0.0)


def far_too_high(recording: Recording) -> float:
    return 10 * FLOOR(recording)


def zero_floor(_recording: Recording) -> float:
    return 0.0


def of_one_batch(recording: Recording) -> QueueModel:
    return QueueModel(num_workers=recording.num_workers, prefetch_factor=min(recording.prefetch_factor, 1))


def of_one_worker(recording: Recording) -> QueueModel:
    return QueueModel(num_workers=min(recording.num_workers, 1), prefetch_factor=recording.prefetch_factor)


def getter(name: str) -> Callable[[Recording], Any]:
    method = getattr(Recording, name).fget
    assert callable(method)
    return method


WAIT, FLOOR, PERIOD, STEP = (
    getter(name) for name in ("wait_seconds", "transport_floor_seconds", "period_seconds", "step_seconds")
)


@pytest.mark.parametrize(
    ("name", "defect", "numbers"),
    [
        ("wait_seconds", halved, {1, 2, 5}),
        ("wait_seconds", all_zero, {1, 2, 3, 5}),
        ("wait_seconds", without_outliers, {3}),
        ("wait_seconds", with_slow_steps, {4}),
        ("transport_floor_seconds", far_too_high, {3}),
        ("transport_floor_seconds", zero_floor, {8}),
        ("queue_model", of_one_batch, {3}),
        ("queue_model", of_one_worker, {2}),
        ("period_seconds", without_slow_fetches, {6}),
        ("step_seconds", lambda recording: STEP(recording) + np.maximum(recording.load_seconds - 0.004, 0.0), {6}),
        ("stage_seconds", lambda recording: {"augment": float(recording.load_seconds.mean())}, {6}),
        ("storage_bytes_per_image", lambda _: 0.0, {6}),
        ("storage_bytes_per_image", lambda _: 4e6, {6}),
        ("storage_bytes_per_image", lambda _: None, {6}),
    ],
)
def test_a_profiler_with_a_defect_fails(
    name: str, defect: Callable[[Recording], Any], numbers: set[int], check: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recording, name, property(defect))
    for number in numbers:
        result = check(number)
        assert result.outcome == "FAILED", result.detail
        assert any(not point.holds for point in result.points)


def test_a_profiler_that_takes_the_hosts_wait_for_the_devices_fails(clock: Clock) -> None:
    stream = Stream(clock)
    stream.step_clock = HostStepClock()
    result = hidden_delay(play_simulated, stream)
    assert [point.label.endswith("the device's wait") for point in result.points if not point.holds] == [True, True]


@pytest.mark.parametrize(
    ("extra_cost", "spread", "outcome"),
    [(0.03, 0.0005, "FAILED"), (0.012, 0.0005, "FAILED"), (0.012, 0.1, "passed"), (0.2, 0.1, "FAILED")],
)
def test_an_overhead_fails_once_it_is_shown(extra_cost: float, spread: float, outcome: str) -> None:
    assert overhead(pairs(extra_cost, spread)).outcome == outcome


def test_what_is_allowed_is_not_the_profilers_to_say(check: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = [point.allowed for point in check(1).points]
    monkeypatch.setattr(Recording, "transport_floor_seconds", property(far_too_high))
    assert [point.allowed for point in check(1).points] == pytest.approx(honest, rel=0.1)


# ---- what cannot be tried here


def test_without_a_gpu_its_check_is_not_run_and_nothing_fails() -> None:
    result = hidden_delay(play_simulated, None)
    assert (result.outcome, result.not_run, result.passed) == ("not run", "needs a GPU", True)


def test_batches_that_are_received_with_a_slow_one_starve_no_step() -> None:
    rng = np.random.default_rng(0)
    result = with_workers(
        lambda plan: [simulate_queue(plan, segment, rng, taken_at_once=True) for segment in plan.segments],
        lambda _: None,
    )[1]
    assert result.outcome == "passed", [str(point) for point in result.points if not point.holds]


@pytest.mark.parametrize("withheld", [0.002, 0.03])
def test_what_a_busy_machine_withholds_is_no_false_alarm(withheld: float) -> None:
    rng = np.random.default_rng(0)
    result = null_runs(
        lambda plan: [simulate_queue(plan, segment, rng, withheld=withheld) for segment in plan.segments]
    )
    assert result.passed
    assert float(result.detail.split("was ")[1].split(" ms")[0]) > 0.1  # it was seen, and it was so


def test_one_stray_read_from_storage_does_not_make_warm_files_cold(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk, strays = Disk(clock, monkeypatch), iter([*[0] * 20, 100_000])  # 16 reads before anybody looks

    def read(path: Path) -> bytes:
        disk.stored += next(strays, 0)
        return Disk.read(disk, path)

    monkeypatch.setattr(disk, "read", read)
    result = evicted_files(scenarios_cost.play_files, tmp_path)
    assert next(strays, None) is None
    assert result.passed, result


def test_files_that_cannot_be_evicted_are_not_checked(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Disk(clock, monkeypatch, forgets=False)
    result = evicted_files(scenarios_cost.play_files, tmp_path)
    assert result.outcome == "not run"
    assert result.not_run == f"the file system of {tmp_path.parent} keeps its files in memory"


def test_a_check_that_compared_nothing_has_not_passed() -> None:
    assert Check(number=1, name="nothing").outcome == "FAILED"


# ---- the command and its page

GOOD = Check(number=1, name="a <b>delay</b> is the wait", detail="all well", points=(
    Comparison(label="10 ms", injected=0.0101, recovered=0.0104, allowed=0.0008, estimator=Estimator.LIVE),
    Comparison(label="hidden", injected=0.0, recovered=0.0, allowed=0.0008, estimator=Estimator.LIVE),
))  # fmt: skip
BAD = Check(number=3, name="one slow batch starves one step", detail="1 worker", points=(
    Comparison(label="1 worker x 2, 1.1 x", injected=1, recovered=0, allowed=0, unit="count", estimator=Estimator.LIVE),
))  # fmt: skip
NOT_RUN = Check(number=5, name="hidden behind a device", not_run="needs a GPU")


@pytest.mark.parametrize(("checks", "code"), [([GOOD, NOT_RUN], 0), ([GOOD, BAD, NOT_RUN], 1)])
def test_the_command_ends_with_what_the_checks_say(
    checks: list[Check], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(selftest, "run", lambda *, progress: progress("1 of 8") or checks)
    page = tmp_path / "page.html"
    result = CliRunner().invoke(main, ["profile", "--self-test", "--page", str(page), "--json"])
    figures = json.loads(result.stdout)
    assert result.exit_code == figures["exit"] == code
    assert figures["passed"] is (code == 0)
    assert [item["outcome"] for item in figures["checks"]] == [item.outcome for item in checks]
    assert figures["checks"][0]["points"][0]["injected"] == 0.0101
    assert "5  not run  hidden behind a device: needs a GPU" in result.stderr
    failed = "1 worker x 2, 1.1 x, A: injected 1, recovered 0, allowed +- 0"
    assert (failed in result.stderr) is (failed in page.read_text(encoding="utf-8")) is (code == 1)


def test_all_eight_checks_are_run(clock: Clock, check: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "play", play_simulated)
    monkeypatch.setattr(selftest, "play_pairs", pairs(0.004))
    monkeypatch.setattr(selftest, "CudaDevice", lambda _seconds: Stream(clock))
    monkeypatch.setattr(selftest.torch.cuda, "is_available", lambda: True)
    messages: list[str] = []
    results = selftest.run(progress=messages.append)
    assert [result.number for result in results] == list(range(1, 9))
    assert {result.outcome for result in results} == {"passed"}
    assert messages[0] == "1 of 8: a constant delay, without workers"
    assert selftest.text(results).startswith("8 checks: 8 passed\n")


@pytest.mark.processes
def test_the_page_is_whole_in_a_browser(tmp_path: Path) -> None:
    program = needs_program(next((name for name in PROGRAMS if shutil.which(name)), PROGRAMS[0]))
    page = tmp_path / "page.html"
    assert selftest_page.write_page([GOOD, BAD, NOT_RUN], page) == page.stat().st_size < 4e6
    view = render_pages(program, [page], tmp_path / "browser", hover={})[page]
    assert min(view.drawn.values()) > 20
    assert view.complaints == []
    assert [url for url in view.requests if not url.startswith("data:")] == []
    assert all(view.widths[width] <= width for width in (LAPTOP, PHONE))
    text = page.read_text(encoding="utf-8")
    for sentence in ("3 checks: 1 passed, 1 FAILED, 1 not run", "needs a GPU", "a &lt;b&gt;delay&lt;/b&gt;",
                     "1 comparisons have no place"):  # fmt: skip
        assert sentence in text
