"""Tone mapping: convert high dynamic range (PQ, HLG) and wide gamuts to standard-range BT.709.

PQ and HLG signals (ITU-R BT.2100) are converted to light in cd/m2, the tone curve of BT.2390 (5.4.1) maps 1000 cd/m2
to 203, which is white in BT.2408, and the result is encoded for a BT.1886 display (gamma 2.4) with BT.709's primaries.
The curve ignores the video's metadata on its peak, so frames of one video and videos of one dataset stay comparable.
It is applied to the largest of red, green and blue, which keeps hues; colours outside BT.709 are clipped.
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

_MAX_NITS, _PEAK_NITS, _WHITE_NITS = 10000.0, 1000.0, 203.0
_GAMMA = 2.4
_BAND_LINES = 128  # converted at a time: an 8K frame of floats would take a gigabyte


def tone_map_to_bt709(rgb: npt.NDArray[np.uint16], transfer: int, primaries: int) -> npt.NDArray[np.uint8]:
    """Convert full-range R'G'B' uint16 (H, W, 3) to R'G'B' uint8 (H, W, 3) for BT.709.

    transfer, primaries: the source's, by the numbers of ITU-T H.273. Unknown primaries are taken as BT.2020's, a
    transfer other than PQ and HLG as standard range.
    """
    nits_table, to_bt709 = _nits_table(transfer), _matrix_to_bt709(primaries if primaries in _PRIMARIES else BT2020)
    output = np.empty(rgb.shape, np.uint8)
    for start in range(0, len(rgb), _BAND_LINES):
        band = slice(start, start + _BAND_LINES)
        nits = nits_table.take(rgb[band])
        if transfer == HLG:
            nits *= np.maximum(nits @ _bt2020_luma() / _PEAK_NITS, 1e-9)[..., None] ** np.float32(0.2)  # BT.2100's OOTF
        if transfer in (PQ, HLG):
            largest = np.maximum(np.maximum(nits[..., 0], nits[..., 1]), nits[..., 2])  # max(axis=2): 5 times the time
            fourth_root = np.sqrt(np.sqrt(largest / np.float32(_MAX_NITS)))
            nits *= _tone_gain_table().take(_table_indices(fourth_root))[..., None]
        linear = np.clip(nits @ to_bt709 / np.float32(_WHITE_NITS), 0, 1)
        output[band] = _bt1886_signal_table().take(_table_indices(np.sqrt(linear)))
    return output


def _table_indices(share: Floats) -> npt.NDArray[np.uint16]:
    """Map values 0..1 to indices of a table of 65536 entries."""
    return (share * np.float32(65535) + np.float32(0.5)).astype(np.uint16)


@cache
def _nits_table(transfer: int) -> Floats:
    """Light in cd/m2 by 16-bit signal; for HLG before the OOTF."""
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
def _tone_gain_table() -> Floats:
    """Gain of the tone curve by the fourth root of the light level, in 65536 steps up to 10000 cd/m2."""
    top = _pq_signal(np.array(_PEAK_NITS))
    white_signal = _pq_signal(np.array(_WHITE_NITS)) / top
    knee = 1.5 * white_signal - 0.5
    nits = _MAX_NITS * (np.maximum(np.arange(65536), 1) / 65535) ** 4
    signal = np.minimum(_pq_signal(nits) / top, 1)
    t = np.maximum(signal - knee, 0) / (1 - knee)
    compressed = (
        (2 * t**3 - 3 * t**2 + 1) * knee + (t**3 - 2 * t**2 + t) * (1 - knee) + (-2 * t**3 + 3 * t**2) * white_signal
    )
    gain = np.where(signal < knee, 1, _pq_nits(compressed * top) / nits)
    return gain.astype(np.float32)


def _pq_nits(signal: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    power = signal ** (32 / 2523)
    nits: npt.NDArray[np.float64] = _MAX_NITS * (
        np.maximum(power - 3424 / 4096, 0) / (2413 / 128 - 2392 / 128 * power)
    ) ** (16384 / 2610)
    return nits


def _pq_signal(nits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    power = (nits / _MAX_NITS) ** (2610 / 16384)
    signal: npt.NDArray[np.float64] = ((3424 / 4096 + 2413 / 128 * power) / (1 + 2392 / 128 * power)) ** (2523 / 32)
    return signal


@cache
def _bt1886_signal_table() -> npt.NDArray[np.uint8]:
    """8-bit signal for a BT.1886 display by the square root of linear light, which is nearly uniform to the eye."""
    return np.rint(255 * (np.arange(65536) / 65535) ** (2 / _GAMMA)).astype(np.uint8)


@cache
def _matrix_to_bt709(primaries: int) -> Floats:
    """Matrix (3, 3) to BT.709's linear RGB, to multiply rows of linear RGB with from the right."""
    matrix: npt.NDArray[np.float64] = np.linalg.inv(_matrix_to_xyz(1)) @ _matrix_to_xyz(primaries)
    return matrix.T.astype(np.float32)


@cache
def _bt2020_luma() -> Floats:
    """Luminance weights (3,) of BT.2020's linear RGB, for the OOTF of HLG."""
    luma: npt.NDArray[np.float64] = _matrix_to_xyz(BT2020)[1]
    return luma.astype(np.float32)


def _matrix_to_xyz(primaries: int) -> npt.NDArray[np.float64]:
    """Matrix (3, 3) from linear RGB to CIE XYZ, with Y = 1 for white (SMPTE RP 177)."""
    xyz = np.array([(x / y, 1, (1 - x - y) / y) for x, y in (*_PRIMARIES[primaries], _WHITE)]).T
    output: npt.NDArray[np.float64] = xyz[:, :3] * np.linalg.solve(xyz[:, :3], xyz[:, 3])
    return output
