"""From high dynamic range and wide gamuts to what a BT.709 display of standard range is given for the same picture.

PQ and HLG (ITU-R BT.2100) become light in cd/m2, the tone curve of BT.2390 (5.4.1) brings 1000 cd/m2 down to 203, which
is white in BT.2408, and a BT.1886 display (gamma 2.4) with BT.709's primaries gets it back. The curve is the same for
every video, whatever its metadata say of its own peak: so frames of one video, and videos of one dataset, stay
comparable. It works on the largest of red, green and blue, which keeps hues; colours outside BT.709 are clipped.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]

PQ, HLG = 16, 18
"""Transfer characteristics of ITU-T H.273."""
BT2020 = 9
"""Colour primaries of ITU-T H.273."""

_PRIMARIES = {  # x and y of red, green and blue; the white of all is D65
    1: ((0.640, 0.330), (0.300, 0.600), (0.150, 0.060)),
    9: ((0.708, 0.292), (0.170, 0.797), (0.131, 0.046)),
    12: ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060)),  # Display P3
}
_WHITE = (0.3127, 0.3290)
WIDE_GAMUTS = frozenset(_PRIMARIES) - {1}

_MOST_NITS, _PEAK_NITS, _WHITE_NITS = 10000.0, 1000.0, 203.0
_GAMMA = 2.4
_BAND_LINES = 128  # as floats, a frame of 8K would take a gigabyte


def to_standard_range(rgb: npt.NDArray[np.uint16], transfer: int, primaries: int) -> npt.NDArray[np.uint8]:
    """Return (H, W, 3) uint8 of R'G'B' for BT.709; rgb is uint16, full range, of that transfer and those primaries.

    Unknown primaries are BT.2020's; a transfer other than PQ and HLG is taken as standard range.
    """
    light, to_bt709 = _light(transfer), _to_bt709(primaries if primaries in _PRIMARIES else BT2020)
    made = np.empty(rgb.shape, np.uint8)
    for start in range(0, len(rgb), _BAND_LINES):
        band = slice(start, start + _BAND_LINES)
        nits = light.take(rgb[band])
        if transfer == HLG:
            nits *= np.maximum(nits @ _luma() / _PEAK_NITS, 1e-9)[..., None] ** np.float32(0.2)  # BT.2100's OOTF
        if transfer in (PQ, HLG):
            largest = np.maximum(np.maximum(nits[..., 0], nits[..., 1]), nits[..., 2])  # max(axis=2): 5 times the time
            fourth_root = np.sqrt(np.sqrt(largest / np.float32(_MOST_NITS)))
            nits *= _tone_curve().take(_steps(fourth_root))[..., None]
        shown = np.clip(nits @ to_bt709 / np.float32(_WHITE_NITS), 0, 1)
        made[band] = _signal().take(_steps(np.sqrt(shown)))
    return made


def _steps(share: Floats) -> npt.NDArray[np.uint16]:
    """Indices of 0..1 in a table of 65536 entries."""
    return (share * np.float32(65535) + np.float32(0.5)).astype(np.uint16)


@cache
def _light(transfer: int) -> Floats:
    """Of each 16-bit signal cd/m2; of HLG before the OOTF."""
    signal = np.arange(65536) / 65535
    if transfer == PQ:
        nits = _pq_nits(signal)
    elif transfer == HLG:
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        nits = _PEAK_NITS * np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - c) / a) + b) / 12)
    else:
        nits = _WHITE_NITS * signal**_GAMMA
    return nits.astype(np.float32)


@cache
def _tone_curve() -> Floats:
    """By what light is multiplied, at the fourth root of its level in 65536 steps up to 10000 cd/m2."""
    top = _pq_signal(np.array(_PEAK_NITS))
    most = _pq_signal(np.array(_WHITE_NITS)) / top
    knee = 1.5 * most - 0.5
    nits = _MOST_NITS * (np.maximum(np.arange(65536), 1) / 65535) ** 4
    signal = np.minimum(_pq_signal(nits) / top, 1)
    t = np.maximum(signal - knee, 0) / (1 - knee)
    bent = (2 * t**3 - 3 * t**2 + 1) * knee + (t**3 - 2 * t**2 + t) * (1 - knee) + (-2 * t**3 + 3 * t**2) * most
    gain = np.where(signal < knee, 1, _pq_nits(bent * top) / nits)
    return gain.astype(np.float32)


def _pq_nits(signal: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    power = signal ** (32 / 2523)
    nits: npt.NDArray[np.float64] = _MOST_NITS * (
        np.maximum(power - 3424 / 4096, 0) / (2413 / 128 - 2392 / 128 * power)
    ) ** (16384 / 2610)
    return nits


def _pq_signal(nits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    power = (nits / _MOST_NITS) ** (2610 / 16384)
    signal: npt.NDArray[np.float64] = ((3424 / 4096 + 2413 / 128 * power) / (1 + 2392 / 128 * power)) ** (2523 / 32)
    return signal


@cache
def _signal() -> npt.NDArray[np.uint8]:
    """Of the square root of linear light, in 65536 steps, the signal for a BT.1886 display: even steps to the eye."""
    return np.rint(255 * (np.arange(65536) / 65535) ** (2 / _GAMMA)).astype(np.uint8)


@cache
def _to_bt709(primaries: int) -> Floats:
    """(3, 3) for rows of linear RGB, from the right."""
    matrix: npt.NDArray[np.float64] = np.linalg.inv(_to_xyz(1)) @ _to_xyz(primaries)
    return matrix.T.astype(np.float32)


@cache
def _luma() -> Floats:
    """BT.2100's, by which the OOTF of HLG goes."""
    luma: npt.NDArray[np.float64] = _to_xyz(BT2020)[1]
    return luma.astype(np.float32)


def _to_xyz(primaries: int) -> npt.NDArray[np.float64]:
    """(3, 3) from linear RGB to CIE XYZ of a white with Y = 1 (SMPTE RP 177)."""
    xyz = np.array([(x / y, 1, (1 - x - y) / y) for x, y in (*_PRIMARIES[primaries], _WHITE)]).T
    made: npt.NDArray[np.float64] = xyz[:, :3] * np.linalg.solve(xyz[:, :3], xyz[:, 3])
    return made
