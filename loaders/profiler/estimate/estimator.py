"""The three independent estimators of the share of time that a device waits for data."""

from __future__ import annotations

from enum import StrEnum


class Estimator(StrEnum):
    """Letter of each estimator in reports.

    LIVE: waits of real steps, by the clock of the device (`StepTimes.wait_seconds`). DIFFERENTIAL: slowdown of real
    steps against the same step on preloaded batches (`Profile.replay_slowdown`). MODEL: waits that the queue model
    predicts from load and step times (`WhatIfModel.wait_share`).
    """

    LIVE = "A"
    DIFFERENTIAL = "B"
    MODEL = "C"
