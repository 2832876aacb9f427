"""From repeats to ratios and to the goals; nothing but arithmetic."""

from __future__ import annotations

import statistics
from typing import Any

PEERS = ("facenet", "facenet_batch")


def speed(one: dict[str, Any]) -> dict[str, Any]:
    """ms a frame, median ratios over each peer, and shares of the rates of decoding, from a clip's repeats."""
    seconds, frames = one["seconds"], one["frames"]
    ours = statistics.median(seconds["ours"])
    found: dict[str, Any] = {
        "ms_a_frame": {name: [1e3 * value / frames for value in runs] for name, runs in seconds.items()},
        "ratio": ratios(seconds),
    }
    if "decoding" in one:
        rates = {name: statistics.median(runs) for name, runs in one["decoding"].items()}
        found["share_of_decoding"] = {name: frames / ours / rate for name, rate in rates.items()}
    return found


def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Each peer's seconds over ours, in the same repeat; the median."""
    return {
        peer: statistics.median(theirs / mine for theirs, mine in zip(seconds[peer], seconds["ours"], strict=True))
        for peer in PEERS
        if peer in seconds
    }


def totals(parts: dict[str, dict[str, Any]], agreement: dict[str, Any]) -> dict[str, Any]:
    """The sums of the parts' seconds repeat by repeat, with their ratios, the worst part, and the agreement given."""
    names = next(iter(parts.values()))["seconds"]
    seconds = {name: [sum(row) for row in zip(*(one["seconds"][name] for one in parts.values()), strict=True)]
               for name in names}  # fmt: skip
    each = {name: ratios(one["seconds"]) for name, one in parts.items()}
    worst = {peer: min((of[peer], name) for name, of in each.items()) for peer in ratios(seconds)}
    return {"seconds": seconds, "ratio": ratios(seconds), "worst": worst, "agreement": agreement}


def goals(result: dict[str, Any]) -> list[tuple[str, str, float | None, bool]]:
    """What was promised of one smallest face, what is, and whether it is kept."""
    rows: list[tuple[str, str, float | None, bool]] = []

    def least(what: str, goal: float, value: float | None) -> None:
        rows.append((what, f">= {goal:g}", value, value is not None and value >= goal))

    def most(what: str, goal: float, value: float | None) -> None:
        rows.append((what, f"<= {goal:g}", value, value is not None and value <= goal))

    if total := result.get("total"):
        for peer, ratio in total["ratio"].items():
            worst, name = total["worst"][peer]
            least(f"times as fast as {peer}, in total", 3, ratio)
            least(f"times as fast as {peer}, worst clip ({name})", 2.5, worst)
    for lane, one in (("clips", total), ("photos", result.get("photos", {}).get("total"))):
        if one:
            ours = one["agreement"]["ours"]
            least(f"{lane}: recall of facenet's strong faces", 0.999, ours["recall"])
            least(f"{lane}: our strong faces in facenet's", 0.999, ours["reverse"])
            most(f"{lane}: landmarks, mean over eyes' distance", 0.005, ours["landmarks_mean"])
    if truth := result.get("truth"):
        facenet, ours = truth["facenet"], truth["ours"]
        least("truth: recall, not below facenet's", facenet["recall"], ours["recall"])
        if facenet["error_where_both"] is not None:  # at 4 places: more are rounding, not looks
            errors = (round(one["error_where_both"], 4) for one in (facenet, ours))
            most("truth: landmark error, not above facenet's", *errors)
    return rows
