"""A profile for people (one screen) and for programs (one JSON object)."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

import torch

from ....pipeline.machine import usable_cores
from ..estimate.bounds import Bounded
from ..measure.recording import Recording
from ..verdict.gate import Gate
from ..verdict.instead import instead
from ..verdict.job import Rank
from ..verdict.judgement import Verdict, Word
from ..verdict.result import PART_NAMES, Profile, Trial

SCHEMA_VERSION = 2
_BAR, _COLUMN, _WIDTH = 10, 40, 80


def environment() -> dict[str, Any]:
    """What the figures depend on besides the loader."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cores": usable_cores(), "machine": platform.machine(), "device": device,
            "python": platform.python_version(), "torch": str(torch.__version__)}  # fmt: skip


def figures(profile: Profile, gate: Gate) -> dict[str, Any]:
    """The whole profile as plain values: seconds, and shares from 0 to 1. `schema` rises when a name changes."""
    verdict = profile.verdict
    return {
        "schema": SCHEMA_VERSION,
        "verdict": {
            **asdict(verdict),
            "headroom": verdict.headroom,
            "sure_headroom": verdict.sure_headroom,
            "text": str(verdict),
        },
        "estimators": {"live": verdict.live.value, "differential": profile.differential, "model": verdict.model},
        "seconds_per_step": profile.bars,
        "fetch_seconds_per_step": profile.fetch,
        "seconds_per_batch": profile.live.spans,
        "opening_seconds": profile.opening_seconds,
        "first_batch_seconds": profile.first_batch_seconds,
        "images_per_second": profile.live.images_per_second,
        "step": profile.step,
        "workers": profile.live.workers,
        "prefetch": profile.live.prefetch,
        "curve": [asdict(point) for point in profile.curve],
        "trials": {trial.name: _of_trial(trial) for trial in profile.others},
        "advice": [asdict(one) for one in profile.advice],
        "instead": None if profile.advice else instead(profile),
        "followed": None
        if profile.followed is None
        else {
            "settings": profile.followed.name,
            "verdict": asdict(profile.followed.verdict),
        },
        "rank": profile.rank,
        "ranks": [_of_rank(rank) for rank in profile.ranks],
        "sweep": [
            {
                "num_workers": one.num_workers,
                "prefetch_factor": one.prefetch_factor,
                "word": one.verdict.word,
                "waiting": asdict(one.verdict.live),
                "starved": asdict(one.verdict.starved),
                "steps": one.verdict.steps,
                "images_per_second": one.images_per_second,
                "reasons": one.verdict.reasons,
            }
            for one in profile.sweep
        ],
        "gate": {**asdict(gate), "failures": gate.failures(verdict)},
        "environment": environment(),
    }


def _of_trial(trial: Trial) -> dict[str, Any]:
    recording, verdict = trial.recording, trial.verdict
    return {
        "steps": verdict.steps, "waiting": asdict(verdict.live), "images_per_second": recording.images_per_second,
        "seconds_per_batch": recording.spans, "stored_per_image": verdict.stored_per_image,
    }  # fmt: skip


def _of_rank(rank: Rank) -> dict[str, Any]:
    return {
        "rank": rank.number, "host": rank.host, "waiting": asdict(rank.verdict.live), "waiting_for": rank.waits,
        "held_up": rank.held_up, "images_per_second": rank.images_per_second, "reasons": rank.verdict.reasons,
        "longest_stage": None if rank.stage is None else {"name": rank.stage[0], "share": rank.stage[1]},
    }  # fmt: skip


def text(profile: Profile, gate: Gate) -> str:
    """One screen of 80 columns, the verdict at its end."""
    verdict, live = profile.verdict, profile.live
    model = "-" if verdict.model is None else f"{verdict.model:.2%}"
    waited = "some rank waited" if profile.ranks else "the device waited"
    lines = [
        *_sweep(profile),
        *_ranks(profile),
        f"  A  live, by the clock        {verdict.live.value:7.2%}  of the time, {waited}",
        f"  B  against replayed batches  {profile.differential:7.2%}  slower than with preloaded batches",
        f"  C  the queue's model         {model:>7}  what A should be in the second half, from the first",
        *([f"  of rank {profile.rank}, which the others waited for most:"] if profile.ranks else []),
        *_side_by_side(
            _bars("a step", {PART_NAMES[name]: value for name, value in profile.bars.items()}),
            _bars("a batch's making", live.spans),
        ),
        *_trials(profile),
        *_advice(profile),
        f"  {_how(live)}, {live.images_per_second:,.0f} images/s; "
        f"iter() {profile.opening_seconds:.2f} s, first batch {profile.first_batch_seconds:.2f} s after it",
        f"  steady after {verdict.settled:,} steps, judged on {verdict.steps:,}{_epoch(verdict)}",
    ]
    lines += [f"  not shown: {one}" for one in gate.failures(verdict)]
    return "\n".join([*map(_wrapped, lines), "", _wrapped(str(verdict))])


