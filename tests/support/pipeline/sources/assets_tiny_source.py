"""A source of six tiny videos, real ones and fakes of them, and what a user does to it between two runs."""

from __future__ import annotations

import functools
import os
import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from assets_video import numbered, write_video

_TABLE = """path,label,split,source
real/a.mp4,real,train,
fake/a.mp4,fake,train,real/a.mp4
fake/b.mp4,fake,train,real/a.mp4
real/c.mp4,real,train,
real/d.mp4,real,val,
fake/d.mp4,fake,val,real/d.mp4
"""

NAMES = ("real/a.mp4", "fake/a.mp4", "fake/b.mp4", "real/c.mp4", "real/d.mp4", "fake/d.mp4")
ORIGINALS = {"fake/a.mp4": "real/a.mp4", "fake/b.mp4": "real/a.mp4", "fake/d.mp4": "real/d.mp4"}
"""The original of each fake."""

CONTENTS = ("one", "two", "long", "faceless", "cut", "text")
"""What a video may hold. `one` and `two` differ in their frames alone, not in size; `cut` and `text` cannot be read."""


@functools.cache
def content_of(name: str) -> bytes:
    """The bytes of one of `CONTENTS`."""
    if name == "text":
        return b"no video\n" * 50
    if name == "cut":
        return content_of("long")[: len(content_of("long")) // 2]
    if name in ("one", "two"):
        first = {"one": 1, "two": 101}
        encoded = {each: _encoded([numbered(start + n, 64, 48) for n in range(3)]) for each, start in first.items()}
        size = max(map(len, encoded.values())) + 8
        padding = size - len(encoded[name])
        return encoded[name] + struct.pack(">I4s", padding, b"free") + bytes(padding - 8)
    if name == "faceless":  # its faces are smaller than the least that is kept
        return _encoded([numbered(n, 24, 24) for n in range(2)])
    return _encoded([numbered(n, 64, 48) for n in range(5)])


def _encoded(frames: list[object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_video(Path(folder) / "video.mp4", frames).read_bytes()  # type: ignore[arg-type]


@dataclass
class TinySource:
    """The folder of the videos beside their table. Times are those of a clock of its own: each write is a second later.

    `contents`: what each present video holds. `times`: its modification time, ns. `before`: of each video that has
    gone, or was replaced, what it held last and its time.
    """

    folder: Path
    contents: dict[str, str] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    before: dict[str, tuple[str, int]] = field(default_factory=dict)
    _now: int = 10**18

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.table.write_text(_TABLE)

    @property
    def table(self) -> Path:
        """What `precompute` takes as SRC: it lists all videos that there ever are."""
        return self.folder / "table.csv"

    def put(self, name: str, content_name: str) -> None:
        """A video appears, or gets another content."""
        self._leave(name)
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        self.write(path, self.bytes_of(name, content_name))
        self.contents[name] = content_name
        self.touch(name)

    def bytes_of(self, name: str, content_name: str) -> bytes:
        """The bytes of a video with one of `CONTENTS`."""
        return content_of(content_name)

    def _leave(self, name: str) -> None:
        if name in self.contents:
            self.before[name] = self.contents.pop(name), self.times.pop(name)

    def write(self, path: Path, content: bytes) -> None:
        """Writes a video's file."""
        path.write_bytes(content)

    def put_back(self, name: str) -> None:
        """A video that has gone, or was replaced, is there again, with the time that it had, as by `rsync --times`."""
        content, time_ns = self.before[name]
        self.put(name, content)
        self._set_time(name, time_ns)

    def touch(self, name: str) -> None:
        """A video gets a new time, as by `cp -r`."""
        self._now += 10**9
        self._set_time(name, self._now)

    def _set_time(self, name: str, time_ns: int) -> None:
        os.utime(self.folder / name, ns=(time_ns, time_ns))
        self.times[name] = time_ns

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()
        self._leave(name)

    def rename(self, name: str, to: str) -> None:
        """A video gets another name and keeps its time; another video of that name is replaced."""
        (self.folder / to).parent.mkdir(exist_ok=True)
        (self.folder / name).replace(self.folder / to)
        self._leave(to)
        self._leave(name)
        self.contents[to], self.times[to] = self.before[name]
