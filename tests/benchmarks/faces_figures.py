"""From repeats to ratios and to the goals; nothing but arithmetic."""

from __future__ import annotations

import statistics
from typing import Any

PEERS = ("facenet", "facenet_batch")


def speed(figures: dict[str, Any]) -> dict[str, Any]:
    """ms a frame, median ratios over each peer, and shares of the rates of decoding, from a clip's repeats."""
    seconds, frames = figures["seconds"], figures["frames"]
    ours = statistics.median(seconds["ours"])
    speedups: dict[str, Any] = {
        "ms_a_frame": {name: [1e3 * value / frames for value in runs] for name, runs in seconds.items()},
        "ratio": ratios(seconds),
    }
    if "decoding" in figures:
        rates = {name: statistics.median(runs) for name, runs in figures["decoding"].items()}
        speedups["share_of_decoding"] = {name: frames / ours / rate for name, rate in rates.items()}
    return speedups


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
    seconds = {name: [sum(row) for row in zip(*(part["seconds"][name] for part in parts.values()), strict=True)]
               for name in names}  # fmt: skip
    each = {name: ratios(part["seconds"]) for name, part in parts.items()}
    worst = {peer: min((of[peer], name) for name, of in each.items()) for peer in ratios(seconds)}
    return {"seconds": seconds, "ratio": ratios(seconds), "worst": worst, "agreement": agreement}


def tracking(clips: dict[str, Any]) -> dict[str, Any]:
    """For each sampling of all clips: the ratio over facenet in total and of each clip, and the sums of the rest."""
    by_sampling = {}
    for sampling in next(iter(clips.values())):
        each = {name: clip[sampling] for name, clip in clips.items()}
        medians = {name: {engine: statistics.median(runs) for engine, runs in clip["seconds"].items()}
                   for name, clip in each.items()}  # fmt: skip
        rates = {name: statistics.median(clip["decoding"][sampling]) for name, clip in each.items()}
        sums = {engine: sum(clip[engine] for clip in medians.values()) for engine in next(iter(medians.values()))}
        decoded = sum(clip["frames"] / rates[name] for name, clip in each.items())
        by_sampling[sampling] = {
            "ratio": sums["facenet"] / sums["track"],
            "ratio_ours": sums["facenet"] / sums["ours"],
            "ratio_of_clip": {name: clip["facenet"] / clip["track"] for name, clip in medians.items()},
            "share_of_decoding": decoded / sums["track"],
            "share_of_decoding_of_clip": {name: clip["frames"] / rates[name] / medians[name]["track"]
                                          for name, clip in each.items()},
            **_kept(each),
        }  # fmt: skip
    return by_sampling


def _kept(each: dict[str, Any]) -> dict[str, Any]:
    """Recall of strong faces, share that no full search confirms, and landmarks, of all clips and of each."""
    agreed = {name: figures["agreement"]["track"] for name, figures in each.items()}
    strong = {name: figures["strong_faces"][0] for name, figures in agreed.items()}
    alone, count = (sum(figures["unconfirmed"]["track"][place] for figures in each.values()) for place in (0, 1))
    counts = {name: figures["unconfirmed"]["track"][1] for name, figures in each.items()}
    off = [
        figures["landmarks_mean"] * counts[name]
        for name, figures in agreed.items()
        if figures["landmarks_mean"] is not None
    ]
    return {
        "strong_faces": sum(strong.values()),
        "recall": sum(figures["recall"] * strong[name] for name, figures in agreed.items() if strong[name])
        / max(sum(strong.values()), 1),
        "recall_of_clip": {name: figures["recall"] for name, figures in agreed.items() if strong[name]},
        "unconfirmed": alone / max(count, 1),
        "landmarks_mean": sum(off) / max(count, 1),
        "landmarks_of_clip": {name: figures["landmarks_mean"] for name, figures in agreed.items()},
    }


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
    for lane, figures in (("clips", total), ("photos", result.get("photos", {}).get("total"))):
        if figures:
            ours = figures["agreement"]["ours"]
            least(f"{lane}: recall of facenet's strong faces", 0.999, ours["recall"])
            least(f"{lane}: our strong faces in facenet's", 0.999, ours["reverse"])
            most(f"{lane}: landmarks, mean over eyes' distance", 0.005, ours["landmarks_mean"])
    if truth := result.get("truth"):
        facenet, ours = truth["facenet"], truth["ours"]
        least("truth: recall, not below facenet's", facenet["recall"], ours["recall"])
        if facenet["error_where_both"] is not None:  # at 4 places: more are rounding, not looks
            errors = (round(figures["error_where_both"], 4) for figures in (facenet, ours))
            most("truth: landmark error, not above facenet's", *errors)
    return rows + _goals_of_tracking(result.get("track", {}).get("total", {}))


def _goals_of_tracking(samplings: dict[str, Any]) -> list[tuple[str, str, float | None, bool]]:
    rows: list[tuple[str, str, float | None, bool]] = []

    def goal(what: str, sampling: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        met = value >= least if least is not None else value <= (most or 0)
        bound = f">= {least:g}" if least is not None else f"<= {most:g}"
        rows.append((f"track, {sampling}: {what}", bound, value, met))

    for sampling, of in samplings.items():
        goal("times as fast as facenet, in total", sampling, of["ratio"], least=15 if sampling == "every_1" else 5)
        if sampling == "every_1":
            slowest, name = min((value, name) for name, value in of["ratio_of_clip"].items())
            goal(f"times as fast as facenet, worst clip ({name})", sampling, slowest, least=10)
            poorest, name = min((value, name) for name, value in of["recall_of_clip"].items())
            goal(f"recall of facenet's strong faces, worst clip ({name})", sampling, poorest, least=0.95)
        goal("recall of facenet's strong faces, in total", sampling, of["recall"], least=0.98)
        goal("share that no full search confirms", sampling, of["unconfirmed"], most=0.01)
        goal("landmarks, mean over eyes' distance", sampling, of["landmarks_mean"], most=0.05)
    return rows
