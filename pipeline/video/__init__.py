"""Reading frames of videos and images so that no file can crash a worker or hang the job.

    Sampling -> MediaReader (this process) == pipe ==> decoder/ (child): sniffing, truncation, timeline, pixels

In: a path and a `Sampling`. Out: frames, RGB uint8 upright, with their times; or the reason of a failure.
Must not know: faces, rows, Dask.

On Linux on x86_64 and aarch64 a system call filter denies the child network access, new programs and changes to files,
and Landlock denies it all files but those of the source (`decoder.sandbox`); where a kernel lacks them, there is a
warning. On all systems the child has limits of time and memory, and an environment without credentials. `reader`,
`child_process` and `protocol` run in the parent; only `decoder/` imports PyAV and Pillow. `baselines` alone decodes in
its own process, with some of the child's modules.
"""

from __future__ import annotations

from .frame import DecodeSummary, Frame, FrameTimes, MediaInfo
from .limits import DecoderLimits, max_damaged_frames
from .reader import MediaReader
from .sampling import Sampling

__all__ = [
    "DecodeSummary",
    "DecoderLimits",
    "Frame",
    "FrameTimes",
    "MediaInfo",
    "MediaReader",
    "Sampling",
    "max_damaged_frames",
]