def _wrapped(line: str) -> str:
    """The line in lines of 80 columns, those that follow indented below it; one that fits as it is."""
    if len(line) <= _WIDTH:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False)


def _trials(profile: Profile) -> list[str]:
    """The row of transforms, the cold cache and whatever was set beside."""
    if not profile.others:
        return []
    rows = [
        f"    {one.name:<22} {one.recording.images_per_second:8,.0f} images/s  waits {one.verdict.live.value:6.1%}"
        for one in (profile.this, *profile.others)
    ]
    return ["  the same step with", *rows]


def _advice(profile: Profile) -> list[str]:
    rows = [f"    {one}{'' if one.settings else ', yours to try'}" for one in profile.advice]
    if profile.followed is not None:
        rows.append(f"    give the loader {profile.followed.name}: {profile.followed.verdict.word}")
    if not rows and profile.verdict.word is not Word.FED:
        rows = [f"    {instead(profile)}"]
    return ["  what would help", *rows] if rows else []


def _sweep(profile: Profile) -> list[str]:
    """What each setting came to; the first is the one that the rest is about."""
    if not profile.sweep:
        return []
    rows = [
        f"    {one.num_workers:7} {one.prefetch_factor or '-':>6}  {one.verdict.live.value:7.2%} "
        f"{one.verdict.live.upper:8.2%} {_upper(one.verdict.epoch):>10}"
        f" {one.images_per_second:9,.0f}  {one.verdict.word}"
        for one in profile.sweep
    ]
    return [
        "    workers  ahead    waits  at most   epoch <=  images/s",
        *rows,
        f"  of {profile.sweep[0].code}, measured again:",
    ]


def _upper(bounded: Bounded | None) -> str:
    return "-" if bounded is None else f"{bounded.upper:.2%}"


def _ranks(profile: Profile) -> list[str]:
    """A line a rank, and below it what cannot be concluded of it."""
    if not profile.ranks:
        return []
    rows = []
    for rank in profile.ranks:
        name, part = rank.cause
        live = rank.verdict.live
        cause = f"{PART_NAMES[name]} {part:.2%}" if part else "-"
        rows.append(f"    {rank.number:>4}  {live.value:7.2%} {live.upper:8.2%} {rank.held_up:8.0%} "
                    f"{rank.images_per_second:9,.0f}  {cause}")  # fmt: skip
        own = [one for one in rank.verdict.reasons if f"rank {rank.number}: {one}" not in profile.verdict.reasons]
        rows += [f"{' ' * 10}on its own: {'; '.join(own)}"] if own else []
    return ["    rank    waits  at most  last in  images/s  mostly", *rows]


def _epoch(verdict: Verdict) -> str:
    if verdict.epoch is None:
        return ""
    return f"; an epoch's beginning waits {verdict.epoch_start:.2f} s, {verdict.epoch.value:.1%} of an epoch in all"


def _how(live: Recording) -> str:
    if not live.stamps:
        return "not one of torch's loaders"
    return f"{live.workers} workers x {live.prefetch} batches ahead" if live.workers else "no workers"


def _bars(what: str, seconds: Mapping[str, float]) -> list[str]:
    """A line a part, with its bar."""
    longest = max([*seconds.values(), 1e-9])
    rows = [f"{what}: {sum(seconds.values()) * 1e3:.2f} ms"] if seconds else []
    for name, value in seconds.items():
        told = round(value * 1e3, 2) + 0.0  # no "-0.00"
        rows.append(f"  {name:<12} {told:8.2f} ms  {'█' * round(_BAR * max(value, 0.0) / longest)}")
    return rows


def _side_by_side(left: list[str], right: list[str]) -> list[str]:
    return [f"  {one:<{_COLUMN}}{other}".rstrip() for one, other in zip_longest(left, right, fillvalue="")]
