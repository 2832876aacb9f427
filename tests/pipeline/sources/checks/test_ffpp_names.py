"""What a user notices of a FaceForensics++ in folders that do not say so: its fakes have originals, which are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from facefeed.pipeline.sources import list_source, listing_warnings

TEXT = "called as in FaceForensics++"


def warnings(root: Path, names: list[str]) -> list[str]:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return [text for text in listing_warnings(list_source(root)) if TEXT in text]


@pytest.mark.parametrize("form", ["{}.mp4", "{}_0.png", "{}_012_1.png", "{}/001.png", "faces/{}-7.jpg"])
def test_fakes_that_are_called_after_an_original_are_named_with_what_makes_it_known(tmp_path: Path, form: str) -> None:
    clips = {"real": ["000", "003", "870"], "fake": ["000_003", "003_000"]}
    names = [f"{label}/{form.format(clip)}" for label, of_label in clips.items() for clip in of_label]
    (text,) = warnings(tmp_path, names)
    assert text.startswith("2 of 2 fakes are")
    assert f"'fake/{form.format('000_003')}' after 'real/{form.format('000')}'" in text
    assert "call the folders original and Deepfakes" in text


@pytest.mark.parametrize(
    "names",
    [
        ["real/000.mp4", "fake/001.mp4", "fake/000.mp4"],
        ["real/anna.mp4", "fake/anna_ben.mp4"],
        ["real/000.mp4", "fake/000_003.mp4", "fake/a.mp4", "fake/b.mp4"],
        ["real/1000.mp4", "fake/1000_1003.mp4"],
        ["original/000.mp4", "Deepfakes/000_003.mp4"],
    ],
    ids=" ".join,
)
def test_other_names_say_nothing_of_it(tmp_path: Path, names: list[str]) -> None:
    assert warnings(tmp_path, names) == []
