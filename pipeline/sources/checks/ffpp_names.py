"""Inputs that are called as in FaceForensics++, but lie in folders that do not say so: `fake/033_097_0.png`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..listing import Entry

_NAME = re.compile(r"(\d{3})(?:_(\d{3}))?(?:[_-]\d+){0,2}")
"""Of the target and of the source, then numbers of the frame and the face in it."""


def ffpp_names_warning(entries: Sequence[Entry], real_label: int) -> Iterator[str]:
    """Warns where most fakes are called after an original that is there, but not known to be theirs."""
    fakes = [entry for entry in entries if entry.label not in (real_label, -1) and entry.source_id is None]
    real = {
        match[1]: entry.video_id
        for entry in reversed(entries)
        if entry.label == real_label and (match := _ffpp_name(entry.video_id))
    }
    named = [
        (entry.video_id, match[1])
        for entry in fakes
        if (match := _ffpp_name(entry.video_id)) and match[2] and match[1] in real
    ]
    if named and 2 * len(named) > len(fakes):
        fake, target = named[0]
        yield (
            f"{len(named):,} of {len(fakes):,} fakes are called as in FaceForensics++, such as {fake!r} after "
            f"{real[target]!r}, but as the folders are not called so, no original is known, and splits may separate "
            "the two: call the folders original and Deepfakes, or as the method is called, with videos or one folder "
            "of frames a video in them; or list all in a table with the columns source and identity"
        )


def _ffpp_name(video_id: str) -> re.Match[str] | None:
    """Match of the name of the clip: that of the folder that its frames lie in, or of a file."""
    *_, folder, name = ("", *video_id.split("/"))
    return _NAME.fullmatch(folder) or _NAME.fullmatch(name.rpartition(".")[0])
