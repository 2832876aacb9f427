"""Reading frames of videos and images so that no file can crash a worker or hang the job.

    Sampling -> MediaReader (this process) == pipe ==> decoder/ (child): sniffing, truncation, timeline, pixels

In: a path and a `Sampling`. Out: frames, RGB uint8 upright, with their times; or one reason why not.
Must not know: faces, rows, Dask.

On Linux on x86_64 and aarch64 the child can use no network, start no program and change no file (`decoder.seccomp`);
elsewhere it can, and a warning says so. Everywhere it has limits of time and memory, and none of the environment's
secrets. `reader`, `child_process` and `protocol` are the parent's side; only `decoder/` imports PyAV and Pillow. The
one exception is `baselines`, which decodes in its own process with some of the child's modules.
"""

from __future__ import annotations

from .frame import Frame, FrameTimes, MediaInfo
from .limits import DecoderLimits, max_damaged_frames
from .reader import MediaReader
from .sampling import Sampling

__all__ = ["DecoderLimits", "Frame", "FrameTimes", "MediaInfo", "MediaReader", "Sampling", "max_damaged_frames"]
