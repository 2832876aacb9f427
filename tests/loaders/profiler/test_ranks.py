"""What is reported of a job of several ranks: it waits for whichever is last, and all ranks do the same steps."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from assets_clock import Clock
from assets_loaders import DEADLINE_SECONDS
from assets_profiled_ranks import alone_in_a_job, asked_differently, coupled, profiled, profiled_with_workers, verified
from assets_profiles import STEP, profile_of, recording_of
from assets_ranks import in_ranks
from assets_rows import make_small
from click.testing import CliRunner
from facefeed.loaders.profiler.measure.ranks import LostRankError, RankGroup
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.profile import profile as profile_loader
from facefeed.loaders.profiler.rank_processes import RankDiedError, _name_rank_in_error, profile_on_ranks
from facefeed.loaders.profiler.report.console import console_report
from facefeed.loaders.profiler.report.json_report import report_values
from facefeed.loaders.profiler.report.page.html import write_page
from facefeed.loaders.profiler.report.page.sentences import estimators
from facefeed.loaders.profiler.request import ProfileRequest
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.job import RankReport, judge_job, report_of_rank, slowest_rank
from facefeed.loaders.profiler.verdict.judge import judge
from facefeed.loaders.profiler.verdict.result import Profile
from facefeed.loaders.profiler.verdict.step_series import StepSeries
from facefeed.loaders.profiler.verdict.verdict import VerdictKind
from facefeed.loaders.workers.processes import worker_context
from facefeed.pipeline.cli import main
from facefeed.pipeline.errors import CorruptDataError, UsageError
from facefeed.pipeline.page.formats import percent


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("ranks") / "out")


# ---- what a job waits for


ALONE = recording_of(np.full(100, 1e-6), workers=0)
"""The same step on batches that are there."""


def reports_of(*recordings: Recording) -> list[RankReport]:
    """What ranks have seen that recorded this."""
    return [
        report_of_rank(
            number, judge(recording, emulated=True, num_cores=4, num_ranks=len(recordings)), recording, ALONE, None
        )
        for number, recording in enumerate(recordings)
    ]


def coupled_ranks(*loads: Any) -> list[Recording]:
    """Ranks whose steps end together, with these times of batches: a step lasts until the last rank's is done."""
    waits, steps = None, [np.full(len(load), STEP) for load in loads]
    while True:
        ranks = [recording_of(load, step) for load, step in zip(loads, steps, strict=True)]
        before, waits = waits, np.array([rank.wait_seconds for rank in ranks])
        if before is not None and np.allclose(waits, before, atol=1e-9):
            return ranks
        steps = [STEP + waits.max(axis=0) - wait for wait in waits]


def second_rank_slow() -> list[Recording]:
    """Of two ranks the second's batches are a tenth too slow for two workers."""
    return coupled_ranks(np.full(2000, STEP), np.full(2000, 2.2 * STEP))


def late_every(count: int, first: int) -> Any:
    """Batches that are made in time, but for one in `count`, which takes 14 steps, of which the queue hides four."""
    load = np.full(4000, STEP)
    load[first::count] = 14 * STEP
    return load


def test_ranks_that_wait_in_turn_keep_each_other_waiting_all_the_time() -> None:
    job, ranks = judge_job(reports_of(*coupled_ranks(late_every(400, 100), late_every(400, 300))))
    shares = [rank.verdict.wait_share.value for rank in ranks]
    assert shares[0] == pytest.approx(shares[1], rel=0.05)
    assert job.wait_share.value == pytest.approx(sum(shares), rel=0.02)
    assert job.wait_share.lower <= job.wait_share.value <= job.wait_share.upper
    assert job.num_starved_steps == sum(rank.verdict.num_starved_steps for rank in ranks)
    assert [rank.held_up_share for rank in ranks] == pytest.approx([0.5, 0.5], abs=0.05)
    assert job.rank_wait_shares == tuple(shares)
    assert str(job).startswith("EMULATED STARVED  some of 2 ranks wait")


