"""Reading frames of videos and images so that no file can take a worker down or hang the job.

    Sampling -> MediaReader (this process) == pipe ==> child process: content, wholeness, timeline, decode, pixels

On Linux on x86_64 and aarch64 the child can use no network, start no program and change no file (`syscalls`); elsewhere
it can, and a warning says so. Everywhere it has limits of time and memory, and none of the environment's secrets.

`sampling`, `frame` and `limits` hold the values that are met outside; `reader`, `process` and `wire` are the
parent's side; all other modules run in the child and are the only ones that import PyAV or Pillow. The one exception is
`onthefly`, the baseline that decodes within its own process, as people do: it takes some of the child's modules along.
"""

from __future__ import annotations

from .frame import Frame, FrameTimes, MediaInfo
from .limits import DecoderLimits, most_damaged
from .reader import MediaReader
from .sampling import Sampling

__all__ = ["DecoderLimits", "Frame", "FrameTimes", "MediaInfo", "MediaReader", "Sampling", "most_damaged"]
