"""Reading frames of videos and images so that no file can take a worker down or hang the job.

    Sampling -> MediaReader (this process) == pipe ==> child process: content, wholeness, timeline, decode, pixels

`sampling`, `frame` and `limits` hold the values that are met outside; `reader`, `process` and `wire` are the
parent's side; all other modules run in the child and are the only ones that import PyAV or Pillow. The one exception is
`onthefly`, the baseline that decodes within its own process, as people do: it takes some of the child's modules along.
"""

from __future__ import annotations

from .frame import Frame, MediaInfo
from .limits import DecoderLimits
from .reader import MediaReader
from .sampling import Sampling

__all__ = ["DecoderLimits", "Frame", "MediaInfo", "MediaReader", "Sampling"]