def test_the_rank_that_the_others_wait_for_is_named_with_its_cause() -> None:
    job, ranks = judge_job(reports_of(*second_rank_slow()))
    assert slowest_rank(ranks) == 1
    assert (ranks[0].held_up_share, ranks[1].held_up_share) == pytest.approx((0.0, 1.0), abs=0.01)
    assert ranks[1].main_cause[0] == "preparation"
    assert sum(ranks[1].wait_share_by_cause.values()) == pytest.approx(ranks[1].verdict.wait_share.value)
    assert ranks[1].longest_stage == ("decode", pytest.approx(0.4, abs=0.01))
    assert job.kind is VerdictKind.STARVED
    assert job.wait_share.value == pytest.approx(ranks[1].verdict.wait_share.value, rel=0.005)


def test_what_a_verdict_relies_on_is_reported_of_the_job_or_with_the_number_of_the_rank() -> None:
    reports = reports_of(*second_rank_slow())
    remarks = [("no length",), ("no length", "read ahead")]
    remarked = [
        replace(report, rank=replace(report.rank, verdict=replace(report.rank.verdict, remarks=each)))
        for report, each in zip(reports, remarks, strict=True)
    ]
    assert judge_job(remarked)[0].remarks == ("no length", "rank 1: read ahead")


def test_the_wait_for_other_ranks_is_a_part_of_its_own_and_not_a_slower_step() -> None:
    recordings = second_rank_slow()
    verdict, ranks = judge_job(reports_of(*recordings))
    fast = replace(profile_of(recordings[0]), verdict=verdict, ranks=ranks, rank=0)
    assert fast.step_part_seconds["other ranks"] == pytest.approx(recordings[1].wait_seconds.mean(), rel=0.02)
    assert sum(fast.step_part_seconds.values()) == pytest.approx(
        recordings[0].period_seconds[recordings[0].is_steady].mean(), rel=0.01
    )
    slow = replace(profile_of(recordings[1]), verdict=verdict, ranks=ranks, rank=1)
    assert "other ranks" not in slow.step_part_seconds


def test_nothing_is_concluded_of_ranks_that_come_together_only_every_other_step() -> None:
    """Each waits for a step's length, one in even steps and the other in odd ones: a third of the time is lost."""
    even = recording_of(np.where(np.arange(4000) % 2, 0.0, 2 * STEP), STEP, workers=0)
    odd = recording_of(np.where(np.arange(4000) % 2, 2 * STEP, 0.0), STEP, workers=0)
    job, _ = judge_job(reports_of(even, odd))
    assert job.kind is VerdictKind.INCONCLUSIVE
    assert any("do not end their steps together" in reason for reason in job.reasons)


def test_a_wait_that_a_slower_rank_hides_does_not_count_for_the_job() -> None:
    """One waits 8 ms and computes 5, the other computes 20 without a wait: nothing is lost."""
    waits = recording_of(np.full(2000, 0.008), 0.012, workers=0, lead=0)
    computes = recording_of(np.full(2000, 1e-6), 0.020, workers=0, lead=0)
    verdicts = [judge(recording, emulated=False, num_cores=4, num_ranks=2) for recording in (waits, computes)]
    alone = recording_of(np.full(100, 1e-6), 0.020, workers=0)
    job, _ = judge_job([
        report_of_rank(number, verdict, recording, alone, None)
        for number, (verdict, recording) in enumerate(zip(verdicts, (waits, computes), strict=True))
    ])  # fmt: skip
    assert job.kind is VerdictKind.INCONCLUSIVE
    assert any("longer than on preloaded batches" in reason for reason in job.reasons)


def in_alternation() -> list[Recording]:
    """Two ranks that are too slow in turn, one in either half: neither has a steady state, but the job waits evenly."""
    slow, fast = np.full(1000, 2.4 * STEP), np.full(1000, STEP)
    return coupled_ranks(np.concatenate([slow, fast]), np.concatenate([fast, slow]))


def test_a_rank_without_a_steady_state_keeps_its_doubt_and_the_job_its_own_verdict() -> None:
    job, ranks = judge_job(reports_of(*in_alternation()))
    assert [rank.verdict.kind for rank in ranks] == [VerdictKind.INCONCLUSIVE] * 2
    assert all(any(reason.startswith("no steady state") for reason in rank.verdict.reasons) for rank in ranks)
    assert (job.kind, job.reasons) == (VerdictKind.STARVED, ())
    assert job.wait_share.value == pytest.approx(0.4 / 2.4, abs=0.01)


