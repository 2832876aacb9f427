"""The source of a soak: six small videos that come, change, go and come back, with what OUT may hold of each."""

from __future__ import annotations

import random
import struct
from itertools import product
from pathlib import Path

from assets_fresh_runs import Version
from assets_out_model import Held, OutModel
from assets_tiny_source import CONTENTS, NAMES, ORIGINALS, TinySource

WITH_FACES = ("one", "two", "long")
"""Contents that have at least two faces: each of two ranks has one."""


def _group_of(name: str) -> str:
    """Class and split of a video."""
    return f"{name[:4]}, {'val' if '/d.' in name else 'train'}"


class SoakSource(TinySource):
    """A `TinySource` whose videos are replaced at once, as by `mv`: a decoder reads the old one or the new one.

    No two of different classes or splits have the same bytes: a run would refuse one as moved where the other is gone.
    """

    def bytes_of(self, name: str, content_name: str) -> bytes:
        """The bytes of a video with one of `CONTENTS`."""
        return super().bytes_of(name, content_name) + struct.pack(">I4s16s", 24, b"free", _group_of(name).encode())

    def write(self, path: Path, content: bytes) -> None:
        new = self.folder / ".new"
        new.write_bytes(content)
        new.replace(path)


class ChangingSource:
    """Draws changes of `videos`; `model`: what OUT may hold after them."""

    def __init__(self, folder: Path) -> None:
        self.videos = SoakSource(folder)
        self.model = OutModel(self.videos)
        self.put_all("long")

    def put_all(self, content: str) -> None:
        """Every video that has no face, or is not there, gets this content."""
        for name in NAMES:
            if self.videos.contents.get(name) not in WITH_FACES:
                self._put(name, content)

    def change(self, draws: random.Random) -> str:
        """One change while no run is at work; returns what it was."""
        present, before = sorted(self.videos.contents), sorted(self.videos.before)
        kind = draws.choice(("put", "put", "touch", "remove", "rename", "put back"))
        name, to = draws.choice(present), draws.choice(NAMES)
        if kind == "touch":
            self.videos.touch(name)
            self.model.absent.discard(name)
        elif kind == "remove":
            self.videos.remove(name)
        elif kind == "rename" and name != to and _group_of(name) == _group_of(to):  # to another group it is refused
            self._rename(name, to)
        elif kind == "put back" and before:
            name = draws.choice(before)
            self.videos.put_back(name)  # with its old time: perhaps nothing is new to `precompute`
            self.model.absent.add(name)
        else:
            kind = "put"
            self._put(to, draws.choice(CONTENTS))
        self._keep_a_face()
        return kind

    def change_meanwhile(self, draws: random.Random) -> dict[str, set[Held]]:
        """One change while a run is at work; returns what OUT may hold besides, by video."""
        name, content = draws.choice(NAMES), draws.choice(("nothing", *CONTENTS))
        before = dict(self.videos.contents)
        if content != "nothing":
            self._put(name, content)
        elif name in before:
            self.videos.remove(name)
            self.model.absent.add(name)
        self._keep_a_face()
        names = {each for each in NAMES if before.get(each) != self.videos.contents.get(each)} | {name}
        affected = names | {fake for fake, original in ORIGINALS.items() if original in names}
        return {each: self._either(each, before) for each in affected}

    def _either(self, name: str, before: dict[str, str]) -> set[Held]:
        states = (before, self.videos.contents)
        contents = [state[name] for state in states if name in state]
        originals = {state.get(ORIGINALS.get(name, "")) for state in states} | {None}
        return {*self.model.may_hold[name], "unreadable", *(Version(*pair) for pair in product(contents, originals))}

    def _put(self, name: str, content: str) -> None:
        self.videos.put(name, content)
        self.model.absent.discard(name)

    def _rename(self, name: str, to: str) -> None:
        was_there = self.videos.before.get(to)
        self.videos.rename(name, to)
        if was_there != (self.videos.contents[to], self.videos.times[to]):  # else the same file is back
            self.model.absent.discard(to)

    def _keep_a_face(self) -> None:
        """Without any face a run ends with exit code 3, and there is no dataset."""
        if not {*WITH_FACES} & {*self.videos.contents.values()}:
            self._put("real/c.mp4", "long")
