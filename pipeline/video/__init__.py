"""Reading frames of videos and images so that no file can take a worker down or hang the job.

    Sampling -> MediaReader (this process) == pipe ==> child process: content, wholeness, timeline, decode, pixels

`sampling`, `frame` and `limits` hold the values that are met outside; `reader`, `process` and `wire` are the
parent's side; all other modules run in the child alone and are the only ones that import PyAV or Pillow.
"""

from __future__ import annotations

from .frame import Frame, MediaInfo
from .limits import DecoderLimits
from .reader import MediaReader
from .sampling import Sampling

__all__ = ["DecoderLimits", "Frame", "MediaInfo", "MediaReader", "Sampling"]
