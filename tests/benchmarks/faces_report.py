"""Tables of what was measured, and which goals it meets, on standard error."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable
from typing import Any

from faces_figures import goals

_AGREEMENT = {
    "recall": ".4f", "reverse": ".4f", "landmarks_mean": ".1e", "landmarks_worst": ".1e", "box_px": ".2g",
    "score": ".1e", "same_count": ".3f",
}  # fmt: skip
_AGREEMENT_HEADS = ("strong faces", "recall", "reverse", "landmarks", "worst", "box px", "score", "same count")
_CLIP_HEADS = (
    "clip", "size", "facenet ms", "batch ms", "of", "ours ms", "x facenet", "x batch", "share, every 10th", "each",
)  # fmt: skip
_TRACK_HEADS = (
    "frames", "facenet ms", "ours ms", "track ms", "x facenet", "share of decoding", "strong", "recall", "unconfirmed",
    "landmarks",
)  # fmt: skip
_MEMORY = ("before_mb", "peak_mb", "rise_mb", "device_peak_mb")


def tell(line: str = "") -> None:
    """A line for people."""
    print(line, file=sys.stderr, flush=True)


def print_report(results: dict[int, dict[str, Any]]) -> None:
    """Every lane that was run, one smallest face after the other, and its goals last."""
    for px, result in results.items():
        tell(f"\n== min_face {px} px")
        if "clips" in result:
            _clips(result["clips"], result["total"])
        if "photos" in result:
            _photos(result["photos"])
        if "truth" in result:
            _truth(result["truth"])
        if "memory" in result:
            _memory(result["memory"])
        if "track" in result:
            _track(result["track"])
        for what, goal, value, is_met in goals(result):
            tell(f"{'met   ' if is_met else 'MISSED'} {what}: {_number(value, '.4g')} ({goal})")


def _clips(clips: dict[str, Any], total: dict[str, Any]) -> None:
    rows = []
    for name, clip in clips.items():
        facenet, batch, ours = (_number(statistics.median(runs), ".1f") for runs in clip["ms_a_frame"].values())
        ratios, shares = clip["ratio"].values(), clip["share_of_decoding"].values()
        cells = [*_numbers(ratios, ".2f"), *_numbers(shares, ".3f")]
        rows.append([name, clip["size"], facenet, batch, str(clip["best_batch"]), ours, *cells])
    facenet, batch, ours = _sums(total)
    rows.append(["in total", "", facenet, batch, "", ours, *_numbers(total["ratio"].values(), ".2f"), "", ""])
    _table(_CLIP_HEADS, rows)
    agreements = {name: clip["agreement"] for name, clip in clips.items()} | {"in total": total["agreement"]}
    for engine, head in (("ours", "ours to facenet"), ("facenet_batch", "facenet's batches to facenet")):
        _table((head, *_AGREEMENT_HEADS), [[name, *_agreement(of[engine])] for name, of in agreements.items()])


def _photos(photos: dict[str, Any]) -> None:
    rows = []
    for name, photo in photos["each"].items():
        ms = (1e3 * statistics.median(runs) for runs in photo["seconds"].values())
        rows.append([name[-40:], photo["size"], *_numbers(ms, ".1f"), *map(str, photo["faces"].values()),
                     *_agreement(photo["agreement"])])  # fmt: skip
    total = photos["total"]
    rows.append(["in total", "", *_sums(total), "", "", *_agreement(total["agreement"]["ours"])])
    _table(("photo", "size", "facenet ms", "ours ms", "facenet", "ours", *_AGREEMENT_HEADS), rows)
    tell(f"photos: {_number(total['ratio']['facenet'], '.2f')} times as fast as facenet in total\n")


def _truth(truth: dict[str, Any]) -> None:
    rows = []
    for name in ("facenet", "ours"):
        figures = truth[name]
        counts = [str(figures["annotated"]), str(figures["found"]), _number(figures["recall"], ".4f")]
        errors = _numbers((figures["error"], figures["error_where_both"]), ".5f")
        rows.append([name, *counts, *errors, str(figures["strangers"])])
    _table(("annotated", "faces", "found", "recall", "error", "where both", "strong but not annotated"), rows)


def _memory(memory: dict[str, Any]) -> None:
    rows = []
    for subject in ("clip", "frame"):
        for name, figures in memory.get(subject, {}).items():
            looked_at = figures.get("failed") or f"{figures['frames']} of {figures['size']}"
            rows.append([name, looked_at, *(str(figures.get(field, _number(None, ""))) for field in _MEMORY)])
    _table((f"memory (batches of {memory['batch']})", "frames", "before MB", "peak MB", "rise MB", "device MB"), rows)


def _track(track: dict[str, Any]) -> None:
    for sampling, total in track["total"].items():
        rows = []
        for name, clip in track["clips"].items():
            figures = clip[sampling]
            ms = (1e3 * statistics.median(runs) / figures["frames"] for runs in figures["seconds"].values())
            alone, count = figures["unconfirmed"]["track"]
            agreed = figures["agreement"]["track"]
            rows.append([
                name, str(figures["frames"]), *_numbers(ms, ".2f"), _number(total["ratio_of_clip"][name], ".1f"),
                _number(total["share_of_decoding_of_clip"][name], ".2f"), str(agreed["strong_faces"][0]),
                _number(agreed["recall"], ".4f"), f"{alone} of {count}", _number(agreed["landmarks_mean"], ".4f"),
            ])  # fmt: skip
        rows.append([
            "in total", "", "", "", "", _number(total["ratio"], ".1f"), _number(total["share_of_decoding"], ".2f"),
            str(total["strong_faces"]), _number(total["recall"], ".4f"), _number(total["unconfirmed"], ".4f"),
            _number(total["landmarks_mean"], ".4f"),
        ])  # fmt: skip
        _table((f"track, {sampling}", *_TRACK_HEADS), rows)
    tell(f"jitter of a still head's crop, px: {_jitter(track['jitter_px'])}\n")


def _jitter(spread: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in spread.items())


def _sums(total: dict[str, Any]) -> list[str]:
    return [_number(statistics.median(runs), ".2f") + " s" for runs in total["seconds"].values()]


def _agreement(figures: dict[str, Any]) -> list[str]:
    faces = " / ".join(str(count) for count in figures["strong_faces"])
    return [faces, *(_number(figures[name], spec) for name, spec in _AGREEMENT.items())]


def _numbers(values: Iterable[float | None], spec: str) -> list[str]:
    return [_number(value, spec) for value in values]


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else f"{value:{spec}}"


def _table(heads: Iterable[str], rows: list[list[str]]) -> None:
    lines = [list(heads), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for name, *cells in lines:
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        tell("  ".join([name.ljust(widths[0]), *right]).rstrip())
    tell()
