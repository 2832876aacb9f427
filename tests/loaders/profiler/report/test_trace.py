"""What Perfetto and Chrome are given of a profile."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_profiles import PARTS, fed, profile_of, recording_of, starved, uneven, unseen
from facefeed.loaders.profiler.measure.recording import Recording
from facefeed.loaders.profiler.report.trace import write_trace
from facefeed.loaders.profiler.verdict.result import Profile
from facefeed.pipeline.errors import UsageError

Events = list[dict[str, Any]]


def trace_of(profile: Profile, folder: Path) -> Events:
    path = folder / "trace.json"
    write_trace(profile, path)
    events: Events = json.loads(path.read_text())["traceEvents"]
    return events


def slices(events: Events, name: str = "") -> Events:
    return [event for event in events if event["ph"] == "X" and event["name"].startswith(name)]


def tracks(events: Events) -> dict[str, Events]:
    """Slices by the names of their process and thread."""
    names = {(event["pid"], event.get("tid")): event["args"]["name"]
             for event in events if event["ph"] == "M" and event["name"].endswith("_name")}  # fmt: skip
    by_track = defaultdict(list)
    for event in slices(events):
        by_track[f"{names[event['pid'], None]}: {names[event['pid'], event['tid']]}"].append(event)
    return by_track


@pytest.fixture(scope="module")
def profile() -> Profile:
    return starved(300)


@pytest.fixture(scope="module")
def events(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> Events:
    return trace_of(profile, tmp_path_factory.mktemp("trace"))


def test_times_begin_at_zero_and_are_sorted(events: Events) -> None:
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times[0] == 0
    assert times == sorted(times)
    assert all(event["dur"] >= 0 for event in slices(events))


def test_slices_of_a_lane_lie_within_each_other_or_apart(events: Events) -> None:
    for track in tracks(events).values():
        open_until: list[int] = []
        for event in track:
            begins, ends = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
            while open_until and begins >= open_until[-1]:
                open_until.pop()
            assert not open_until or ends <= open_until[-1]
            open_until.append(ends)


def test_every_step_and_every_batch_is_there(events: Events, profile: Profile) -> None:
    by_track = tracks(events)
    assert set(by_track) == {"training loop: waiting", "training loop: step", "worker 1 (pid 700): batches",
                             "worker 2 (pid 701): batches"}  # fmt: skip
    assert len(by_track["training loop: step"]) == len(slices(events, "batch ")) == 300
    steps = sum(event["dur"] for event in by_track["training loop: step"])
    assert steps == pytest.approx(float(profile.live.step_seconds.sum()) * 1e6)
    assert by_track["worker 2 (pid 701): batches"][0]["name"] == "batch 1"


def test_waits_have_a_name_and_a_colour_of_their_own(events: Events, profile: Profile) -> None:
    waits = slices(events, "wait: batch not ready")
    assert sum(event["dur"] for event in waits) == pytest.approx(
        float(profile.live.not_ready_seconds.sum()) * 1e6, rel=1e-3
    )
    assert {event["cname"] for event in waits} == {"terrible"}
    transport = sum(event["dur"] for event in slices(events, "transport"))
    assert transport == pytest.approx(float(profile.live.transport_seconds.sum()) * 1e6, rel=1e-3)


def test_a_batch_says_what_its_making_was(events: Events, profile: Profile) -> None:
    batch = next(event for event in events if event["name"] == "batch 7")
    timing = profile.live.batch_timings[7]
    assert batch["args"] == {
        "cpu ms": pytest.approx(timing.cpu_seconds * 1e3, abs=1e-3),
        "queued ms": pytest.approx(timing.core_wait_seconds * 1e3, abs=1e-3),
        "kB from storage": 2.0,
    }
    ends = batch["ts"] + batch["dur"]
    nested = [event for event in slices(events) if event["pid"] == batch["pid"] and batch["ts"] <= event["ts"] < ends]
    assert [event["name"] for event in nested] == ["batch 7", *PARTS]
    assert [event["dur"] / batch["dur"] for event in nested[1:]] == pytest.approx(list(PARTS.values()), rel=1e-3)


def test_the_queue_is_counted_but_not_where_nothing_is_known_of_it(events: Events, profile: Profile) -> None:
    counters = [event for event in events if event["ph"] == "C"]
    assert [event["args"]["batches"] for event in counters] == profile.live.queue_depth[:297].tolist()
    assert {event["name"] for event in counters} == {"batches ready"}


def test_parts_that_say_more_than_the_whole_are_shrunk(tmp_path: Path) -> None:
    live = recording_of(uneven(60, 0.01))
    for timing in live.batch_timings:
        timing.stage_seconds["decode"] = 3 * (timing.end_at - timing.start_at)
    events = trace_of(profile_of(live), tmp_path)
    test_slices_of_a_lane_lie_within_each_other_or_apart(events)
    assert len(slices(events, "decode")) == 60


def test_stretches_and_loaders_of_every_kind_can_be_traced(tmp_path: Path) -> None:
    segments = Recording.concatenate(
        [recording_of(uneven(80, 0.02), workers=0, began=9.0 * number) for number in range(3)]
    )
    for live in (segments, unseen(recording_of(np.full(80, 0.03))), fed(80).live):
        events = trace_of(profile_of(live), tmp_path)
        test_times_begin_at_zero_and_are_sorted(events)
        test_slices_of_a_lane_lie_within_each_other_or_apart(events)
        assert len(slices(events, "step")) == len(live)
        for earlier, later in itertools.pairwise(slices(events, "step")):
            assert earlier["ts"] < later["ts"]
    assert "loading, in the loop's own process (pid 700): batches" in tracks(trace_of(profile_of(segments), tmp_path))


def test_a_trace_that_cannot_be_written_is_reported_in_one_line(profile: Profile, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--trace .*: cannot be written"):
        write_trace(profile, tmp_path / "no folder" / "a.json")
    assert list(tmp_path.iterdir()) == []
