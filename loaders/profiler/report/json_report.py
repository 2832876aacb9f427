"""The JSON object of a profile (`--json`, `--report`): its keys are part of the command's interface."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict
from typing import Any

import torch

from ....pipeline.machine import usable_cores
from ..verdict.advice import Advice
from ..verdict.gate import Gate
from ..verdict.job import RankResult
from ..verdict.result import CurvePoint, Profile, SweepResult, Trial
from ..verdict.verdict import Verdict, VerdictKind
from .no_advice import no_advice_reason

SCHEMA_VERSION = 4


def environment() -> dict[str, Any]:
    """The machine and software that the figures depend on."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cores": usable_cores(), "machine": platform.machine(), "device": device,
            "python": platform.python_version(), "torch": str(torch.__version__)}  # fmt: skip


def report_values(profile: Profile, gate: Gate) -> dict[str, Any]:
    """The whole profile as plain values: times in seconds, shares from 0 to 1. `schema` rises when a key changes.

    What could not be measured is None: JSON has no NaN.
    """
    verdict, live, verified = profile.verdict, profile.live, profile.verified
    is_conclusive = verdict.kind is not VerdictKind.INCONCLUSIVE
    values = {
        "schema": SCHEMA_VERSION,
        "verdict": {
            **_verdict_values(verdict),
            "headroom": verdict.headroom,
            "sure_headroom": verdict.headroom_lower,
            "text": str(verdict),
        },
        "estimators": {
            "live": verdict.wait_share.value,
            "differential": profile.replay_slowdown,
            "model": verdict.model_wait_share,
        },
        "seconds_per_step": profile.step_part_seconds,
        "fetch_seconds_per_step": profile.cold_fetch_seconds,
        "seconds_per_batch": live.stage_seconds,
        "opening_seconds": profile.opening_seconds,
        "first_batch_seconds": profile.first_batch_seconds,
        "images_per_second": live.images_per_second,
        "step": profile.step_name,
        "workers": live.num_workers,
        "prefetch": live.prefetch_factor,
        "curve": [_curve_point_values(point) for point in profile.curve],
        "trials": {trial.name: _trial_values(trial) for trial in profile.all_trials},
        "trial_notes": list(profile.trial_notes),
        "advice": [_advice_values(advice) for advice in profile.advice],
        "instead": None if profile.advice else no_advice_reason(profile, gate),
        "followed": None
        if verified is None
        else {"settings": verified.name, "verdict": _verdict_values(verified.verdict)},
        "verify_notes": list(profile.verify_notes),
        "rank": profile.rank,
        "ranks": [_rank_values(rank) for rank in profile.ranks],
        "sweep": [_sweep_values(result) for result in profile.sweep],
        "sweep_failures": [asdict(failure) for failure in profile.sweep_failures],
        "sweep_note": profile.sweep_note or None,
        "gate": {**asdict(gate), "failures": gate.failures(verdict) if is_conclusive else None},
        "environment": environment(),
    }
    return {name: _finite_or_none(value) for name, value in values.items()}


def _finite_or_none(value: Any) -> Any:
    """The value, with None for each number in it that is not finite."""
    if isinstance(value, dict):
        return {name: _finite_or_none(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_finite_or_none(item) for item in value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _verdict_values(verdict: Verdict) -> dict[str, Any]:
    epoch = verdict.epoch_wait_share
    return {
        "word": verdict.kind,
        "emulated": verdict.emulated,
        "steps": verdict.num_steps,
        "settled": verdict.num_transient_steps,
        "block": verdict.block_steps,
        "live": asdict(verdict.wait_share),
        "model": verdict.model_wait_share,
        "starved": asdict(verdict.starved_share),
        "starved_steps": verdict.num_starved_steps,
        "epoch": None if epoch is None else asdict(epoch),
        "epoch_batches": verdict.num_epoch_batches,
        "epoch_start": verdict.epoch_start_wait_seconds,
        "threshold": verdict.starved_threshold_seconds,
        "closure": verdict.unexplained_share,
        "handing": verdict.host_transport_share,
        "step": verdict.median_step_seconds,
        "transport": verdict.transport_floor_seconds,
        "load": verdict.median_load_seconds,
        "fastest_step": verdict.fastest_step_seconds,
        "slowest_fastest": verdict.fastest_step_upper_seconds,
        "mean_step": verdict.mean_step_seconds,
        "overhead": verdict.overhead_share,
        "stored_per_image": verdict.storage_bytes_per_image,
        "reasons": verdict.reasons,
        "remarks": verdict.remarks,
        "ranks": verdict.rank_wait_shares,
    }


def _curve_point_values(point: CurvePoint) -> dict[str, Any]:
    return {
        "step": point.step_seconds, "predicted": point.predicted_wait_share, "measured": point.measured_wait_share,
        "measured_lower": point.measured_wait_share_lower, "pace": point.load_ratio,
    }  # fmt: skip


def _advice_values(advice: Advice) -> dict[str, Any]:
    return {
        "what": advice.change, "now": advice.current_wait_share, "predicted": advice.predicted_wait_share,
        "settings": dict(advice.settings), "measured": advice.measured_wait_share,
    }  # fmt: skip


def _trial_values(trial: Trial) -> dict[str, Any]:
    recording, verdict = trial.recording, trial.verdict
    return {
        "steps": verdict.num_steps,
        "waiting": asdict(verdict.wait_share),
        "images_per_second": recording.images_per_second,
        "seconds_per_batch": recording.stage_seconds,
        "stored_per_image": verdict.storage_bytes_per_image,
    }


def _rank_values(rank: RankResult) -> dict[str, Any]:
    stage = rank.longest_stage
    return {
        "rank": rank.number,
        "host": rank.host,
        "waiting": asdict(rank.verdict.wait_share),
        "waiting_for": rank.wait_share_by_cause,
        "held_up": rank.held_up_share,
        "images_per_second": rank.images_per_second,
        "reasons": rank.verdict.reasons,
        "longest_stage": None if stage is None else {"name": stage[0], "share": stage[1]},
    }


def _sweep_values(result: SweepResult) -> dict[str, Any]:
    return {
        "num_workers": result.num_workers,
        "prefetch_factor": result.prefetch_factor,
        "word": result.verdict.kind,
        "waiting": asdict(result.verdict.wait_share),
        "starved": asdict(result.verdict.starved_share),
        "epoch": None if result.verdict.epoch_wait_share is None else asdict(result.verdict.epoch_wait_share),
        "steps": result.verdict.num_steps,
        "images_per_second": result.images_per_second,
        "reasons": result.verdict.reasons,
    }
