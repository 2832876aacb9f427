"""What FaceForensics++ and its copies call methods, grades of compression and videos, in whichever folders they lie."""

from __future__ import annotations

import re
from dataclasses import dataclass

SWAPS = ("Deepfakes", "FaceSwap", "FaceShifter", "DeepFakeDetection")
REENACTMENTS = ("Face2Face", "NeuralTextures")
METHODS = (*SWAPS, *REENACTMENTS)
_ABBREVIATIONS = {
    "DF": "Deepfakes", "F2F": "Face2Face", "FS": "FaceSwap", "NT": "NeuralTextures", "FSh": "FaceShifter",
    "FH": "FaceShifter", "DFD": "DeepFakeDetection",
}  # fmt: skip
METHOD_OF_FOLDER = (
    {method: method for method in METHODS}
    | _ABBREVIATIONS
    | {f"FF-{abbreviation}": method for abbreviation, method in _ABBREVIATIONS.items()}  # as DeepfakeBench's labels
)
PEOPLE = ("youtube", "actors")
ACTORS_METHOD = "DeepFakeDetection"

_YOUTUBE = re.compile(r"(\d{3})(?:_(\d{3}))?")
_ACTORS = re.compile(r"(\d\d)(?:_(\d\d))?__(.+?)(?:__[0-9A-Z]{8})?", re.IGNORECASE)
_MENTIONED = re.compile(r"(\d{3})(?:_(\d{3})(?!\d))?(?!\d)")  # a prefix of names that are not in the published form


@dataclass(frozen=True, slots=True)
class VideoName:
    """Parsed file name: the set of people, target and source (None: an original), and the recording."""

    people: str
    target: str
    source: str | None
    recording: str

    @classmethod
    def parse(cls, stem: str) -> VideoName | None:
        """`033`, `033_097`, `01__kitchen_pan` or `01_02__kitchen_pan__YVGY8LOK`; None for anything else."""
        if match := _YOUTUBE.fullmatch(stem):
            return cls("youtube", match[1], match[2], match[1])
        if match := _ACTORS.fullmatch(stem):
            return cls("actors", match[1], match[2], f"{match[1]}__{match[3]}")
        return None

    def identities(self) -> list[str]:
        """Identities of target and source; qualified, since youtube's 03 is not the actor 03."""
        return [f"{self.people}/{number}" for number in (self.target, self.source) if number]

    def is_of(self, method: str | None) -> bool:
        """Whether the published set has a video of this form of name by `method`; None: among the originals."""
        if method is None:
            return self.source is None
        people = "actors" if method == ACTORS_METHOD else "youtube"
        return method in METHODS and self.source is not None and self.people == people


def mentioned_identities(stem: str) -> list[str]:
    """Identities at the start of a name that cannot be parsed: `033_097_v2`, `033 again`."""
    match = _MENTIONED.match(stem)
    return [f"youtube/{number}" for number in match.groups() if number] if match else []
