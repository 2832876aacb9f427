"""The exceptions of facefeed, with their exit codes.

    FacefeedError                 exit 2
    +-- UsageError                exit 2    an option or a path that cannot be used; nothing was written
    |   +-- RefusedError          exit 2    the request is sound, but would harm what OUT holds
    +-- InputError                (none)    one input is lost, with its reason: counted, never shown as a trace
    +-- CorruptDataError          exit 1    stored bytes are not the bytes that were written
    +-- TooManyFailedError        exit 3    more inputs failed than allowed, or no face was found; no new manifest
    +-- StoppedError              exit 75   stopped half-way (disk full, cluster gone); resumable

A message says value, rule, consequence and remedy: ``margin=-1: must be at least 0; try 0.3``.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

Reason = Literal[
    "empty",
    "not_video",
    "unreadable",
    "truncated",
    "no_frames",
    "audio_only",
    "unsupported",
    "too_large",
    "timeout",
    "crashed",
    "decode_error",
    "outside_root",
    "bridges_splits",
    "unknown_label",
    "wrong_segments",
]
"""Why an input failed. Each reason has one cause, so that counts by reason show what to fix."""

INTERRUPTED = 130
"""Exit status of a command that the user interrupted; resumable."""

REASONS: tuple[str, ...] = get_args(Reason)

PASSING_REASONS: tuple[Reason, ...] = ("timeout", "crashed")
"""Reasons that may say more of the machine at that moment than of the file."""


class FacefeedError(Exception):
    """Base of every error that facefeed raises on purpose; `exit_code` is the process's exit status.

    `details`: further values that `--json` prints beside the message.
    """

    exit_code = 2

    def __init__(self, *args: object, details: dict[str, Any] | None = None) -> None:
        super().__init__(*args)
        self.details = details or {}


class UsageError(FacefeedError, ValueError):
    """An option, path or file that cannot be used as given; nothing was written."""


class RefusedError(UsageError):
    """A sound request that would harm what the output folder already holds; nothing was written."""


class InputError(FacefeedError):
    """One input that gives no rows: `reason` is counted, `detail` is for people.

    `frames_wanted`: frames that the sampling selected; `frames_decoded`: how many of them were decoded.
    """

    def __init__(self, reason: Reason, detail: str = "", *, frames_wanted: int = 0, frames_decoded: int = 0) -> None:
        super().__init__(reason, detail)
        self.reason: Reason = reason
        self.detail = detail
        self.frames_wanted = frames_wanted
        self.frames_decoded = frames_decoded

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class CorruptDataError(FacefeedError):
    """Stored bytes that do not match their checksum, footer or receipt."""

    exit_code = 1


class TooManyFailedError(FacefeedError):
    """More inputs failed than `--max-failed` allows, or no face was found; finished work is kept; no new manifest."""

    exit_code = 3


class StoppedError(FacefeedError):
    """The run stopped half-way for a reason outside the data; the same command resumes it."""

    exit_code = 75