def test_a_job_whose_own_waits_change_has_no_steady_state() -> None:
    slower = np.concatenate([np.full(3000, STEP), np.full(1000, 3 * STEP)])
    job, _ = judge_job(reports_of(*coupled_ranks(np.full(4000, STEP), slower)))
    assert job.kind is VerdictKind.INCONCLUSIVE
    assert job.reasons[0].startswith("no steady state: waiting went from 0.0")


def test_a_rank_whose_queue_still_empties_leaves_the_job_without_a_steady_state() -> None:
    """Three per cent too slow, behind a queue of 64 that was full: for 2,000 steps nobody waits."""
    load = np.concatenate([np.full(64, 1e-6), np.full(1500, 16 * 1.03 * STEP)])
    fast, slow = (recording_of(loads, STEP, workers=16, prefetch=4) for loads in (np.full(len(load), STEP), load))
    job, _ = judge_job(reports_of(fast, slow))
    assert job.kind is VerdictKind.INCONCLUSIVE
    assert [reason.split(" loses")[0] for reason in job.reasons] == ["rank 1: no steady state: the queue"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            lambda recording: {"step_begin_raw_at": 1.05 * recording.step_begin_raw_at},
            "of the time is not accounted for",
        ),
        (lambda _: {"storage_bytes": None}, "the system does not say what came from storage"),
        (lambda _: {"timing_cost_seconds": 0.01}, "the profiler itself takes"),
    ],
)
def test_what_makes_a_ranks_times_unreliable_makes_the_jobs_unreliable(changed: Any, message: str) -> None:
    first, second = second_rank_slow()
    job, _ = judge_job(reports_of(replace(first, **changed(first)), second))
    assert job.kind is VerdictKind.INCONCLUSIVE
    assert [reason.split(": ")[0] for reason in job.reasons] == ["rank 0"]
    assert message in job.reasons[0]


def test_the_steps_of_a_job_that_count_are_chosen_by_its_own_waits() -> None:
    """Ranks that fill their queues in turn, with the same waits: nothing changes for the job."""
    job = StepSeries.of_job([StepSeries.of_recording(recording) for recording in in_alternation()])
    assert job.transient_length() <= 20
    assert job.drift_reason() == ""
    assert all(StepSeries.of_recording(recording).drift_reason() for recording in in_alternation())


def test_a_ranks_own_doubts_are_shown_with_its_row(tmp_path: Path) -> None:
    recordings = in_alternation()
    verdict, ranks = judge_job(reports_of(*recordings))
    profile = replace(profile_of(recordings[1]), verdict=verdict, ranks=ranks, rank=1, curve=())
    lines = console_report(profile, Gate()).splitlines()
    assert lines[1].split()[0] == "0"
    assert lines[2].startswith("          on its own: ")
    assert "no steady state: waiting went from" in " ".join(line.strip() for line in lines[2:6])
    assert max(map(len, lines)) <= 80
    rows = report_values(profile, Gate())["ranks"]
    assert rows[0]["reasons"] == ranks[0].verdict.reasons != ()
    write_page(profile, Gate(), tmp_path / "page.html")
    page = unescape((tmp_path / "page.html").read_text())
    assert f"Rank 0 on its own: {ranks[0].verdict.reasons[0]}" in page


def test_more_ranks_leave_each_of_them_less_headroom() -> None:
    """Each may wait for its part of 1 % alone, if the job is to wait for no more than that."""
    load = np.full(4000, STEP)
    load[::100] = 8 * STEP
    alone, of_eight = (
        judge(recording_of(load), emulated=True, num_cores=4, num_ranks=count).headroom for count in (1, 8)
    )
    assert alone is not None
    assert of_eight is not None
    assert of_eight < 0.95 * alone


def test_a_rank_that_is_alone_is_judged_as_ever() -> None:
    (alone,) = reports_of(recording_of(np.full(1000, STEP)))
    assert judge_job([alone]) == (alone.rank.verdict, ())


def two_rank_profile() -> Profile:
    """A profile of a job, as the rank saw it that held the other up."""
    recordings = second_rank_slow()
    verdict, ranks = judge_job(reports_of(*recordings))
    return replace(profile_of(recordings[1]), verdict=verdict, ranks=ranks, rank=1, curve=())


