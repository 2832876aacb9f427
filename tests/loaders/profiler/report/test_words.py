"""What a profile tells a reader who knows nothing of queues: what is wrong, and what to do, whatever the cause."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_docs import key_differences, keys
from assets_profiles import STEP, fed, profile_of, recording_of, starved, trial_of, unseen
from facefeed.loaders.profiler.estimate.estimator import Estimator
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.report.console import console_report
from facefeed.loaders.profiler.report.headline import followed, headline, meaning
from facefeed.loaders.profiler.report.json_report import report_values
from facefeed.loaders.profiler.report.no_advice import no_advice_reason
from facefeed.loaders.profiler.report.page.cost import trials as trials_section
from facefeed.loaders.profiler.report.page.html import write_page
from facefeed.loaders.profiler.report.page.ranks_and_sweep import ranks as ranks_section
from facefeed.loaders.profiler.report.page.sentences import banner, estimators, facts, surroundings, sustained
from facefeed.loaders.profiler.selftest import run as selftest
from facefeed.loaders.profiler.selftest.checks import Check, Comparison
from facefeed.loaders.profiler.trials.sweep import run_sweep
from facefeed.loaders.profiler.verdict.epoch_starts import NOT_JUDGED
from facefeed.loaders.profiler.verdict.gate import Gate
from facefeed.loaders.profiler.verdict.job import RankReport, judge_job, report_of_rank
from facefeed.loaders.profiler.verdict.judge import EpochStarts, judge
from facefeed.loaders.profiler.verdict.result import Profile, SweepFailure, Trial
from facefeed.loaders.profiler.verdict.steady_state import unseen_queue_remarks
from facefeed.loaders.profiler.verdict.verdict import FED_BELOW, VerdictKind

NO_GATE, STRICT = Gate(), Gate(max_wait_share=0.01, min_headroom=1.5)


def plain(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").split())


def console(profile: Profile, gate: Gate = NO_GATE) -> str:
    return plain(console_report(profile, gate))


def page(profile: Profile, folder: Path) -> str:
    write_page(profile, NO_GATE, folder / "page.html")
    return plain(unescape((folder / "page.html").read_text()))


def test_a_result_at_the_prompt_shows_no_series_of_steps() -> None:
    result = fed()
    assert "FED" in repr(result)
    assert len(repr(result)) < 4000  # each of 4,000 steps has ten times


def judged(profile: Profile, *, epoch: EpochStarts | None = None, confidence: float = 0.95) -> Profile:
    """The profile with a verdict that takes epochs into account."""
    verdict = judge(
        profile.live, emulated=profile.verdict.emulated, num_cores=4, epoch=epoch, confidence=confidence
    )  # fmt: skip
    return replace(profile, verdict=verdict, advice=())


def on_host(step: Any = STEP, load: Any = None) -> Profile:
    """Batches that are always ready, for a step on the host, which waits 0.4 ms for the transfer of each."""
    load = np.full(4000, STEP / 2) if load is None else load
    return profile_of(recording_of(load, step, lead=0), emulated=False)


# ---- many short waits


def test_a_step_that_waits_for_transfers_alone_is_advised_on_these_and_not_to_measure_again() -> None:
    profile = on_host()
    assert (profile.verdict.kind, profile.verdict.num_starved_steps) == (VerdictKind.STARVED, 0)
    reason = no_advice_reason(profile)
    assert reason.startswith(
        "The device waits 3.8 % of the time, almost all of it to receive batches that are ready. More workers cannot "
        "help: take larger batches"
    )
    assert 'dtype="uint8"' in reason
    assert "read the loss every 50 steps" in reason
    assert "easure again" not in reason


def test_short_waits_are_advised_on_also_where_a_few_steps_wait_long() -> None:
    load = np.full(4000, STEP / 2)
    load[[500, 1500]] = 0.2
    profile = replace(on_host(load=load), advice=())
    assert profile.verdict.num_starved_steps == 2
    assert "which are mostly to receive batches that are ready ('transport'): try larger" in no_advice_reason(profile)
    assert plain(meaning(profile)).startswith(
        "2 of 3,996 steps waited longer than 1.2 ms, but all waits add up to 4.6 % of the time, most of it in short"
    )


def test_short_waits_are_never_called_none() -> None:
    profile = on_host()
    assert plain(headline(profile)) == "Your step waits for data 3.8 % of the time"
    assert plain(meaning(profile)).startswith(
        "No step waited longer than 1.2 ms, but short waits add up to 3.8 % of the time. The device waits at least "
        "3.8 % of its time"
    )


def test_what_surely_waits_over_1_percent_is_not_promised_a_better_verdict_for_more_steps() -> None:
    profile = on_host(step=0.027)
    assert profile.verdict.kind is VerdictKind.MARGINAL
    assert "it surely waits at least 1.4 % of the time (surely over 2 % would be STARVED)" in plain(meaning(profile))
    for text in (meaning(profile), no_advice_reason(profile)):
        assert "steps show" not in text
        assert "more steps" not in text


# ---- what keeps a loader from FED


def test_only_the_bound_that_fails_is_named_as_what_keeps_it_from_fed() -> None:
    profile = judged(fed(), epoch=EpochStarts(num_batches=9, start_wait_seconds=(0.0, 0.0005, 0.0005, 0.0005, 0.002)))
    assert profile.verdict.kind is VerdictKind.MARGINAL
    text = plain(meaning(profile))
    assert "Steady waiting is under 1 % (at most 0.8 % with 95 % confidence)." in text
    assert (
        "What keeps it from FED: the beginning of each epoch, for which the device waits 0.70 ms on average: with it"
        in text
    )
    assert "may be waiting" not in text
    assert "of all steps" not in text


def test_steps_that_wait_often_are_named_where_they_keep_it_from_fed() -> None:
    load = np.full(4000, STEP)
    load[::50] = 5.2 * STEP
    profile = profile_of(recording_of(load))
    assert profile.verdict.kind is VerdictKind.MARGINAL
    assert "of all steps may wait longer than" in plain(meaning(profile))


# ---- epochs


def test_of_short_epochs_that_never_waited_the_steps_are_stated_that_may_show_it() -> None:
    profile = judged(fed(), epoch=EpochStarts(num_batches=9, start_wait_seconds=(0.0,) * 5))
    assert profile.verdict.kind is VerdictKind.MARGINAL
    reason = no_advice_reason(profile)
    assert "an epoch of 9 batches waits 0 % of its time, but up to 1.3 % is possible. More steps may show" in reason
    match = re.search(r"measure at least ([\d,]+) steps \(`--steps", reason)
    assert match is not None
    needed = int(match[1].replace(",", ""))
    epoch = profile.verdict.epoch_wait_share
    assert epoch is not None
    per_step = profile.verdict.wait_share.upper * profile.verdict.num_steps  # nothing waited: as many as steps allow
    assert epoch.upper - profile.verdict.wait_share.upper + per_step / needed < FED_BELOW
    once = judged(fed(), epoch=EpochStarts(num_batches=9, start_wait_seconds=(0.0, 0.0, 0.0, 0.0, 0.01)))
    assert "Measure again while nothing else runs on the machine." in no_advice_reason(once)


def test_workers_that_start_anew_for_each_epoch_are_to_be_kept() -> None:
    profile = judged(fed(), epoch=EpochStarts(num_batches=100, start_wait_seconds=(0.3,)))
    assert no_advice_reason(profile) == (
        "The loader keeps up once its queue is filled; but each epoch of 100 batches loses 300 ms on average before "
        "that, so that it waits 23 % of its time in all. Its workers start anew for each epoch: set "
        "`persistent_workers=True`. The longer an epoch is, the less its beginning weighs."
    )
    going_on = no_advice_reason(replace(profile, first_batch_seconds=4.0))
    assert "persistent_workers" not in going_on
    without_workers = replace(profile, live=replace(profile.live, num_workers=0, prefetch_factor=0))
    assert "persistent_workers" not in no_advice_reason(without_workers)


def test_workers_that_persist_are_not_said_to_start_anew() -> None:
    profile = judged(fed(), epoch=EpochStarts(num_batches=100, start_wait_seconds=(0.3,)))
    reason = no_advice_reason(replace(profile, live=replace(profile.live, persistent_workers=True)))
    assert "Its workers persist already: what is left is to draw the order of an epoch" in reason
    assert "anew" not in reason
    assert "persistent_workers" not in reason


def test_a_loader_that_waits_nearly_2_percent_when_filled_does_not_keep_up() -> None:
    profile = judged(on_host(step=0.027), epoch=EpochStarts(num_batches=100, start_wait_seconds=(0.3,)))
    assert profile.verdict.kind is VerdictKind.STARVED
    reason = no_advice_reason(profile)
    assert reason.startswith("Once its queue is filled, the loader waits 1.5 % of the time; but each epoch of 100")
    assert "More workers cannot help" in reason
    assert "keeps up" not in reason


def test_both_are_named_where_steps_are_too_few_and_epochs_begin_slowly() -> None:
    profile = judged(fed(1000), epoch=EpochStarts(num_batches=200, start_wait_seconds=(0.03,)))
    verdict = profile.verdict
    assert verdict.kind is VerdictKind.MARGINAL
    assert verdict.wait_share.value < 0.01 < verdict.wait_share.upper
    assert no_advice_reason(profile).startswith("Once its queue is filled, the loader waits 0 % of the time; but each")
    assert "so that it waits 1.5 % of its time in all" in no_advice_reason(profile)
    assert "counts as fed once more steps show it surely" in no_advice_reason(profile)
    assert "of the time may be waiting" in plain(meaning(profile))
    assert "the beginning of each epoch, for which the device waits 30 ms" in plain(meaning(profile))


def test_a_sustained_step_is_sustained_once_the_queue_is_filled() -> None:
    profile = judged(fed(), epoch=EpochStarts(num_batches=100, start_wait_seconds=(0.3,)))
    assert plain(sustained(profile)).endswith(
        "once the queue is filled: the step could be 3.5 times as fast as it is before it waits more; each epoch's "
        "beginning waits all the same."
    )
    assert "epoch" not in sustained(fed())


@pytest.mark.parametrize(
    ("headroom", "words"),
    [
        (0.97, "this step is 3.1 % faster than that."), (1.02, "the step could be 2 % faster than it is"),
        (1.001, "this step is about as fast as that."), (0.5, "this step is 2.0 times as fast as that."),
    ],
)  # fmt: skip
def test_a_headroom_near_1_is_told_in_percent(headroom: float, words: str) -> None:
    profile = fed()
    fastest = profile.verdict.mean_step_seconds / headroom
    assert words in plain(sustained(replace(profile, verdict=replace(profile.verdict, fastest_step_seconds=fastest))))


# ---- gates


def test_no_gate_is_met_without_a_verdict(tmp_path: Any) -> None:
    doubtful, gate = profile_of(recording_of(np.full(60, STEP))), Gate(min_headroom=0.5)
    assert gate.exit_code(doubtful.verdict) == 4
    write_page(doubtful, gate, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<strong>Gate not judged:</strong> no verdict." in page
    assert "Gate met" not in page
    assert "gate not judged: no verdict" in console(doubtful, gate)
    assert "gate" not in console(doubtful)


def test_whoever_is_fed_but_not_as_the_gate_wants_is_told_what_is_missing(tmp_path: Any) -> None:
    profile, gate = fed(), Gate(min_headroom=5.0)
    lack = (
        "Fed, but your gate wants a headroom of 5x, and only 3.39x is shown: batches have to come 1.48 times as fast."
    )
    assert no_advice_reason(profile, gate) == lack
    assert lack in console(profile, gate)
    write_page(profile, gate, tmp_path / "page.html")
    assert lack in (tmp_path / "page.html").read_text()
    assert "Nothing needs to change" not in (tmp_path / "page.html").read_text()
    assert no_advice_reason(profile, Gate(min_headroom=1.5)) == "Nothing needs to change."
    strict = no_advice_reason(profile, Gate(max_wait_share=0.001, min_headroom=3.45))
    assert "which only more steps can show: at least 30,000 (`--steps`)" in strict
    assert "It also wants a headroom of 3.45x, and only 3.39x is shown, though 3.5x is likely: measure again" in strict


def test_a_gate_that_is_not_met_is_called_that() -> None:
    assert "gate not met: headroom >= 3.39x, wanted 5x" in console(fed(), Gate(min_headroom=5.0))


def test_gate_line_and_page_round_a_bound_alike_and_never_in_the_loaders_favour() -> None:
    verdict = fed().verdict
    verdict = replace(
        verdict, wait_share=replace(verdict.wait_share, upper=0.01001),
        fastest_step_upper_seconds=verdict.mean_step_seconds / 1.499,
    )  # fmt: skip
    profile = replace(fed(), verdict=verdict)
    assert STRICT.failures(verdict) == ["waiting <= 1.01%, wanted 1%", "headroom >= 1.49x, wanted 1.5x"]
    assert "waits 0.00% (95% <= 1.01%)" in console(profile)
    assert "(>= 1.4x, 1 % waiting at" in console(profile)
    assert "only 1.49x is shown" in no_advice_reason(profile, STRICT)
    assert "95 % bounds on either side: 0 % to 1.1 %" in plain(estimators(profile).rows[0][2])


@pytest.mark.parametrize(("share", "words"), [(0.0005, "0.05 %"), (0.0025, "0.25 %"), (0.005, "0.5 %")])
def test_a_gates_share_is_shown_as_it_was_given(share: float, words: str) -> None:
    assert no_advice_reason(fed(), Gate(max_wait_share=share)).startswith(
        f"Fed, but your gate wants at most {words} of waiting, which only more steps can show"
    )


def test_a_confidence_is_shown_as_it_was_given(tmp_path: Path) -> None:
    text = page(judged(fed(), confidence=0.975), tmp_path)
    assert "with 97.5 % confidence" in text
    assert "97.5 % bounds on either side" in text
    assert "98 %" not in text


# ---- no verdict


def test_a_system_that_does_not_report_reads_gives_no_verdict_however_often_it_is_measured() -> None:
    live = replace(fed().live, storage_bytes=None)
    profile = replace(profile_of(live, emulated=False), advice=())
    assert profile.verdict.kind is VerdictKind.INCONCLUSIVE
    assert no_advice_reason(profile).startswith(
        "This system does not report what is read from storage (`/proc/PID/io`)"
    )
    assert "Measure again" not in no_advice_reason(profile)


def test_batches_too_quick_to_be_timed_are_to_be_larger() -> None:
    profile = replace(profile_of(replace(fed().live, timing_cost_seconds=0.01)), advice=())
    assert profile.verdict.kind is VerdictKind.INCONCLUSIVE
    assert no_advice_reason(profile) == (
        "Batches pass so quickly that timing them takes 50 % of the time: take larger ones (`--batch-size`, "
        "or `batch_size=`)."
    )


def test_a_longer_run_is_asked_for_with_the_time_that_it_takes() -> None:
    loads = np.concatenate([np.full(8000, 0.25), np.full(8000, 0.6)])
    profile = replace(profile_of(recording_of(loads, 0.25)), advice=())
    assert profile.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "Measure again while nothing else runs on the machine. Where that changes nothing" in no_advice_reason(
        profile
    )
    assert "`steps=8000`, of which up to 4 times as many are run: about 2 h)" in no_advice_reason(profile)


# ---- advice


def test_batches_out_of_order_are_named_as_why_there_is_no_advice() -> None:
    profile = starved()
    out_of_order = judged(replace(profile, live=replace(profile.live, in_order=False)))
    assert no_advice_reason(out_of_order) == ("No advice: batches come out of order. Set `in_order=True` to get one.")


def tried(profile: Profile, measured: float) -> Profile:
    """The profile after its first advice was tried."""
    trial = trial_of("num_workers=4, prefetch_factor=2", recording_of(np.full(200, 2.1 * STEP)))
    first, *others = profile.advice
    return replace(profile, verified=trial, advice=(replace(first, measured_wait_share=measured), *others))


def test_the_best_that_was_tried_is_shown_with_what_it_gave(tmp_path: Any) -> None:
    profile = tried(starved(), 0.05)
    words = "best of 1 tried: num_workers=4, prefetch_factor=2 waits 4.8 % instead of 32 % (STARVED)"
    assert plain(followed(profile)) == words
    assert words in console(profile)
    write_page(profile, NO_GATE, tmp_path / "page.html")
    assert words[:1].upper() + words[1:] in plain((tmp_path / "page.html").read_text())


def test_settings_that_leave_only_the_beginnings_of_epochs_are_said_to_leave_these(tmp_path: Path) -> None:
    epoch = EpochStarts(num_batches=100, start_wait_seconds=(0.3,) * 5)
    before, after = judged(starved(), epoch=epoch).verdict, judged(fed(), epoch=epoch).verdict
    assert (after.kind, after.wait_share.value) == (VerdictKind.STARVED, 0.0)
    trial = Trial(name="num_workers=4, prefetch_factor=2", recording=fed().live, verdict=after)
    profile = replace(tried(starved(), 0.0), verdict=before, verified=trial)
    for text in (followed(profile), console(profile), page(profile, tmp_path)):
        assert re.search(
            r"est of 1 tried: num_workers=4, prefetch_factor=2 waits 23 % instead of 4\d % \(STARVED\)\. The loader "
            r"keeps up once its queue is filled; but each epoch of 100 batches loses 300 ms on average before that, so "
            r"that it waits 23 % of its time in all\. .* less its beginning weighs",
            plain(text),
        )
        assert "weighs.." not in text


def test_the_terminal_says_so_where_a_tried_change_did_not_help() -> None:
    profile = tried(starved(), 0.9)
    lines = console(profile)
    assert "measured 90.0%, it did not help" in lines
    assert lines.index("it did not help") > lines.index(profile.advice[1].change[:20])  # what may help comes first


def test_a_setting_that_could_not_be_tried_is_named_on_the_page_as_in_the_terminal(tmp_path: Path) -> None:
    note = "num_workers=4, prefetch_factor=2 could not be measured: OSError: no space left"
    profile = replace(tried(starved(), 0.05), verify_notes=(note,))
    assert note in console(profile)
    assert page(profile, tmp_path).count(note) == 1


@pytest.mark.parametrize("num_steps", [1000, 4000], ids=["marginal", "fed"])
def test_that_there_was_no_setting_to_try_is_noted_where_nothing_is_advised(num_steps: int, tmp_path: Path) -> None:
    note = "no setting was advised, so none was tried"
    profile = replace(fed(num_steps), verify_notes=(note,))
    assert profile.advice == ()
    assert console(profile).count(note) == 1
    assert page(profile, tmp_path).count(note) == 1


# ---- what a verdict does not cover, and why there is none


def test_what_a_verdict_does_not_cover_is_noted_once_and_not_in_its_line(tmp_path: Path) -> None:
    profile = fed()
    remarks = (*unseen_queue_remarks(4000, 64), NOT_JUDGED)
    profile = replace(profile, verdict=replace(profile.verdict, remarks=remarks))
    lines = console_report(profile, NO_GATE).splitlines()
    assert "note: the loader's queue is not seen" in "\n".join(lines)
    line = plain(" ".join(lines[lines.index("Your step never waited for data.") + 1 :]))
    assert line.endswith("closure 0.0%")
    for remark in remarks:
        assert console(profile).count(remark) == 1
        assert page(profile, tmp_path).count(remark) == 1
        assert remark in str(profile.verdict)  # which stands alone


def test_reasons_for_doubt_are_stated_once(tmp_path: Path) -> None:
    profile = profile_of(recording_of(np.full(60, STEP)))
    (reason,) = profile.verdict.reasons
    assert console(profile).count(reason) == 1
    assert page(profile, tmp_path).count(reason) == 1


def test_an_epoch_that_waits_only_at_its_beginning_is_not_headed_as_one_that_never_waits() -> None:
    profile = judged(fed(), epoch=EpochStarts(num_batches=300, start_wait_seconds=(0.045,) * 5))
    assert profile.verdict.kind is VerdictKind.MARGINAL
    assert plain(headline(profile)) == "An epoch of 300 batches waits for data 1.5 % of its time"
    sure = judged(fed(), epoch=EpochStarts(num_batches=9000, start_wait_seconds=(0.045,) * 5))
    assert headline(sure) == "Your step never waited for data"


# ---- figures and units


def test_a_terminal_of_80_columns_has_each_estimator_on_one_line() -> None:
    lines = console_report(fed(), NO_GATE).splitlines()
    assert [line[2] for line in lines[:3]] == ["A", "B", "C"]
    assert lines[3].startswith("  a step:")
    assert max(map(len, lines)) <= 80


def test_the_line_of_the_verdict_is_wrapped_between_its_figures_and_not_within_one() -> None:
    lines = console_report(starved(), NO_GATE).splitlines()
    last = lines[next(number for number, line in enumerate(lines) if line.startswith("EMULATED STARVED")) :]
    assert len(last) > 2
    assert all(line.startswith("  · ") for line in last[1:])
    assert plain(" ".join(last)) == plain(str(starved().verdict))


def test_a_short_report_has_no_zeros_and_no_wrong_plurals() -> None:
    live = recording_of(np.full(4000, STEP / 2), prefetch=1)
    epoch = EpochStarts(num_batches=9, start_wait_seconds=(0.0021,))
    text = console(judged(profile_of(live), epoch=epoch))
    assert "2 workers x 1 batch ahead" in text
    assert "iter() 20 ms, first batch 400 ms after it" in text
    assert "steady after 2 steps, judged on 3,998; an epoch's beginning waits 2.1 ms, an epoch in all 2.3 %" in text
    assert surroundings(profile_of(live))["Loader"] == "2 workers x 1 batch ahead"
    assert facts(profile_of(live))["Steady state"] == "after 2 steps; judged on 3,998"


def test_the_second_estimator_is_less_or_more_time_and_never_below_0() -> None:
    profile = starved()
    assert "less time on preloaded batches" in console(profile)
    slow = replace(profile, preloaded=recording_of(np.full(100, 1e-6), 0.02, workers=0))
    assert slow.replay_slowdown < 0
    assert "more time on preloaded batches" in console(slow)
    assert "-" not in console(slow).split("against replayed batches")[1].split("%")[0]


def test_an_upper_bound_that_could_not_be_shown_is_not_100_percent() -> None:
    profile = profile_of(recording_of(np.full(60, 3 * STEP)))
    assert not profile.verdict.wait_share.has_upper
    assert "no upper bound could be shown" in estimators(profile).rows[0][2]
    assert "100" not in estimators(profile).rows[0][2]
    unbounded = profile_of(unseen(recording_of(np.full(60, STEP / 2))), emulated=False)
    assert estimators(unbounded).rows[0][2].endswith("nothing to work on. No bound could be shown.")
    assert "device waits 0.00% (no bound)" in console(unbounded)
    assert facts(profile)["Steps that waited"].endswith("no upper bound could be shown, 56 steps are too few (80)")


def test_bounds_that_say_nothing_are_not_shown_as_at_least_0_percent() -> None:
    section = trials_section(
        profile_of(fed().live, trials=(trial_of("without decoding", recording_of(np.full(40, STEP / 2))),))
    )
    assert section is not None
    assert section.table is not None
    assert [row[3] for row in section.table.rows] == ["0\u00a0% to 0.8\u00a0%", "not known"]


def test_the_plain_sentence_stands_above_the_verdict() -> None:
    lines = console_report(fed(), NO_GATE).splitlines()
    (verdict,) = (number for number, line in enumerate(lines) if line.startswith("FED"))
    assert lines[verdict - 1] == "Your step never waited for data."


def test_what_is_not_of_torch_says_what_to_do_also_where_no_step_waits_long() -> None:
    waiting = replace(on_host().live, batch_timings=(), num_workers=0, prefetch_factor=0)
    profile = profile_of(unseen(waiting), emulated=False)
    assert profile.verdict.kind is VerdictKind.STARVED
    assert "nothing can be advised" in no_advice_reason(profile)


# ---- jobs


def reports(live: Recording) -> list[RankReport]:
    """Two ranks that have recorded the same."""
    alone = recording_of(np.full(100, 1e-6), workers=0)
    return [
        report_of_rank(number, judge(live, emulated=True, num_cores=4, num_ranks=2), live, alone, None)
        for number in range(2)
    ]


def test_no_rank_is_said_to_hold_up_others_that_never_waited() -> None:
    verdict, ranks = judge_job(reports(fed().live))
    job = replace(fed(), verdict=verdict, ranks=ranks, rank=0, curve=())
    assert "of rank 0; no rank kept the others waiting" in console(job)
    assert "which the others waited for" not in console(job)
    section = ranks_section(job)
    assert section is not None
    assert section.read.endswith("None ever waited.")
    assert plain(banner(job).headline) == "A step of 10 ms on 2 ranks never waited for data"


def test_of_a_job_it_is_some_rank_that_waits() -> None:
    verdict, ranks = judge_job(reports(starved().live))
    job = replace(starved(), verdict=verdict, ranks=ranks, rank=0, curve=())
    assert "Some rank waits at least 30 % of its time" in plain(meaning(job))


# ---- the reference of JSON


def test_the_reference_has_every_key_of_a_profile_and_no_other() -> None:
    epoch = EpochStarts(num_batches=9, start_wait_seconds=(0.5,))
    verdict, ranks = judge_job(reports(fed().live))
    epochs_judged = judged(starved(), epoch=epoch)
    sweep = run_sweep([(0, None), (2, 2)], lambda settings: epochs_judged if settings[0] else starved()).sweep
    failed = SweepFailure(num_workers=4, prefetch_factor=2, reason="/dev/shm is full")
    profiles = (
        replace(
            tried(starved(), 0.05),
            verdict=epochs_judged.verdict,
            sweep=sweep,
            sweep_failures=(failed,),
        ),
        replace(fed(), verdict=verdict, ranks=ranks, curve=()),
    )
    documents = [{**report_values(profile, STRICT), "exit": 1} for profile in profiles]
    assert differences(documents, "A profile") == (set(), set())


def test_the_reference_has_every_key_of_a_self_test_and_no_other() -> None:
    compared = Comparison(label="10 ms", injected=0.0101, recovered=0.0104, allowed=0.0008, estimator=Estimator.LIVE)
    checks = [Check(number=1, name="a delay", points=(compared,)), Check(number=5, name="hidden", not_run="no GPU")]
    assert differences([{**selftest.figures(checks), "exit": 0}], "A self-test") == (set(), set())


def differences(documents: list[dict[str, Any]], section: str) -> tuple[set[str], set[str]]:
    """Keys that a section of the reference lacks, and keys in it that none of the documents, as JSON, has."""
    return key_differences({key for document in json.loads(json.dumps(documents)) for key in keys(document)}, section)
