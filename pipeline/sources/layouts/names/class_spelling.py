"""Class names that are nearly another one: a slip in a label makes a class of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ....dataset.schema import REAL_NAMES
from ...folder_names import FAKE_NAMES
from .spelling import MIN_SIMILARITY, by_spelling, misspelt, spelling_key

_MANY_TIMES = 10  # as many inputs: the rarer of two names that are nearly alike is then hardly meant
_MIN_SIMILARITY_OF_FOUR = 0.75  # 0..1: of the four letters of real and fake, one is another or two are swapped: `rael`
_MIN_WORD = 3  # letters: in shorter words, as in `fake_a` and `fake_b`, each letter is meant
_WORD_ENDS = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")


def misspelt_classes(inputs: Mapping[str, int]) -> dict[str, str]:
    """Classes that are nearly called real or fake, or as one with ten times as many inputs; with the name meant.

    Names that differ in a number, in a short word or in more than one letter's length are all meant. `inputs`: number
    of inputs by the name of their class.

    >>> misspelt_classes({"real": 60, "fake": 50, "rael": 1, "Fakes": 30, "FaceSwap": 40, "FceSwap": 2})
    {'rael': 'real', 'Fakes': 'fake', 'FceSwap': 'FaceSwap'}
    >>> misspelt_classes({"real": 99, "fake_a": 50, "fake_b": 1, "df1": 90, "df2": 1, "deepfakes": 4, "fakeA": 7})
    {}
    """
    binary = {name.lower(): name for name in inputs if name.lower() in ("real", "fake")}
    meant: dict[str, str] = {}
    for name in (name for name in inputs if name not in binary.values()):
        if not binary or name.lower() in REAL_NAMES | FAKE_NAMES:  # `real` and `fakes` are two classes as they are
            known = binary
        else:
            known = {"real": "real", "fake": "fake"} | binary
        common = [other for other, number in inputs.items() if number >= _MANY_TIMES * max(inputs[name], 1)]
        other = _nearest(name, known.values(), _MIN_SIMILARITY_OF_FOUR) or _nearest(name, common, MIN_SIMILARITY)
        if other:
            meant[name] = other
    return meant


def _nearest(name: str, others: Iterable[str], min_similarity: float) -> str | None:
    comparable = {other: other for other in others if _is_comparable(name, other)}
    return (by_spelling([name], comparable) | misspelt([name], comparable, min_similarity)).get(name)


def _is_comparable(name: str, other: str) -> bool:
    """Whether a difference between two names may be a slip: none in numbers, short words or by several letters."""
    key, other_key = spelling_key(name), spelling_key(other)
    if re.findall(r"\d+", name) != re.findall(r"\d+", other) or abs(len(key) - len(other_key)) > 1 or name == other:
        return False
    if key == other_key:
        return bool(key)
    words, other_words = _WORD_ENDS.split(name), _WORD_ENDS.split(other)
    return len(words) == len(other_words) and all(
        word == other_word or min(len(word), len(other_word)) >= _MIN_WORD
        for word, other_word in zip(words, other_words, strict=True)
    )