def test_the_terminal_has_a_line_for_each_rank_and_the_rest_is_of_the_slowest() -> None:
    lines = console_report(two_rank_profile(), Gate()).splitlines()
    assert lines[0].split() == ["rank", "waits", "at", "most", "last", "in", "images/s", "mostly"]
    assert lines[2].split()[0] == "1"
    assert lines[2].rstrip().endswith("%")
    assert "not ready" in lines[2]
    assert lines[6] == "  of rank 1, which the others waited for most:"
    assert max(map(len, lines)) <= 80


def test_what_replays_show_of_a_job_is_the_jobs_and_not_that_of_the_rank_that_is_shown() -> None:
    """The second rank alone needs 10 ms for a step, the first one 5: from a replay of its own it would seem to wait."""
    recordings = second_rank_slow()
    replays = [recording_of(np.full(100, 1e-6), seconds, workers=0) for seconds in (STEP / 2, STEP)]
    verdict, ranks = judge_job([
        report_of_rank(number, judge(recording, emulated=True, num_cores=4, num_ranks=2), recording, replay, None)
        for number, (recording, replay) in enumerate(zip(recordings, replays, strict=True))
    ])  # fmt: skip
    profile = replace(
        profile_of(recordings[0]), verdict=verdict, ranks=ranks, rank=0, preloaded=replays[0], curve=(), advice=()
    )
    assert profile.replay_slowdown == pytest.approx(0.1 / 1.1, abs=0.002)  # 11 ms from step to step
    assert report_values(profile, Gate())["estimators"]["differential"] == profile.replay_slowdown
    shown = f"{profile.replay_slowdown:.2%}"
    assert re.search(rf"against replayed batches +{shown} ", console_report(profile, Gate()))
    assert estimators(profile).rows[1][1] == percent(profile.replay_slowdown)


def test_the_report_and_the_page_have_every_rank(tmp_path: Path) -> None:
    profile = two_rank_profile()
    rows = report_values(profile, Gate())["ranks"]
    assert [row["rank"] for row in rows] == [0, 1]
    assert rows[1]["waiting"]["value"] == pytest.approx(profile.ranks[1].verdict.wait_share.value)
    assert rows[1]["longest_stage"]["name"] == "decode"
    write_page(profile, Gate(), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Which rank the others wait for" in page
    assert "on 2 ranks waits for data" in page


# ---- a running job


@pytest.mark.processes
def test_inside_a_job_all_ranks_do_the_same_steps_and_come_to_the_same_verdict(tmp_path: Path) -> None:
    """One alone would have gone on to its 4,000 steps; the other is surely too slow before that."""
    fast, slow = in_ranks(2, profiled, tmp_path / "ranks", [STEP, 2 * 1.15 * STEP], 4000)
    assert fast["done"] == slow["done"] < 4000
    assert fast["verdict"] == slow["verdict"]
    assert fast["verdict"].kind is VerdictKind.STARVED
    assert fast["verdict"].wait_share.value == pytest.approx(0.15 / 1.15, abs=0.01)
    assert (fast["ranks"], fast["slowest"], fast["rank"], slow["rank"]) == (2, 1, 0, 1)


@pytest.mark.processes
def test_inside_a_job_that_is_fed_all_ranks_go_on_to_the_end(tmp_path: Path) -> None:
    results = in_ranks(2, profiled, tmp_path / "ranks", [STEP, 1.2 * STEP], 4000)
    assert [result["verdict"].kind for result in results] == [VerdictKind.FED, VerdictKind.FED]
    assert results[0]["verdict"].num_steps >= 3990


@pytest.mark.processes
def test_ranks_with_different_workers_and_epochs_end_their_profile_after_as_many_steps(tmp_path: Path) -> None:
    first, second = in_ranks(2, profiled_with_workers, tmp_path / "ranks", [0, 2], [50, 37])
    assert first == second


def test_a_rank_that_asks_alone_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    assert "each of them has to call it" in in_ranks(2, alone_in_a_job, tmp_path / "ranks")[0]


def test_what_a_job_cannot_try_is_refused_on_every_rank(tmp_path: Path) -> None:
    assert all("neither verify nor against" in message for message in in_ranks(2, verified, tmp_path / "ranks"))


@pytest.mark.parametrize(
    ("world_size", "others"), [("4", "the other 3 ranks were"), ("2", "the other rank was"), ("1", ""), ("", "")]
)
def test_ranks_that_no_process_group_brings_together_are_named(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, world_size: str, others: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world_size)
    verdict = profile_loader([torch.zeros(1)] * 200, lambda _: clock.pass_by(STEP), steps=60, quick=True).verdict
    expected = f"{others} not seen, and a job waits for all of them; call init_process_group first"
    assert [remark for remark in verdict.remarks if "init_process_group" in remark] == [expected] * bool(others)


# ---- an emulated device that is one of several


def test_a_step_ends_on_all_ranks_where_it_ends_on_the_last(tmp_path: Path) -> None:
    ends = in_ranks(2, coupled, tmp_path / "ranks", [0.0, 3 * STEP])
    assert ends[0] == ends[1] == pytest.approx([4 * STEP, 5 * STEP, 6 * STEP])


# ---- ranks on this host


def make_request(dataset: Path, **overrides: Any) -> ProfileRequest:
    defaults: dict[str, Any] = {
        "out": dataset, "step_ms": 1.0, "host_share": 0.0, "steps": 60, "confidence": 0.95, "split": "train",
        "batch_size": 5, "image_size": 16, "workers": 0, "prefetch": None, "shuffle": "full", "balance": "none",
        "transform": None, "ranks": 2, "quick": True,
    }  # fmt: skip
    return ProfileRequest(**{**defaults, **overrides})


def test_ranks_that_were_asked_for_different_things_are_refused(tmp_path: Path) -> None:
    messages = in_ranks(2, asked_differently, tmp_path / "ranks")
    assert messages == ["steps: has to be the same on all ranks, and is 60, 70"] * 2


def test_the_command_measures_ranks_on_this_host(dataset: Path, tmp_path: Path) -> None:
    arguments = ["profile", str(dataset), "--ranks", "2", "--workers", "0", "--batch-size", "4", "--image-size", "16",
                 "--balance", "classes", "--shuffle", "window", "--steps", "60", "--step-ms", "1", "--json",
                 "--page", str(tmp_path / "profile.html")]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    report = json.loads(result.stdout)
    assert result.exit_code == report["exit"] in (1, 4)
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    assert len(report["verdict"]["ranks"]) == 2
    assert report["verdict"]["epoch_batches"] == 14  # half of what one rank's epoch has
    assert report["step"].startswith("EmulatedRank(seconds=0.001")
    assert result.stderr.startswith("profiling the loader\n")


def test_what_a_rank_refuses_the_command_refuses(dataset: Path) -> None:
    with pytest.raises(UsageError, match="cannot hold"):
        profile_on_ranks(make_request(dataset, balance="classes"), lambda *_: None)


FAILING = """
transform:
  __class_fullname__: Compose
  transforms: [{__class_fullname__: CenterCrop, p: 1.0, height: 400, width: 400}]
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a short path: a socket in it has at most 107 characters, and `tmp_path` alone may take 90."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def start_command(dataset: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
    """The command in a process, and a process group, of its own, whose temporary files are in `folder`."""
    arguments = ["profile", str(dataset), "--batch-size", "4", "--image-size", "16", "--step-ms", "1", "--quick",
                 "--page", str(dataset.parent / "profile.html"), "--ranks", "2", *options]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "facefeed.pipeline", *arguments], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(folder)}, start_new_session=True,
    )  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_transform_that_fails_ends_the_command_with_its_line_and_its_rank(
    dataset: Path, tmp_path: Path, temporary: Path, workers: str
) -> None:
    (tmp_path / "failing.yaml").write_text(FAILING)
    process = start_command(dataset, temporary, "--workers", workers, "--transform", str(tmp_path / "failing.yaml"))
    _, stderr = process.communicate(timeout=2 * DEADLINE_SECONDS)
    lines = [line for line in stderr.splitlines() if line]
    assert re.fullmatch(
        r"facefeed: rank [01]: .*CropSizeError: Crop size .* exceeds image dimensions .*; for its trace .*", lines[-1]
    )
    assert lines[:-1] in ([], ["profiling the loader"])
    assert process.returncode == 1
    assert [*temporary.iterdir()] == []


@pytest.mark.processes
def test_ctrl_c_ends_the_command_and_leaves_nothing(dataset: Path, temporary: Path) -> None:
    process = start_command(dataset, temporary, "--workers", "1", "--steps", "100000")
    assert process.stderr is not None
    assert process.stderr.readline() == "profiling the loader\n"
    started = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, stderr = process.communicate(timeout=2 * DEADLINE_SECONDS)
    assert stderr == "facefeed: interrupted; run the same command again\n"
    assert process.returncode == 130
    assert psutil.wait_procs(started, timeout=2 * DEADLINE_SECONDS)[1] == []
    assert [*temporary.iterdir()] == []


@pytest.mark.processes
def test_a_command_that_is_killed_takes_its_ranks_with_it(dataset: Path, temporary: Path) -> None:
    process = start_command(dataset, temporary, "--workers", "1", "--steps", "100000")
    assert process.stderr is not None
    process.stderr.readline()
    started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=2 * DEADLINE_SECONDS)
    assert len(started) >= 4  # the fork server, the ranks and their workers
    assert psutil.wait_procs(started, timeout=2 * DEADLINE_SECONDS)[1] == []
    assert not [path for path in temporary.iterdir() if path.name.startswith("facefeed")]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CorruptDataError("a.parquet: wrong"), "rank 1: a.parquet: wrong"),
        (UsageError("--balance: wrong"), "--balance: wrong"),
        (FileNotFoundError(2, "No such file", "a.parquet"), "[Errno 2] No such file (rank 1): 'a.parquet'"),
    ],
)
def test_an_error_of_a_rank_stays_what_it_is(error: Exception, expected: str) -> None:
    with_rank = _name_rank_in_error(error, 1)
    assert (type(with_rank), str(with_rank)) == (type(error), expected)


def processes() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


@pytest.mark.parametrize("killed", [1, 2])
def test_ranks_that_are_killed_end_the_measurement_and_leave_no_process(dataset: Path, killed: int) -> None:
    worker_context(None)  # the fork server stays
    before, started = processes(), set[psutil.Process]()

    def kill(*_: Any) -> None:
        if not started:
            started.update(processes() - before)
            for child in sorted(started, key=lambda child: child.pid)[:killed]:
                child.kill()

    with pytest.raises(RankDiedError, match=r"rank [01] was killed by signal 9"):
        profile_on_ranks(make_request(dataset, steps=4000), kill)
    assert len(started) == 2
    assert psutil.wait_procs(started, timeout=30)[1] == []


def test_a_rank_that_loses_another_says_so_instead_of_where_in_gloo_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: Any, **__: Any) -> None:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:36579.\nmore")

    monkeypatch.setattr(torch.distributed, "all_gather_object", lose)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda _: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda _: 3)
    with pytest.raises(LostRankError) as raised:
        RankGroup("a group").all_max(1)
    assert str(raised.value).startswith(
        "profile() inside a job of 3 ranks: rank 0 has lost another one, which has ended"
    )
    assert str(raised.value).endswith("([gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:36579.)")


def test_ctrl_c_within_torch_waits_for_its_return_since_torch_would_abort_the_process(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned = []

    def interrupted(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        returned.append(True)

    monkeypatch.setattr("torch.distributed.TCPStore", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profile_on_ranks(make_request(dataset), lambda *_: None)
    assert returned == [True]


def test_ctrl_c_while_ranks_are_started_leaves_no_process(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_context(None)
    before, start = processes(), ForkServerProcess.start

    def interrupted(process: ForkServerProcess) -> None:
        start(process)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ForkServerProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profile_on_ranks(make_request(dataset), lambda *_: None)
    assert psutil.wait_procs(processes() - before, timeout=0)[1] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--verify"], "take --sweep, or one rank"),
        (["--against", "naive", "--videos", "nowhere"], "take --sweep, or one rank"),
    ],
)
def test_what_ranks_cannot_do_is_reported_before_any_is_started(
    dataset: Path, arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(main, ["profile", str(dataset), "--ranks", "2", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
